#include "cc/control/session_wire.h"

#include <cstring>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "gtest/gtest.h"

namespace railhop::control {
namespace {

using State = SessionParser::State;

absl::Span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Secret SomeSecret(uint8_t first = 42) {
  Secret secret = {};
  secret[0] = first;
  return secret;
}

CallPayload SomeCall() {
  CallPayload call = {.caller = 11, .callee = 22, .connection = 33, .nonce = {}};
  call.nonce[2] = 7;
  return call;
}

Nonce SomeNonce() {
  Nonce nonce = {};
  nonce[5] = 9;
  return nonce;
}

AcceptPayload AcceptOf(const CallPayload& call, const Nonce& nonce) {
  return {.callee = call.callee,
          .caller = call.caller,
          .connection = call.connection,
          .caller_nonce = call.nonce,
          .nonce = nonce};
}

SessionKey SomeKey() {
  return DeriveSessionKey(SomeSecret(), SomeCall(), AcceptOf(SomeCall(), SomeNonce()));
}

SessionParser Parsed(const std::string& bytes, bool messages) {
  SessionParser parser;
  if (messages) parser.AllowMessages(kBatchBytesMax);
  parser.Take(BytesOf(bytes));
  return parser;
}

std::string SomeMessages(uint64_t counter = 1) {
  return EncodeMessages(BytesOf("a payload"), counter, SomeKey(), /*from_caller=*/true);
}

TEST(SessionWire, Greeting_RoundTrip) {
  SessionParser call = Parsed(EncodeCall(SomeCall(), SomeSecret()), false);
  ASSERT_EQ(call.state(), State::kComplete);
  EXPECT_TRUE(call.frame().IsAuthenticCall(SomeSecret()));
  EXPECT_FALSE(call.frame().IsAuthenticCall(SomeSecret(1)));
  ASSERT_TRUE(call.frame().AsCall().has_value());
  EXPECT_EQ(call.frame().AsCall()->callee, 22u);
  EXPECT_FALSE(call.frame().AsAccept().has_value());

  SessionParser accept = Parsed(EncodeAccept(SomeCall(), SomeNonce(), SomeSecret()), false);
  ASSERT_EQ(accept.state(), State::kComplete);
  EXPECT_TRUE(accept.frame().IsAuthenticAccept(SomeCall(), SomeSecret()));
  EXPECT_FALSE(accept.frame().IsAuthenticAccept(SomeCall(), SomeSecret(1)));
  CallPayload other = SomeCall();
  other.nonce[0] ^= 1;
  EXPECT_FALSE(accept.frame().IsAuthenticAccept(other, SomeSecret()));

  const RefusePayload refuse = {
      .instance = 5, .caller_nonce = SomeNonce(), .reason = RefuseReason::kOtherInstance};
  SessionParser refused = Parsed(EncodeRefuse(refuse), false);
  ASSERT_TRUE(refused.frame().AsRefuse().has_value());
  EXPECT_EQ(refused.frame().AsRefuse()->instance, 5u);
}

// Each of what goes into it changes the key.
TEST(SessionWire, Key_DependsOnAllOfTheGreeting) {
  const AcceptPayload accept = AcceptOf(SomeCall(), SomeNonce());
  std::vector<SessionKey> keys = {SomeKey()};
  CallPayload call = SomeCall();
  call.nonce[15] ^= 1;
  keys.push_back(DeriveSessionKey(SomeSecret(), call, accept));
  Nonce nonce = SomeNonce();
  nonce[15] ^= 1;
  keys.push_back(DeriveSessionKey(SomeSecret(), SomeCall(), AcceptOf(SomeCall(), nonce)));
  keys.push_back(DeriveSessionKey(SomeSecret(1), SomeCall(), accept));
  call = SomeCall();
  ++call.connection;
  keys.push_back(DeriveSessionKey(SomeSecret(), call, AcceptOf(call, SomeNonce())));
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << " " << j;
  }
}

TEST(SessionParser, AnyCut_SameFrame) {
  const std::string bytes = SomeMessages() + SomeMessages(2);
  const size_t one = SomeMessages().size();
  for (size_t cut = 0; cut <= one; ++cut) {
    SessionParser parser;
    parser.AllowMessages(kBatchBytesMax);
    ASSERT_EQ(parser.Take(BytesOf(bytes).subspan(0, cut)), cut);
    ASSERT_EQ(parser.state(), cut < one ? State::kIncomplete : State::kComplete);
    ASSERT_EQ(parser.Take(BytesOf(bytes).subspan(cut)), one - cut);
    ASSERT_EQ(parser.state(), State::kComplete);
    EXPECT_TRUE(parser.frame().IsAuthenticMessages(SomeKey(), true));
    EXPECT_EQ(parser.Take(BytesOf(bytes)), 0u);
    parser.Next();
    EXPECT_EQ(parser.Take(BytesOf(bytes).subspan(one)), one);
    EXPECT_EQ(parser.frame().header.counter, 2u);
  }
}

TEST(SessionFrame, AnyBitChanged_NotAuthentic) {
  const std::string good = SomeMessages();
  const std::string call = EncodeCall(SomeCall(), SomeSecret());
  const std::string accept = EncodeAccept(SomeCall(), SomeNonce(), SomeSecret());
  const auto flip = [](std::string bytes, size_t bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    return bytes;
  };
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    const SessionParser parser = Parsed(flip(good, bit), true);
    EXPECT_FALSE(parser.state() == State::kComplete &&
                 parser.frame().IsAuthenticMessages(SomeKey(), true))
        << bit;
  }
  for (size_t bit = 0; bit < call.size() * 8; ++bit) {
    const SessionParser parser = Parsed(flip(call, bit), false);
    EXPECT_FALSE(parser.state() == State::kComplete && parser.frame().IsAuthenticCall(SomeSecret()))
        << bit;
  }
  for (size_t bit = 0; bit < accept.size() * 8; ++bit) {
    const SessionParser parser = Parsed(flip(accept, bit), false);
    EXPECT_FALSE(parser.state() == State::kComplete &&
                 parser.frame().IsAuthenticAccept(SomeCall(), SomeSecret()))
        << bit;
  }
}

TEST(SessionFrame, OtherDirectionOrSession_NotAuthentic) {
  const SessionParser parser = Parsed(SomeMessages(), true);
  EXPECT_TRUE(parser.frame().IsAuthenticMessages(SomeKey(), true));
  EXPECT_FALSE(parser.frame().IsAuthenticMessages(SomeKey(), false));
  SessionKey other = SomeKey();
  other[31] ^= 1;
  EXPECT_FALSE(parser.frame().IsAuthenticMessages(other, true));
}

// What is out of place is junk before its payload has come.
TEST(SessionParser, OutOfPlace_JunkAtOnce) {
  EXPECT_EQ(Parsed(SomeMessages().substr(0, 24), false).state(), State::kJunk);
  EXPECT_EQ(Parsed(EncodeCall(SomeCall(), SomeSecret()).substr(0, 24), true).state(), State::kJunk);
  EXPECT_EQ(Parsed("G", false).state(), State::kJunk);
  const auto with = [](size_t offset, auto value, bool messages) {
    std::string bytes =
        (messages ? SomeMessages() : EncodeCall(SomeCall(), SomeSecret())).substr(0, 24);
    memcpy(bytes.data() + offset, &value, sizeof(value));
    return Parsed(bytes, messages).state();
  };
  EXPECT_EQ(with(4, static_cast<uint16_t>(kProtocolVersion + 1), true), State::kJunk);
  EXPECT_EQ(with(6, uint16_t{0}, false), State::kJunk);
  EXPECT_EQ(with(6, uint16_t{5}, false), State::kJunk);
  EXPECT_EQ(with(8, uint32_t{kGreetingBytesMax + 1}, false), State::kJunk);
  EXPECT_EQ(with(8, static_cast<uint32_t>(kBatchBytesMax + 1), true), State::kJunk);
  EXPECT_EQ(with(8, static_cast<uint32_t>(kBatchBytesMax), true), State::kIncomplete);
  EXPECT_EQ(with(12, uint32_t{1}, true), State::kJunk);
}

// A stranger's bytes, whatever they are: no crash, and no more is kept than a greeting has.
TEST(SessionParser, AnyBytes_NeverTakesMoreThanAFrame) {
  Prng prng(3);
  const std::string good[] = {EncodeCall(SomeCall(), SomeSecret()),
                              EncodeAccept(SomeCall(), SomeNonce(), SomeSecret()), SomeMessages()};
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good[prng.Below(3)];
    for (uint64_t i = prng.Below(4); i > 0; --i) {
      bytes[prng.Below(32)] = static_cast<char>(prng.Next());
    }
    if (prng.Chance(0.2)) bytes.resize(prng.Below(bytes.size() + 1));
    SessionParser parser;
    size_t taken = 0;
    for (int i = 0; i < 20; ++i) taken += parser.Take(BytesOf(bytes));
    EXPECT_LE(taken, sizeof(SessionHeader) + kGreetingBytesMax + kDigestBytes);
    if (parser.state() != State::kComplete) continue;
    // Only readers of the right form give something.
    EXPECT_LE(parser.frame().AsCall().has_value() + parser.frame().AsAccept().has_value() +
                  parser.frame().AsRefuse().has_value(),
              1);
  }
}

}  // namespace
}  // namespace railhop::control
