// Patience: receivers that are not ready, and peers that do not answer.
#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

std::vector<ibv_sge>& Nothing() {
  static std::vector<ibv_sge> nothing;
  return nothing;
}

void RnrExhausted(World& world) {
  Pair pair(world, {}, {.rnr_retry = 2, .min_rnr_timer = 10});
  for (uint64_t i = 0; i < 3; ++i) pair.first.MustSend(SendWr(IBV_WR_SEND, i, Nothing()));
  ExpectCompletion(world, pair.first.send_cq, 0, IBV_WC_RNR_RETRY_EXC_ERR);
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
  ExpectEq(+pair.first.State(), +IBV_QPS_ERR, "state of the sender");
  ExpectEq(+pair.second.State(), +IBV_QPS_RTS, "state of the receiver");
}

void RnrZero(World& world) {
  Pair pair(world, {}, {.rnr_retry = 0});
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, Nothing()));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
}

void RnrForWriteImm(World& world) {
  Pair pair(world, {}, {.rnr_retry = 1});
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 1, Nothing(), 0, 0));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
}

// Writes and reads need no receive.
void NoRnrForWrite(World& world) {
  Pair pair(world, {}, {.rnr_retry = 0});
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_READ, 2, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
}

// `timer` code 0 is the longest, 655 ms.
void RnrHeals(World& world, uint8_t rnr_retry, uint8_t timer, double wait) {
  Pair pair(world, {}, {.rnr_retry = rnr_retry, .min_rnr_timer = timer});
  Region source = pair.first.NewRegion(3000), sink = pair.second.NewRegion(3000);
  source.buffer->Fill(1);
  std::vector<ibv_sge> list = {source.Sge(0, 3000)};
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, list));
  ExpectQuiet(world, pair.first.send_cq, wait);
  pair.second.MustRecv(2, {sink.Sge(0, 3000)});
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 2, IBV_WC_SUCCESS);
  sink.buffer->ExpectPattern(0, 3000, 1);
}

// The timer is the receiver's: two waits of 81.92 ms (code 26) take at least 160 ms.
void RnrTimerCounts(World& world) {
  Pair pair(world, {}, {.rnr_retry = 2, .min_rnr_timer = 26});
  const double start = world.Now();
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, Nothing()));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
  ExpectTrue(world.Now() - start > 0.15, "two waits of 82 ms before giving up");
}

// Every message that a slow receiver takes is taken once.
void SlowReceiver(World& world) {
  Pair pair(world, {}, {.rnr_retry = 7, .min_rnr_timer = 1});
  Region source = pair.first.NewRegion(64 * 30), sink = pair.second.NewRegion(64 * 30);
  source.buffer->Fill(1);
  std::vector<ibv_sge> list(1);
  for (uint64_t i = 0; i < 30; ++i) {
    list[0] = source.Sge(i * 64, 64);
    pair.first.MustSend(SendWr(IBV_WR_SEND, i, list));
  }
  for (uint64_t i = 0; i < 30; ++i) {
    world.Pass(0.002);
    pair.second.MustRecv(i, {sink.Sge(i * 64, 64)});
    ExpectCompletion(world, pair.second.recv_cq, i, IBV_WC_SUCCESS);
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
  }
  sink.buffer->ExpectPattern(0, 64 * 30, 1);
  ExpectQuiet(world, pair.second.recv_cq, 0.05);
}

constexpr double kTick = 4.096e-6 * (1 << 14);  // timeout 14: 67 ms

// Posts three writes to a peer that does not answer and expects 12 after `retry_count` + 1 ticks.
void ExpectRetryExceeded(World& world, const Side& side, uint8_t retry_count) {
  Region local = const_cast<Side&>(side).NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  const double start = world.Now();
  for (uint64_t i = 0; i < 3; ++i) {
    side.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, 0x1000, 1));
  }
  ExpectCompletion(world, side.send_cq, 0, IBV_WC_RETRY_EXC_ERR, 20);
  const double took = world.Now() - start;
  // IBTA allows the timer to be up to four times what was asked, and never less.
  ExpectTrue(took > 0.9 * kTick * (retry_count + 1),
             "not before its time: " + std::to_string(took));
  ExpectTrue(took < 4.5 * kTick * (retry_count + 1) + 1.0 * world.options.time_factor,
             "not long after its time: " + std::to_string(took));
  ExpectCompletion(world, side.send_cq, 1, IBV_WC_WR_FLUSH_ERR);
  ExpectCompletion(world, side.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
  ExpectEq(+side.State(), +IBV_QPS_ERR, "state");
}

void PeerDestroyed(World& world, uint8_t retry_count) {
  Pair pair(world, {}, {.retry_count = retry_count});
  pair.second.DestroyQp();
  ExpectRetryExceeded(world, pair.first, retry_count);
}

void PeerNeverMade(World& world) {
  Side side(world, world.first_device());
  Side other(world, world.second_device());
  const ConnectOptions options = {.retry_count = 1};
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange((other.qp->qp_num + 77) & 0xffffff, other.device->gid,
                                 other.device->port_attr.lid, options, 1));
  side.MustModify(side.RtsChange(options, 1));
  ExpectRetryExceeded(world, side, 1);
}

void PeerInReset(World& world) {
  Pair pair(world, {}, {.retry_count = 1});
  pair.second.MoveTo(IBV_QPS_RESET);
  ExpectRetryExceeded(world, pair.first, 1);
}

void PeerInError(World& world) {
  Pair pair(world, {}, {.retry_count = 1});
  pair.second.MoveTo(IBV_QPS_ERR);
  ExpectRetryExceeded(world, pair.first, 1);
}

// The peer talks to somebody else now: what it does not expect, it does not take.
void SequenceAhead(World& world) {
  Side first(world, world.first_device()), second(world, world.second_device());
  const ConnectOptions options = {.retry_count = 1};
  first.MustModify(first.InitChange());
  second.MustModify(second.InitChange());
  first.MustModify(first.RtrChange(second, options, 1));
  second.MustModify(second.RtrChange(first, options, 1000));
  first.MustModify(first.RtsChange(options, 5000));
  second.MustModify(second.RtsChange(options, 1));
  second.MustRecv(9, {});
  first.MustSend(SendWr(IBV_WR_SEND, 1, Nothing()));
  ExpectCompletion(world, first.send_cq, 1, IBV_WC_RETRY_EXC_ERR, 20);
  ExpectQuiet(world, second.recv_cq, 0.05);
}

// With a retry count of 7 it still ends: 7 is a number here, and infinite only for RNR.
void SevenIsFinite(World& world) {
  Pair pair(world, {}, {.timeout = 12, .retry_count = 7});
  pair.second.DestroyQp();
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, Nothing()));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_RETRY_EXC_ERR, 3);
}

// Timeout 0 waits for ever.
void TimeoutZero(World& world) {
  Pair pair(world, {}, {.timeout = 0, .retry_count = 1});
  pair.second.DestroyQp();
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, Nothing()));
  ExpectQuiet(world, pair.first.send_cq, 1.0);
}

// The requester's error does not reach a peer that is alive: it hears nothing and stays.
void PeerHearsNothing(World& world) {
  Pair pair(world);
  pair.second.MustRecv(1, {});
  pair.first.MoveTo(IBV_QPS_ERR);
  ExpectQuiet(world, pair.second.recv_cq, 0.2);
  ExpectEq(+pair.second.State(), +IBV_QPS_RTS, "state of the peer");
}

}  // namespace

std::vector<Case> RnrCases() {
  const std::vector<std::string> none;
  const char* const rnr = "IBTA 9.7.5.2.8, 11.6.2 (RNR retry counter exceeded)";
  return {
      {"Rnr.NoReceive_RnrRetryExcErrAndFlush", rnr, none, RnrExhausted},
      {"Rnr.RetryCountZero_FailsAtOnce", rnr, none, RnrZero},
      {"Rnr.WriteImmWithoutReceive_RnrRetryExcErr", rnr, none, RnrForWriteImm},
      {"Rnr.WriteAndRead_NeedNoReceive", rnr, none, NoRnrForWrite},
      {"Rnr.ReceiveComesInTime_Success", rnr, none, [](World& w) { RnrHeals(w, 6, 0, 0.0); }},
      {"Rnr.CountSeven_WaitsUntilTheReceiveComes", "IBTA 9.7.5.2.8; man ibv_modify_qp", none,
       [](World& w) { RnrHeals(w, 7, 14, 0.5); }},
      {"Rnr.TimerOfTheReceiver_IsWaitedFor", rnr, none, RnrTimerCounts},
      {"Rnr.SlowReceiver_TakesEachMessageOnce", rnr, none, SlowReceiver},
  };
}

std::vector<Case> RetryCases() {
  const std::vector<std::string> none;
  const char* const retry = "IBTA 9.7.6.1.3, 9.9.2.1.1, 11.6.2 (transport retry counter exceeded)";
  return {
      {"Retry.PeerQpDestroyed_Status12AfterOneRetry", retry, none,
       [](World& w) { PeerDestroyed(w, 1); }},
      {"Retry.PeerQpDestroyed_Status12AfterFourRetries", retry, none,
       [](World& w) { PeerDestroyed(w, 4); }},
      {"Retry.CountZero_Status12AfterOneTimeout", retry, none,
       [](World& w) { PeerDestroyed(w, 0); }},
      {"Retry.PeerQpNeverMade_Status12", retry, none, PeerNeverMade},
      {"Retry.PeerInReset_Status12", retry, none, PeerInReset},
      {"Retry.PeerInError_Status12", retry, none, PeerInError},
      {"Retry.SequenceNumberAhead_NothingIsTaken", "IBTA 9.7.4.1.2, 9.7.5.2.1", none,
       SequenceAhead},
      {"Retry.CountSeven_IsFinite", "IBTA 9.7.6.1.3; man ibv_modify_qp", none, SevenIsFinite},
      {"Retry.TimeoutZero_WaitsForEver", "IBTA 9.7.6.1.3; man ibv_modify_qp", none, TimeoutZero},
      {"Retry.OwnError_ThePeerHearsNothing", "IBTA 10.3.1.7", none, PeerHearsNothing},
  };
}

}  // namespace railhop::conformance
