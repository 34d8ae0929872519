// The progress thread of a Messenger: the only one that calls the plugin once all is connected.
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "python/railhop/_transport/messenger.h"
#include "python/railhop/_transport/plugin_handle.h"

namespace railhop::transport {

using netperf::kNetSuccess;
using netperf::NetResult;

namespace {

int64_t UnixNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Messenger::Run() {
  using Clock = std::chrono::steady_clock;
  int idle_rounds = 0;
  bool leaving = false;
  Clock::time_point deadline;
  while (true) {
    bool moved = TakeSubmissions();
    for (size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      if (peer.inbox != nullptr && !peer.broken) {
        moved |= Advance(static_cast<int>(i), &peer);
      }
    }
    NoteDip(moved);
    if (leaving && (EveryoneLeft() || Clock::now() > deadline)) break;
    if (moved) {
      idle_rounds = 0;
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    // What lanes have carried is published when nothing moves, which is before anyone can ask.
    for (LaneReport& report : reports_) {
      const Peer& peer = peers_[static_cast<size_t>(report.peer)];
      report.sent = peer.sends[static_cast<size_t>(report.lane)]->counts();
      report.received = peer.recvs[static_cast<size_t>(report.lane)]->counts();
    }
    if (closing_ && !leaving && submissions_.empty()) {
      leaving = true;
      deadline = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(goodbye_s_ * 1e3));
      lock.unlock();
      SayGoodbye();
      continue;
    }
    if (active_.empty() && !leaving) {
      submitted_.wait(lock, [this] { return closing_ || !submissions_.empty(); });
      continue;
    }
    lock.unlock();
    Idle(&idle_rounds);
  }
  EndAll();
}

// Peers share the processor: yields soon, and sleeps once nothing has moved for a while.
void Messenger::Idle(int* rounds) {
  ++*rounds;
  if (*rounds < 16) return;
  if (*rounds < 400) {
    sched_yield();
    return;
  }
  const timespec pause = {0, *rounds < 4000 ? 50'000 : 500'000};
  nanosleep(&pause, nullptr);
}

void Messenger::NoteDip(bool moved) {
  constexpr size_t kKept = 1024;
  const auto sending = [this] {
    for (const Peer& peer : peers_) {
      if (peer.broken) continue;
      for (const auto& lane : peer.sends) {
        if (!lane->idle()) return true;
      }
    }
    return false;
  };
  if (!moved && sending()) {
    if (still_since_unix_ns_ == 0) still_since_unix_ns_ = UnixNs();
    return;
  }
  if (still_since_unix_ns_ == 0) return;
  const Dip dip = {still_since_unix_ns_, UnixNs()};
  still_since_unix_ns_ = 0;
  if (dip.end_unix_ns - dip.begin_unix_ns < kDipMinNs) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (dips_.size() == kKept) dips_.pop_front();
  dips_.push_back(dip);
}

bool Messenger::TakeSubmissions() {
  std::deque<Submission> taken;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    taken.swap(submissions_);
  }
  for (const Submission& one : taken) {
    if (one.cancels) {
      TakeCancel(one.operation);
    } else {
      Take(one.operation);
    }
  }
  return !taken.empty();
}

void Messenger::Take(const std::shared_ptr<Operation>& operation) {
  active_.insert(operation);
  if (operation->peer < 0) {
    waiting_.push_back(operation);
    Inbox::Matched complete;
    for (Peer& peer : peers_) {
      if (peer.inbox == nullptr || operation->source >= 0) continue;
      peer.inbox->MatchWaiting(&complete);
    }
    FinishMatched(complete);
    return;
  }
  Peer& peer = peers_[static_cast<size_t>(operation->peer)];
  if (operation->sends) {
    if (!peer.problem.empty()) return Finish(operation, FailureKind::kPeer, peer.problem);
    operation->serial = peer.serial++;
    peer.queue.push_back(operation);
    return;
  }
  waiting_.push_back(operation);
  Inbox::Matched complete;
  peer.inbox->MatchWaiting(&complete);
  FinishMatched(complete);
  const bool nothing_comes = peer.broken || (!peer.problem.empty() && operation->source < 0);
  if (active_.count(operation) > 0 && nothing_comes) {
    Finish(operation, FailureKind::kPeer, peer.problem);
  }
}

void Messenger::TakeCancel(const std::shared_ptr<Operation>& operation) {
  if (active_.count(operation) == 0) return;
  Finish(operation, FailureKind::kClosed, "cancelled");
}

bool Messenger::Advance(int rank, Peer* peer) {
  bool moved = Fill(peer);
  if (!AdvanceSends(rank, peer, &moved)) return true;
  if (!AdvanceReceives(rank, peer, &moved)) return true;
  if (peer->inbox->said_goodbye() && peer->problem.empty() && peer->goodbye == nullptr) {
    FailPeer(rank, peer, false, "rank " + std::to_string(rank) + " has closed its group");
    return true;
  }
  return moved;
}

bool Messenger::Fill(Peer* peer) {
  bool moved = false;
  const size_t lanes = peer->sends.size();
  while (!peer->queue.empty()) {
    size_t tried = 0;
    while (tried < lanes && !peer->sends[(peer->next_lane + tried) % lanes]->HasRoom()) ++tried;
    if (tried == lanes) break;
    SendLane& lane = *peer->sends[(peer->next_lane + tried) % lanes];
    peer->next_lane = (peer->next_lane + tried + 1) % lanes;

    const std::shared_ptr<Operation> operation = peer->queue.front();
    Header header;
    header.kind = operation->kind;
    header.serial = operation->serial;
    header.tag = operation->tag;
    header.total = operation->size;
    header.offset = operation->moved;
    const size_t part =
        std::min<size_t>(PartBytes(operation->size, lanes_), operation->size - operation->moved);
    memcpy(lane.Slot(), &header, sizeof(header));
    if (part > 0) memcpy(lane.Slot() + kHeaderBytes, operation->data + operation->moved, part);
    operation->moved += part;
    ++operation->parts;
    if (operation->moved == operation->size) peer->queue.pop_front();
    lane.Commit(part, operation);
    moved = true;
  }
  return moved;
}

bool Messenger::AdvanceSends(int rank, Peer* peer, bool* moved) {
  const auto finished = [this](const std::shared_ptr<Operation>& operation) {
    if (--operation->parts == 0 && operation->moved == operation->size) {
      Finish(operation, FailureKind::kPlugin, "");
    }
  };
  for (auto& lane : peer->sends) {
    if (lane->idle()) continue;
    if (const NetResult result = lane->Advance(moved, finished); result != kNetSuccess) {
      FailPeer(rank, peer, true, CallProblem("sending to rank " + std::to_string(rank), result));
      return false;
    }
  }
  return true;
}

bool Messenger::AdvanceReceives(int rank, Peer* peer, bool* moved) {
  Inbox::Matched complete;
  std::string wrong;
  const auto came = [&](const uint8_t* slot, size_t bytes) {
    wrong = peer->inbox->Take(slot, bytes, &complete);
    return wrong.empty();
  };
  for (auto& lane : peer->recvs) {
    const NetResult result = lane->Advance(moved, came);
    FinishMatched(complete);
    complete.clear();
    if (result != kNetSuccess) {
      wrong = CallProblem("receiving from rank " + std::to_string(rank), result);
    } else if (!wrong.empty()) {
      wrong += " from rank " + std::to_string(rank);
    }
    if (!wrong.empty()) {
      FailPeer(rank, peer, true, wrong);
      return false;
    }
  }
  return true;
}

void Messenger::FinishMatched(const Inbox::Matched& complete) {
  for (const std::shared_ptr<Operation>& operation : complete) {
    std::string problem;
    if (!operation->problem.empty()) {
      const size_t space = operation->problem.find(' ');
      const auto kind = static_cast<uint32_t>(std::stoul(operation->problem));
      problem = "rank " + std::to_string(operation->source) + " sent " +
                operation->problem.substr(space + 1) + " bytes in " + KindName(kind) +
                ", where rank " + std::to_string(rank_) + " expects " +
                std::to_string(operation->size) + " in " + KindName(operation->kind) +
                ": all ranks must call the same, in the same order, with the same sizes";
    }
    Finish(operation, operation->failure, std::move(problem));
  }
}

void Messenger::Finish(const std::shared_ptr<Operation>& operation, FailureKind kind,
                       std::string problem) {
  if (active_.erase(operation) == 0) return;
  if (operation->sends) {
    auto& queue = peers_[static_cast<size_t>(operation->peer)].queue;
    queue.erase(std::remove(queue.begin(), queue.end(), operation), queue.end());
  } else {
    waiting_.remove(operation);
    for (Peer& peer : peers_) {
      if (peer.inbox != nullptr) peer.inbox->Forget(operation.get());
    }
  }
  const std::lock_guard<std::mutex> lock(done_mutex_);
  operation->failure = kind;
  operation->problem = std::move(problem);
  operation->done.store(true, std::memory_order_release);
  done_.notify_all();
}

void Messenger::FailPeer(int rank, Peer* peer, bool broken, const std::string& problem) {
  peer->problem = problem;
  peer->broken = broken;
  std::vector<std::shared_ptr<Operation>> over;
  for (const std::shared_ptr<Operation>& operation : active_) {
    const bool waits_for_anyone = operation->peer < 0 && operation->source < 0;
    if (operation->peer == rank || operation->source == rank || (waits_for_anyone && broken)) {
      over.push_back(operation);
    }
  }
  for (const std::shared_ptr<Operation>& operation : over) {
    Finish(operation, FailureKind::kPeer, problem);
  }
}

void Messenger::SayGoodbye() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.inbox == nullptr || peer.broken) continue;
    peer.goodbye = std::make_shared<Operation>();
    peer.goodbye->sends = true;
    peer.goodbye->peer = static_cast<int>(i);
    peer.goodbye->kind = kGoodbyeKind;
    peer.goodbye->serial = peer.serial++;
    active_.insert(peer.goodbye);
    peer.queue.push_back(peer.goodbye);
  }
}

bool Messenger::EveryoneLeft() const {
  for (const Peer& peer : peers_) {
    if (peer.inbox == nullptr || peer.broken) continue;
    if (!peer.inbox->said_goodbye() || active_.count(peer.goodbye) > 0) return false;
  }
  return true;
}

void Messenger::EndAll() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  TakeSubmissions();
  const std::vector<std::shared_ptr<Operation>> left(active_.begin(), active_.end());
  for (const std::shared_ptr<Operation>& operation : left) {
    Finish(operation, FailureKind::kClosed, "the group was closed before this was done");
  }
}

}  // namespace railhop::transport
