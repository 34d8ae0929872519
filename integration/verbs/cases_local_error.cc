// Errors that a side makes itself, which side sees what, and what happens to the requests behind.
#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

// After its own error a queue pair is in ERR and flushes what was behind, in order.
void ExpectFlushed(World& world, const Side& side, ibv_cq* cq, uint64_t from, uint64_t to,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  for (uint64_t i = from; i < to; ++i) {
    ExpectCompletion(world, cq, i, IBV_WC_WR_FLUSH_ERR, 10, file, line);
  }
  ExpectEq(+side.State(), +IBV_QPS_ERR, "state", file, line);
}

// A local list that the queue pair may not use: found before or while sending.
void BadLocalList(World& world, ibv_wr_opcode opcode,
                  const std::function<ibv_sge(const Region&)>& spoil) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  target.buffer->Fill(2);
  local.buffer->Fill(1);
  if (opcode == IBV_WR_SEND) pair.second.MustRecv(1, {target.Sge(0, 64)});
  std::vector<ibv_sge> bad = {spoil(local)}, good = {local.Sge(0, 64)};
  ibv_send_wr wr = RdmaWr(opcode, 0, bad, target.addr(), target.mr->rkey);
  pair.first.MustSend(wr);
  // The device may have failed already; then it refuses or flushes what comes.
  uint64_t behind = 1;
  for (; behind < 4; ++behind) {
    wr = RdmaWr(opcode, behind, good, target.addr(), target.mr->rkey);
    if (pair.first.PostSend(wr) != 0) break;
  }
  ExpectCompletion(world, pair.first.send_cq, 0, IBV_WC_LOC_PROT_ERR);
  ExpectFlushed(world, pair.first, pair.first.send_cq, 1, behind);
  if (opcode != IBV_WR_RDMA_READ) target.buffer->ExpectPattern(0, 64, 2);
}

ibv_sge BadKey(const Region& region) { return {region.addr(), 64, region.mr->lkey ^ 0x55555500}; }
ibv_sge TooLong(const Region& region) { return region.Sge(1, 64); }
ibv_sge TooEarly(const Region& region) { return {region.addr() - 1, 64, region.mr->lkey}; }

void OtherPd(World& world) {
  Pair pair(world);
  ibv_pd* other = world.v.alloc_pd(pair.first.device->context);
  {
    Region local(world, other, 64);
    Region target = pair.second.NewRegion(64);
    std::vector<ibv_sge> list = {local.Sge(0, 64)};
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 0, list, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, 0, IBV_WC_LOC_PROT_ERR);
  }
  ExpectEq(world.v.dealloc_pd(other), 0, "ibv_dealloc_pd");
}

// A read or atomic writes into local memory, so the region must allow that.
void ReadIntoReadOnlyRegion(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64, 0);
  Region target = pair.second.NewRegion(64);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_READ, 0, list, target.addr(), target.mr->rkey));
  const ibv_wc wc = PollOne(world, pair.first.send_cq);
  ExpectOneOf<int>(wc.status, {IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_ACCESS_ERR}, "status");
  local.buffer->ExpectPattern(0, 64, 1);
}

void SendFromReadOnlyRegion(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64, 0);
  Region target = pair.second.NewRegion(64);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 0, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 0, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 64, 1);
}

// A message longer than the receive: the receiver says length, the sender hears of an invalid
// request.
void ReceiveTooSmall(World& world, size_t room, size_t message) {
  Pair pair(world);
  Region source = pair.first.NewRegion(message), sink = pair.second.NewRegion(room);
  std::vector<ibv_sge> list = {source.Sge(0, message)};
  pair.second.MustRecv(10, {sink.Sge(0, room)});
  pair.second.MustRecv(11, {sink.Sge(0, room)});
  pair.first.MustSend(SendWr(IBV_WR_SEND, 20, list));
  ExpectCompletion(world, pair.first.send_cq, 20, IBV_WC_REM_INV_REQ_ERR);
  ExpectEq(+pair.first.State(), +IBV_QPS_ERR, "state of the sender");
  ExpectCompletion(world, pair.second.recv_cq, 10, IBV_WC_LOC_LEN_ERR);
  ExpectFlushed(world, pair.second, pair.second.recv_cq, 11, 12);
}

// A receive whose memory is not its own: the receiver says protection, the sender hears of an
// operation error.
void ReceiveWithBadKey(World& world) {
  Pair pair(world);
  Region source = pair.first.NewRegion(64), sink = pair.second.NewRegion(64);
  sink.buffer->Fill(2);
  std::vector<ibv_sge> list = {source.Sge(0, 64)};
  pair.second.MustRecv(10, {BadKey(sink)});
  pair.second.MustRecv(11, {sink.Sge(0, 64)});
  pair.first.MustSend(SendWr(IBV_WR_SEND, 20, list));
  ExpectCompletion(world, pair.first.send_cq, 20, IBV_WC_REM_OP_ERR);
  ExpectCompletion(world, pair.second.recv_cq, 10, IBV_WC_LOC_PROT_ERR);
  ExpectFlushed(world, pair.second, pair.second.recv_cq, 11, 12);
  sink.buffer->ExpectPattern(0, 64, 2);
}

// A refused request: those before it succeed, it fails, those behind are flushed, all in order.
void FlushBehindRemoteError(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  std::vector<ibv_send_wr> wrs;
  for (uint64_t i = 0; i < 10; ++i) {
    wrs.push_back(
        RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr() + (i == 4 ? 1 : 0), target.mr->rkey));
  }
  for (size_t i = 0; i + 1 < wrs.size(); ++i) wrs[i].next = &wrs[i + 1];
  pair.first.MustSend(wrs[0]);
  for (uint64_t i = 0; i < 4; ++i) {
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
  }
  ExpectCompletion(world, pair.first.send_cq, 4, IBV_WC_REM_ACCESS_ERR);
  ExpectFlushed(world, pair.first, pair.first.send_cq, 5, 10);
}

// The responder that refused is in error as well: its receives are flushed and its own requests,
// too.
void ResponderOfRefusedRequest(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  pair.second.MustRecv(31, {});
  pair.second.MustRecv(32, {});
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 3, list, target.addr() + 1, target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 3, IBV_WC_REM_ACCESS_ERR);
  ExpectTrue(world.WaitUntil([&] { return pair.second.State() == IBV_QPS_ERR; }, 3),
             "the responder's queue pair goes to ERR");
  ExpectFlushed(world, pair.second, pair.second.recv_cq, 31, 33);
}

// Other queue pairs of the same device, domain and queues carry on.
void OthersCarryOn(World& world) {
  Side first(world, world.first_device()), second(world, world.second_device());
  Side first_too(first, {}), second_too(second, {});
  Connect(first, second);
  Connect(first_too, second_too);
  Region local = first.NewRegion(64), target = second.NewRegion(64);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr() + 1, target.mr->rkey));
  ExpectCompletion(world, first.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
  first_too.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 2, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, first_too.send_cq, 2, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 64, 1);
}

}  // namespace

std::vector<Case> LocalErrorCases() {
  const std::vector<std::string> none;
  const char* const local = "IBTA 9.9.2.1, 11.6.2 (local protection error)";
  const char* const flush = "IBTA 10.3.1.7, 10.10.3";
  std::vector<Case> cases;
  const struct {
    const char* name;
    ibv_wr_opcode opcode;
  } operations[] = {
      {"Send", IBV_WR_SEND}, {"Write", IBV_WR_RDMA_WRITE}, {"Read", IBV_WR_RDMA_READ}};
  for (const auto& op : operations) {
    cases.push_back({std::string("LocalError.") + op.name + "WithBadKey_LocProtErrAndFlush", local,
                     none, [=](World& w) { BadLocalList(w, op.opcode, BadKey); }});
    cases.push_back({std::string("LocalError.") + op.name + "OneByteTooLong_LocProtErrAndFlush",
                     local, none, [=](World& w) { BadLocalList(w, op.opcode, TooLong); }});
  }
  const std::vector<Case> more = {
      {"LocalError.WriteOneByteBefore_LocProtErrAndFlush", local, none,
       [](World& w) { BadLocalList(w, IBV_WR_RDMA_WRITE, TooEarly); }},
      {"LocalError.KeyOfAnotherDomain_LocProtErr", local, none, OtherPd},
      {"LocalError.ReadIntoRegionWithoutLocalWrite_Refused", local, none, ReadIntoReadOnlyRegion},
      {"LocalError.WriteFromRegionWithoutRights_Works", "man ibv_reg_mr", none,
       SendFromReadOnlyRegion},
      {"Receive.TooSmallByOne_LocLenErrAndRemInvReqErr", "IBTA 9.9.3.1.1, 11.6.2", none,
       [](World& w) { ReceiveTooSmall(w, 63, 64); }},
      {"Receive.TooSmallForManyPackets_LocLenErrAndRemInvReqErr", "IBTA 9.9.3.1.1, 11.6.2", none,
       [](World& w) { ReceiveTooSmall(w, 5000, 9000); }},
      {"Receive.WithBadKey_LocProtErrAndRemOpErr", "IBTA 9.9.3.1.3, 11.6.2", none,
       ReceiveWithBadKey},
      {"Flush.BehindARefusedRequest_InOrder", flush, none, FlushBehindRemoteError},
      {"Flush.ResponderThatRefused_IsInErrorToo", "IBTA 9.9.3.1.3, 10.3.1.7", none,
       ResponderOfRefusedRequest},
      {"Flush.OtherQueuePairs_CarryOn", "IBTA 10.10.2", none, OthersCarryOn},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace railhop::conformance
