// Writes genuine inputs of the binary formats: seeds FOLDER makes FOLDER/codec/...,
// FOLDER/handshake and FOLDER/session_wire. Random bytes would hardly find their way through marks
// and lengths.
#include <arpa/inet.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "cc/control/codec.h"
#include "cc/control/handshake.h"
#include "cc/control/session_wire.h"
#include "cc/control/testing/message_fields.h"

namespace railhop::fuzz {
namespace {

std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void Write(const std::filesystem::path& folder, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << bytes;
}

void WriteMessages(const std::filesystem::path& folder) {
  std::string all;
  int kind = 0;
  for (const engine::Message& message : control::testing::FullMessages()) {
    const std::string name = control::MessageName(message);
    Write(folder, "fields_" + name, std::string("\1") + static_cast<char>(kind++) + "\2\1\1\1");
    const auto encoded = control::EncodeMessage(message);
    if (!encoded.ok()) continue;
    Write(folder, "batch_" + name, std::string(1, '\0') + *encoded);
    all += *encoded;
  }
  Write(folder, "batch_all", std::string(1, '\0') + all);
}

control::EndDescription End() {
  control::EndDescription end;
  end.plugin_version = "0.1.0";
  end.host = "alpha";
  end.epoch = 1;
  end.failover = true;
  control::SocketAddress address = {};
  address.ipv4.sin_family = AF_INET;
  address.ipv4.sin_port = htons(4711);
  address.ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  end.control_addresses = {address};
  address.ipv6.sin6_family = AF_INET6;
  end.control_addresses.push_back(address);
  end.devices.resize(2);
  for (control::DeviceDescription& device : end.devices) device.mtu = 5;
  end.devices[0].name = "mlx5_0";
  end.lanes.resize(3);
  return end;
}

void WriteHandshake(const std::filesystem::path& folder) {
  const std::vector<uint8_t> end = control::EncodeEnd(End());
  const std::vector<uint8_t> reject = control::EncodeReject("0.1.0", "not tonight");
  const std::string payload("\0\1", 2);
  const std::string stream("\x41\1", 2);
  Write(folder, "end", payload + Text(end));
  Write(folder, "reject", payload + Text(reject));
  const std::vector<uint8_t> hello =
      control::EncodeFrame(control::MessageType::kHello, 17, end, control::Authenticator{});
  const std::vector<uint8_t> no =
      control::EncodeFrame(control::MessageType::kReject, 17, reject, control::Authenticator{});
  Write(folder, "hello", stream + Text(hello));
  Write(folder, "hello_and_reject", stream + Text(hello) + Text(no));
}

void WriteSession(const std::filesystem::path& folder) {
  const std::string greeting("\x40\1", 2);
  const std::string messages("\x41\1", 2);
  const control::CallPayload call = {.caller = {}, .callee = {}, .connection = 3, .nonce = {4}};
  const control::Secret secret = {1};
  const std::string payload(40, 'p');
  Write(folder, "call", greeting + control::EncodeCall(call, secret));
  Write(folder, "accept", greeting + control::EncodeAccept(call, {5}, secret));
  const control::RefusePayload refuse = {
      .instance = {}, .caller_nonce = {4}, .reason = control::RefuseReason::kOtherInstance};
  Write(folder, "refuse", greeting + control::EncodeRefuse(refuse));
  std::string stream;
  for (uint64_t counter = 1; counter < 4; ++counter) {
    stream += control::EncodeMessages(Bytes(payload.substr(0, counter * 10)), counter,
                                      control::SessionKey{2}, true);
  }
  Write(folder, "messages", messages + stream);
  Write(folder, "heartbeat",
        messages + control::EncodeMessages({}, 1, control::SessionKey{2}, true));
}

}  // namespace
}  // namespace railhop::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: seeds FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  railhop::fuzz::WriteMessages(folder / "codec");
  railhop::fuzz::WriteHandshake(folder / "handshake");
  railhop::fuzz::WriteSession(folder / "session_wire");
  return 0;
}
