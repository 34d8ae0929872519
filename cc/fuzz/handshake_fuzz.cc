// The connection handshake: a stranger's frames, and what an authenticated peer may put into one.
//
// First byte: bit 0, whether the rest is a stream or the payload of one frame; the upper half, the
// size of the pieces - 1. Second: which bit of a genuine frame is turned.
#include <cstring>
#include <vector>

#include "cc/control/handle.h"
#include "cc/control/handshake.h"
#include "cc/fuzz/input.h"

namespace railhop::fuzz {
namespace {

using control::Authenticator;
using control::EndDescription;
using control::Frame;
using control::FrameParser;

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void RequireText(const std::string& text, size_t most, const char* what) {
  Require(text.size() <= most && IsPrintable(text), what, text);
}

void CheckRanges(const EndDescription& end) {
  RequireText(end.plugin_version, 31, "a version has at most 31 printable bytes");
  RequireText(end.host, 63, "a host's name has at most 63 printable bytes");
  Require(end.service_level <= 15, "a service level has 4 bits");
  Require(end.control_addresses.size() <= control::kControlAddressesMax, "addresses are few");
  Require(!end.devices.empty() && end.devices.size() <= 8, "1 to 8 devices");
  Require(!end.lanes.empty() && end.lanes.size() <= 128, "1 to 128 lanes");
  for (const control::DeviceDescription& device : end.devices) {
    RequireText(device.name, 63, "a device's name has at most 63 printable bytes");
    Require(device.mtu >= 1 && device.mtu <= 5, "an MTU is an ibv_mtu");
    Require(device.port >= 1, "ports begin at 1");
    Require(device.rail >= -1, "a rail is a number or -1");
  }
  for (const control::LaneDescription& lane : end.lanes) {
    Require(lane.qp_number < 1u << 24 && lane.start_psn < 1u << 24, "24 bits");
  }
}

void CheckEnd(std::string_view payload) {
  const absl::StatusOr<EndDescription> end = control::DecodeEnd(Bytes(payload));
  if (!end.ok()) {
    const std::string message(end.status().message());
    RequireReadable(message);
    Require(message.starts_with("handshake: "), "an error says what it is about", message);
    return;
  }
  CheckRanges(*end);
  const std::vector<uint8_t> encoded = control::EncodeEnd(*end);
  Require(encoded.size() == payload.size(), "what is read and written is as long");
  const absl::StatusOr<EndDescription> again = control::DecodeEnd(encoded);
  Require(again.ok() && *again == *end, "what is read, written and read is the same");
}

void CheckPayload(std::string_view payload) {
  CheckEnd(payload);
  const absl::StatusOr<control::Preamble> preamble = control::DecodePreamble(Bytes(payload));
  Require(preamble.ok() == (payload.size() >= 48), "48 bytes are a preamble");
  if (preamble.ok()) {
    RequireText(preamble->plugin_version, 31, "a version has at most 31 printable bytes");
  }
  const std::string reason = control::DecodeRejectReason(Bytes(payload));
  RequireText(reason, payload.size(), "a reason is no longer than what came");
  const std::vector<uint8_t> reject = control::EncodeReject("0.1", reason);
  Require(control::DecodeRejectReason(reject) == reason.substr(0, 511),
          "a reason that is written and read is the same");
}

struct Parsed {
  std::vector<Frame> frames;
  FrameParser::State state = FrameParser::State::kIncomplete;
};

Parsed Parse(std::string_view stream, size_t piece) {
  FrameParser parser;
  Parsed parsed;
  while (!stream.empty()) {
    const std::string_view data = stream.substr(0, piece);
    const size_t taken = parser.Take(Bytes(data));
    Require(taken <= data.size(), "no more is taken than was given");
    stream.remove_prefix(taken);
    if (parser.state() == FrameParser::State::kJunk) break;
    if (parser.state() == FrameParser::State::kComplete) {
      const Frame& frame = parser.frame();
      Require(frame.payload.size() == frame.header.payload_bytes &&
                  frame.payload.size() <= control::kPayloadBytesMax,
              "a payload is as long as said and allowed");
      parsed.frames.push_back(frame);
      parser.Reset();
      Require(parser.Empty(), "the next frame begins with nothing");
    } else {
      Require(taken == data.size(), "an unfinished frame takes all there is");
    }
  }
  parsed.state = parser.state();
  return parsed;
}

void CheckStream(std::string_view stream, size_t piece) {
  const Parsed whole = Parse(stream, stream.size());
  const Parsed pieces = Parse(stream, piece);
  Require(whole.state == pieces.state, "how bytes come in does not matter to the state");
  Require(whole.frames.size() == pieces.frames.size(), "nor to the number of frames");
  for (size_t i = 0; i < whole.frames.size(); ++i) {
    const Frame& a = whole.frames[i];
    const Frame& b = pieces.frames[i];
    Require(memcmp(&a.header, &b.header, sizeof(a.header)) == 0 && a.payload == b.payload &&
                a.code == b.code,
            "nor to the frames");
    Require(!a.IsAuthentic({.secret = {7}}), "no stranger's frame is authentic");
    CheckPayload({reinterpret_cast<const char*>(a.payload.data()), a.payload.size()});
  }
}

void CheckGenuine(std::string_view payload, size_t bit) {
  const Authenticator auth = {.secret = {1, 2, 3}, .from_listener = true, .peer_nonce = {4}};
  std::vector<uint8_t> bytes =
      control::EncodeFrame(control::MessageType::kReply, 17, Bytes(payload), auth);
  const auto view = [&bytes] {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const Parsed genuine = Parse(view(), bytes.size());
  Require(genuine.frames.size() == 1 && genuine.frames[0].IsAuthentic(auth),
          "a genuine frame is authentic");
  Authenticator other = auth;
  other.from_listener = false;
  Require(!genuine.frames[0].IsAuthentic(other), "in one direction");
  bit %= bytes.size() * 8;
  bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1 << (bit % 8)));
  for (const Frame& frame : Parse(view(), bytes.size()).frames) {
    Require(!frame.IsAuthentic(auth), "a changed frame is not authentic");
  }
}

void CheckHandle(std::string_view bytes) {
  control::Handle handle = {};
  if (!bytes.empty()) memcpy(&handle, bytes.data(), std::min(bytes.size(), sizeof(handle)));
  if (control::ClassifyHandle(handle) != control::HandleKind::kOurs) return;
  Require(handle.devices >= 1 && handle.devices <= 8, "our handles name 1 to 8 devices");
  Require(control::AddressLength(handle.address) != 0, "and an address");
}

}  // namespace
}  // namespace railhop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace railhop::fuzz;  // NOLINT(google-build-using-namespace): the entry of the program
  Input input(data, size);
  const uint8_t flags = input.Byte();
  const uint8_t bit = input.Byte();
  if ((flags & 1) != 0) {
    CheckStream(input.rest(), size_t{1} + (flags >> 4));
  } else {
    CheckPayload(input.rest());
  }
  CheckHandle(input.rest());
  CheckGenuine(input.rest().substr(0, 512), size_t{bit} * 7);
  return 0;
}
