#include "cc/netperf/traffic.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
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
    if (++turns_ % 8 != 0) return true;  // a yield takes long on a busy machine
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
            const std::function<void(uint64_t)>& at_mark)
      : plan_(plan), leg_(leg), process_(process), board_(board), at_mark_(at_mark) {
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
    if (leg_.gap_min_ns > 0) WriteGaps();
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

  void WriteGaps() {
    FILE* const file = fopen(plan_.gaps.c_str(), "a");
    if (file == nullptr) {
      Broken("cannot write " + plan_.gaps);
      return;
    }
    for (const RecvStream& stream : recvs_) {
      for (const Gap& gap : stream.gaps()) {
        fprintf(file, "{\"connection\":%d,\"after\":%llu,\"from_ns\":%lld,\"to_ns\":%lld}\n",
                gap.connection, static_cast<unsigned long long>(gap.after),
                static_cast<long long>(gap.from_ns), static_cast<long long>(gap.to_ns));
      }
    }
    fclose(file);
  }

  void NoteTurn(int64_t start_ns) {
    if (!leg_.check_all) return;
    result_.counts.longest_turn_ns =
        std::max(result_.counts.longest_turn_ns, clock_.NowNs() - start_ns);
  }

  // The worker computes for a while.
  void CountForPause(bool here, uint64_t messages) {
    if (leg_.pause_every == 0 || !here) return;
    counted_ += messages;
    if (counted_ < leg_.pause_every) return;
    counted_ = 0;
    usleep(static_cast<useconds_t>(leg_.pause_ns / 1000));
  }

  bool Advance(SendStream& stream, bool* moved) {
    const int64_t start_ns = leg_.check_all ? clock_.NowNs() : 0;
    const uint64_t before = stream.done();
    const Step step = stream.Advance();
    NoteTurn(start_ns);
    CountForPause(leg_.pause_sender, (stream.done() - before) * static_cast<uint64_t>(leg_.group));
    if (step == Step::kFailed) return Broken(stream.problem());
    *moved |= step == Step::kMoved;
    return true;
  }

  bool Advance(RecvStream& stream, bool* moved) {
    int received = 0;
    const int64_t start_ns = leg_.check_all ? clock_.NowNs() : 0;
    const Step step = stream.Advance(&received);
    NoteTurn(start_ns);
    CountForPause(leg_.pause_receiver, static_cast<uint64_t>(received));
    for (; received > 0; --received) {
      const uint64_t number = board_->CountReceived();
      for (int i = 0; i < kMarksMax && leg_.marks[i] != 0; ++i) {
        if (number == leg_.marks[i]) at_mark_(number);
      }
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
      if (leg_.endless && board_->stopping()) MeetEnds();
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

  void MeetEnds() {
    for (SendStream& stream : sends_) stream.MeetEnd(&board_->MeetingOf(stream.connection()));
    for (RecvStream& stream : recvs_) stream.MeetEnd(&board_->MeetingOf(stream.connection()));
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
  const std::function<void(uint64_t)>& at_mark_;
  uint64_t counted_ = 0;  // messages since the last pause
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
                     Board* board, const std::function<void(uint64_t)>& at_mark) {
  return LegRunner(plan, leg, process, links, board, at_mark).Run();
}

}  // namespace railhop::netperf
