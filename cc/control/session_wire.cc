#include "cc/control/session_wire.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/string_view.h"

namespace railhop::control {
namespace {

// A parser keeps no more room than this between frames: there is one for each peer.
constexpr size_t kKeptBytes = 16384;

static_assert(std::endian::native == std::endian::little);

// What a code is about, so that none can stand for another. The handshake's begin with a byte of 1
// or 2.
constexpr absl::string_view kCallLabel = "railhop control call";
constexpr absl::string_view kAcceptLabel = "railhop control accept";
constexpr absl::string_view kKeyLabel = "railhop control key";

template <typename T>
absl::Span<const uint8_t> BytesOf(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof(value)};
}

absl::Span<const uint8_t> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

SessionHeader HeaderOf(SessionFrameType type, size_t payload_bytes, uint64_t counter) {
  return {.mark = kSessionMark,
          .protocol_version = kProtocolVersion,
          .type = static_cast<uint16_t>(type),
          .payload_bytes = static_cast<uint32_t>(payload_bytes),
          .reserved = 0,
          .counter = counter};
}

void Append(absl::Span<const uint8_t> bytes, std::string* out) {
  out->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string Assemble(const SessionHeader& header, absl::Span<const uint8_t> payload,
                     const Digest& code) {
  std::string out;
  out.reserve(sizeof(header) + payload.size() + code.size());
  Append(BytesOf(header), &out);
  Append(payload, &out);
  Append(code, &out);
  return out;
}

Digest CallCode(const Secret& secret, const SessionHeader& header,
                absl::Span<const uint8_t> payload) {
  HmacSha256 hmac(secret);
  hmac.Update(BytesOf(kCallLabel));
  hmac.Update(BytesOf(header));
  hmac.Update(payload);
  return hmac.Finish();
}

Digest AcceptCode(const Secret& secret, const CallPayload& call, const SessionHeader& header,
                  absl::Span<const uint8_t> payload) {
  HmacSha256 hmac(secret);
  hmac.Update(BytesOf(kAcceptLabel));
  hmac.Update(BytesOf(call));
  hmac.Update(BytesOf(header));
  hmac.Update(payload);
  return hmac.Finish();
}

Digest MessagesCode(const SessionKey& key, bool from_caller, const SessionHeader& header,
                    absl::Span<const uint8_t> payload) {
  const uint8_t direction = from_caller ? 1 : 2;
  HmacSha256 hmac(key);
  hmac.Update({&direction, 1});
  hmac.Update(BytesOf(header));
  hmac.Update(payload);
  return hmac.Finish();
}

template <typename T>
std::optional<T> As(const SessionFrame& frame, SessionFrameType type) {
  if (frame.type() != type || frame.payload.size() != sizeof(T)) return std::nullopt;
  T value;
  memcpy(&value, frame.payload.data(), sizeof(value));
  return value;
}

bool IsKnown(uint16_t type) {
  return type >= static_cast<uint16_t>(SessionFrameType::kCall) &&
         type <= static_cast<uint16_t>(SessionFrameType::kMessages);
}

}  // namespace

SessionKey DeriveSessionKey(const Secret& secret, const CallPayload& call,
                            const AcceptPayload& accept) {
  HmacSha256 hmac(secret);
  hmac.Update(BytesOf(kKeyLabel));
  hmac.Update(BytesOf(call));
  hmac.Update(BytesOf(accept));
  return hmac.Finish();
}

std::string EncodeCall(const CallPayload& call, const Secret& secret) {
  const SessionHeader header = HeaderOf(SessionFrameType::kCall, sizeof(call), 0);
  return Assemble(header, BytesOf(call), CallCode(secret, header, BytesOf(call)));
}

std::string EncodeAccept(const CallPayload& call, const Nonce& nonce, const Secret& secret) {
  const AcceptPayload accept = {.callee = call.callee,
                                .caller = call.caller,
                                .connection = call.connection,
                                .caller_nonce = call.nonce,
                                .nonce = nonce};
  const SessionHeader header = HeaderOf(SessionFrameType::kAccept, sizeof(accept), 0);
  return Assemble(header, BytesOf(accept), AcceptCode(secret, call, header, BytesOf(accept)));
}

std::string EncodeRefuse(const RefusePayload& refuse) {
  return Assemble(HeaderOf(SessionFrameType::kRefuse, sizeof(refuse), 0), BytesOf(refuse), {});
}

std::string EncodeMessages(absl::Span<const uint8_t> payload, uint64_t counter,
                           const SessionKey& key, bool from_caller) {
  const SessionHeader header = HeaderOf(SessionFrameType::kMessages, payload.size(), counter);
  return Assemble(header, payload, MessagesCode(key, from_caller, header, payload));
}

std::optional<CallPayload> SessionFrame::AsCall() const {
  return As<CallPayload>(*this, SessionFrameType::kCall);
}

std::optional<AcceptPayload> SessionFrame::AsAccept() const {
  return As<AcceptPayload>(*this, SessionFrameType::kAccept);
}

std::optional<RefusePayload> SessionFrame::AsRefuse() const {
  return As<RefusePayload>(*this, SessionFrameType::kRefuse);
}

bool SessionFrame::IsAuthenticCall(const Secret& secret) const {
  return DigestsEqual(CallCode(secret, header, payload), code);
}

bool SessionFrame::IsAuthenticAccept(const CallPayload& call, const Secret& secret) const {
  const std::optional<AcceptPayload> accept = AsAccept();
  return accept.has_value() && accept->callee == call.callee && accept->caller == call.caller &&
         accept->connection == call.connection && accept->caller_nonce == call.nonce &&
         DigestsEqual(AcceptCode(secret, call, header, payload), code);
}

bool SessionFrame::IsAuthenticMessages(const SessionKey& key, bool from_caller) const {
  return type() == SessionFrameType::kMessages &&
         DigestsEqual(MessagesCode(key, from_caller, header, payload), code);
}

size_t SessionParser::Take(absl::Span<const uint8_t> data) {
  size_t taken = 0;
  while (state_ == State::kIncomplete && taken < data.size()) {
    const size_t n = std::min(wanted_ - bytes_.size(), data.size() - taken);
    bytes_.insert(bytes_.end(), data.begin() + static_cast<ptrdiff_t>(taken),
                  data.begin() + static_cast<ptrdiff_t>(taken + n));
    taken += n;
    Inspect();
  }
  return taken;
}

void SessionParser::Inspect() {
  // Junk is known by its first bytes: nobody waits for the rest of it.
  const size_t mark_bytes = std::min(bytes_.size(), sizeof(kSessionMark));
  if (memcmp(bytes_.data(), &kSessionMark, mark_bytes) != 0) {
    state_ = State::kJunk;
    return;
  }
  if (bytes_.size() < sizeof(SessionHeader)) return;
  SessionHeader& header = frame_.header;
  memcpy(&header, bytes_.data(), sizeof(header));
  const bool is_messages = frame_.type() == SessionFrameType::kMessages;
  const size_t most = is_messages ? messages_max_ : kGreetingBytesMax;
  if (header.protocol_version != kProtocolVersion || !IsKnown(header.type) ||
      header.reserved != 0 || header.payload_bytes > most || is_messages != messages_allowed_) {
    state_ = State::kJunk;
    return;
  }
  wanted_ = sizeof(header) + header.payload_bytes + kDigestBytes;
  if (bytes_.size() < wanted_) return;
  const auto payload = bytes_.begin() + sizeof(header);
  const auto code = payload + header.payload_bytes;
  frame_.payload.assign(payload, code);
  std::copy(code, code + kDigestBytes, frame_.code.begin());
  state_ = State::kComplete;
}

void SessionParser::Next() {
  if (state_ != State::kComplete) return;
  bytes_.clear();
  if (bytes_.capacity() > kKeptBytes) bytes_.shrink_to_fit();
  wanted_ = sizeof(SessionHeader);
  state_ = State::kIncomplete;
  frame_ = {};
}

}  // namespace railhop::control
