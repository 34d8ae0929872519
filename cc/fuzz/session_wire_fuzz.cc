// Frames of the control channel: bytes of a stranger into the parser, in pieces of any size.
//
// First byte: bit 0, whether the greeting is over; the upper half, the size of the pieces - 1.
// Second: which bit of a genuine frame is turned. The rest is the stream.
#include <cstring>
#include <vector>

#include "cc/control/session_wire.h"
#include "cc/fuzz/input.h"

namespace railhop::fuzz {
namespace {

using control::CallPayload;
using control::Nonce;
using control::Secret;
using control::SessionFrame;
using control::SessionKey;
using control::SessionParser;

constexpr size_t kPayloadBytesMax = 512;

absl::Span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A frame as it lies in the stream.
std::string Assembled(const SessionFrame& frame) {
  std::string bytes(reinterpret_cast<const char*>(&frame.header), sizeof(frame.header));
  bytes.append(frame.payload.begin(), frame.payload.end());
  bytes.append(frame.code.begin(), frame.code.end());
  return bytes;
}

struct Parsed {
  std::vector<SessionFrame> frames;
  SessionParser::State state = SessionParser::State::kIncomplete;
};

Parsed Parse(std::string_view stream, bool messages, size_t piece) {
  SessionParser parser;
  if (messages) parser.AllowMessages(kPayloadBytesMax);
  Parsed parsed;
  while (!stream.empty()) {
    const std::string_view data = stream.substr(0, piece);
    const size_t taken = parser.Take(Bytes(data));
    Require(taken <= data.size(), "no more is taken than was given");
    stream.remove_prefix(taken);
    if (parser.state() == SessionParser::State::kJunk) {
      Require(parser.Take(Bytes("more")) == 0, "nothing is taken after junk");
      break;
    }
    if (parser.state() == SessionParser::State::kComplete) {
      Require(parser.Take(Bytes("more")) == 0, "nothing is taken after a whole frame");
      parsed.frames.push_back(parser.frame());
      parser.Next();
    } else {
      Require(taken == data.size(), "an unfinished frame takes all there is");
    }
  }
  parsed.state = parser.state();
  return parsed;
}

void CheckFrame(const SessionFrame& frame, bool messages) {
  const size_t most = messages ? kPayloadBytesMax : control::kGreetingBytesMax;
  Require(frame.payload.size() <= most, "a payload is no longer than allowed");
  Require((frame.type() == control::SessionFrameType::kMessages) == messages,
          "greetings before, messages after");
  if (const auto call = frame.AsCall()) {
    const std::string again = control::EncodeCall(*call, Secret{9});
    Require(again.compare(sizeof(frame.header), frame.payload.size(),
                          Assembled(frame).substr(sizeof(frame.header), frame.payload.size())) == 0,
            "a call that is read and written is the same");
  }
  if (const auto refuse = frame.AsRefuse()) {
    const std::string again = control::EncodeRefuse(*refuse);
    Require(again.compare(sizeof(frame.header), frame.payload.size(),
                          Assembled(frame).substr(sizeof(frame.header), frame.payload.size())) == 0,
            "a refusal that is read and written is the same");
  }
  Require(!frame.IsAuthenticMessages(SessionKey{7}, true), "no stranger's messages are authentic");
  Require(!frame.IsAuthenticCall(Secret{7}), "no stranger's call is authentic");
}

void CheckStream(std::string_view stream, bool messages, size_t piece) {
  const Parsed whole = Parse(stream, messages, stream.size());
  const Parsed pieces = Parse(stream, messages, piece);
  Require(whole.state == pieces.state, "how bytes come in does not matter to the state");
  Require(whole.frames.size() == pieces.frames.size(), "nor to the number of frames");
  size_t at = 0;
  for (size_t i = 0; i < whole.frames.size(); ++i) {
    const std::string bytes = Assembled(whole.frames[i]);
    Require(bytes == Assembled(pieces.frames[i]), "nor to the frames");
    Require(stream.substr(at, bytes.size()) == bytes, "a frame is what came in");
    at += bytes.size();
    CheckFrame(whole.frames[i], messages);
  }
}

// Whoever has the key is believed, and nobody who has changed a bit or turned the frame round.
void CheckGenuine(std::string_view payload, size_t bit) {
  const SessionKey key = {1, 2, 3};
  std::string bytes = control::EncodeMessages(Bytes(payload), 5, key, true);
  const Parsed genuine = Parse(bytes, true, bytes.size());
  Require(genuine.frames.size() == 1, "a genuine frame is whole");
  Require(genuine.frames[0].IsAuthenticMessages(key, true), "and authentic");
  Require(!genuine.frames[0].IsAuthenticMessages(key, false), "in one direction");
  bit %= bytes.size() * 8;
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  for (const SessionFrame& frame : Parse(bytes, true, bytes.size()).frames) {
    Require(!frame.IsAuthenticMessages(key, true), "a changed frame is not authentic");
  }
}

void CheckGreeting(std::string_view numbers) {
  CallPayload call = {};
  if (!numbers.empty()) memcpy(&call, numbers.data(), std::min(numbers.size(), sizeof(call)));
  const Secret secret = {4, 5, 6};
  const Parsed called = Parse(control::EncodeCall(call, secret), false, 1000);
  Require(called.frames.size() == 1 && called.frames[0].IsAuthenticCall(secret),
          "a genuine call is authentic");
  const std::string answer = control::EncodeAccept(call, Nonce{1}, secret);
  const Parsed accepted = Parse(answer, false, 1000);
  Require(accepted.frames.size() == 1 && accepted.frames[0].IsAuthenticAccept(call, secret),
          "so is the answer to it");
  CallPayload other = call;
  other.nonce[0] = static_cast<uint8_t>(other.nonce[0] ^ 1);
  Require(!accepted.frames[0].IsAuthenticAccept(other, secret), "an answer is to one call");
}

}  // namespace
}  // namespace railhop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace railhop::fuzz;  // NOLINT(google-build-using-namespace): the entry of the program
  Input input(data, size);
  const uint8_t flags = input.Byte();
  const uint8_t bit = input.Byte();
  CheckStream(input.rest(), (flags & 1) != 0, size_t{1} + (flags >> 4));
  CheckGenuine(input.rest().substr(0, kPayloadBytesMax), size_t{bit} * 7);
  CheckGreeting(input.rest());
  return 0;
}
