// Completion queues: which requests complete, in what order, and what happens when there is no
// room.
#include <errno.h>
#include <poll.h>

#include <algorithm>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

unsigned SignalIf(bool signalled) {
  return signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0;
}

// Posts `count` writes of 8 bytes; only those for which `flags(i)` says so ask for a completion.
void PostWrites(const Side& side, const Region& local, const Region& target, int count,
                const std::function<unsigned(int)>& flags) {
  std::vector<ibv_sge> list = {local.Sge(0, 8)};
  for (int i = 0; i < count; ++i) {
    side.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, static_cast<uint64_t>(i), list, target.addr(),
                         target.mr->rkey, flags(i)));
  }
}

void PollEmpty(World& world) {
  Pair pair(world);
  ibv_wc wc[4];
  ExpectEq(world.v.poll_cq(pair.first.send_cq, 4, wc), 0, "ibv_poll_cq of an empty queue");
  ExpectEq(world.v.poll_cq(pair.first.send_cq, 0, wc), 0, "ibv_poll_cq of none");
}

void Unsignalled(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  PostWrites(pair.first, local, target, 20, [](int i) { return SignalIf(i == 19); });
  ExpectCompletion(world, pair.first.send_cq, 19, IBV_WC_SUCCESS);
  ExpectQuiet(world, pair.first.send_cq, 0.02);
}

// Slots of unsignalled requests come back with the completion of a later one.
void UnsignalledSlotsComeBack(World& world) {
  Pair pair(world, {.send_wr = 8}, {});
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  for (int round = 0; round < 200; ++round) {
    PostWrites(pair.first, local, target, 8, [](int i) { return SignalIf(i == 7); });
    ExpectCompletion(world, pair.first.send_cq, 7, IBV_WC_SUCCESS);
  }
}

void SigAll(World& world) {
  Pair pair(world, {.sig_all = true}, {});
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  PostWrites(pair.first, local, target, 5, [](int) { return 0u; });
  for (uint64_t i = 0; i < 5; ++i) {
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
  }
}

void UnsignalledErrorCompletes(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  std::vector<ibv_sge> list = {local.Sge(0, 8)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 5, list, target.addr() + 4, target.mr->rkey, 0));
  ExpectCompletion(world, pair.first.send_cq, 5, IBV_WC_REM_ACCESS_ERR);
}

void PollInParts(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  PostWrites(pair.first, local, target, 10, [](int) { return IBV_SEND_SIGNALED; });
  uint64_t next = 0;
  for (const int part : {3, 1, 4, 2}) {
    for (const ibv_wc& wc : Poll(world, pair.first.send_cq, part)) {
      ExpectEq(wc.wr_id, next++, "completions in the order of posting");
    }
  }
  ExpectQuiet(world, pair.first.send_cq, 0.01);
}

// Both queues of several queue pairs may be one completion queue; each queue's order is kept.
void SharedCq(World& world) {
  Side first(world, world.first_device());
  Side second(world, world.second_device());
  Side first_too(first, {}), second_too(second, {});
  Connect(first, second);
  Connect(first_too, second_too);
  Region local = first.NewRegion(8), target = second.NewRegion(8);
  PostWrites(first, local, target, 30, [](int) { return IBV_SEND_SIGNALED; });
  PostWrites(first_too, local, target, 30, [](int) { return IBV_SEND_SIGNALED; });
  uint64_t next = 0, next_too = 0;
  for (const ibv_wc& wc : Poll(world, first.send_cq, 60)) {
    ExpectEq(+wc.status, +IBV_WC_SUCCESS, "status");
    const bool is_first = wc.qp_num == first.qp->qp_num;
    ExpectTrue(is_first || wc.qp_num == first_too.qp->qp_num, "qp_num is one of the two");
    ExpectEq(wc.wr_id, is_first ? next++ : next_too++, "order of each queue pair");
  }
}

void SendAndRecvOnOneCq(World& world) {
  Side side(world, world.first_device());
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = side.send_cq;
  attr.cap = {8, 8, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  side.DestroyQp();
  side.qp = world.v.create_qp(side.pd, &attr);
  ExpectTrue(side.qp != nullptr, "ibv_create_qp with one completion queue");
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange(side, {}, 3));
  side.MustModify(side.RtsChange({}, 3));
  side.MustRecv(1, {});
  std::vector<ibv_sge> nothing;
  side.MustSend(SendWr(IBV_WR_SEND, 2, nothing));
  bool sent = false, received = false;
  for (const ibv_wc& wc : Poll(world, side.send_cq, 2)) {
    ExpectEq(+wc.status, +IBV_WC_SUCCESS, "status");
    sent = sent || (wc.wr_id == 2 && wc.opcode == IBV_WC_SEND);
    received = received || (wc.wr_id == 1 && wc.opcode == IBV_WC_RECV);
  }
  ExpectTrue(sent && received, "one completion of each kind");
}

// More completions than entries: an error that nobody can overlook, and never a wrong completion.
void Overflow(World& world) {
  Pair pair(world, {.send_wr = 128, .cq_entries = 4}, {});
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  const int room = pair.first.send_cq->cqe;
  const int count = std::min(room + 40, 8000);
  std::vector<ibv_sge> list = {local.Sge(0, 8)};
  int posted = 0;
  for (; posted < count; ++posted) {
    // The send queue may be full until the device has caught up, and for good once it has failed.
    int error = 0;
    world.WaitUntil(
        [&] {
          error = pair.first.PostSend(RdmaWr(IBV_WR_RDMA_WRITE, static_cast<uint64_t>(posted), list,
                                             target.addr(), target.mr->rkey));
          return error != ENOMEM;
        },
        0.5);
    if (error != 0) break;
  }
  ExpectTrue(posted > room, "more posted than the queue has room for");
  pollfd wait = {pair.first.device->context->async_fd, POLLIN, 0};
  world.WaitUntil([&] { return poll(&wait, 1, 0) == 1; }, 3);
  ExpectEq(poll(&wait, 1, 0), 1, "an asynchronous event is there");
  ibv_async_event event = {};
  ExpectEq(world.v.get_async_event(pair.first.device->context, &event), 0, "ibv_get_async_event");
  const int type = event.event_type;
  world.v.ack_async_event(&event);
  ExpectOneOf<int>(type, {IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL}, "event type");
}

void Resize(World& world) {
  Pair pair(world, {.send_wr = 64, .cq_entries = 16}, {});
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  PostWrites(pair.first, local, target, 10, [](int) { return IBV_SEND_SIGNALED; });
  world.Pass(0.05);
  ExpectEq(world.v.resize_cq(pair.first.send_cq, 200), 0, "ibv_resize_cq");
  ExpectTrue(pair.first.send_cq->cqe >= 200, "more entries");
  PostWrites(pair.first, local, target, 50, [](int) { return IBV_SEND_SIGNALED; });
  const std::vector<ibv_wc> found = Poll(world, pair.first.send_cq, 60);
  for (uint64_t i = 0; i < 60; ++i) {
    ExpectEq(found[i].wr_id, i < 10 ? i : i - 10, "nothing is lost or reordered");
  }
}

void ResizeTooSmall(World& world) {
  Pair pair(world, {.cq_entries = 64}, {});
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  PostWrites(pair.first, local, target, 32, [](int) { return IBV_SEND_SIGNALED; });
  world.Pass(0.2);
  ExpectEq(world.v.resize_cq(pair.first.send_cq, 2), EINVAL, "shrinking below what is in it");
  Poll(world, pair.first.send_cq, 32);
}

void DestroyQpWithCompletions(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  PostWrites(pair.first, local, target, 10, [](int) { return IBV_SEND_SIGNALED; });
  world.Pass(0.05);
  pair.first.DestroyQp();
  ibv_wc wc[16];
  const int left = world.v.poll_cq(pair.first.send_cq, 16, wc);
  ExpectTrue(left >= 0 && left <= 10, "polling after ibv_destroy_qp is safe");
}

void ExtendedCq(World& world) {
  Side side(world, world.first_device());
  ibv_cq_init_attr_ex cq_attr = {};
  cq_attr.cqe = 16;
  cq_attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
  ibv_cq_ex* cq = world.v.create_cq_ex(side.device->context, &cq_attr);
  ExpectTrue(cq != nullptr, "ibv_create_cq_ex");
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
  attr.cap = {8, 8, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  side.DestroyQp();
  side.qp = world.v.create_qp(side.pd, &attr);
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange(side, {}, 3));
  side.MustModify(side.RtsChange({}, 3));
  side.MustRecv(1, {});
  std::vector<ibv_sge> nothing;
  ibv_send_wr wr = SendWr(IBV_WR_SEND_WITH_IMM, 2, nothing, 0);
  wr.imm_data = 99;
  side.MustSend(wr);
  ibv_poll_cq_attr poll_attr = {};
  ExpectTrue(world.WaitUntil([&] { return ibv_start_poll(cq, &poll_attr) == 0; }),
             "ibv_start_poll");
  ExpectEq(+cq->status, +IBV_WC_SUCCESS, "status");
  ExpectEq(cq->wr_id, 1u, "wr_id");
  ExpectEq(ibv_wc_read_opcode(cq), IBV_WC_RECV, "opcode");
  ExpectEq(ibv_wc_read_imm_data(cq), 99u, "imm_data");
  ExpectEq(ibv_wc_read_qp_num(cq), side.qp->qp_num, "qp_num");
  ExpectEq(ibv_next_poll(cq), ENOENT, "ibv_next_poll");
  ibv_end_poll(cq);
  side.DestroyQp();
  ExpectEq(world.v.destroy_cq(ibv_cq_ex_to_cq(cq)), 0, "ibv_destroy_cq");
}

}  // namespace

std::vector<Case> CompletionCases() {
  const std::vector<std::string> none, resize = {"resize_cq"};
  const char* const signalled = "IBTA 10.8.6; man ibv_post_send, IBV_SEND_SIGNALED";
  return {
      {"Cq.PollEmpty_Zero", "man ibv_poll_cq", none, PollEmpty},
      {"Cq.Unsignalled_NoCompletion", signalled, none, Unsignalled},
      {"Cq.UnsignalledSlots_ComeBackWithALaterCompletion", signalled, none,
       UnsignalledSlotsComeBack},
      {"Cq.SigAll_EveryRequestCompletes", "man ibv_create_qp, sq_sig_all", none, SigAll},
      {"Cq.UnsignalledError_Completes", "IBTA 10.8.6", none, UnsignalledErrorCompletes},
      {"Cq.PollInParts_InOrder", "IBTA 10.8.5", none, PollInParts},
      {"Cq.SharedByTwoQps_EachInOrder", "IBTA 10.8.5", none, SharedCq},
      {"Cq.SendAndReceiveOnOne_BothComplete", "IBTA 10.8.5", none, SendAndRecvOnOneCq},
      {"Cq.Overflow_AsyncError", "IBTA 11.6.3.1; man ibv_get_async_event, IBV_EVENT_CQ_ERR", none,
       Overflow},
      {"Cq.Resize_KeepsCompletions", "man ibv_resize_cq", resize, Resize},
      {"Cq.ResizeBelowContents_Einval", "man ibv_resize_cq", resize, ResizeTooSmall},
      {"Cq.QpDestroyedWithCompletions_PollIsSafe", "IBTA 10.2.4.4", none, DestroyQpWithCompletions},
      {"Cq.Extended_PollsOneByOne", "man ibv_create_cq_ex", {"cq_ex"}, ExtendedCq},
  };
}

}  // namespace railhop::conformance
