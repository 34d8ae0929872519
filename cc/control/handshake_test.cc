#include "cc/control/handshake.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "gtest/gtest.h"

namespace railhop::control {
namespace {

SocketAddress SomeAddress(size_t i) {
  SocketAddress address = {};
  if (i % 2 == 0) {
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_port = htons(4711);
    address.ipv4.sin_addr.s_addr = htonl(0x0a000000 + static_cast<uint32_t>(i));
  } else {
    address.ipv6.sin6_family = AF_INET6;
    address.ipv6.sin6_port = htons(4712);
    address.ipv6.sin6_addr.s6_addr[0] = 0xfe;
    address.ipv6.sin6_addr.s6_addr[15] = static_cast<uint8_t>(i);
    address.ipv6.sin6_scope_id = 3;
  }
  return address;
}

EndDescription SomeEnd(size_t devices, size_t lanes) {
  EndDescription end;
  end.nonce[3] = 7;
  end.plugin_version = "1.2.3";
  end.instance_id = 0x1122334455667788;
  end.host = "node-17";
  end.epoch = 3;
  end.memory_address = 0x7f0011223344;
  end.service_level = 5;
  end.traffic_class = 106;
  end.failover = true;
  end.confirm = true;
  for (size_t i = 0; i < devices % 5; ++i) {
    end.control_addresses.push_back(SomeAddress(i));
  }
  for (size_t i = 0; i < devices; ++i) {
    DeviceDescription device;
    device.name = "mlx5_" + std::to_string(i);
    device.port = 2;
    device.is_ethernet = i % 2 == 0;
    device.mtu = 5;
    device.lid = 17;
    device.rail = static_cast<int16_t>(i) - 1;
    device.gid[15] = static_cast<uint8_t>(i);
    device.control_key = 0x1000 + static_cast<uint32_t>(i);
    end.devices.push_back(device);
  }
  for (size_t i = 0; i < lanes; ++i) {
    end.lanes.push_back({.qp_number = static_cast<uint32_t>(i) + 1,
                         .start_psn = 0xffffff,
                         .ece_vendor = 0x15b3,
                         .ece_options = 0x30000002,
                         .ece_mask = 0});
  }
  return end;
}

Authenticator SomeAuth() {
  Authenticator auth;
  auth.secret[0] = 42;
  auth.peer_nonce[1] = 9;
  return auth;
}

TEST(EndDescription, EncodeThenDecode_Same) {
  for (const size_t devices : {1u, 2u, 8u}) {
    for (const size_t lanes : {1u, 5u, 128u}) {
      const EndDescription end = SomeEnd(devices, lanes);
      const absl::StatusOr<EndDescription> back = DecodeEnd(EncodeEnd(end));
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(*back, end);
      EXPECT_LT(EncodeEnd(end).size(), kPayloadBytesMax);
    }
  }
}

TEST(EndDescription, CutAnywhere_Refused) {
  const std::vector<uint8_t> bytes = EncodeEnd(SomeEnd(2, 3));
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(DecodeEnd(absl::MakeSpan(bytes).subspan(0, n)).ok()) << n;
  }
}

TEST(EndDescription, BytesLeftOver_Refused) {
  std::vector<uint8_t> bytes = EncodeEnd(SomeEnd(1, 1));
  bytes.push_back(0);
  EXPECT_FALSE(DecodeEnd(bytes).ok());
}

TEST(EndDescription, OutOfRange_RefusedByName) {
  EndDescription end = SomeEnd(1, 1);
  end.devices[0].mtu = 6;
  EXPECT_NE(DecodeEnd(EncodeEnd(end)).status().message().find("mtu"), std::string::npos);
  end = SomeEnd(1, 1);
  end.lanes[0].qp_number = 1 << 24;
  EXPECT_NE(DecodeEnd(EncodeEnd(end)).status().message().find("qp_number"), std::string::npos);
  end = SomeEnd(1, 1);
  end.control_addresses[0].ipv4.sin_port = 0;
  EXPECT_NE(DecodeEnd(EncodeEnd(end)).status().message().find("control address is 10.0.0.0:0"),
            std::string::npos);
  EXPECT_FALSE(DecodeEnd(EncodeEnd(SomeEnd(0, 1))).ok());
  EXPECT_FALSE(DecodeEnd(EncodeEnd(SomeEnd(9, 1))).ok());
  EXPECT_FALSE(DecodeEnd(EncodeEnd(SomeEnd(1, 0))).ok());
  EXPECT_FALSE(DecodeEnd(EncodeEnd(SomeEnd(1, 129))).ok());
}

// More addresses than there is room for are those that matter least.
// A peer need not end a text with a zero; ours always do.
TEST(EndDescription, TextsWithoutAnEnd_AreAsLongAsOursCanBe) {
  std::vector<uint8_t> payload = EncodeEnd(SomeEnd(1, 1));
  constexpr size_t kVersionAt = kNonceBytes;
  constexpr size_t kHostAt = kVersionAt + 32 + 8;
  std::fill_n(payload.begin() + kVersionAt, 32, 'v');
  std::fill_n(payload.begin() + kHostAt, 64, 'h');
  const absl::StatusOr<EndDescription> end = DecodeEnd(payload);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->plugin_version, std::string(31, 'v'));
  EXPECT_EQ(end->host, std::string(63, 'h'));
  const absl::StatusOr<EndDescription> again = DecodeEnd(EncodeEnd(*end));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *end);
}

TEST(EndDescription, RailBelowMinusOne_IsNotKnown) {
  EndDescription end = SomeEnd(1, 1);
  end.devices[0].rail = -5;
  const absl::StatusOr<EndDescription> read = DecodeEnd(EncodeEnd(end));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->devices[0].rail, -1);
}

TEST(EndDescription, MoreAddressesThanFit_TheFirstAreSent) {
  EndDescription end = SomeEnd(1, 1);
  end.control_addresses.clear();
  for (size_t i = 0; i < kControlAddressesMax + 3; ++i) {
    end.control_addresses.push_back(SomeAddress(i));
  }
  const absl::StatusOr<EndDescription> back = DecodeEnd(EncodeEnd(end));
  ASSERT_TRUE(back.ok()) << back.status();
  end.control_addresses.resize(kControlAddressesMax);
  EXPECT_EQ(*back, end);
}

// Any bytes: no crash (the sanitizers watch), and what is accepted is in range.
TEST(EndDescription, AnyBytes_RefusedOrInRange) {
  Prng prng(1);
  const std::vector<uint8_t> good = EncodeEnd(SomeEnd(3, 4));
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bytes = good;
    const uint64_t changes = prng.Below(8);
    for (uint64_t i = 0; i < changes; ++i) {
      bytes[prng.Below(bytes.size())] = static_cast<uint8_t>(prng.Next());
    }
    if (prng.Chance(0.2)) bytes.resize(prng.Below(2 * bytes.size()));
    const absl::StatusOr<EndDescription> end = DecodeEnd(bytes);
    if (!end.ok()) continue;
    EXPECT_GE(end->devices.size(), 1u);
    EXPECT_LE(end->devices.size(), 8u);
    EXPECT_LE(end->lanes.size(), 128u);
    EXPECT_LT(end->host.size(), 64u);
    EXPECT_LE(end->control_addresses.size(), kControlAddressesMax);
    for (const SocketAddress& address : end->control_addresses) {
      EXPECT_NE(AddressLength(address), 0u);
    }
  }
}

TEST(FrameParser, AnyCut_SameFrame) {
  const Authenticator auth = SomeAuth();
  const std::vector<uint8_t> bytes =
      EncodeFrame(MessageType::kHello, 5, EncodeEnd(SomeEnd(1, 1)), auth);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    FrameParser parser;
    EXPECT_EQ(parser.Take(absl::MakeSpan(bytes).subspan(0, cut)), cut);
    EXPECT_EQ(parser.Take(absl::MakeSpan(bytes).subspan(cut)), bytes.size() - cut);
    ASSERT_EQ(parser.state(), FrameParser::State::kComplete);
    EXPECT_TRUE(parser.frame().IsAuthentic(auth));
    EXPECT_EQ(parser.frame().header.listener_id, 5u);
  }
}

TEST(FrameParser, TwoFrames_TakesOneAtATime) {
  std::vector<uint8_t> bytes = EncodeFrame(MessageType::kReady, 1, {}, SomeAuth());
  const size_t one = bytes.size();
  bytes.insert(bytes.end(), bytes.begin(), bytes.end());
  FrameParser parser;
  EXPECT_EQ(parser.Take(bytes), one);
  EXPECT_EQ(parser.state(), FrameParser::State::kComplete);
  EXPECT_EQ(parser.Take(bytes), 0u);
}

TEST(FrameParser, Junk_KnownAfterEightBytes) {
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  FrameParser parser;
  parser.Take({reinterpret_cast<const uint8_t*>(request.data()), request.size()});
  EXPECT_EQ(parser.state(), FrameParser::State::kJunk);
  uint64_t first;
  memcpy(&first, request.data(), sizeof(first));
  EXPECT_TRUE(parser.BeginsWith(first));
  EXPECT_FALSE(parser.BeginsWith(first + 1));
}

TEST(FrameParser, PayloadTooLong_Junk) {
  std::vector<uint8_t> bytes = EncodeFrame(MessageType::kReady, 1, {}, SomeAuth());
  const uint32_t too_long = kPayloadBytesMax + 1;
  memcpy(bytes.data() + 12, &too_long, sizeof(too_long));
  FrameParser parser;
  parser.Take(bytes);
  EXPECT_EQ(parser.state(), FrameParser::State::kJunk);
}

TEST(FrameParser, AnyBytes_NeverTakesMoreThanAFrame) {
  Prng prng(2);
  const std::vector<uint8_t> good =
      EncodeFrame(MessageType::kHello, 5, EncodeEnd(SomeEnd(1, 1)), SomeAuth());
  for (int round = 0; round < 5000; ++round) {
    std::vector<uint8_t> bytes = good;
    bytes[prng.Below(40)] = static_cast<uint8_t>(prng.Next());
    FrameParser parser;
    size_t taken = 0;
    for (int i = 0; i < 20; ++i) taken += parser.Take(bytes);
    EXPECT_LE(taken, sizeof(FrameHeader) + kPayloadBytesMax + kDigestBytes);
  }
}

TEST(Frame, AnyBitChanged_NotAuthentic) {
  const Authenticator auth = SomeAuth();
  const std::vector<uint8_t> payload = {1, 2, 3, 4, 5};
  const std::vector<uint8_t> good = EncodeFrame(MessageType::kReady, 77, payload, auth);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<uint8_t> bytes = good;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1 << bit % 8));
    FrameParser parser;
    parser.Take(bytes);
    EXPECT_FALSE(parser.state() == FrameParser::State::kComplete &&
                 parser.frame().IsAuthentic(auth))
        << bit;
  }
}

TEST(Frame, OtherSecretNonceOrDirection_NotAuthentic) {
  const Authenticator auth = SomeAuth();
  FrameParser parser;
  parser.Take(EncodeFrame(MessageType::kReady, 1, {}, auth));
  ASSERT_TRUE(parser.frame().IsAuthentic(auth));
  Authenticator other = auth;
  other.secret[5] ^= 1;
  EXPECT_FALSE(parser.frame().IsAuthentic(other));
  other = auth;
  other.peer_nonce[5] ^= 1;
  EXPECT_FALSE(parser.frame().IsAuthentic(other));
  other = auth;
  other.from_listener = true;
  EXPECT_FALSE(parser.frame().IsAuthentic(other));
}

TEST(Reject, Encoded_TellsVersionAndReason) {
  const std::vector<uint8_t> payload = EncodeReject("9.9", "too\nold");
  const absl::StatusOr<Preamble> preamble = DecodePreamble(payload);
  ASSERT_TRUE(preamble.ok());
  EXPECT_EQ(preamble->plugin_version, "9.9");
  EXPECT_EQ(DecodeRejectReason(payload), "too?old");
  EXPECT_EQ(DecodeRejectReason({}), "");
}

// A later version keeps header, code and preamble: what this version reads of its HELLO.
TEST(Preamble, HelloOfALaterVersion_CanBeRead) {
  std::vector<uint8_t> payload = EncodeEnd(SomeEnd(1, 1));
  payload.resize(payload.size() + 100);
  const Authenticator auth = SomeAuth();
  FrameParser parser;
  parser.Take(EncodeFrame(MessageType::kHello, 1, payload, auth, kProtocolVersion + 1));
  ASSERT_EQ(parser.state(), FrameParser::State::kComplete);
  EXPECT_TRUE(parser.frame().IsAuthentic(auth));
  EXPECT_EQ(parser.frame().header.protocol_version, kProtocolVersion + 1);
  EXPECT_EQ(DecodePreamble(parser.frame().payload)->plugin_version, "1.2.3");
}

}  // namespace
}  // namespace railhop::control
