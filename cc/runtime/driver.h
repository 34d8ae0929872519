// The one place where failover is decided and carried out: takes everything that is known (faults
// of the data path, port news, the peer's messages, probes, time, commands), gives it to the
// engine's machines, and does what they say.
//
//   sense -> Driver -> engine -> Driver -> act
//
// One lock; Step runs on the engine's thread (in the simulator: as an event) and never blocks: what
// may hang goes to the executor, whose results come back in a later Step. Time comes in as an
// argument. It knows no NCCL, no sockets and no threads.
//
// The parts: driver.cc (what comes in, peers, ports, paths), driver_episode.cc (leaving lanes by
// agreement, fences, giving up), driver_supply.cc (lanes that a connection should have: offers,
// hand-over, fail back), driver_watch.cc (stalls, silence, ends), driver_commands.cc (what people
// ask for), driver_snapshot.cc (what people see).
#ifndef RAILHOP_CC_RUNTIME_DRIVER_H_
#define RAILHOP_CC_RUNTIME_DRIVER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/prng.h"
#include "cc/control/channel.h"
#include "cc/engine/failover.h"
#include "cc/engine/path_health.h"
#include "cc/engine/port_health.h"
#include "cc/engine/route_choice.h"
#include "cc/engine/verdict.h"
#include "cc/runtime/cover.h"
#include "cc/runtime/driver_snapshot.h"
#include "cc/runtime/executor.h"
#include "cc/runtime/journal.h"
#include "cc/runtime/lane_maker.h"
#include "cc/runtime/link.h"
#include "cc/runtime/net_device.h"
#include "cc/runtime/port_monitor.h"
#include "cc/runtime/prober.h"

namespace railhop::runtime {

// Nanoseconds.
struct DriverOptions {
  engine::HealthTimes health;
  int64_t give_up = 300'000'000'000;
  // A lane that has not shown its marker by then is destroyed without it.
  int64_t fence_bound = 500'000'000;
  // The same on a device that has said that it failed: it shows none.
  int64_t fence_bound_failed = 20'000'000;
  // An offer that has not come to its end by then is dropped. The receiver answers after three
  // quarters of it, without the lanes whose calls hang.
  int64_t offer_bound = 2'000'000'000;
  // After the loss of a peer's process is certain, so long until its connections end, for what may
  // still arrive.
  int64_t death_bound = 2'000'000'000;
  // Backups that are kept proved for each base lane: one survivor of four alone would carry twice
  // its share.
  int next_in_line = 3;
  // A line on an episode waits so long for probes that tell who is to blame.
  int64_t judge_after = 50'000'000;
  uint64_t seed = 1;
};

// Time between looks at what moves: a small part of the stall threshold.
constexpr int64_t TickFor(int64_t stall) {
  return std::clamp<int64_t>(stall / 64, 1'000'000, 20'000'000);
}

class Driver {
 public:
  // All outlive the driver.
  struct Parts {
    engine::InstanceId self = 0;
    control::Channel* channel = nullptr;
    Executor* executor = nullptr;
    DeviceSource* devices = nullptr;
    const LaneMaker* maker = nullptr;
    Prober* prober = nullptr;
    Cover* cover = nullptr;
    PortMonitor* ports = nullptr;
    Journal* journal = nullptr;
    // Makes the driver's thread call Step soon; any thread.
    std::function<void()> wake;
  };

  Driver(const Parts& parts, const DriverOptions& options);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // ---- Any thread.

  // A connection that has failover has been made.
  void Add(LinkInfo info) ABSL_LOCKS_EXCLUDED(mutex_);
  // It is being closed: nothing more is done for it. true: no job uses it any more, and it is
  // forgotten. false: call again.
  bool Remove(engine::EndId id) ABSL_LOCKS_EXCLUDED(mutex_);
  // Its data path has faults to be taken. Cheap.
  void Notify(engine::EndId id) ABSL_LOCKS_EXCLUDED(inbox_mutex_);
  // An event of a device.
  void Take(const AsyncEvent& event) ABSL_LOCKS_EXCLUDED(inbox_mutex_);

  // What a command is about: ports, by PhysicalDevice::id; or a connection; or (FailBack) all.
  struct Target {
    std::vector<int> ports = {};
    std::optional<engine::ConnectionId> connection = std::nullopt;
  };
  struct Touched {
    std::set<int> ports;
    int connections = 0;
    std::string note = {};  // what a person should know besides; "" = nothing
  };
  // Commands. Errors: NotFound (no such port or connection), FailedPrecondition (it would leave a
  // connection without any path: the message names it; or the connection's other end has to be
  // asked), InvalidArgument (not of a connection). After an error nothing has changed.
  //
  // Work under way completes on the ports, then they carry nothing until Release. A connection
  // leaves the ports that it is on, for others, until FailBack, or until no other is left.
  absl::StatusOr<Touched> Drain(const Target& target) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Drain, but as a fault: lanes are fenced at once. At a receiving end that knows of no other
  // path that works: as Drain.
  absl::StatusOr<Touched> ForceFailover(const Target& target) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Drain, of ports only.
  absl::StatusOr<Touched> Hold(const Target& target) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends Drain, ForceFailover and Hold of ports: they are proved, then used again.
  absl::StatusOr<Touched> Release(const Target& target) ABSL_LOCKS_EXCLUDED(mutex_);
  // Goes back to the nearest ports that answer now, without waiting for their hold-down.
  absl::StatusOr<Touched> FailBack(const Target& target) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status Drain(int physical) { return Drain(Target{.ports = {physical}}).status(); }
  absl::Status ForceFailover(int physical) {
    return ForceFailover(Target{.ports = {physical}}).status();
  }
  absl::Status Release(int physical) { return Release(Target{.ports = {physical}}).status(); }
  absl::Status FailBack() { return FailBack(Target{}).status(); }

  // Options that may change while it runs; what is under way keeps its deadlines.
  struct Times {
    engine::HealthTimes health;
    int64_t give_up = 0;
    int64_t port_poll_interval = 0;
  };
  void SetTimes(const Times& times) ABSL_LOCKS_EXCLUDED(mutex_);

  // What is known now.
  DriverSnapshot Snapshot() const ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- The driver's thread.

  void Step(int64_t now_ns) ABSL_LOCKS_EXCLUDED(mutex_);
  // When Step is wanted though nothing else happens.
  int64_t next_due() const ABSL_LOCKS_EXCLUDED(mutex_);

  // For tests and reports.
  struct Summary {
    int links = 0;
    int hindered = 0;  // not moving at present
    int lanes = 0;
    int backup_lanes = 0;  // not on the path of their base lane
    int open_episodes = 0;
    int peers = 0;
    int paths = 0;
    int good_paths = 0;
  };
  Summary Summarize() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // The reason of an Over that says no more than that.
  static constexpr char kClosed[] = "closed";

  struct LocalPort {
    const PhysicalDevice* device = nullptr;
    engine::PortHealth health;
    int64_t down_at = 0;  // when it last was, as far as is known
    int64_t since = 0;    // of its state
    engine::Cause cause = engine::Cause::kNone;
    engine::PortReport report;  // as peers were told last
    bool reported = false;
  };
  struct Peer {
    std::string host;
    std::map<int, engine::PortReport> ports;
    std::map<int, int64_t> down_at;  // when it last said so of a port
    bool ports_known = false;
    std::map<engine::PathId, engine::PathHealth> paths;
    std::set<engine::PathId> tried;  // a probe has come back, or has not in its time
    // Paths on which new lanes fail at once though probes are answered: left alone for a while.
    struct Breaker {
      int strikes = 0;
      int64_t last = 0;
      int64_t until = 0;
    };
    std::map<engine::PathId, Breaker> breakers;
    // For reports: of the paths.
    struct Trace {
      int64_t since = 0;
      engine::Cause cause = engine::Cause::kNone;
      int64_t sent_at = 0;  // of the probe that is out; 0 = none
      uint64_t sent = 0;
      uint64_t lost = 0;
    };
    std::map<engine::PathId, Trace> traces;
    std::set<engine::EndId> links;
    bool up = false;
    int64_t up_at = 0;    // when the session came up last
    int64_t lost_at = 0;  // when the one before was lost; 0: there was none
    bool goodbye = false;
    int64_t goodbye_at = 0;
    int64_t dead_since = 0;  // 0 = not known to be
    int64_t silent_since = 0;
    int64_t last_answer = 0;  // of any path
    std::string death;
  };
  struct Episode {
    uint64_t id = 0;
    int64_t since = 0;
    int64_t hit_from = 0;  // a port that was down at this time or later explains it
    int local = -1;
    engine::InstanceId peer = 0;
    int remote = -1;
    engine::Cause cause = engine::Cause::kNone;
    engine::Blame blame = engine::Blame::kUnknown;
    std::set<engine::EndId> open;
    int touched = 0;
    uint64_t bytes = 0;
    bool told = false;
    int64_t detect_ns = 0;
    int64_t agreed = 0;  // 0 = not yet
    int64_t ended = 0;   // 0 = not yet
    std::set<int> over;  // local ports that carry now what it had
  };

  // driver.cc
  void TakeInbox() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeFaults(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakePortNews() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How many events there were.
  size_t TakeChannel() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeMessage(engine::InstanceId peer, const engine::Message& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakePorts(engine::InstanceId id, const engine::Ports& ports)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeProbes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLoad() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeCover() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendProbes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SessionUp(engine::InstanceId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyPort(LocalPort* port, const engine::PortStep& step, engine::Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SyncPorts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce(LocalPort* port) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PathEvent(engine::InstanceId peer, engine::PathId path, engine::PathEvent::Kind kind,
                 engine::Cause cause, bool earns = true, bool alone = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  engine::PathHealth* WantPath(engine::InstanceId peer, engine::PathId path, const Link& link)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LocalPort* FindPort(int physical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string PortName(int physical) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Link* FindLink(const engine::EndId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  engine::Over OverOf(const Link& link, bool failed, const std::string& reason) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SayOver(const Link& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SayFarewells(engine::InstanceId peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The last connection with a peer is closed.
  void Leave(engine::InstanceId peer, engine::ConnectionId last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLeaving(engine::InstanceId peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What comes of a session with a peer that no connection is left with.
  void TakeLeaving(const control::ChannelEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchLeaving() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Send(const Link& link, const engine::Message& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  engine::EndId PeerEnd(const Link& link) const;

  // driver_commands.cc
  struct LeaveHow {
    engine::PortEvent::Kind event;
    engine::Cause cause;
    const char* word;
    bool at_once = false;
    bool holds = false;  // of ports only
  };
  absl::StatusOr<Touched> Leave(const Target& target, const LeaveHow& how)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Touched> MoveAway(engine::ConnectionId id, const LeaveHow& how)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPorts(const std::vector<int>& ports) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Link*> SenderOf(engine::ConnectionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WouldStrand(const Link& link, const std::set<int>& ports) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ports that a command has taken out of service.
  std::set<int> Commandeered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // "a:1, b:1".
  std::string PortNames(const std::set<int>& ports) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // "" for none.
  std::string HeldText(const std::set<int>& held) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether to take these out of service as well leaves the connection no port at all that might
  // be mended.
  bool LeavesNone(const Link& link, const std::set<int>& ports) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether this end knows of a path that works over none of these ports; the sender chooses such
  // ones only.
  bool IsProved(const Link& link, const std::set<int>& without) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To the journal; the driver's thread carries it on.
  void Commanded(int physical, engine::EndId end, engine::Cause cause, const char* what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // driver_snapshot.cc
  DriverSnapshot::Link ViewOf(const Link& link) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  EpisodeView ViewOf(const Episode& episode) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static DriverSnapshot::Peer ViewOf(const Peer& peer);
  static std::string RemotePortName(const Peer& peer, int remote);

  // driver_episode.cc
  void SuspectLanes(Link* link, const engine::LaneIds& lanes, engine::Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of all links, those whose lanes match.
  template <typename Matches>
  void SuspectWhere(const Matches& matches, engine::Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SuspectPath(engine::InstanceId peer, engine::PathId path, engine::Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SuspectLocal(int physical, engine::Cause cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those on a port that is known to be down: made, or under way, before this was known.
  void SuspectOnDownPorts(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SuspectRemote(engine::InstanceId peer, int remote, engine::Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Strike(Link* link, engine::PathId path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CrossProbe(engine::InstanceId peer, engine::PathId path, const Link& link)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StepMachine(Link* link, const engine::FailoverEvent& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Act(Link* link, const engine::FailoverAction& action, engine::LaneIds* fenced_already)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Resume(Link* link, const engine::FailoverAction& action)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendRecord(Link* link, const engine::FailoverAction& action)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartFence(const std::shared_ptr<Link>& link, engine::LaneId id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FenceEnded(const std::shared_ptr<Link>& link, engine::LaneId id,
                  datapath::FenceProgress progress) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunFences() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndFailed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp(Link* link, const std::string& reason, bool tell_peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndAfterPeer(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishGiveUp(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t LastSignOn(const Link& link, engine::PathId path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinEpisode(Link* link, const LinkLane& lane, engine::Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasCarried(engine::InstanceId peer, engine::PathId path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveEpisode(Link* link, bool recovered) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellLine(const Episode& episode, const std::string& line)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellBegin(Episode* episode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellEnd(Episode* episode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepEpisode(const Episode& episode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellEpisodes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  engine::Blame JudgeEpisode(const Episode& episode) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // driver_supply.cc
  void Reconcile(const std::shared_ptr<Link>& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResolvePaths(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The device that is now what this one was, and the first that was what it is.
  int Renewed(int physical) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int OriginOf(int physical) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same of a peer.
  static int RenewedRemote(const Peer& peer, int physical);
  static int OriginOfRemote(const Peer& peer, int physical);
  // Paths over the local ports `avoid` are none.
  engine::RouteWish WishOf(const Link& link, const std::set<int>& avoid) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The lanes that are not up any more have left the data path's route by themselves.
  void DropFromRoute(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetRoute(Link* link, std::vector<uint8_t> route) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartOffer(const std::shared_ptr<Link>& link, const std::vector<engine::RouteLeg>& legs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A job of a part has ended.
  void PartEnded(Link* link, PendingOffer* offer, PendingOffer::Part* part)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits no longer for those of its jobs that hang.
  void LeaveHanging(Link* link, PendingOffer* offer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OfferMade(const std::shared_ptr<Link>& link, const std::shared_ptr<PendingOffer>& offer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeOffer(const std::shared_ptr<Link>& link, const engine::Offer& offer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeAnswer(const std::shared_ptr<Link>& link, const engine::Answer& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OfferRaised(const std::shared_ptr<Link>& link, const std::shared_ptr<PendingOffer>& offer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OfferAnswered(const std::shared_ptr<Link>& link, const std::shared_ptr<PendingOffer>& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InstallDevice(Link* link, const LaneMaker::Wish& wish, LaneMaker::Made* made)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeUp(Link* link, const engine::Up& up) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // refused: the receiver has said that it has made none of the lanes.
  void DropOffer(Link* link, const std::string& why, bool refused = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What was made in vain, and nothing touches any more.
  void Discard(Link* link, std::shared_ptr<LaneMaker::Made> made, int physical)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RetireLanes(Link* link, const engine::LaneIds& lanes, engine::Cause cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int FreePlace(const Link& link, const std::set<uint8_t>& taken, int wanted) const;

  // driver_watch.cc
  void Watch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchLink(const std::shared_ptr<Link>& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Offers whose time is over, at both ends.
  void WatchOffers(const std::shared_ptr<Link>& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchLane(Link* link, const datapath::LaneView& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckArrivals(Link* link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool IsUnconfirmed(const Link& link);
  void TakeCheck(Link* link, const engine::Account& account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchPeers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeInquiry(Link* link, const engine::Inquiry& inquiry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeAccount(Link* link, const engine::Account& account)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Schedule(int64_t when_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Parts parts_;

  absl::Mutex inbox_mutex_;
  std::vector<engine::EndId> notified_ ABSL_GUARDED_BY(inbox_mutex_);
  std::vector<AsyncEvent> async_events_ ABSL_GUARDED_BY(inbox_mutex_);

  mutable absl::Mutex mutex_;
  DriverOptions options_ ABSL_GUARDED_BY(mutex_);
  int64_t tick_ns_ ABSL_GUARDED_BY(mutex_);
  int64_t now_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t due_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t watch_at_ ABSL_GUARDED_BY(mutex_) = 0;
  Prng prng_ ABSL_GUARDED_BY(mutex_);
  std::map<engine::EndId, std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);
  std::map<engine::InstanceId, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  std::map<int, LocalPort> ports_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Episode> episodes_ ABSL_GUARDED_BY(mutex_);
  // Ports that connections have gone back to, to be told in one line once all have.
  struct Return {
    int connections = 0;
    int64_t last = 0;
  };
  struct Lines {
    int64_t since = 0;
    int told = 0;
    int untold = 0;
  };
  std::map<int, Lines> lines_ ABSL_GUARDED_BY(mutex_);  // by local port
  std::map<int, Return> returns_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_episode_ ABSL_GUARDED_BY(mutex_) = 0;
  // Lanes that are being fenced, and links that drain: looked at in every Step.
  std::set<std::pair<engine::EndId, engine::LaneId>> fences_ ABSL_GUARDED_BY(mutex_);
  std::set<engine::EndId> dirty_ ABSL_GUARDED_BY(mutex_);
  std::set<engine::EndId> draining_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<int64_t, engine::EndId>> dirty_later_ ABSL_GUARDED_BY(mutex_);
  std::map<engine::PathId, int> load_ ABSL_GUARDED_BY(mutex_);
  // For reports.
  static constexpr size_t kPastEpisodes = 64;
  static constexpr size_t kGonePeers = 1024;
  std::deque<EpisodeView> past_ ABSL_GUARDED_BY(mutex_);
  std::map<engine::InstanceId, DriverSnapshot::Peer> gone_ ABSL_GUARDED_BY(mutex_);
  // Ends of peers' connections that were told of our end's close, which they may not have heard. It
  // outlives the peer's entry: there may be a session again.
  struct Farewell {
    engine::InstanceId peer = 0;
    engine::Over over;
    int64_t said_at = 0;
  };
  std::map<engine::EndId, Farewell> farewells_ ABSL_GUARDED_BY(mutex_);
  // Peers without connections whose session was lost as the last one was closed: it is kept wanted
  // until they have heard of it, for a while.
  struct Leaving {
    engine::ConnectionId last;
    int64_t until = 0;
  };
  std::map<engine::InstanceId, Leaving> leaving_ ABSL_GUARDED_BY(mutex_);
  // Devices that have failed, and may have lanes still.
  std::set<int> failed_ ABSL_GUARDED_BY(mutex_);
  bool failed_changed_ ABSL_GUARDED_BY(mutex_) = false;  // one of them may have none any more
  DriverCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_DRIVER_H_
