// Calls one peer until there is a session: its addresses in turn, by the secrets of the connections
// with it in turn, with pauses that grow; and keeps the evidence of whether the peer is dead.
//
//   pausing --TCP--> connecting --CALL--> calling --ACCEPT--> a link with a key
//      ^---- refused, silent, another instance, connection unknown ----'
//
// Refusal says something about the peer, silence does not: a stopped process, a lost packet and a
// host without power look alike.
#ifndef RAILHOP_CC_CONTROL_SESSION_CALLER_H_
#define RAILHOP_CC_CONTROL_SESSION_CALLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/control/handle.h"
#include "cc/control/lane_carrier.h"
#include "cc/control/lane_stream.h"
#include "cc/control/session_link.h"
#include "cc/control/session_wire.h"
#include "cc/control/socket_address.h"
#include "cc/control/socket_config.h"
#include "cc/engine/ids.h"

namespace railhop::control {

// Connections with a peer, and how many ends of each are here: two if the peer is this process.
struct SharedConnection {
  Secret secret = {};
  int ends = 0;
};
using SharedConnections = std::map<engine::ConnectionId, SharedConnection>;

// Not thread-safe.
class SessionCaller {
 public:
  // What all callers of a process have in common; outlives them.
  struct Setup {
    engine::InstanceId self = 0;
    SocketConfig sockets;
    PollSet* polls = nullptr;
    LaneStreams* lanes = nullptr;  // may be null
    Prng* prng = nullptr;
  };

  SessionCaller(const Setup& setup, engine::InstanceId peer) : setup_(setup), peer_(peer) {}

  // Where the peer can be called. What is known of addresses that stay is kept.
  void SetAddresses(const std::vector<SocketAddress>& addresses);
  // A call from there has led to the peer.
  void Reached(const SocketAddress& address);

  // Calls from `at_ns` on. `fresh`: all that was known of refusals is of the past. `eager`: with
  // short pauses again.
  void Start(int64_t at_ns, bool fresh, bool eager);
  // There is news that makes a call worth while: a pause ends soon. A call under way goes on.
  void Hurry(int64_t now_ns);
  void Stop();
  // While a session over a lane is there only TCP is wanted.
  void AvoidLanes(bool avoid) { avoid_lanes_ = avoid; }

  // A link that the peer has accepted, with its key, or null.
  std::unique_ptr<SessionLink> Step(int64_t now_ns, const SharedConnections& connections);
  // When Step is wanted though nothing comes in; INT64_MAX = never.
  int64_t next_due() const;

  // Whether every address that counts has refused since the last fresh start: those that have ever
  // led to the peer, if there are any and the others do not answer either; else all.
  bool AllRefused() const;
  // What came of the last calls, for a person: "10.0.0.1:4711: connection refused; ..."
  std::string Evidence() const;

 private:
  enum class State : uint8_t { kStopped, kPausing, kConnecting, kCalling };
  enum class Outcome : uint8_t { kUntried, kRefused, kSilent, kThere };

  struct Target {
    SocketAddress address;
    bool reached = false;  // has led to the peer
    Outcome outcome = Outcome::kUntried;
    std::string text;
  };

  void Begin(int64_t now_ns);
  void BeginOverLane(int64_t now_ns);
  void Connecting(int64_t now_ns, const SharedConnections& connections);
  std::unique_ptr<SessionLink> Calling(int64_t now_ns);
  std::unique_ptr<SessionLink> TakeAnswer(int64_t now_ns);
  void SendCall(int64_t now_ns, const SharedConnections& connections);
  // This address came to nothing: the next one, or a pause.
  void Failed(int64_t now_ns, Outcome outcome, const std::string& text);
  void Pause(int64_t now_ns);
  bool OverLane() const { return target_ == targets_.size(); }
  int64_t Patience() const;

  const Setup& setup_;
  const engine::InstanceId peer_;
  std::vector<Target> targets_;
  bool avoid_lanes_ = false;

  State state_ = State::kStopped;
  int64_t due_ = 0;      // pausing: until; else the deadline
  int round_ = 0;        // of all addresses, without success
  size_t target_ = 0;    // index; size() = over a lane
  int same_target_ = 0;  // calls in this turn, each by another connection
  engine::ConnectionId last_connection_ = 0;
  std::unique_ptr<SessionLink> link_;
  CallPayload call_ = {};
  Secret secret_ = {};
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_SESSION_CALLER_H_
