// Leaving RTS: the error state flushes in order, RESET forgets, SQD drains; and back again.
#include <errno.h>
#include <poll.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

std::vector<ibv_sge>& Nothing() {
  static std::vector<ibv_sge> nothing;
  return nothing;
}

// Sends that cannot complete, because the peer has no receive and retries for ever.
const ConnectOptions kStuck = {.rnr_retry = 7, .min_rnr_timer = 20};

void ErrFlushesAll(World& world) {
  Pair pair(world, {}, kStuck);
  for (uint64_t i = 0; i < 10; ++i) pair.first.MustRecv(100 + i, {});
  for (uint64_t i = 0; i < 10; ++i) {
    pair.first.MustSend(SendWr(IBV_WR_SEND, i, Nothing(), i % 2 ? unsigned{IBV_SEND_SIGNALED} : 0));
  }
  pair.first.MoveTo(IBV_QPS_ERR);
  for (uint64_t i = 0; i < 10; ++i) {
    const ibv_wc wc = ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_WR_FLUSH_ERR);
    ExpectEq(wc.qp_num, pair.first.qp->qp_num, "qp_num");
  }
  for (uint64_t i = 0; i < 10; ++i) {
    ExpectCompletion(world, pair.first.recv_cq, 100 + i, IBV_WC_WR_FLUSH_ERR);
  }
  ExpectQuiet(world, pair.first.send_cq, 0.02);
  ExpectQuiet(world, pair.first.recv_cq, 0);
}

// Posting to a queue pair in error works and gives a flushed completion.
void PostInErr(World& world) {
  Pair pair(world);
  pair.first.MoveTo(IBV_QPS_ERR);
  for (uint64_t i = 0; i < 5; ++i) {
    pair.first.MustSend(SendWr(IBV_WR_SEND, i, Nothing(), 0));
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_WR_FLUSH_ERR, 3);
    pair.first.MustRecv(10 + i, {});
    ExpectCompletion(world, pair.first.recv_cq, 10 + i, IBV_WC_WR_FLUSH_ERR, 3);
  }
}

// What completed before the error stays a success in front of the flushed ones.
void SuccessesStay(World& world) {
  Pair pair(world, {}, kStuck);
  pair.second.MustRecv(0, {});
  pair.second.MustRecv(1, {});
  for (uint64_t i = 0; i < 4; ++i) pair.first.MustSend(SendWr(IBV_WR_SEND, i, Nothing()));
  Poll(world, pair.second.recv_cq, 2);
  world.Pass(0.05);
  pair.first.MoveTo(IBV_QPS_ERR);
  for (uint64_t i = 0; i < 4; ++i) {
    ExpectCompletion(world, pair.first.send_cq, i, i < 2 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
  }
}

// Nothing lands in memory once the owner has moved its queue pair to the error state.
void ErrStopsThePeer(World& world) {
  Pair pair(world, {}, {.retry_count = 1});
  Region local = pair.first.NewRegion(4096), target = pair.second.NewRegion(4096);
  local.buffer->Fill(1);
  pair.second.MoveTo(IBV_QPS_ERR);
  std::vector<ibv_sge> list = {local.Sge(0, 4096)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
  for (size_t i = 0; i < 4096; ++i) ExpectEq(target.data()[i], 0, "a byte of the target");
}

void ResetForgets(World& world) {
  Pair pair(world, {}, kStuck);
  for (uint64_t i = 0; i < 5; ++i) {
    pair.first.MustRecv(10 + i, {});
    pair.first.MustSend(SendWr(IBV_WR_SEND, i, Nothing()));
  }
  pair.first.MoveTo(IBV_QPS_RESET);
  ExpectQuiet(world, pair.first.send_cq, 0.1);
  ExpectQuiet(world, pair.first.recv_cq, 0);
}

// Forgotten receives take no message of the next life.
void ResetDropsReceives(World& world) {
  Pair pair(world);
  Region old = pair.second.NewRegion(64), sink = pair.second.NewRegion(64);
  Region source = pair.first.NewRegion(64);
  source.buffer->Fill(1);
  pair.second.MustRecv(1, {old.Sge(0, 64)});
  pair.first.MoveTo(IBV_QPS_RESET);
  pair.second.MoveTo(IBV_QPS_RESET);
  Connect(pair.first, pair.second, {.first_psn = 500, .second_psn = 600});
  pair.second.MustRecv(2, {sink.Sge(0, 64)});
  std::vector<ibv_sge> list = {source.Sge(0, 64)};
  pair.first.MustSend(SendWr(IBV_WR_SEND, 3, list));
  ExpectCompletion(world, pair.first.send_cq, 3, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 2, IBV_WC_SUCCESS);
  sink.buffer->ExpectPattern(0, 64, 1);
}

// Around and around with new sequence numbers, after traffic, after an error, after nothing.
void Reuse(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(3000), target = pair.second.NewRegion(3000);
  std::vector<ibv_sge> list = {local.Sge(0, 3000)};
  for (uint32_t life = 0; life < 20; ++life) {
    local.buffer->Fill(life);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, life, list, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, life, IBV_WC_SUCCESS);
    target.buffer->ExpectPattern(0, 3000, life);
    if (life % 3 == 1) {
      pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 99, list, target.addr() + 1, target.mr->rkey));
      ExpectCompletion(world, pair.first.send_cq, 99, IBV_WC_REM_ACCESS_ERR);
    }
    if (life % 3 == 2) {
      pair.first.MoveTo(IBV_QPS_ERR);
      pair.second.MoveTo(IBV_QPS_ERR);
    }
    pair.first.MoveTo(IBV_QPS_RESET);
    pair.second.MoveTo(IBV_QPS_RESET);
    Connect(pair.first, pair.second,
            {.first_psn = (life * 0x31337) & 0xffffff, .second_psn = (life * 0x71115) & 0xffffff});
  }
}

// The first life's requests do not reach the peer's second life.
void OldLifeDoesNotReachNew(World& world) {
  Pair pair(world, {}, {.timeout = 15, .retry_count = 2, .first_psn = 1000});
  Side third(world, world.first_device());
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  local.buffer->Fill(9);
  pair.second.MoveTo(IBV_QPS_RESET);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
  Connect(third, pair.second, {.first_psn = 0x700000, .second_psn = 3});
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
  for (size_t i = 0; i < 64; ++i) ExpectEq(target.data()[i], 0, "a byte of the target");
  third.MustSend([&] { return RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 2, Nothing(), 0, 0); }());
  pair.second.MustRecv(5, {});
  ExpectCompletion(world, third.send_cq, 2, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 5, IBV_WC_SUCCESS);
}

void SqdDrains(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(100000), target = pair.second.NewRegion(100000);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 100000)};
  for (uint64_t i = 0; i < 10; ++i) {
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey));
  }
  pair.first.MoveTo(IBV_QPS_SQD);
  // Some or all were started before; those complete. The rest waits.
  uint64_t done = 0;
  const double end = world.Now() + 1;
  ibv_wc wc = {};
  while (world.Now() < end) {
    if (world.v.poll_cq(pair.first.send_cq, 1, &wc) == 1) {
      ExpectEq(wc.wr_id, done++, "order");
      ExpectEq(+wc.status, +IBV_WC_SUCCESS, "status");
    }
    world.v.idle();
  }
  ExpectEq(pair.first.PostSend(RdmaWr(IBV_WR_RDMA_WRITE, 10, list, target.addr(), target.mr->rkey)),
           0, "posting in SQD");
  ExpectQuiet(world, pair.first.send_cq, 0.1);
  pair.first.MoveTo(IBV_QPS_RTS);
  for (; done < 11; ++done) ExpectCompletion(world, pair.first.send_cq, done, IBV_WC_SUCCESS, 3);
  target.buffer->ExpectPattern(0, 100000, 1);
}

void SqdEvent(World& world) {
  Pair pair(world);
  QpChange change = Side::StateChange(IBV_QPS_SQD);
  change.attr.en_sqd_async_notify = 1;
  change.mask |= IBV_QP_EN_SQD_ASYNC_NOTIFY;
  pair.first.MustModify(change);
  pollfd wait = {pair.first.device->context->async_fd, POLLIN, 0};
  ExpectTrue(world.WaitUntil([&] { return poll(&wait, 1, 0) == 1; }, 3), "an event");
  ibv_async_event event = {};
  ExpectEq(world.v.get_async_event(pair.first.device->context, &event), 0, "ibv_get_async_event");
  const int type = event.event_type;
  ibv_qp* const qp = event.element.qp;
  world.v.ack_async_event(&event);
  ExpectEq(type, +IBV_EVENT_SQ_DRAINED, "event");
  ExpectTrue(qp == pair.first.qp, "its queue pair");
}

void SqdStillReceives(World& world) {
  Pair pair(world);
  pair.second.MoveTo(IBV_QPS_SQD);
  pair.second.MustRecv(1, {});
  pair.first.MustSend(SendWr(IBV_WR_SEND, 2, Nothing()));
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 1, IBV_WC_SUCCESS);
}

}  // namespace

std::vector<Case> ErrorStateCases() {
  const std::vector<std::string> none, sqd = {"sqd"};
  const char* const err = "IBTA 10.3.1.7; man ibv_modify_qp";
  return {
      {"Err.QueuesFull_AllFlushedInOrder", err, none, ErrFlushesAll},
      {"Err.PostingInErr_FlushedCompletion", err, none, PostInErr},
      {"Err.CompletedBefore_StaysSuccess", err, none, SuccessesStay},
      {"Err.OfTheTarget_NothingLands", err, none, ErrStopsThePeer},
      {"Sqd.Sending_DrainsAndGoesOnInRts", "IBTA 10.3.1.5", sqd, SqdDrains},
      {"Sqd.WithNotification_Event", "IBTA 10.3.1.5; man ibv_modify_qp, EN_SQD_ASYNC_NOTIFY", sqd,
       SqdEvent},
      {"Sqd.ReceiveQueue_WorksOn", "IBTA 10.3.1.5", sqd, SqdStillReceives},
  };
}

std::vector<Case> ResetCases() {
  const std::vector<std::string> none;
  const char* const reset = "IBTA 10.3.1.1; man ibv_modify_qp";
  return {
      {"Reset.QueuesFull_NoCompletions", reset, none, ResetForgets},
      {"Reset.ReceivesOfOldLife_AreGone", reset, none, ResetDropsReceives},
      {"Reset.TwentyLives_WithNewSequenceNumbers", reset, none, Reuse},
      {"Reset.RequestOfOldLife_DoesNotReachTheNewOne", "IBTA 9.7.4.1.2, 10.3.1.1", none,
       OldLifeDoesNotReachNew},
  };
}

}  // namespace railhop::conformance
