// The control channel's listener, and those who have called and are no session yet.
//
// Anybody may call a port. A caller gets as far as an ACCEPT only with an authentic CALL, and
// becomes a session only with an authentic frame under the key that both nonces make: a recording
// gets there never. Until then it costs a descriptor and some hundred bytes, has ten seconds, and
// whatever it does is counted and dropped without a word.
#ifndef RAILHOP_CC_CONTROL_SESSION_DOOR_H_
#define RAILHOP_CC_CONTROL_SESSION_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/control/handle.h"
#include "cc/control/session_link.h"
#include "cc/control/session_wire.h"
#include "cc/control/socket_address.h"
#include "cc/control/socket_config.h"
#include "cc/control/tcp_socket.h"

namespace railhop::control {

// Callers that came to nothing.
struct DoorCounters {
  uint64_t junk = 0;         // said something that is no frame
  uint64_t forged = 0;       // knew a connection, but not its secret or the session's key
  uint64_t silent = 0;       // said too little for too long
  uint64_t gone = 0;         // left
  uint64_t refused = 0;      // wanted another process, or a connection that is not here
  uint64_t crowded_out = 0;  // dropped for newer ones
};

// Not thread-safe.
class SessionDoor {
 public:
  // The secret of a connection with that peer; null if there is none.
  using FindSecret =
      std::function<const Secret*(engine::InstanceId peer, engine::ConnectionId connection)>;

  // `polls` outlives it.
  SessionDoor(engine::InstanceId self, const SocketConfig& sockets, PollSet* polls)
      : self_(self), sockets_(sockets), polls_(polls) {}
  ~SessionDoor();

  // Listens at `address`, on a port that the system chooses. Errors: Internal.
  absl::Status Open(const SocketAddress& address);
  bool open() const { return listener_.open(); }
  // Port, in network order.
  uint16_t port() const;

  // The listener is readable.
  void Knocked() { knocked_ = true; }
  // A stranger who has come by another way.
  void Receive(std::unique_ptr<ByteStream> stream, int64_t now_ns);

  // A step for all. Links whose caller has proved that it is their `peer`, with the key set and
  // their first frame taken.
  std::vector<std::unique_ptr<SessionLink>> Step(int64_t now_ns, const FindSecret& find);
  // When Step is wanted though nothing comes in; INT64_MAX = never.
  int64_t next_due() const;

  const DoorCounters& counters() const { return counters_; }
  // Where the last forged frame came from; empty after it was asked for.
  std::string TakeForger();

 private:
  struct Caller {
    std::unique_ptr<SessionLink> link;
    int64_t until_ns = 0;
    engine::InstanceId peer = 0;  // ACCEPT is out; 0: CALL is awaited
  };
  enum class Verdict : uint8_t { kWait, kDrop, kConfirmed };

  void AcceptAll(int64_t now_ns);
  Verdict StepCaller(Caller* caller, int64_t now_ns, const FindSecret& find);
  Verdict TakeCall(Caller* caller, const FindSecret& find);
  Verdict TakeConfirm(Caller* caller);
  Verdict Refuse(Caller* caller, const CallPayload& call, RefuseReason reason);
  Verdict Forged(const Caller& caller);

  const engine::InstanceId self_;
  const SocketConfig sockets_;
  PollSet* const polls_;
  TcpSocket listener_;
  bool knocked_ = false;
  int64_t deaf_until_ns_ = 0;  // no descriptors: 0 = not deaf
  std::list<Caller> callers_;  // oldest first
  DoorCounters counters_;
  std::string forger_;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_SESSION_DOOR_H_
