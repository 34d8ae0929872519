// Other transports: unreliable connections, datagrams, shared receive queues.
#include <errno.h>
#include <string.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

const SideOptions kUc = {.type = IBV_QPT_UC};

void UcMove(World& world, ibv_wr_opcode opcode, size_t size) {
  Pair pair(world, kUc, {});
  Region local = pair.first.NewRegion(size), target = pair.second.NewRegion(size);
  local.buffer->Fill(1);
  const bool send = opcode == IBV_WR_SEND;
  const bool imm = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  std::vector<ibv_sge> list = {local.Sge(0, size)};
  if (send) pair.second.MustRecv(5, {target.Sge(0, size)});
  if (imm) pair.second.MustRecv(5, {});
  ibv_send_wr wr = RdmaWr(opcode, 1, list, target.addr(), target.mr->rkey);
  if (send) wr.wr = {};
  wr.imm_data = 321;
  pair.first.MustSend(wr);
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  if (send || imm) {
    const ibv_wc wc = ExpectCompletion(world, pair.second.recv_cq, 5, IBV_WC_SUCCESS);
    ExpectEq(wc.byte_len, size, "byte_len");
    if (imm) ExpectEq(wc.imm_data, 321u, "imm_data");
  } else {
    // Nobody says when it has landed.
    world.WaitUntil([&] { return target.data()[size - 1] == Buffer::Pattern(1, size - 1); }, 3);
  }
  target.buffer->ExpectPattern(0, size, 1);
}

// A sender hears nothing from the other side: it succeeds whether anybody is there or not.
void UcPeerGone(World& world) {
  Pair pair(world, kUc, {});
  pair.second.DestroyQp();
  Region local = pair.first.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  for (uint64_t i = 0; i < 10; ++i) {
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, 0x1000, 1));
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
  }
  ExpectEq(+pair.first.State(), +IBV_QPS_RTS, "state");
}

// A message that finds no receive is dropped whole; the next that finds one arrives.
void UcNoReceive(World& world) {
  Pair pair(world, kUc, {});
  Region local = pair.first.NewRegion(64), sink = pair.second.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  local.buffer->Fill(1);
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, list));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  world.Pass(0.1);
  pair.second.MustRecv(5, {sink.Sge(0, 64)});
  ExpectQuiet(world, pair.second.recv_cq, 0.1);
  local.buffer->Fill(2);
  pair.first.MustSend(SendWr(IBV_WR_SEND, 2, list));
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 5, IBV_WC_SUCCESS);
  sink.buffer->ExpectPattern(0, 64, 2);
}

void UcNoRead(World& world) {
  Pair pair(world, kUc, {});
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  const int error =
      pair.first.PostSend(RdmaWr(IBV_WR_RDMA_READ, 1, list, target.addr(), target.mr->rkey));
  if (error != 0) return;
  const ibv_wc wc = PollOne(world, pair.first.send_cq);
  ExpectEq(+wc.status, +IBV_WC_LOC_QP_OP_ERR, "status of a read on an unreliable connection");
}

// A refused write changes nothing and nobody is told.
void UcBadKey(World& world) {
  Pair pair(world, kUc, {});
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey ^ 0x5500));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  world.Pass(0.1);
  for (size_t i = 0; i < 64; ++i) ExpectEq(target.data()[i], 0, "a byte of the target");
  ExpectEq(+pair.first.State(), +IBV_QPS_RTS, "state of the sender");
}

void UcErrFlushes(World& world) {
  Pair pair(world, kUc, {});
  for (uint64_t i = 0; i < 5; ++i) pair.first.MustRecv(i, {});
  pair.first.MoveTo(IBV_QPS_ERR);
  for (uint64_t i = 0; i < 5; ++i) {
    ExpectCompletion(world, pair.first.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
  }
  pair.first.MoveTo(IBV_QPS_RESET);
  pair.second.MoveTo(IBV_QPS_RESET);
  Connect(pair.first, pair.second);
  pair.second.MustRecv(7, {});
  std::vector<ibv_sge> nothing;
  pair.first.MustSend(SendWr(IBV_WR_SEND, 8, nothing));
  ExpectCompletion(world, pair.first.send_cq, 8, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 7, IBV_WC_SUCCESS);
}

void UdReady(const Side& side, uint32_t qkey) {
  QpChange init = side.InitChange();
  init.mask = (init.mask & ~IBV_QP_ACCESS_FLAGS) | IBV_QP_QKEY;
  init.attr.qkey = qkey;
  side.MustModify(init);
  side.MoveTo(IBV_QPS_RTR);
  QpChange rts = Side::StateChange(IBV_QPS_RTS);
  rts.mask |= IBV_QP_SQ_PSN;
  side.MustModify(rts);
}

// A datagram arrives 40 bytes into the receive, behind the room for a global route header.
void UdSend(World& world) {
  const SideOptions options = {.type = IBV_QPT_UD};
  Side first(world, world.first_device(), options), second(world, world.second_device(), options);
  UdReady(first, 0x11223344);
  UdReady(second, 0x11223344);
  const ibv_ah_attr address = first.RtrChange(second, {}, 0).attr.ah_attr;
  ibv_ah_attr copy = address;
  ibv_ah* ah = world.v.create_ah(first.pd, &copy);
  ExpectTrue(ah != nullptr, "ibv_create_ah");
  Region local = first.NewRegion(100), sink = second.NewRegion(140);
  local.buffer->Fill(1);
  second.MustRecv(5, {sink.Sge(0, 140)});
  std::vector<ibv_sge> list = {local.Sge(0, 100)};
  ibv_send_wr wr = SendWr(IBV_WR_SEND, 1, list);
  wr.wr.ud = {ah, second.qp->qp_num, 0x11223344};
  first.MustSend(wr);
  ExpectCompletion(world, first.send_cq, 1, IBV_WC_SUCCESS);
  const ibv_wc wc = ExpectCompletion(world, second.recv_cq, 5, IBV_WC_SUCCESS);
  ExpectEq(wc.byte_len, 140u, "byte_len");
  ExpectEq(wc.src_qp, first.qp->qp_num, "src_qp");
  sink.buffer->ExpectPattern(40, 100, 1);
  ExpectEq(world.v.destroy_ah(ah), 0, "ibv_destroy_ah");
}

void SharedReceiveQueue(World& world) {
  Side first(world, world.first_device()), second(world, world.second_device());
  ibv_srq_init_attr srq_attr = {};
  srq_attr.attr.max_wr = 16;
  srq_attr.attr.max_sge = 1;
  ibv_srq* srq = world.v.create_srq(second.pd, &srq_attr);
  ExpectTrue(srq != nullptr, "ibv_create_srq");
  ibv_qp_init_attr attr = {};
  attr.send_cq = second.send_cq;
  attr.recv_cq = second.recv_cq;
  attr.srq = srq;
  attr.cap = {8, 0, 1, 0, 0};
  attr.qp_type = IBV_QPT_RC;
  second.DestroyQp();
  second.qp = world.v.create_qp(second.pd, &attr);
  ExpectTrue(second.qp != nullptr, "ibv_create_qp with a shared receive queue");
  Connect(first, second);
  Region sink = second.NewRegion(64), local = first.NewRegion(64);
  local.buffer->Fill(1);
  ibv_sge sge = sink.Sge(0, 64);
  ibv_recv_wr wr = {};
  ibv_recv_wr* bad = nullptr;
  wr.wr_id = 5;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ExpectEq(world.v.post_srq_recv(srq, &wr, &bad), 0, "ibv_post_srq_recv");
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  first.MustSend(SendWr(IBV_WR_SEND, 1, list));
  ExpectCompletion(world, first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, second.recv_cq, 5, IBV_WC_SUCCESS);
  sink.buffer->ExpectPattern(0, 64, 1);
  ExpectEq(world.v.destroy_srq(srq), EBUSY, "ibv_destroy_srq with a queue pair");
  second.DestroyQp();
  ExpectEq(world.v.destroy_srq(srq), 0, "ibv_destroy_srq");
}

}  // namespace

std::vector<Case> UnreliableCases() {
  const std::vector<std::string> uc = {"uc"};
  const char* const clause = "IBTA 9.8.2";
  return {
      {"Uc.SendOnePacket_Arrives", clause, uc, [](World& w) { UcMove(w, IBV_WR_SEND, 100); }},
      {"Uc.SendManyPackets_Arrives", clause, uc, [](World& w) { UcMove(w, IBV_WR_SEND, 60000); }},
      {"Uc.Write_Arrives", clause, uc, [](World& w) { UcMove(w, IBV_WR_RDMA_WRITE, 60000); }},
      {"Uc.WriteImm_Arrives", clause, uc,
       [](World& w) { UcMove(w, IBV_WR_RDMA_WRITE_WITH_IMM, 60000); }},
      {"Uc.PeerGone_SenderSucceeds", clause, uc, UcPeerGone},
      {"Uc.NoReceive_MessageIsDroppedTheNextArrives", "IBTA 9.8.2.2", uc, UcNoReceive},
      {"Uc.Read_Refused", "man ibv_post_send, table of operations", uc, UcNoRead},
      {"Uc.WriteWithBadKey_NothingHappens", "IBTA 9.8.2.2", uc, UcBadKey},
      {"Uc.Error_FlushesAndIsReusable", "IBTA 10.3.1.7", uc, UcErrFlushes},
      {"Ud.Send_Arrives40BytesIn", "IBTA 11.4.1.2; man ibv_post_recv", {"ud"}, UdSend},
      {"Srq.Send_TakesASharedReceive", "man ibv_create_srq", {"srq"}, SharedReceiveQueue},
  };
}

}  // namespace railhop::conformance
