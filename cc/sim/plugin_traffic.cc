#include "cc/sim/plugin_traffic.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace railhop::sim {
namespace {

using datapath::Outcome;
using datapath::Request;

constexpr uint64_t kUntouched = 0x7e57;  // salt of the pattern of room that is not filled
constexpr uint64_t kPauseMaxNs = 50'000'000;
constexpr uint64_t kUsedUp = 0x0dead;  // salt of what a sender's buffer is used for afterwards

// Whether a call went well; faults that are being dealt with are none of NCCL's business.
bool IsFine(Outcome outcome) { return outcome == Outcome::kOk || outcome == Outcome::kFault; }

// A registered buffer that is used again.
struct Place {
  Buffer buffer;
  runtime::Memory registration;
  bool busy = false;
  uint64_t holds = 0;  // pattern of the first `filled` bytes; the rest is `rest`'s
  uint32_t filled = 0;
  uint64_t rest = 0;
  bool watched = false;  // the contents are known
};

// Whether nobody has written to it since it was handed back.
bool Untouched(const Place& place, size_t* where) {
  if (!place.watched) return true;
  *where = place.buffer.FirstWrong(place.holds, 0, place.filled);
  if (*where != place.filled) return false;
  const size_t rest = place.buffer.size() - place.filled;
  *where = place.buffer.FirstWrong(place.rest, place.filled, rest);
  return *where == place.buffer.size();
}

}  // namespace

// Places of one end.
class Places {
 public:
  Places(PluginTraffic* traffic, PluginHost* host, runtime::ConnectionComm* comm, bool receives)
      : traffic_(traffic), host_(host), comm_(comm), receives_(receives) {}

  // Null: memory could not be registered.
  Place* Take(size_t size, size_t misalign) {
    size = std::max<size_t>(size, 1);
    for (auto& place : places_) {
      if (place->busy || place->buffer.size() < size) continue;
      Check(*place);
      place->busy = true;
      return place.get();
    }
    auto made = std::make_unique<Place>();
    made->buffer = traffic_->memory()->Allocate(size, misalign);
    const absl::Status registered =
        host_->Register(comm_, made->buffer.data(), made->buffer.size(), &made->registration);
    if (!registered.ok()) {
      problem_ = std::string(registered.message());
      return nullptr;
    }
    if (receives_) {
      traffic_->world()->judge().Add(made->buffer.data(), made->buffer.size(), traffic_->Name());
    }
    made->busy = true;
    places_.push_back(std::move(made));
    return places_.back().get();
  }
  const std::string& problem() const { return problem_; }

  void Check(const Place& place) {
    size_t where = 0;
    if (Untouched(place, &where)) return;
    traffic_->world()->violations().Add(absl::StrCat(traffic_->Name(), ": byte ", where,
                                                     " of a buffer of ", place.buffer.size(),
                                                     " was written after the request had ended"));
  }
  void CheckAll() {
    for (const auto& place : places_) {
      if (!place->busy) Check(*place);
    }
  }
  // In turn, as NCCL's thread does it: one that had to be waited for is the last for now, since no
  // time passes in here (TakeHeldUp).
  absl::Status DeregisterAll() {
    absl::Status first;
    for (const auto& place : places_) {
      if (place->registration.mark != runtime::Memory::Mark::kLive) continue;
      const absl::Status status = host_->Deregister(&place->registration);
      if (status.ok()) place->registration.mark = runtime::Memory::Mark::kOver;
      if (first.ok()) first = status;
      if (!status.ok() && traffic_->world()->IsHeldUp()) break;
    }
    return first;
  }

 private:
  PluginTraffic* const traffic_;
  PluginHost* const host_;
  runtime::ConnectionComm* const comm_;
  const bool receives_;
  std::vector<std::unique_ptr<Place>> places_;
  std::string problem_;
};

// ---- an end

TrafficEnd::TrafficEnd(PluginTraffic* traffic, PluginHost* host, engine::End end,
                       const PacePlan& pace, uint64_t seed)
    : traffic_(traffic),
      host_(host),
      end_(end),
      pace_(pace),
      prng_(seed),
      pause_ns_(pace.pause_ns) {
  progress_ns_ = traffic->world()->now_ns();
  Schedule(prng_.Below(pace_.pause_ns + 1));
}

void TrafficEnd::Schedule(uint64_t after_ns) {
  next_ns_ = traffic_->world()->now_ns() + after_ns;
  traffic_->world()->loop().At(next_ns_, this, next_ns_);
}

void TrafficEnd::Nudge() {
  if (closed_ || !host_->alive()) return;
  const uint64_t soon = pace_.pause_ns + prng_.Below(pace_.pause_ns + 1);
  if (next_ns_ > traffic_->world()->now_ns() + soon && idle_until_ns_ == 0) {
    pause_ns_ = pace_.pause_ns;
    Schedule(soon);
  }
}

void TrafficEnd::OnEvent(uint64_t arg) {
  if (arg != next_ns_ || closed_) return;  // an earlier visit took its place
  if (!host_->alive()) {
    state_ = EndState::kDead;
    closed_ = true;
    ended_ns_ = traffic_->world()->now_ns();
    return;
  }
  CallerScope scope(traffic_->world(), Caller::kNccl);
  (void)traffic_->world()->TakeHeldUp();
  idle_until_ns_ = 0;
  bool moved = false;
  // Whose peer has closed is ended by whoever runs the job.
  if (state_ == EndState::kRunning && traffic_->IsLeftAlone(end_)) state_ = EndState::kDone;
  if (state_ == EndState::kRunning) {
    moved = Visit();
    if (state_ == EndState::kRunning && Finished()) state_ = EndState::kDone;
  }
  const uint64_t now = traffic_->world()->now_ns();
  if (state_ != EndState::kRunning) return AfterEnd();
  if (moved) {
    progress_ns_ = now;
    pause_ns_ = pace_.pause_ns;
    vain_ = 0;
  } else {
    // Who waits for long is looked at less often: it costs events and finds nothing.
    const uint64_t most = pace_.pause_max_ns << std::min<uint64_t>(++vain_ / 64, 8);
    pause_ns_ = std::min({pause_ns_ * 2, most, std::max(pace_.pause_max_ns, kPauseMaxNs)});
  }
  uint64_t pause = pause_ns_ / 2 + prng_.Below(pause_ns_);
  if (idle_until_ns_ > now) pause = idle_until_ns_ - now;
  Schedule(pause + traffic_->world()->TakeHeldUp());
}

// Done or failed: waits for its time to close.
void TrafficEnd::AfterEnd() {
  const uint64_t now = traffic_->world()->now_ns();
  if (ended_ns_ == 0) ended_ns_ = now;
  if (state_ == EndState::kFailed && close_at_ns_ == 0 && !refused_) {
    // NCCL's thread is gone; the others close in their time. Every call must go on failing.
    if (Again() == Outcome::kOk) Violation("a call succeeds after one that failed");
  }
  const bool may_close = traffic_->plan().close_alone || refused_ || traffic_->Ended();
  if (may_close && close_at_ns_ == 0) close_at_ns_ = now + traffic_->plan().close_ns;
  if (close_at_ns_ != 0 && now >= close_at_ns_) {
    const PluginHost::Failover& failover = host_->failover();
    const bool free = !failover.remove || failover.remove(*traffic_->connection(), end_);
    if (free && Close().ok()) {
      closed_ = true;
      if (state_ == EndState::kDone) state_ = EndState::kClosed;
      return;
    }
    close_at_ns_ = now + 1'000'000;  // as a thread that waits for it would
  }
  const uint64_t wait = close_at_ns_ > now ? close_at_ns_ - now : 0;
  Schedule(std::max<uint64_t>(wait, 20'000 + prng_.Below(1'000'000)) +
           traffic_->world()->TakeHeldUp());
}

void TrafficEnd::Fail(Outcome outcome, const std::string& what) {
  if (state_ != EndState::kRunning) return;
  outcome_ = outcome;
  state_ = EndState::kFailed;
  what_ = what;
  refused_ = what.starts_with("registering");
  if (!refused_) OnFailed();
  if (outcome == Outcome::kMisuse) Violation(what + " was called misuse");
}

// As the transport does it: on a worker, for a while; then NCCL is told that it goes on.
absl::Status TrafficEnd::CloseInBound(runtime::ConnectionComm* comm,
                                      const std::function<absl::Status()>& close) {
  if (closing_ == nullptr) {
    closing_ = std::make_shared<Closing>();
    host_->failover().run(comm, [closing = closing_, close] {
      closing->status = close();
      closing->ended = true;
    });
  }
  if (!closing_->ended) return absl::UnavailableError("a call on a device does not return");
  const absl::Status status = closing_->status;
  closing_ = nullptr;
  return status;
}

// What the plugin's boundary does with it.
void TrafficEnd::Heed(Outcome outcome) {
  const PluginHost::Failover& failover = host_->failover();
  if (outcome == Outcome::kFault && failover.notify) {
    failover.notify(*traffic_->connection(), end_);
  }
}

void TrafficEnd::Violation(const std::string& text) {
  traffic_->world()->violations().Add(traffic_->Name() + ": " + text);
}

// ---- the sender

class SendEnd final : public TrafficEnd {
 public:
  SendEnd(PluginTraffic* traffic, const TrafficPlan& plan)
      : TrafficEnd(traffic, traffic->connection()->sender, engine::End::kSender, plan.send_pace,
                   plan.seed * 2 + 1),
        groups_(plan.groups),
        places_(traffic, host_, traffic->connection()->send.get(), false) {}

  Places& places() { return places_; }

 protected:
  bool Visit() override {
    bool moved = TestAll();
    while (state_ == EndState::kRunning && outstanding_.size() < pace_.outstanding &&
           group_ < groups_.size() && idle_until_ns_ == 0) {
      if (!SendNext()) break;
      moved = true;
    }
    return moved;
  }
  bool Finished() const override { return group_ == groups_.size() && outstanding_.empty(); }
  Outcome Again() override {
    Request* request = nullptr;
    if (!outstanding_.empty()) {
      int done = 0, size = 0;
      const Outcome outcome = connection()->Test(
          static_cast<datapath::SendRequest*>(outstanding_.front().request), &done, &size);
      if (outcome == Outcome::kOk && done != 0)
        outstanding_.pop_front();  // was done before
      else
        return outcome;
    }
    return connection()->Send(nullptr, 0, 0, nullptr, &request);
  }
  absl::Status Close() override {
    if (traffic_->plan().deregister_first) {
      const absl::Status status = places_.DeregisterAll();
      if (!status.ok()) return status;
    }
    const absl::Status closed =
        CloseInBound(traffic_->connection()->send.get(), [this] { return connection()->Close(); });
    if (!closed.ok()) return closed;
    if (host_->failover().closed) host_->failover().closed(traffic_->connection()->send.get());
    traffic_->world()->judge().RemoveFifo(
        reinterpret_cast<const void*>(traffic_->connection()->hello.memory_address));
    outstanding_.clear();
    return places_.DeregisterAll();
  }

 private:
  struct Sent {
    Request* request;
    Place* place;
    uint32_t size;
    uint64_t pattern;
  };

  datapath::SendConnection* connection() { return traffic_->connection()->send->connection; }

  bool TestAll() {
    bool moved = false;
    for (size_t i = 0; i < outstanding_.size();) {
      const Sent sent = outstanding_[i];
      int done = 0, size = -1;
      const Outcome outcome =
          connection()->Test(static_cast<datapath::SendRequest*>(sent.request), &done, &size);
      Heed(outcome);
      if (!IsFine(outcome)) {
        Fail(outcome, "a test of a send");
        return moved;
      }
      if (done == 0) {
        ++i;
        continue;
      }
      moved = true;
      ++requests_;
      if (size != static_cast<int>(sent.size)) {
        Violation(absl::StrCat("a send of ", sent.size, " bytes was reported as ", size));
      }
      if (!sent.place->buffer.Holds(sent.pattern, 0, sent.size)) {
        Violation("a buffer that was sent has changed");
      }
      // NCCL computes into it at once.
      sent.place->holds = sent.place->rest = sent.pattern ^ kUsedUp;
      sent.place->filled = 0;
      sent.place->watched = true;
      sent.place->buffer.Fill(sent.place->rest);
      sent.place->busy = false;
      outstanding_.erase(outstanding_.begin() + static_cast<ptrdiff_t>(i));
    }
    return moved;
  }

  // Whether the next message got a request.
  bool SendNext() {
    const GroupPlan& group = groups_[group_];
    const size_t index = group.send_order[sent_of_group_];
    const MessagePlan& message = group.messages[index];
    const uint64_t pattern = traffic_->PatternOf(group_, index);
    if (ready_ == nullptr) {
      ready_ = places_.Take(message.size, message.misalign);
      if (ready_ == nullptr) {
        Fail(Outcome::kSystem, "registering " + places_.problem());
        return false;
      }
      ready_->buffer.Fill(pattern, 0, message.size);
      ready_->watched = false;
    }
    Request* request = nullptr;
    const Outcome outcome = connection()->Send(ready_->buffer.data(), message.size, message.tag,
                                               &ready_->registration.keys, &request);
    Heed(outcome);
    if (!IsFine(outcome)) {
      Fail(outcome, "a send");
      return false;
    }
    if (request == nullptr) return false;
    outstanding_.push_back({request, ready_, message.size, pattern});
    ready_ = nullptr;
    if (++sent_of_group_ == group.messages.size()) {
      sent_of_group_ = 0;
      ++group_;
      if (prng_.Chance(pace_.idle)) {
        idle_until_ns_ = traffic_->world()->now_ns() + pace_.idle_ns;
      }
    }
    return true;
  }

  const std::vector<GroupPlan>& groups_;
  Places places_;
  size_t group_ = 0;
  size_t sent_of_group_ = 0;
  Place* ready_ = nullptr;  // filled, for the next message
  std::deque<Sent> outstanding_;
};

// ---- the receiver

class RecvEnd final : public TrafficEnd {
 public:
  RecvEnd(PluginTraffic* traffic, const TrafficPlan& plan)
      : TrafficEnd(traffic, traffic->connection()->receiver, engine::End::kReceiver, plan.recv_pace,
                   plan.seed * 2 + 2),
        groups_(plan.groups),
        places_(traffic, host_, traffic->connection()->recv.get(), true) {}

  Places& places() { return places_; }

 protected:
  bool Visit() override {
    bool moved = TestAll();
    while (state_ == EndState::kRunning && outstanding_.size() < pace_.outstanding &&
           group_ < groups_.size() && idle_until_ns_ == 0) {
      if (!ReceiveNext()) break;
      moved = true;
    }
    return moved;
  }
  bool Finished() const override { return group_ == groups_.size() && outstanding_.empty(); }
  Outcome Again() override {
    while (!outstanding_.empty()) {
      int done = 0;
      int sizes[8] = {};
      const Outcome outcome = connection()->Test(
          static_cast<datapath::Transfer*>(outstanding_.front().request), &done, sizes);
      if (outcome != Outcome::kOk || done == 0) return outcome;
      outstanding_.pop_front();  // was done before
    }
    return connection()->Poll();
  }
  absl::Status Close() override {
    if (traffic_->plan().deregister_first) {
      const absl::Status status = places_.DeregisterAll();
      if (!status.ok()) return status;
    }
    const absl::Status closed =
        CloseInBound(traffic_->connection()->recv.get(), [this] { return connection()->Close(); });
    if (!closed.ok()) return closed;
    if (host_->failover().closed) host_->failover().closed(traffic_->connection()->recv.get());
    if (state_ != EndState::kFailed || refused()) OnFailed();
    outstanding_.clear();
    return places_.DeregisterAll();
  }
  // Nothing may land any more: the connection is over at this end.
  void OnFailed() override {
    for (const Posted& posted : outstanding_) {
      for (const Place* place : posted.places) {
        traffic_->world()->judge().Close(place->buffer.data());
      }
    }
  }

 private:
  struct Posted {
    Request* request;
    size_t group;
    std::vector<Place*> places;
  };

  datapath::RecvConnection* connection() { return traffic_->connection()->recv->connection; }

  bool TestAll() {
    bool moved = false;
    for (size_t i = 0; i < outstanding_.size();) {
      int done = 0;
      int sizes[8] = {};
      const Outcome outcome = connection()->Test(
          static_cast<datapath::Transfer*>(outstanding_[i].request), &done, sizes);
      Heed(outcome);
      if (!IsFine(outcome)) {
        Fail(outcome, "a test of a receive");
        return moved;
      }
      if (done == 0) {
        ++i;
        continue;
      }
      moved = true;
      ++requests_;
      Judge(outstanding_[i], sizes);
      outstanding_.erase(outstanding_.begin() + static_cast<ptrdiff_t>(i));
    }
    return moved;
  }

  void Judge(const Posted& posted, const int* sizes) {
    for (size_t i = 0; i < posted.places.size(); ++i) {
      const MessagePlan& message = groups_[posted.group].messages[i];
      const uint64_t pattern = traffic_->PatternOf(posted.group, i);
      Place& place = *posted.places[i];
      traffic_->world()->judge().Close(place.buffer.data());
      const std::string where = absl::StrCat("receive ", i, " of group ", posted.group);
      if (sizes[i] != static_cast<int>(message.size)) {
        Violation(
            absl::StrCat(where, " has ", message.size, " bytes and was reported with ", sizes[i]));
      }
      const size_t wrong = place.buffer.FirstWrong(pattern, 0, message.size);
      if (wrong != message.size) {
        Violation(absl::StrCat(where, " (", message.size, " bytes): byte ", wrong, " is wrong"));
        place.buffer.Fill(pattern, 0, message.size);
      }
      place.holds = pattern;
      place.filled = message.size;
      place.watched = true;
      place.busy = false;
      Check(place);
      traffic_->bytes_ += message.size;
    }
  }
  void Check(Place& place) { places_.Check(place); }

  bool ReceiveNext() {
    const GroupPlan& group = groups_[group_];
    const size_t n = group.messages.size();
    if (ready_.empty()) {
      for (size_t i = 0; i < n; ++i) {
        Place* place = places_.Take(group.messages[i].room, group.messages[i].misalign);
        if (place == nullptr) {
          Fail(Outcome::kSystem, "registering " + places_.problem());
          return false;
        }
        place->rest = traffic_->PatternOf(group_, i) ^ kUntouched;
        place->buffer.Fill(place->rest);
        place->watched = false;
        ready_.push_back(place);
      }
    }
    void* data[8];
    size_t sizes[8];
    int tags[8];
    const datapath::MemoryKeys* keys[8];
    for (size_t i = 0; i < n; ++i) {
      data[i] = ready_[i]->buffer.data();
      sizes[i] = group.messages[i].room;
      tags[i] = group.messages[i].tag;
      keys[i] = &ready_[i]->registration.keys;
    }
    Request* request = nullptr;
    const Outcome outcome =
        connection()->Receive(static_cast<int>(n), data, sizes, tags, keys, &request);
    Heed(outcome);
    if (!IsFine(outcome)) {
      Fail(outcome, "a receive");
      return false;
    }
    if (request == nullptr) return false;
    for (const Place* place : ready_) traffic_->world()->judge().Open(place->buffer.data());
    outstanding_.push_back({request, group_, std::move(ready_)});
    ready_.clear();
    ++group_;
    if (prng_.Chance(pace_.idle)) {
      idle_until_ns_ = traffic_->world()->now_ns() + pace_.idle_ns;
    }
    return true;
  }

  const std::vector<GroupPlan>& groups_;
  Places places_;
  size_t group_ = 0;
  std::vector<Place*> ready_;
  std::deque<Posted> outstanding_;
};

// ---- a connection

PluginTraffic::PluginTraffic(PluginWorld* world, Memory* memory, const TrafficPlan& plan,
                             size_t index)
    : world_(world), memory_(memory), plan_(plan), index_(index) {}
PluginTraffic::~PluginTraffic() = default;

TrafficEnd* PluginTraffic::send() const { return send_.get(); }
TrafficEnd* PluginTraffic::recv() const { return recv_.get(); }

void PluginTraffic::Start() { world_->loop().At(kStartNs + plan_.start_ns, this); }

void PluginTraffic::OnEvent(uint64_t) {
  PluginHost* sender = world_->FindHost(plan_.sender);
  PluginHost* receiver = world_->FindHost(plan_.receiver);
  if (!sender->alive() || !receiver->alive()) {
    refused_ = "a host is dead";
    return;
  }
  const auto device = [](PluginHost* host, const std::vector<int>& parts) {
    if (parts.size() == 1) return parts[0];
    return *host->devices().Fuse(parts);
  };
  absl::StatusOr<std::unique_ptr<PluginConnection>> made = world_->Connect(
      sender, device(sender, plan_.send_parts), receiver, device(receiver, plan_.recv_parts));
  (void)world_->TakeHeldUp();
  if (!made.ok()) {
    refused_ = std::string(made.status().message());
    return;
  }
  connection_ = *std::move(made);
  for (const engine::End end : {engine::End::kSender, engine::End::kReceiver}) {
    PluginHost* host = end == engine::End::kSender ? sender : receiver;
    if (host->failover().added) host->failover().added(*connection_, end);
  }
  world_->judge().AddFifo(reinterpret_cast<const void*>(connection_->hello.memory_address),
                          sizeof(datapath::SenderMemory::fifo), Name());
  send_ = std::make_unique<SendEnd>(this, plan_);
  recv_ = std::make_unique<RecvEnd>(this, plan_);
}

std::string PluginTraffic::Name() const {
  return absl::StrCat("connection ", index_, " (", plan_.sender, " to ", plan_.receiver, ")");
}

bool PluginTraffic::IsLeftAlone(engine::End end) const {
  const TrafficEnd* peer = end == engine::End::kSender ? recv() : send();
  constexpr uint64_t kAbortNs = 500'000'000;
  return peer != nullptr && peer->closed() && peer->state() != EndState::kDead &&
         (peer->refused() || plan_.close_alone) && world_->now_ns() > peer->ended_ns() + kAbortNs;
}

bool PluginTraffic::Ended() const {
  if (!refused_.empty()) return true;
  return send_ != nullptr && send_->state() != EndState::kRunning &&
         recv_->state() != EndState::kRunning;
}

bool PluginTraffic::Closed() const {
  if (!refused_.empty()) return true;
  return send_ != nullptr && send_->closed() && recv_->closed();
}

void PluginTraffic::CheckBuffers() {
  if (send_ == nullptr) return;
  send_->places().CheckAll();
  recv_->places().CheckAll();
}

uint64_t PluginTraffic::PatternOf(size_t group, size_t message) const {
  uint64_t state = plan_.seed ^ (group << 8 | message);
  return SplitMix64(&state);
}

}  // namespace railhop::sim
