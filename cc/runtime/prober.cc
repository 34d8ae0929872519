#include "cc/runtime/prober.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cc/base/prng.h"

namespace railhop::runtime {
namespace {

using engine::InstanceId;
using engine::PathId;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kMs = 1'000'000;

// An offer that has no answer is said again after this, growing.
constexpr int64_t kOfferAgainNs = 50 * kMs;
constexpr int64_t kOfferAgainMaxNs = 5'000 * kMs;
// A queue pair that nobody waits for is made again after this, growing, while it keeps ending.
constexpr int64_t kRemakeNs = 50 * kMs;
constexpr int64_t kRemakeMaxNs = 30'000 * kMs;
// Probes of one path that are asked for faster share a queue pair that is being made.
constexpr int kOutstandingMax = 4;
// Queue pairs of one path at once: one that works or worked, and a fresh one.
constexpr size_t kLinksMax = 2;
constexpr size_t kGrantsMax = 3;

// How often messages are looked for while there is no session.
constexpr int64_t kListenNs = 5 * kMs;

// A probe is looked for often at first, since most come back within microseconds.
int64_t LookAgain(int64_t age_ns) {
  if (age_ns < 2 * kMs) return kMs / 5;
  if (age_ns < 20 * kMs) return kMs;
  return 5 * kMs;
}

// The exponent with which a queue pair tries for about `ns` in its eight attempts.
uint8_t TimeoutFor(int64_t ns) {
  uint8_t exponent = 8;
  while (exponent < 20 && (int64_t{4096} << exponent) * 8 < ns) ++exponent;
  return exponent;
}

struct PathKey {
  InstanceId peer = 0;
  PathId path;
  friend auto operator<=>(const PathKey&,
                          const PathKey&) = default;  // NOLINT(modernize-use-nullptr)
};

// Work request ids: receives have the index of their buffer.
constexpr uint64_t kProbeId = 1000;
constexpr uint64_t kSendId = 1001;

// In front of the bytes in each message on a queue pair. The peer has posted kProbeBuffers receives
// and tells how many it has posted again, so a message never finds none.
struct CarrierHeader {
  uint32_t consumed;
  uint16_t bytes;
  uint16_t zero;
};
static_assert(sizeof(CarrierHeader) == 8);
constexpr size_t kCarrierBytes = LaneMaker::kProbeBufferBytes - sizeof(CarrierHeader);

// Counts of messages on one queue pair.
struct CarrierCounts {
  uint32_t sent = 0;
  uint32_t send_done = 0;
  uint32_t peer_consumed = 0;
  uint32_t consumed = 0;
  uint32_t told = 0;

  uint32_t room() const { return LaneMaker::kProbeBuffers - (sent - peer_consumed); }
  bool buffer_free() const { return sent - send_done < LaneMaker::kProbeBuffers; }
  // The last one is kept for telling.
  bool MaySend() const { return room() >= 2 && buffer_free(); }
  bool MustTell() const {
    return consumed - told >= LaneMaker::kProbeBuffers / 2 && room() >= 1 && buffer_free();
  }
};

// A queue pair of either role. Jobs have it, one after the other; the driver's thread only touches
// `made` and `status` when no job is under way.
struct Link {
  uint32_t number = 0;
  PathKey key;  // of an answering one: from the opener's side, so key.path.remote is ours
  const PhysicalDevice* device = nullptr;
  LaneMaker::MadeProbe made;
  absl::Status status;
  enum class State : uint8_t {
    kMaking,   // a job makes it
    kOffered,  // waits for the answer
    kRaising,  // a job raises it
    kReady,
    kOver,
  } state = State::kMaking;
  bool job_ended = false;
  bool in_job = true;  // from the first on, until its end is known here
  // Set on the driver's thread, read by jobs that have not begun: they do nothing then, so that
  // closing does not wait for one address after the other that cannot be resolved.
  std::atomic<bool> unwanted = false;
  void EndJob() {
    job_ended = true;
    in_job = false;
  }
  int outstanding = 0;
  bool asked = false;    // the probe that is waited for is on it
  bool doubted = false;  // a probe on it was not answered
  int64_t posted_at = 0;
  int64_t offer_at = 0;
  int64_t offer_pause = kOfferAgainNs;
  bool by_us = true;  // who opened it
  CarrierCounts carrier;
};
using LinkPtr = std::shared_ptr<Link>;

struct Path {
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  uint16_t pkey = 0;
  std::list<LinkPtr> links;  // the newest last
  int64_t deadline = 0;      // of the probe that is waited for; 0 = none
  int64_t sent_at = 0;
  bool fresh = false;  // and it wants a new queue pair, which has not been opened yet
  int64_t remake_at = 0;
  int64_t remake_pause = 0;
  std::string why;  // the last thing that went wrong
};

struct Grant {
  LinkPtr link;
  engine::ProbeOpen open;
  bool answered = false;
  engine::ProbeAnswer answer;
};

// The way of control messages to one peer.
struct Way {
  std::weak_ptr<Link> link;
  uint64_t generation = 0;  // of the last way; grows
  bool session_down = false;
};

class Bucket {
 public:
  Bucket(int per_second, int at_once)
      : per_second_(std::max(per_second, 1)), at_once_(at_once), tokens_(at_once) {}

  bool Take(int64_t now_ns) {
    const double earned = static_cast<double>(now_ns - last_) * per_second_ / 1e9;
    if (last_ != 0) tokens_ = std::min<double>(at_once_, tokens_ + earned);
    last_ = now_ns;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }
  int64_t pause_ns() const { return 1'000'000'000 / per_second_; }

 private:
  const int per_second_;
  const int at_once_;
  double tokens_;
  int64_t last_ = 0;
};

}  // namespace

class Prober::Impl final : public control::LaneCarrier {
 public:
  Impl(DeviceSource* devices, const LaneMaker* maker, Executor* executor,
       const ProberOptions& options)
      : devices_(devices),
        maker_(maker),
        executor_(executor),
        options_(options),
        timeout_(TimeoutFor(options.stall_ns)),
        opens_(options.opens_per_second, options.opens_at_once),
        grants_allowed_(options.opens_per_second, options.opens_at_once),
        prng_(options.seed) {}
  ~Impl() override {
    for (auto& [key, path] : paths_) {
      for (LinkPtr& link : path.links) Discard(std::move(link), false);
    }
    for (auto& [id, grant] : grants_) Discard(std::move(grant.link), false);
  }

  void Want(const PathKey& key, uint8_t service_level, uint8_t traffic_class, uint16_t pkey,
            int64_t now_ns);
  void Unwant(const PathKey& key);
  void Send(const PathKey& key, bool fresh, int64_t now_ns, int64_t deadline_ns);
  void Take(InstanceId peer, const engine::Message& message, int64_t now_ns);
  void SessionUp(InstanceId peer, int64_t now_ns);
  void SessionDown(InstanceId peer) { ways_[peer].session_down = true; }
  void Forget(InstanceId peer);
  void DeviceFailed(int physical);
  void SetStall(int64_t stall_ns) { timeout_ = TimeoutFor(stall_ns); }

  // LaneCarrier.
  uint64_t Generation(InstanceId peer) override;
  size_t Send(InstanceId peer, uint64_t generation, absl::Span<const uint8_t> bytes) override;
  bool Receive(Chunk* chunk) override;

  std::vector<Result> Poll(int64_t now_ns);
  std::vector<Outgoing> TakeOutgoing() { return std::exchange(outgoing_, {}); }
  int64_t next_due() const;
  Counters counters() const;

 private:
  // By the opener's number.
  using GrantId = std::pair<InstanceId, uint32_t>;

  const PhysicalDevice* Device(int physical) const;
  // Hands it to its worker to end; tell: the peer hears of it.
  void Discard(LinkPtr link, bool tell, bool by_opener = true);
  void Open(const PathKey& key, Path* path, int64_t now_ns);
  void Post(Path* path, Link* link, int64_t now_ns);
  bool HasLink(const Path& path, Link::State state) const;
  bool Opening(const Path& path) const {
    return HasLink(path, Link::State::kMaking) || HasLink(path, Link::State::kOffered) ||
           HasLink(path, Link::State::kRaising);
  }

  void StepPath(const PathKey& key, Path* path, int64_t now_ns);
  // False: it is over.
  bool StepLink(const PathKey& key, Path* path, const LinkPtr& link, int64_t now_ns);
  bool PollLink(const PathKey& key, Path* path, const LinkPtr& link);
  // One completion; false: the queue pair is over.
  bool TakeCompletion(const LinkPtr& link, const ibv_wc& wc, std::string* why);
  void TakeChunk(const LinkPtr& link, uint32_t index);
  void TellConsumed(Link* link);
  bool PostChunk(Link* link, absl::Span<const uint8_t> bytes);
  bool Preferred(const Link& link) const { return link.by_us == (options_.self < link.key.peer); }
  // One order for both ends: else each would take the way that the other has just left.
  bool Better(const Link& a, const Link& b) const {
    return Preferred(a) != Preferred(b) ? Preferred(a) : a.number < b.number;
  }
  LinkPtr WayOf(InstanceId peer);
  LinkPtr FindWay(InstanceId peer);
  void MakeLink(const LinkPtr& link, uint16_t pkey);
  void RaiseLink(const PathKey& key, const Path& path, const LinkPtr& link,
                 const engine::ProbeEnd& remote);
  void Offer(const Path& path, Link* link, int64_t now_ns);
  void Answered(const PathKey& key, Path* path);
  void Unanswered(const PathKey& key, Path* path, std::string why);
  void StepGrants();

  void TakeOpen(InstanceId peer, const engine::ProbeOpen& open, int64_t now_ns);
  void TakeAnswer(InstanceId peer, const engine::ProbeAnswer& answer);
  void TakeClose(InstanceId peer, const engine::ProbeClose& close);
  void DropOldGrants(InstanceId peer, const engine::ProbeOpen& open);
  static engine::ProbeEnd EndOf(const LaneMaker::MadeProbe& made);

  DeviceSource* const devices_;
  const LaneMaker* const maker_;
  Executor* const executor_;
  const ProberOptions options_;
  uint8_t timeout_;
  Bucket opens_;
  Bucket grants_allowed_;
  Prng prng_;
  uint32_t next_number_ = 1;
  std::map<PathKey, Path> paths_;
  std::map<GrantId, Grant> grants_;
  std::map<InstanceId, Way> ways_;
  std::deque<Chunk> chunks_;  // that have come
  std::vector<Result> results_;
  std::vector<Outgoing> outgoing_;
  Counters counters_;
  int open_now_ = 0;
  int64_t now_ns_ = 0;  // of the last call
};

const PhysicalDevice* Prober::Impl::Device(int physical) const {
  for (const PhysicalDevice* device : devices_->Physical()) {
    if (device->id == physical) return device;
  }
  return nullptr;
}

void Prober::Impl::Discard(LinkPtr link, bool tell, bool by_opener) {
  if (link == nullptr) return;
  if (by_opener) --open_now_;
  if (tell) {
    outgoing_.push_back(
        {link->key.peer, engine::ProbeClose{.probe = link->number, .by_opener = by_opener}});
  }
  link->state = Link::State::kOver;
  link->unwanted.store(true, std::memory_order_relaxed);
  const int physical = link->device->id;
  // Behind the job that has it, else where it holds up nothing that is urgent. The last one who has
  // it ends it, and that is to be the worker.
  const Executor::Queue queue = link->in_job ? Executor::Queue::kProbing : Executor::Queue::kEnding;
  executor_->Run(
      physical, queue, [link = std::move(link)] { link->made.End(); }, nullptr);
}

bool Prober::Impl::HasLink(const Path& path, Link::State state) const {
  return std::any_of(path.links.begin(), path.links.end(),
                     [state](const LinkPtr& link) { return link->state == state; });
}

void Prober::Impl::Want(const PathKey& key, uint8_t service_level, uint8_t traffic_class,
                        uint16_t pkey, int64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  const auto [found, is_new] = paths_.try_emplace(key);
  if (!is_new) return;
  found->second.service_level = service_level;
  found->second.traffic_class = traffic_class;
  found->second.pkey = pkey;
}

void Prober::Impl::Unwant(const PathKey& key) {
  const auto found = paths_.find(key);
  if (found == paths_.end()) return;
  for (LinkPtr& link : found->second.links) Discard(std::move(link), true);
  paths_.erase(found);
}

void Prober::Impl::Send(const PathKey& key, bool fresh, int64_t now_ns, int64_t deadline_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  Path* const path = &paths_[key];
  // What has come back by now says nothing of this probe.
  for (const LinkPtr& link : path->links) {
    if (link->state == Link::State::kReady && !PollLink(key, path, link)) {
      link->state = Link::State::kOver;
    }
  }
  path->deadline = std::max(deadline_ns, now_ns);
  path->sent_at = now_ns;
  ++counters_.sent;
  for (const LinkPtr& link : path->links) link->asked = false;
  // One that has let a probe go unanswered may be at fault itself.
  const bool doubted = std::any_of(path->links.begin(), path->links.end(),
                                   [](const LinkPtr& link) { return link->doubted; });
  path->fresh = (fresh || doubted) && !Opening(*path);
  StepPath(key, path, now_ns);
}

void Prober::Impl::MakeLink(const LinkPtr& link, uint16_t pkey) {
  link->job_ended = false;
  executor_->Run(
      link->device->id, Executor::Queue::kProbing,
      [link, pkey, maker = maker_] {
        if (link->unwanted.load(std::memory_order_relaxed)) return;
        absl::StatusOr<LaneMaker::MadeProbe> made = maker->MakeProbe(*link->device, pkey);
        link->status = made.status();
        if (made.ok()) link->made = *std::move(made);
      },
      [link] { link->EndJob(); });
}

void Prober::Impl::Open(const PathKey& key, Path* path, int64_t now_ns) {
  path->remake_pause = std::clamp(2 * path->remake_pause, kRemakeNs, kRemakeMaxNs);
  path->remake_at =
      now_ns + path->remake_pause + static_cast<int64_t>(prng_.Below(path->remake_pause / 4 + 1));
  const PhysicalDevice* const device = Device(key.path.local);
  if (device == nullptr) {
    path->why = absl::StrCat("there is no local device ", key.path.local);
    return;
  }
  if (open_now_ >= options_.queue_pairs_max) {
    path->why =
        absl::StrCat("all ", options_.queue_pairs_max, " queue pairs for probes are in use");
    ++counters_.refused;
    return;
  }
  if (!opens_.Take(now_ns)) {
    path->remake_at = now_ns + opens_.pause_ns();
    return;
  }
  while (path->links.size() >= kLinksMax) {
    Discard(std::move(path->links.front()), true);
    path->links.pop_front();
  }
  const auto link = std::make_shared<Link>();
  link->number = next_number_++;
  link->key = key;
  link->device = device;
  path->links.push_back(link);
  path->fresh = false;
  ++open_now_;
  ++counters_.opened;
  MakeLink(link, path->pkey);
}

engine::ProbeEnd Prober::Impl::EndOf(const LaneMaker::MadeProbe& made) {
  engine::ProbeEnd end;
  end.qp_number = made.lane.qp->number();
  end.start_psn = made.lane.start_psn;
  end.mtu = made.port.mtu;
  end.lid = made.port.lid;
  end.gid = made.port.gid;
  return end;
}

void Prober::Impl::Offer(const Path& path, Link* link, int64_t now_ns) {
  engine::ProbeOpen open;
  open.probe = link->number;
  open.from = link->key.path.local;
  open.to = link->key.path.remote;
  open.end = EndOf(link->made);
  open.service_level = path.service_level;
  open.traffic_class = path.traffic_class;
  open.pkey = path.pkey;
  outgoing_.push_back({link->key.peer, open});
  link->offer_at =
      now_ns + link->offer_pause + static_cast<int64_t>(prng_.Below(link->offer_pause / 4 + 1));
  link->offer_pause = std::min(2 * link->offer_pause, kOfferAgainMaxNs);
}

void Prober::Impl::RaiseLink(const PathKey& key, const Path& path, const LinkPtr& link,
                             const engine::ProbeEnd& remote) {
  (void)key;
  link->state = Link::State::kRaising;
  link->job_ended = false;
  link->in_job = true;
  executor_->Run(
      link->device->id, Executor::Queue::kProbing,
      [link, remote, maker = maker_, service_level = path.service_level,
       traffic_class = path.traffic_class, timeout = timeout_] {
        if (link->unwanted.load(std::memory_order_relaxed)) return;
        link->status =
            maker->RaiseProbe(&link->made, *link->device, remote, link->made.port.is_ethernet,
                              service_level, traffic_class, timeout);
      },
      [link] { link->EndJob(); });
}

void Prober::Impl::Post(Path* path, Link* link, int64_t now_ns) {
  link->asked = true;
  // What is under way on it already says the same when it completes.
  if (link->outstanding >= kOutstandingMax) return;
  ibv_send_wr request = {};
  request.wr_id = kProbeId;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  const int error = link->made.lane.qp->PostSend(&request);
  if (error != 0) {
    link->state = Link::State::kOver;
    path->why = absl::StrCat("a probe was refused (errno ", error, ")");
    return;
  }
  ++link->outstanding;
  link->posted_at = now_ns;
}

void Prober::Impl::Answered(const PathKey& key, Path* path) {
  path->remake_pause = 0;
  path->why.clear();
  for (const LinkPtr& link : path->links) link->doubted = false;
  if (path->deadline == 0) return;
  path->deadline = 0;
  path->fresh = false;
  ++counters_.answered;
  results_.push_back({.peer = key.peer, .path = key.path, .answered = true});
}

void Prober::Impl::Unanswered(const PathKey& key, Path* path, std::string why) {
  if (path->deadline == 0) return;
  path->deadline = 0;
  path->fresh = false;
  for (const LinkPtr& link : path->links) {
    if (link->state == Link::State::kReady) link->doubted = true;
  }
  ++counters_.unanswered;
  results_.push_back(
      {.peer = key.peer, .path = key.path, .answered = false, .why = std::move(why)});
}

bool Prober::Impl::TakeCompletion(const LinkPtr& link, const ibv_wc& wc, std::string* why) {
  if (wc.status != IBV_WC_SUCCESS) {
    *why = absl::StrCat("a probe ended in error (status ", wc.status, ", vendor error ",
                        wc.vendor_err, ")");
    return false;
  }
  if (wc.wr_id == kProbeId) {
    link->outstanding = std::max(link->outstanding - 1, 0);
  } else if (wc.wr_id == kSendId) {
    ++link->carrier.send_done;
  } else if (wc.wr_id < LaneMaker::kProbeBuffers) {
    TakeChunk(link, static_cast<uint32_t>(wc.wr_id));
  }
  return true;
}

// Takes its completions. False: it is over.
bool Prober::Impl::PollLink(const PathKey& key, Path* path, const LinkPtr& link) {
  ibv_wc entries[8];
  const int count = link->made.cq->Poll(8, entries);
  for (int i = 0; i < count; ++i) {
    if (!TakeCompletion(link, entries[i], &path->why)) return false;
    // What we have sent has come back as an acknowledgement.
    if (entries[i].wr_id == kProbeId || entries[i].wr_id == kSendId) Answered(key, path);
  }
  if (count < 0) {
    path->why = "the probe's completion queue cannot be polled";
    return false;
  }
  TellConsumed(link.get());
  return link->state == Link::State::kReady;
}

bool Prober::Impl::StepLink(const PathKey& key, Path* path, const LinkPtr& link, int64_t now_ns) {
  switch (link->state) {
    case Link::State::kMaking:
      if (!link->job_ended) return true;
      if (!link->status.ok()) break;
      link->state = Link::State::kOffered;
      Offer(*path, link.get(), now_ns);
      return true;
    case Link::State::kOffered:
      if (now_ns >= link->offer_at) Offer(*path, link.get(), now_ns);
      return true;
    case Link::State::kRaising:
      if (!link->job_ended) return true;
      if (!link->status.ok()) break;
      link->state = Link::State::kReady;
      [[fallthrough]];
    case Link::State::kReady:
      if (!PollLink(key, path, link)) return false;
      if (path->deadline != 0 && !link->asked) Post(path, link.get(), now_ns);
      return link->state == Link::State::kReady;
    case Link::State::kOver:
      return false;
  }
  path->why = std::string(link->status.message());
  return false;
}

void Prober::Impl::StepPath(const PathKey& key, Path* path, int64_t now_ns) {
  bool lost = false;
  for (auto i = path->links.begin(); i != path->links.end();) {
    if (StepLink(key, path, *i, now_ns)) {
      ++i;
      continue;
    }
    lost = true;
    LinkPtr link = std::move(*i);
    i = path->links.erase(i);
    Discard(std::move(link), true);
  }
  const bool ready = HasLink(*path, Link::State::kReady);
  const bool opening = Opening(*path);
  if (lost && !ready && !opening) Unanswered(key, path, path->why);
  // A fresh one that works takes the place of those before it.
  if (path->links.size() > 1 && path->links.back()->state == Link::State::kReady &&
      path->deadline == 0 && !path->links.back()->doubted) {
    while (path->links.size() > 1) {
      Discard(std::move(path->links.front()), true);
      path->links.pop_front();
    }
  }
  if (!opening) {
    const bool asked = path->deadline != 0 && (path->fresh || !ready);
    // Whoever waits for it gets it at once, once for each Send.
    const bool due = now_ns >= path->remake_at || (asked && path->sent_at == now_ns && !lost);
    if (due && (asked || !ready)) Open(key, path, now_ns);
  }
  if (path->deadline != 0 && now_ns >= path->deadline) {
    std::string why = path->why;
    if (why.empty()) {
      why = HasLink(*path, Link::State::kReady)
                ? absl::StrCat("no answer within ", (now_ns - path->sent_at) / kMs, " ms")
                : "no queue pair for a probe could be opened in time";
    }
    Unanswered(key, path, std::move(why));
  }
}

void Prober::Impl::StepGrants() {
  for (auto i = grants_.begin(); i != grants_.end();) {
    Grant& grant = i->second;
    const InstanceId peer = i->first.first;
    if (grant.answered) {
      // Messages come over it, and its end is seen here.
      ibv_wc entries[8];
      std::string why;
      const int count = grant.link->made.cq->Poll(8, entries);
      bool over = count < 0;
      for (int k = 0; k < count; ++k) over = !TakeCompletion(grant.link, entries[k], &why) || over;
      if (!over) TellConsumed(grant.link.get());
      if (!over && grant.link->state == Link::State::kReady) {
        ++i;
        continue;
      }
      Discard(std::move(grant.link), true, false);
      i = grants_.erase(i);
      continue;
    }
    if (!grant.link->job_ended) {
      ++i;
      continue;
    }
    grant.answered = true;
    grant.answer.probe = grant.open.probe;
    if (grant.link->status.ok()) {
      grant.link->state = Link::State::kReady;
      grant.answer.end = EndOf(grant.link->made);
      outgoing_.push_back({peer, grant.answer});
      ++i;
      continue;
    }
    grant.answer.error = std::string(grant.link->status.message());
    outgoing_.push_back({peer, grant.answer});
    ++counters_.refused;
    Discard(std::move(grant.link), false, false);
    i = grants_.erase(i);
  }
}

std::vector<Prober::Result> Prober::Impl::Poll(int64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  for (auto& [key, path] : paths_) StepPath(key, &path, now_ns);
  StepGrants();
  return std::exchange(results_, {});
}

int64_t Prober::Impl::next_due() const {
  if (!results_.empty() || !outgoing_.empty()) return now_ns_;
  int64_t due = kNever;
  for (const auto& [key, path] : paths_) {
    if (path.deadline != 0) due = std::min(due, path.deadline);
    bool usable = false;
    for (const LinkPtr& link : path.links) {
      if (link->state == Link::State::kOffered) due = std::min(due, link->offer_at);
      if (link->state == Link::State::kOver || link->job_ended) {
        if (link->state != Link::State::kReady && link->state != Link::State::kOffered) {
          due = std::min(due, now_ns_);
        }
      }
      usable = usable || link->state == Link::State::kReady;
      // Nobody waits for what is late: it is taken with the next probe.
      if (link->state == Link::State::kReady && link->outstanding > 0 && path.deadline != 0) {
        due = std::min(due, now_ns_ + LookAgain(now_ns_ - link->posted_at));
      }
    }
    if (!Opening(path) && (!usable || (path.fresh && path.deadline != 0))) {
      due = std::min(due, path.remake_at);
    }
  }
  // Nothing says that a message has come over a lane.
  const bool listening = std::any_of(ways_.begin(), ways_.end(),
                                     [](const auto& way) { return way.second.session_down; });
  if (listening) due = std::min(due, now_ns_ + kListenNs);
  for (const auto& [id, grant] : grants_) {
    if (grant.link->job_ended && !grant.answered) due = std::min(due, now_ns_);
  }
  return due;
}

void Prober::Impl::DropOldGrants(InstanceId peer, const engine::ProbeOpen& open) {
  size_t same = 0;
  for (const auto& [id, grant] : grants_) {
    if (id.first == peer && grant.open.from == open.from && grant.open.to == open.to) ++same;
  }
  for (auto i = grants_.lower_bound({peer, 0}); same >= kGrantsMax && i != grants_.end();) {
    if (i->first.first != peer) break;
    if (i->second.open.from != open.from || i->second.open.to != open.to) {
      ++i;
      continue;
    }
    Discard(std::move(i->second.link), false, false);
    i = grants_.erase(i);
    --same;
  }
}

void Prober::Impl::TakeOpen(InstanceId peer, const engine::ProbeOpen& open, int64_t now_ns) {
  const auto found = grants_.find({peer, open.probe});
  if (found != grants_.end()) {
    if (found->second.answered) outgoing_.push_back({peer, found->second.answer});
    return;
  }
  // The peer says it again.
  if (!grants_allowed_.Take(now_ns)) return;
  DropOldGrants(peer, open);
  const PhysicalDevice* const device = Device(open.to);
  std::string error;
  if (device == nullptr) error = absl::StrCat("there is no device ", open.to, " here");
  if (open.end.mtu < IBV_MTU_256 || open.end.mtu > IBV_MTU_4096) error = "no such MTU";
  if (static_cast<int>(grants_.size()) >= options_.queue_pairs_max) {
    error = absl::StrCat("all ", options_.queue_pairs_max, " queue pairs for probes are in use");
  }
  if (!error.empty()) {
    ++counters_.refused;
    outgoing_.push_back({peer, engine::ProbeAnswer{.probe = open.probe, .error = error}});
    return;
  }
  const auto link = std::make_shared<Link>();
  link->number = open.probe;
  link->key = {peer, {open.from, open.to}};
  link->device = device;
  link->by_us = false;
  grants_[{peer, open.probe}] = {.link = link, .open = open};
  ++counters_.granted;
  executor_->Run(
      device->id, Executor::Queue::kProbing,
      [link, open, maker = maker_, timeout = timeout_] {
        if (link->unwanted.load(std::memory_order_relaxed)) return;
        absl::StatusOr<LaneMaker::MadeProbe> made = maker->MakeProbe(*link->device, open.pkey);
        link->status = made.status();
        if (!made.ok()) return;
        link->made = *std::move(made);
        link->status =
            maker->RaiseProbe(&link->made, *link->device, open.end, link->made.port.is_ethernet,
                              open.service_level & 0xf, open.traffic_class, timeout);
      },
      [link] { link->EndJob(); });
}

void Prober::Impl::TakeAnswer(InstanceId peer, const engine::ProbeAnswer& answer) {
  for (auto& [key, path] : paths_) {
    if (key.peer != peer) continue;
    for (const LinkPtr& link : path.links) {
      if (link->number != answer.probe || link->state != Link::State::kOffered) continue;
      if (answer.error.empty() && answer.end.mtu >= IBV_MTU_256 && answer.end.mtu <= IBV_MTU_4096) {
        RaiseLink(key, path, link, answer.end);
      } else {
        path.why = "the peer could not answer a probe: " + answer.error;
        link->state = Link::State::kOver;
      }
      return;
    }
  }
}

void Prober::Impl::TakeClose(InstanceId peer, const engine::ProbeClose& close) {
  if (close.by_opener) {
    const auto found = grants_.find({peer, close.probe});
    if (found == grants_.end()) return;
    Discard(std::move(found->second.link), false, false);
    grants_.erase(found);
    return;
  }
  for (auto& [key, path] : paths_) {
    if (key.peer != peer) continue;
    for (const LinkPtr& link : path.links) {
      if (link->number != close.probe) continue;
      // A job may have it; it is dropped when that has ended, or is discarded behind it.
      link->state = Link::State::kOver;
      path.why = "the peer has closed the probe's queue pair";
    }
  }
}

void Prober::Impl::Take(InstanceId peer, const engine::Message& message, int64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  if (const auto* open = std::get_if<engine::ProbeOpen>(&message)) TakeOpen(peer, *open, now_ns);
  if (const auto* answer = std::get_if<engine::ProbeAnswer>(&message)) TakeAnswer(peer, *answer);
  if (const auto* close = std::get_if<engine::ProbeClose>(&message)) TakeClose(peer, *close);
}

void Prober::Impl::SessionUp(InstanceId peer, int64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  ways_[peer].session_down = false;
  for (auto& [key, path] : paths_) {
    if (key.peer != peer) continue;
    path.remake_at = std::min(path.remake_at, now_ns);
    for (const LinkPtr& link : path.links) {
      link->offer_at = std::min(link->offer_at, now_ns);
      link->offer_pause = kOfferAgainNs;
    }
  }
}

// ---- Control messages.

LinkPtr Prober::Impl::FindWay(InstanceId peer) {
  LinkPtr best;
  const auto consider = [&](const LinkPtr& link) {
    if (link->state != Link::State::kReady || link->made.region == nullptr || link->doubted) return;
    if (best == nullptr || Better(*link, *best)) best = link;
  };
  for (const auto& [key, path] : paths_) {
    if (key.peer != peer) continue;
    for (const LinkPtr& link : path.links) consider(link);
  }
  for (const auto& [id, grant] : grants_) {
    if (id.first == peer && grant.answered) consider(grant.link);
  }
  return best;
}

// The present one as long as it lives.
LinkPtr Prober::Impl::WayOf(InstanceId peer) {
  Way& way = ways_[peer];
  LinkPtr link = way.link.lock();
  if (link != nullptr && link->state == Link::State::kReady && !link->doubted) return link;
  link = FindWay(peer);
  way.link = link;
  if (link != nullptr) ++way.generation;
  return link;
}

uint64_t Prober::Impl::Generation(InstanceId peer) {
  return WayOf(peer) == nullptr ? 0 : ways_[peer].generation;
}

bool Prober::Impl::PostChunk(Link* link, absl::Span<const uint8_t> bytes) {
  uint8_t* const buffer = link->made.memory->sent[link->carrier.sent % LaneMaker::kProbeBuffers];
  const CarrierHeader header = {
      .consumed = link->carrier.consumed, .bytes = static_cast<uint16_t>(bytes.size()), .zero = 0};
  memcpy(buffer, &header, sizeof(header));
  if (!bytes.empty()) memcpy(buffer + sizeof(header), bytes.data(), bytes.size());
  ibv_sge sge = {.addr = reinterpret_cast<uintptr_t>(buffer),
                 .length = static_cast<uint32_t>(sizeof(header) + bytes.size()),
                 .lkey = link->made.region->local_key()};
  ibv_send_wr request = {};
  request.wr_id = kSendId;
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  if (link->made.lane.qp->PostSend(&request) != 0) {
    link->state = Link::State::kOver;
    return false;
  }
  ++link->carrier.sent;
  link->carrier.told = link->carrier.consumed;
  return true;
}

size_t Prober::Impl::Send(InstanceId peer, uint64_t generation, absl::Span<const uint8_t> bytes) {
  const LinkPtr link = WayOf(peer);
  if (link == nullptr || ways_[peer].generation != generation) return 0;
  size_t sent = 0;
  while (sent < bytes.size() && link->carrier.MaySend()) {
    const absl::Span<const uint8_t> part = bytes.subspan(sent, kCarrierBytes);
    if (!PostChunk(link.get(), part)) break;
    sent += part.size();
  }
  counters_.carried_bytes += sent;
  return sent;
}

void Prober::Impl::TakeChunk(const LinkPtr& link, uint32_t index) {
  CarrierHeader header;
  const uint8_t* const buffer = link->made.memory->received[index];
  memcpy(&header, buffer, sizeof(header));
  CarrierCounts& counts = link->carrier;
  // It cannot have taken more than there was.
  if (header.consumed - counts.peer_consumed <= counts.sent - counts.peer_consumed) {
    counts.peer_consumed = header.consumed;
  }
  const size_t bytes = std::min<size_t>(header.bytes, kCarrierBytes);
  const InstanceId peer = link->key.peer;
  if (bytes > 0) {
    Way& way = ways_[peer];
    const LinkPtr present = way.link.lock();
    const bool alive =
        present != nullptr && present->state == Link::State::kReady && !present->doubted;
    // The peer's way becomes ours, so that there is one for both.
    if (present != link && (!alive || Better(*link, *present))) {
      way.link = link;
      ++way.generation;
    }
    if (way.link.lock() == link) {
      const uint8_t* const first = buffer + sizeof(header);
      chunks_.push_back(
          {.peer = peer, .generation = way.generation, .bytes = {first, first + bytes}});
    }
  }
  ++counts.consumed;
  if (LaneMaker::PostProbeReceive(&link->made, index) != 0) link->state = Link::State::kOver;
}

// The peer may be waiting for room, and there is nothing to say along with it.
void Prober::Impl::TellConsumed(Link* link) {
  if (link->state == Link::State::kReady && link->carrier.MustTell()) PostChunk(link, {});
}

bool Prober::Impl::Receive(Chunk* chunk) {
  if (chunks_.empty()) return false;
  *chunk = std::move(chunks_.front());
  chunks_.pop_front();
  return true;
}

void Prober::Impl::Forget(InstanceId peer) {
  ways_.erase(peer);
  for (auto i = paths_.lower_bound({peer, {std::numeric_limits<int>::min(), 0}});
       i != paths_.end() && i->first.peer == peer; i = paths_.erase(i)) {
    for (LinkPtr& link : i->second.links) Discard(std::move(link), false);
  }
  for (auto i = grants_.lower_bound({peer, 0}); i != grants_.end() && i->first.first == peer;
       i = grants_.erase(i)) {
    Discard(std::move(i->second.link), false, false);
  }
}

void Prober::Impl::DeviceFailed(int physical) {
  for (auto& [key, path] : paths_) {
    if (key.path.local != physical) continue;
    for (const LinkPtr& link : path.links) link->state = Link::State::kOver;
    path.why = "the local device has failed";
    path.remake_pause = kRemakeMaxNs;
    Unanswered(key, &path, path.why);
  }
  for (auto i = grants_.begin(); i != grants_.end();) {
    if (i->second.open.to != physical) {
      ++i;
      continue;
    }
    Discard(std::move(i->second.link), true, false);
    i = grants_.erase(i);
  }
}

Prober::Counters Prober::Impl::counters() const {
  Counters counters = counters_;
  counters.open_now = open_now_;
  counters.granted_now = static_cast<int>(grants_.size());
  return counters;
}

Prober::Prober(DeviceSource* devices, const LaneMaker* maker, Executor* executor,
               const ProberOptions& options)
    : impl_(std::make_unique<Impl>(devices, maker, executor, options)) {}

Prober::~Prober() = default;

void Prober::Want(InstanceId peer, PathId path, uint8_t service_level, uint8_t traffic_class,
                  int64_t now_ns, uint16_t pkey) {
  impl_->Want({peer, path}, service_level, traffic_class, pkey, now_ns);
}
void Prober::Unwant(InstanceId peer, PathId path) { impl_->Unwant({peer, path}); }
void Prober::Send(InstanceId peer, PathId path, bool fresh, int64_t now_ns, int64_t deadline_ns) {
  impl_->Send({peer, path}, fresh, now_ns, deadline_ns);
}
void Prober::Take(InstanceId peer, const engine::Message& message, int64_t now_ns) {
  impl_->Take(peer, message, now_ns);
}
void Prober::SessionUp(InstanceId peer, int64_t now_ns) { impl_->SessionUp(peer, now_ns); }
void Prober::SetStall(int64_t stall_ns) { impl_->SetStall(stall_ns); }

void Prober::SessionDown(InstanceId peer) { impl_->SessionDown(peer); }
control::LaneCarrier* Prober::carrier() { return impl_.get(); }
void Prober::Forget(InstanceId peer) { impl_->Forget(peer); }
void Prober::DeviceFailed(int physical) { impl_->DeviceFailed(physical); }
std::vector<Prober::Result> Prober::Poll(int64_t now_ns) { return impl_->Poll(now_ns); }
std::vector<Prober::Outgoing> Prober::TakeOutgoing() { return impl_->TakeOutgoing(); }
int64_t Prober::next_due() const { return impl_->next_due(); }
Prober::Counters Prober::counters() const { return impl_->counters(); }

}  // namespace railhop::runtime
