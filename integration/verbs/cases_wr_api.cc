// The newer way to post: ibv_wr_start, builders, ibv_wr_complete. It means the same as
// ibv_post_send.
#include <errno.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

const SideOptions kOps = {.send_ops = IBV_QP_EX_WITH_RDMA_WRITE |
                                      IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                                      IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ};

ibv_qp_ex* Extended(World& world, const Side& side) {
  ibv_qp_ex* qp = world.v.qp_to_qp_ex(side.qp);
  ExpectTrue(qp != nullptr, "ibv_qp_to_qp_ex");
  return qp;
}

void EveryOperation(World& world) {
  Pair pair(world, kOps, {});
  ibv_qp_ex* qp = Extended(world, pair.first);
  Region local = pair.first.NewRegion(1000), target = pair.second.NewRegion(5000);
  Region back = pair.first.NewRegion(1000);
  local.buffer->Fill(1);
  for (uint64_t i = 10; i < 13; ++i) pair.second.MustRecv(i, {target.Sge(i * 300, 1000)});
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, target.mr->rkey, target.addr());
  ibv_wr_set_sge(qp, local.mr->lkey, local.addr(), 1000);
  qp->wr_id = 2;
  ibv_wr_rdma_write_imm(qp, target.mr->rkey, target.addr() + 1000, 71);
  ibv_wr_set_sge(qp, local.mr->lkey, local.addr(), 1000);
  qp->wr_id = 3;
  ibv_wr_send(qp);
  ibv_wr_set_sge(qp, local.mr->lkey, local.addr(), 1000);
  qp->wr_id = 4;
  ibv_wr_send_imm(qp, 72);
  ibv_wr_set_sge(qp, local.mr->lkey, local.addr(), 1000);
  qp->wr_id = 5;
  ibv_wr_rdma_read(qp, target.mr->rkey, target.addr());
  ibv_wr_set_sge(qp, back.mr->lkey, back.addr(), 1000);
  ExpectEq(ibv_wr_complete(qp), 0, "ibv_wr_complete");
  for (uint64_t i = 1; i <= 5; ++i) ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
  ExpectEq(ExpectCompletion(world, pair.second.recv_cq, 10, IBV_WC_SUCCESS).imm_data, 71u, "imm");
  ExpectEq(ExpectCompletion(world, pair.second.recv_cq, 11, IBV_WC_SUCCESS).byte_len, 1000u, "len");
  ExpectEq(ExpectCompletion(world, pair.second.recv_cq, 12, IBV_WC_SUCCESS).imm_data, 72u, "imm");
  for (const size_t offset : {0, 1000, 3600}) target.buffer->ExpectPattern(offset, 1000, 1);
  target.buffer->ExpectPattern(3300, 300, 1);
  back.buffer->ExpectPattern(0, 1000, 1);
}

void SgeList(World& world) {
  Pair pair(world, kOps, {});
  ibv_qp_ex* qp = Extended(world, pair.first);
  Region local = pair.first.NewRegion(1000), target = pair.second.NewRegion(1000);
  local.buffer->Fill(1);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, target.mr->rkey, target.addr());
  const ibv_sge pieces[2] = {local.Sge(0, 600), local.Sge(600, 400)};
  ibv_wr_set_sge_list(qp, 2, pieces);
  ExpectEq(ibv_wr_complete(qp), 0, "ibv_wr_complete");
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 1000, 1);
}

void InlineData(World& world) {
  SideOptions options = kOps;
  options.inline_bytes = 64;
  Pair pair(world, options, {});
  ibv_qp_ex* qp = Extended(world, pair.first);
  Region target = pair.second.NewRegion(64);
  Buffer& plain = world.NewBuffer(64);
  plain.Fill(1);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(qp, target.mr->rkey, target.addr());
  ibv_wr_set_inline_data(qp, plain.data(), 24);
  qp->wr_id = 2;
  ibv_wr_rdma_write(qp, target.mr->rkey, target.addr() + 24);
  const ibv_data_buf pieces[2] = {{plain.data() + 24, 30}, {plain.data() + 54, 10}};
  ibv_wr_set_inline_data_list(qp, 2, pieces);
  ExpectEq(ibv_wr_complete(qp), 0, "ibv_wr_complete");
  plain.Fill(2);
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 64, 1);
}

void Abort(World& world) {
  Pair pair(world, kOps, {});
  ibv_qp_ex* qp = Extended(world, pair.first);
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  local.buffer->Fill(1);
  auto write = [&](uint64_t id) {
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, target.mr->rkey, target.addr());
    ibv_wr_set_sge(qp, local.mr->lkey, local.addr(), 64);
  };
  ibv_wr_start(qp);
  write(1);
  ibv_wr_abort(qp);
  ExpectQuiet(world, pair.first.send_cq, 0.05);
  for (size_t i = 0; i < 64; ++i) ExpectEq(target.data()[i], 0, "a byte of the target");
  ibv_wr_start(qp);
  write(2);
  ExpectEq(ibv_wr_complete(qp), 0, "ibv_wr_complete");
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 64, 1);
}

// A batch that does not fit is refused whole, by ibv_wr_complete.
void TooMany(World& world) {
  SideOptions options = kOps;
  options.send_wr = 4;
  Pair pair(world, options, {});
  ibv_qp_ex* qp = Extended(world, pair.first);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ExpectEq(world.v.query_qp(pair.first.qp, &attr, IBV_QP_CAP, &init), 0, "ibv_query_qp");
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  ibv_wr_start(qp);
  for (uint32_t i = 0; i <= init.cap.max_send_wr; ++i) {
    qp->wr_id = i;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, target.mr->rkey, target.addr());
    ibv_wr_set_sge(qp, local.mr->lkey, local.addr(), 64);
  }
  ExpectOneOf(ibv_wr_complete(qp), {ENOMEM, ENOSPC}, "ibv_wr_complete");
  ExpectQuiet(world, pair.first.send_cq, 0.05);
}

// Old and new posting on one queue pair keep one order.
void MixedWithOld(World& world) {
  Pair pair(world, kOps, {});
  ibv_qp_ex* qp = Extended(world, pair.first);
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  for (uint64_t i = 0; i < 20; i += 2) {
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey));
    ibv_wr_start(qp);
    qp->wr_id = i + 1;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, target.mr->rkey, target.addr());
    ibv_wr_set_sge(qp, local.mr->lkey, local.addr(), 64);
    ExpectEq(ibv_wr_complete(qp), 0, "ibv_wr_complete");
  }
  for (uint64_t i = 0; i < 20; ++i) ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
}

void Atomics(World& world) {
  Pair pair(world,
            {.send_ops = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD},
            {});
  ibv_qp_ex* qp = Extended(world, pair.first);
  Region result = pair.first.NewRegion(16), target = pair.second.NewRegion(8);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_fetch_add(qp, target.mr->rkey, target.addr(), 41);
  ibv_wr_set_sge(qp, result.mr->lkey, result.addr(), 8);
  qp->wr_id = 2;
  ibv_wr_atomic_cmp_swp(qp, target.mr->rkey, target.addr(), 41, 99);
  ibv_wr_set_sge(qp, result.mr->lkey, result.addr() + 8, 8);
  ExpectEq(ibv_wr_complete(qp), 0, "ibv_wr_complete");
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
  const auto* const old = reinterpret_cast<uint64_t*>(result.data());
  ExpectEq(old[0], 0u, "before the addition");
  ExpectEq(old[1], 41u, "before the swap");
  ExpectEq(*reinterpret_cast<uint64_t*>(target.data()), 99u, "the value after");
}

// A queue pair made the old way has no builders.
void PlainQpHasNone(World& world) {
  Side side(world, world.first_device());
  ExpectTrue(world.v.qp_to_qp_ex(side.qp) == nullptr, "ibv_qp_to_qp_ex of a plain queue pair");
}

}  // namespace

std::vector<Case> WrApiCases() {
  const std::vector<std::string> api = {"wr_api"};
  const char* const clause = "man ibv_wr_post";
  return {
      {"WrApi.EveryOperationInOneBatch_AllArrive", clause, api, EveryOperation},
      {"WrApi.SgeList_OneMessage", clause, api, SgeList},
      {"WrApi.InlineData_IsCopied", clause, {"wr_api", "inline"}, InlineData},
      {"WrApi.Abort_NothingIsSent", clause, api, Abort},
      {"WrApi.BatchTooLong_RefusedWhole", clause, api, TooMany},
      {"WrApi.MixedWithPostSend_OneOrder", clause, api, MixedWithOld},
      {"WrApi.Atomics_Work", clause, {"wr_api", "atomics"}, Atomics},
      {"WrApi.PlainQp_HasNone", "man ibv_qp_to_qp_ex", api, PlainQpHasNone},
  };
}

}  // namespace railhop::conformance
