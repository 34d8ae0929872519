// Frames of the control channel between two processes, and their authentication.
//
//   caller                                callee
//     | CALL: who, whom, connection, nonce -> |   code by that connection's secret
//     | <- ACCEPT: the same, its own nonce    |   or REFUSE, which nobody can prove
//     | MESSAGES 1, 2, ... ---------------->  |   code by the session's key, which hangs on both
//     nonces | <- MESSAGES 1, 2, ...                 |
//
// A frame is header, payload and code. Codes of MESSAGES cover direction and counter, so a frame
// that is repeated, left out, exchanged, sent back or from another session is none. A recorded CALL
// gets an ACCEPT and no further: the callee takes up the session with the first authentic MESSAGES.
//
// Every byte may be hostile. What a stranger can make us keep is kGreetingBytesMax.
#ifndef RAILHOP_CC_CONTROL_SESSION_WIRE_H_
#define RAILHOP_CC_CONTROL_SESSION_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cc/control/codec.h"
#include "cc/control/handle.h"
#include "cc/control/handshake.h"
#include "cc/control/sha256.h"
#include "cc/engine/ids.h"

namespace railhop::control {

inline constexpr uint32_t kSessionMark = 0x43434852;  // "RHCC"
// Payload of CALL, ACCEPT and REFUSE, at most.
inline constexpr uint32_t kGreetingBytesMax = 64;

enum class SessionFrameType : uint16_t { kCall = 1, kAccept = 2, kRefuse = 3, kMessages = 4 };

// Little-endian, as is all that follows.
struct SessionHeader {
  uint32_t mark;
  uint16_t protocol_version;
  uint16_t type;
  uint32_t payload_bytes;
  uint32_t reserved;  // 0
  uint64_t counter;   // MESSAGES: from 1 in each direction; else 0
};
static_assert(sizeof(SessionHeader) == 24);

// Who calls whom, and by which connection's secret it is proved.
struct CallPayload {
  engine::InstanceId caller;
  engine::InstanceId callee;
  engine::ConnectionId connection;
  Nonce nonce;
};
static_assert(sizeof(CallPayload) == 40);

struct AcceptPayload {
  engine::InstanceId callee;
  engine::InstanceId caller;
  engine::ConnectionId connection;
  Nonce caller_nonce;
  Nonce nonce;
};
static_assert(sizeof(AcceptPayload) == 56);

enum class RefuseReason : uint64_t {
  kOtherInstance = 1,      // whom you call is not here
  kUnknownConnection = 2,  // not here yet, or closed: try another
};

// Cannot be authenticated, as whoever sends it lacks the secret: a hint.
struct RefusePayload {
  engine::InstanceId instance;  // who is here
  Nonce caller_nonce;
  RefuseReason reason;
};
static_assert(sizeof(RefusePayload) == 32);

using SessionKey = Digest;

SessionKey DeriveSessionKey(const Secret& secret, const CallPayload& call,
                            const AcceptPayload& accept);

std::string EncodeCall(const CallPayload& call, const Secret& secret);
// `call` is the one that is answered.
std::string EncodeAccept(const CallPayload& call, const Nonce& nonce, const Secret& secret);
std::string EncodeRefuse(const RefusePayload& refuse);
// payload: a batch, at most kBatchBytesMax; an empty one is a heartbeat.
std::string EncodeMessages(absl::Span<const uint8_t> payload, uint64_t counter,
                           const SessionKey& key, bool from_caller);

// As it came in.
struct SessionFrame {
  SessionHeader header = {};
  std::vector<uint8_t> payload;
  Digest code = {};

  SessionFrameType type() const { return static_cast<SessionFrameType>(header.type); }
  // What it says, if it is of that type and form; not authenticated.
  std::optional<CallPayload> AsCall() const;
  std::optional<AcceptPayload> AsAccept() const;
  std::optional<RefusePayload> AsRefuse() const;

  bool IsAuthenticCall(const Secret& secret) const;
  // An answer to this call.
  bool IsAuthenticAccept(const CallPayload& call, const Secret& secret) const;
  bool IsAuthenticMessages(const SessionKey& key, bool from_caller) const;
};

// Takes bytes as they come and gives whole frames. Not thread-safe.
class SessionParser {
 public:
  enum class State : uint8_t {
    kIncomplete,
    kComplete,  // frame() is whole
    kJunk,      // these bytes are no frame; stays so
  };

  // Takes what belongs to the frame; returns how many bytes that was. None after kComplete or
  // kJunk.
  size_t Take(absl::Span<const uint8_t> data);
  State state() const { return state_; }
  const SessionFrame& frame() const { return frame_; }
  // To the next frame.
  void Next();
  // The greeting is over: only MESSAGES may come, with payloads of at most this many bytes.
  void AllowMessages(size_t payload_bytes_max) {
    messages_allowed_ = true;
    messages_max_ = payload_bytes_max;
  }

 private:
  void Inspect();

  bool messages_allowed_ = false;
  size_t messages_max_ = 0;
  std::vector<uint8_t> bytes_;
  size_t wanted_ = sizeof(SessionHeader);
  State state_ = State::kIncomplete;
  SessionFrame frame_;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_SESSION_WIRE_H_
