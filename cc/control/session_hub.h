// Sessions with all peers of this process, over TCP and, where no TCP path is left, over a lane.
//
// Who calls: the process with the smaller instance id, at once; the other one too, but only after
// it has waited, in case it alone can reach the other. Should both get through, the smaller one's
// call wins at both ends: the smaller one takes a session that it was called for only if it has
// none that it called for itself, the larger one takes whatever was called for and is new.
//
// A session is lost when its stream breaks, when nothing was heard for the bound, when what comes
// is no frame that is due, or when the peer takes in too little for too long. Then it is made anew,
// over whichever address answers, for as long as there are connections with the peer. Nothing of
// that is death: see ChannelEvent::Kind::kDead below.
//
// Not thread-safe: one thread (or one at a time). Nothing waits.
#ifndef RAILHOP_CC_CONTROL_SESSION_HUB_H_
#define RAILHOP_CC_CONTROL_SESSION_HUB_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/prng.h"
#include "cc/base/units.h"
#include "cc/control/channel.h"
#include "cc/control/lane_carrier.h"
#include "cc/control/lane_stream.h"
#include "cc/control/session_caller.h"
#include "cc/control/session_door.h"
#include "cc/control/session_link.h"
#include "cc/control/socket_address.h"
#include "cc/control/socket_config.h"

namespace railhop::control {

struct SessionHubOptions {
  engine::InstanceId self = 0;
  SocketConfig sockets;
  // Addresses of this process, best first, without a port: ControlAddresses gives them.
  std::vector<SocketAddress> addresses;
  // Nothing heard for so long: kSilent, and the session is made anew. Heartbeats are four times as
  // frequent. Both ends of a session should have the same.
  int64_t silence_ns = 2 * kNsPerSecond;
  // Bytes for one peer that it has not taken yet; beyond, the session is given up.
  size_t queue_bytes_max = 16 << 20;
  uint64_t seed = 0;               // of pauses
  LaneCarrier* carrier = nullptr;  // outlives the hub; may be null
};

struct SessionHubCounters {
  DoorCounters door;
  uint64_t sessions = 0;  // that came up
  uint64_t rejected = 0;  // lost for a frame that was not due
  uint64_t overruns = 0;  // lost because the peer took in too little
  uint64_t silences = 0;  // lost because nothing was heard
};

// kDead is told once for each loss: no session for two seconds, and every address that counts
// (SessionCaller::AllRefused) has refused since. kSilent once until something is heard again.
class SessionHub : public Channel {
 public:
  explicit SessionHub(const SessionHubOptions& options);
  // Says Goodbye to whom it still has a session with; in a child that was forked, to nobody.
  ~SessionHub() override;
  SessionHub(const SessionHub&) = delete;
  SessionHub& operator=(const SessionHub&) = delete;

  // Where this process can be called: for HELLO and REPLY. Opens the listener at the first call.
  // Errors: Internal (the system gave no socket); this process can still call others.
  absl::StatusOr<std::vector<SocketAddress>> Addresses();

  void Add(engine::InstanceId peer, engine::ConnectionId connection, const Secret& secret,
           const std::vector<SocketAddress>& addresses) override;
  void Remove(engine::InstanceId peer, engine::ConnectionId connection) override;
  bool Send(engine::InstanceId peer, const engine::Message& message) override;
  bool IsUp(engine::InstanceId peer) const override;
  std::vector<ChannelEvent> Poll(int64_t now_ns) override;
  // At most now: at once, something is queued.
  int64_t next_due() const override { return due_; }
  int wait_fd() const override { return polls_.fd(); }

  // Goodbyes that are still on their way out.
  bool has_farewells() const { return !farewells_.empty(); }
  SessionHubCounters counters() const;

 private:
  struct Peer {
    Peer(const SessionCaller::Setup& setup, engine::InstanceId id) : caller(setup, id) {}

    SharedConnections connections;
    SessionCaller caller;
    bool is_new = true;  // Poll has not seen it
    std::unique_ptr<SessionLink> session;
    int rank = 0;
    std::string pending;  // encoded messages that are in no frame yet
    bool overrun = false;
    int64_t up_at_ns = 0;
    int64_t sent_at_ns = 0;
    int64_t heard_at_ns = 0;       // in this session
    int64_t last_heard_at_ns = 0;  // in any
    int64_t down_at_ns = 0;
    bool told_dead = false;
    bool told_silent = false;
  };
  struct Farewell {
    std::unique_ptr<SessionLink> link;
    int64_t until_ns = 0;
    bool said = false;
  };
  using Events = std::vector<ChannelEvent>;

  bool IsSelf(engine::InstanceId peer) const { return peer == options_.self; }
  // Of sessions: more is better.
  int RankOf(engine::InstanceId peer, const SessionLink& link) const;
  void PollSelf(Events* events);
  void TakeConfirmed(int64_t now_ns, Events* events);
  void Greet(engine::InstanceId peer, Peer* state, int64_t now_ns);
  void StepPeer(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events);
  void Install(engine::InstanceId peer, Peer* state, std::unique_ptr<SessionLink> link,
               int64_t now_ns, Events* events);
  // False: the session is lost.
  bool ReadSession(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events);
  bool TakeFrame(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events);
  bool WriteSession(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events);
  static void FrameUp(Peer* state);
  void Lose(engine::InstanceId peer, Peer* state, const std::string& why, int64_t now_ns,
            Events* events);
  void CheckPeer(engine::InstanceId peer, Peer* state, int64_t now_ns, Events* events);
  void StepFarewells(int64_t now_ns);
  void SayGoodbye(Peer* state);
  int64_t DueOf(const Peer& state) const;
  void UpdateDue();

  const SessionHubOptions options_;
  const pid_t owner_;
  Prng prng_;
  PollSet polls_;
  std::unique_ptr<LaneStreams> lanes_;
  SessionCaller::Setup setup_;
  std::map<engine::InstanceId, Peer> peers_;
  SessionDoor door_;
  std::vector<Farewell> farewells_;
  SharedConnections self_connections_;
  bool self_told_ = false;
  std::vector<engine::Message> self_queue_;
  int64_t now_ns_ = 0;
  int64_t due_ = 0;
  int64_t next_line_ns_ = INT64_MIN;  // log lines about bad frames
  SessionHubCounters counters_;
};

// What to give as SessionHubOptions::addresses: `chosen` first, then the other interfaces but those
// that an excluding NCCL_SOCKET_IFNAME names, loopback, docker*, virbr* and link-local addresses
// (unless chosen); at most kControlAddressesMax.
std::vector<SocketAddress> ControlAddresses(const std::vector<Interface>& interfaces,
                                            const Interface& chosen, const SocketConfig& config);

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_SESSION_HUB_H_
