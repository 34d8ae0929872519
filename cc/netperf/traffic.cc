#include "cc/netperf/traffic.h"

#include <sched.h>

#include <deque>

#include "cc/base/clock.h"
#include "cc/netperf/stream.h"

namespace railhop::netperf {
namespace {

// Ends a leg in which nothing is received any more.
class Patience {
 public:
  Patience(const SessionPlan& plan, Board* board)
      : limit_ns_(static_cast<int64_t>(plan.timeout_s * 1e9)), board_(board) {}

  // After a turn without a move. False: the leg is over.
  bool Wait(std::string* problem) {
    sched_yield();
    if (board_->given_up()) {
      *problem = "given up";
      return false;
    }
    if (++turns_ % 256 != 0) return true;
    const uint64_t received = board_->received();
    const int64_t now_ns = clock_.NowNs();
    if (received != received_ || since_ns_ == 0) {
      received_ = received;
      since_ns_ = now_ns;
    }
    if (now_ns - since_ns_ < limit_ns_) return true;
    *problem = "no message for " + std::to_string(limit_ns_ / 1'000'000) + " ms after message " +
               std::to_string(received);
    return false;
  }

 private:
  const RealClock clock_;
  const int64_t limit_ns_;
  Board* const board_;
  uint64_t turns_ = 0;
  uint64_t received_ = 0;
  int64_t since_ns_ = 0;
};

class LegRunner {
 public:
  LegRunner(const SessionPlan& plan, const Leg& leg, int process, Links* links, Board* board,
            const std::function<void()>& at_message)
      : plan_(plan), leg_(leg), process_(process), board_(board), at_message_(at_message) {
    for (Link& link : links->sends()) {
      const uint64_t groups = GroupsOf(plan, leg, link.number);
      if (groups > 0) sends_.emplace_back(links->plugin(), link, leg, groups);
    }
    for (Link& link : links->recvs()) {
      const uint64_t groups = GroupsOf(plan, leg, link.number);
      if (groups > 0) recvs_.emplace_back(links->plugin(), link, leg, groups, &result_.counts);
    }
  }

  TrafficResult Run() {
    if (!board_->Barrier()) return Failed("given up");
    result_.counts.start_ns = clock_.NowNs();
    const bool good = leg_.mode == Mode::kPingPong ? PingPong() : Stream();
    result_.counts.end_ns = clock_.NowNs();
    if (!good) return result_;
    // Guard zones are looked at when nothing can be under way any more.
    if (!board_->Barrier()) return Failed("given up");
    for (SendStream& stream : sends_) result_.counts.wrong_bytes += stream.Finish();
    for (RecvStream& stream : recvs_) stream.Finish();
    return result_;
  }

 private:
  TrafficResult Failed(const char* problem) {
    result_.problem = problem;
    return result_;
  }

  bool Broken(const std::string& problem) {
    result_.problem = problem;
    ++result_.counts.errors;
    board_->GiveUp();
    return false;
  }

  bool Advance(SendStream& stream, bool* moved) {
    const Step step = stream.Advance();
    if (step == Step::kFailed) return Broken(stream.problem());
    *moved |= step == Step::kMoved;
    return true;
  }

  bool Advance(RecvStream& stream, bool* moved) {
    int received = 0;
    const Step step = stream.Advance(&received);
    for (; received > 0; --received) {
      if (board_->CountReceived() == leg_.at_message) at_message_();
    }
    if (step == Step::kFailed) return Broken(stream.problem());
    *moved |= step == Step::kMoved;
    return true;
  }

  bool Wait(Patience* patience) {
    std::string problem;
    if (patience->Wait(&problem)) return true;
    if (board_->given_up()) {
      result_.problem = problem;  // another worker has the reason
      return false;
    }
    return Broken(problem);
  }

  bool Stream() {
    Patience patience(plan_, board_);
    while (true) {
      bool moved = false;
      bool done = true;
      for (RecvStream& stream : recvs_) {
        if (stream.Done()) continue;
        if (!Advance(stream, &moved)) return false;
        done &= stream.Done();
      }
      for (SendStream& stream : sends_) {
        if (stream.Done()) continue;
        if (!Advance(stream, &moved)) return false;
        done &= stream.Done();
      }
      if (done) return true;
      if (!moved && !Wait(&patience)) return false;
    }
  }

  // Process 0 sends, process 1 answers; receives are posted before the message that they are for.
  bool PingPong() {
    SendStream& send = sends_.front();
    RecvStream& recv = recvs_.front();
    Patience patience(plan_, board_);
    recv.set_limit(1);
    send.set_limit(0);
    bool moved = false;
    if (!Advance(recv, &moved)) return false;
    if (!board_->Barrier()) return false;
    for (uint64_t i = 0; i < leg_.count; ++i) {
      const int64_t start_ns = clock_.NowNs();
      if (process_ == 0) send.set_limit(i + 1);
      while (recv.done() <= i) {
        moved = false;
        if (process_ == 0 && !Advance(send, &moved)) return false;
        if (!Advance(recv, &moved)) return false;
        if (!moved && !Wait(&patience)) return false;
      }
      if (process_ == 0) board_->latencies()[i] = static_cast<uint32_t>(clock_.NowNs() - start_ns);
      if (i + 1 < leg_.count) recv.set_limit(i + 2);
      if (!Advance(recv, &moved)) return false;
      if (process_ == 1) send.set_limit(i + 1);
      while (send.done() <= i) {
        moved = false;
        if (!Advance(send, &moved)) return false;
        if (!moved && !Wait(&patience)) return false;
      }
    }
    return true;
  }

  const RealClock clock_;
  const SessionPlan& plan_;
  const Leg& leg_;
  const int process_;
  Board* const board_;
  const std::function<void()>& at_message_;
  TrafficResult result_;
  // Not vectors: streams have references and cannot be moved.
  std::deque<SendStream> sends_;
  std::deque<RecvStream> recvs_;
};

}  // namespace

uint64_t GroupsOf(const SessionPlan& plan, const Leg& leg, int number) {
  const auto connections = static_cast<uint64_t>(plan.connections);
  const auto n = static_cast<uint64_t>(number);
  const uint64_t edges = plan.processes > 2 ? static_cast<uint64_t>(plan.processes)
                         : leg.backwards    ? 2
                                            : 1;
  if (leg.mode == Mode::kPingPong) return n % connections == 0 ? leg.count : 0;
  if (n >= edges * connections) return 0;
  const uint64_t groups =
      (leg.count + static_cast<uint64_t>(leg.group) - 1) / static_cast<uint64_t>(leg.group);
  const uint64_t all = edges * connections;
  return groups / all + (n < groups % all ? 1 : 0);
}

TrafficResult RunLeg(const SessionPlan& plan, const Leg& leg, int process, Links* links,
                     Board* board, const std::function<void()>& at_message) {
  return LegRunner(plan, leg, process, links, board, at_message).Run();
}

}  // namespace railhop::netperf
