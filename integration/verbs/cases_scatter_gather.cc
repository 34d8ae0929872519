// Lists of memory pieces, inline data, and what may happen to a buffer after posting.
#include <string.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

const SideOptions kFourPieces = {.send_sge = 4, .recv_sge = 4};

// Four pieces of odd sizes from different regions become one message.
void Gather(World& world, ibv_wr_opcode opcode) {
  Pair pair(world, kFourPieces, {});
  const size_t sizes[4] = {1, 1023, 1500, 7};
  std::vector<Region> pieces;
  std::vector<ibv_sge> list;
  for (uint32_t i = 0; i < 4; ++i) {
    pieces.push_back(pair.first.NewRegion(sizes[i]));
    pieces.back().buffer->Fill(i);
    list.push_back(pieces.back().Sge(0, sizes[i]));
  }
  Region target = pair.second.NewRegion(2531);
  if (opcode == IBV_WR_SEND) pair.second.MustRecv(5, {target.Sge(0, 2531)});
  ibv_send_wr wr = RdmaWr(opcode, 1, list, target.addr(), target.mr->rkey);
  pair.first.MustSend(wr);
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  if (opcode == IBV_WR_SEND) {
    const ibv_wc wc = ExpectCompletion(world, pair.second.recv_cq, 5, IBV_WC_SUCCESS);
    ExpectEq(wc.byte_len, 2531u, "byte_len");
  }
  size_t offset = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    target.buffer->ExpectPattern(offset, sizes[i], i);
    offset += sizes[i];
  }
}

// A message fills the pieces of a receive in order and leaves the rest alone.
void Scatter(World& world) {
  Pair pair(world, kFourPieces, {});
  Region source = pair.first.NewRegion(3000);
  source.buffer->Fill(1);
  std::vector<Region> pieces;
  std::vector<ibv_sge> list;
  const size_t sizes[4] = {5, 1100, 1800, 500};
  for (uint32_t i = 0; i < 4; ++i) {
    pieces.push_back(pair.second.NewRegion(sizes[i]));
    pieces.back().buffer->Fill(50 + i);
    list.push_back(pieces.back().Sge(0, sizes[i]));
  }
  pair.second.MustRecv(5, list);
  std::vector<ibv_sge> whole = {source.Sge(0, 3000)};
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, whole));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 5, IBV_WC_SUCCESS);
  pieces[0].buffer->ExpectPattern(0, 5, 1, 0);
  pieces[1].buffer->ExpectPattern(0, 1100, 1, 5);
  pieces[2].buffer->ExpectPattern(0, 1800, 1, 1105);
  pieces[3].buffer->ExpectPattern(0, 95, 1, 2905);
  pieces[3].buffer->ExpectPattern(95, 405, 53, 95);
}

void ReadScatters(World& world) {
  Pair pair(world, kFourPieces, {});
  Region source = pair.second.NewRegion(2000);
  source.buffer->Fill(1);
  Region one = pair.first.NewRegion(999), two = pair.first.NewRegion(1001);
  std::vector<ibv_sge> list = {one.Sge(0, 999), two.Sge(0, 1001)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_READ, 1, list, source.addr(), source.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  one.buffer->ExpectPattern(0, 999, 1);
  two.buffer->ExpectPattern(0, 1001, 1, 999);
}

void EmptyPieces(World& world) {
  Pair pair(world, kFourPieces, {});
  Region source = pair.first.NewRegion(64), sink = pair.second.NewRegion(64);
  source.buffer->Fill(2);
  pair.second.MustRecv(1, {sink.Sge(0, 64)});
  std::vector<ibv_sge> nothing;
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, nothing));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectEq(ExpectCompletion(world, pair.second.recv_cq, 1, IBV_WC_SUCCESS).byte_len, 0u,
           "byte_len");
  pair.second.MustRecv(2, {});
  pair.first.MustSend(SendWr(IBV_WR_SEND, 2, nothing));
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 2, IBV_WC_SUCCESS);
}

// Inline data is copied while posting: the memory may change at once and needs no key.
void Inline(World& world, ibv_wr_opcode opcode) {
  Pair pair(world);
  Region target = pair.second.NewRegion(64);
  Buffer& plain = world.NewBuffer(64);
  for (uint32_t i = 0; i < 10; ++i) {
    if (opcode == IBV_WR_SEND) pair.second.MustRecv(i, {target.Sge(0, 64)});
    plain.Fill(i);
    std::vector<ibv_sge> list = {{plain.addr(), 64, 0xffffffff}};
    pair.first.MustSend(RdmaWr(opcode, i, list, target.addr(), target.mr->rkey,
                               IBV_SEND_SIGNALED | IBV_SEND_INLINE));
    memset(plain.data(), 0, 64);
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
    if (opcode == IBV_WR_SEND) ExpectCompletion(world, pair.second.recv_cq, i, IBV_WC_SUCCESS);
    target.buffer->ExpectPattern(0, 64, i);
  }
}

void InlineGathers(World& world) {
  Pair pair(world);
  Region target = pair.second.NewRegion(40);
  Buffer& one = world.NewBuffer(17);
  Buffer& two = world.NewBuffer(23);
  one.Fill(1);
  two.Fill(2);
  std::vector<ibv_sge> list = {{one.addr(), 17, 0}, {two.addr(), 23, 0}};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey,
                             IBV_SEND_SIGNALED | IBV_SEND_INLINE));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 17, 1);
  target.buffer->ExpectPattern(17, 23, 2);
}

void InlineTooLong(World& world) {
  Pair pair(world);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ExpectEq(world.v.query_qp(pair.first.qp, &attr, IBV_QP_CAP, &init), 0, "ibv_query_qp");
  Region source = pair.first.NewRegion(init.cap.max_inline_data + 1);
  Region target = pair.second.NewRegion(init.cap.max_inline_data + 1);
  std::vector<ibv_sge> list = {source.Sge(0, init.cap.max_inline_data + 1)};
  const int error =
      pair.first.PostSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey,
                                 IBV_SEND_SIGNALED | IBV_SEND_INLINE));
  ExpectTrue(error != 0, "inline data beyond max_inline_data is refused");
}

// The list and the work request may go as soon as the post returns.
void ListGoesAfterPosting(World& world) {
  Pair pair(world);
  Region source = pair.first.NewRegion(3000), sink = pair.second.NewRegion(3000);
  source.buffer->Fill(1);
  {
    std::vector<ibv_sge> list = {sink.Sge(0, 3000)};
    ibv_recv_wr wr = {};
    ibv_recv_wr* bad = nullptr;
    wr.wr_id = 9;
    wr.sg_list = list.data();
    wr.num_sge = 1;
    ExpectEq(world.v.post_recv(pair.second.qp, &wr, &bad), 0, "ibv_post_recv");
    memset(list.data(), 0xee, sizeof list[0]);
    memset(static_cast<void*>(&wr), 0xee, sizeof wr);
  }
  std::vector<ibv_sge> list = {source.Sge(0, 3000)};
  pair.first.MustSend(SendWr(IBV_WR_SEND, 8, list));
  memset(list.data(), 0xee, sizeof list[0]);
  ExpectCompletion(world, pair.first.send_cq, 8, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.recv_cq, 9, IBV_WC_SUCCESS);
  sink.buffer->ExpectPattern(0, 3000, 1);
}

// A chain of requests in one call is as good as one call each.
void Chain(World& world) {
  Pair pair(world);
  Region source = pair.first.NewRegion(1600), target = pair.second.NewRegion(1600);
  source.buffer->Fill(3);
  std::vector<std::vector<ibv_sge>> lists;
  std::vector<ibv_send_wr> wrs;
  for (size_t i = 0; i < 16; ++i) lists.push_back({source.Sge(i * 100, 100)});
  for (size_t i = 0; i < 16; ++i) {
    wrs.push_back(RdmaWr(IBV_WR_RDMA_WRITE, i, lists[i], target.addr() + i * 100, target.mr->rkey,
                         i == 15 ? IBV_SEND_SIGNALED : 0));
  }
  for (size_t i = 0; i + 1 < 16; ++i) wrs[i].next = &wrs[i + 1];
  pair.first.MustSend(wrs[0]);
  ExpectCompletion(world, pair.first.send_cq, 15, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 1600, 3);
}

}  // namespace

std::vector<Case> ScatterGatherCases() {
  const std::vector<std::string> none, with_inline = {"inline"};
  const char* const clause = "IBTA 10.8.2, 11.4.1.1; man ibv_post_send";
  return {
      {"Sge.GatherForSend_OneMessage", clause, none,
       [](World& world) { Gather(world, IBV_WR_SEND); }},
      {"Sge.GatherForWrite_OneMessage", clause, none,
       [](World& world) { Gather(world, IBV_WR_RDMA_WRITE); }},
      {"Sge.ScatterOfReceive_FillsInOrder", "IBTA 11.4.1.2; man ibv_post_recv", none, Scatter},
      {"Sge.ScatterOfRead_FillsInOrder", clause, none, ReadScatters},
      {"Sge.NoPieces_EmptyMessage", clause, none, EmptyPieces},
      {"Sge.ListGoneAfterPosting_IsNotNeeded", clause, none, ListGoesAfterPosting},
      {"Sge.ChainOf16Writes_AllArrive", clause, none, Chain},
      {"Inline.Send_BufferIsFreeAtOnceAndNeedsNoKey", clause, with_inline,
       [](World& world) { Inline(world, IBV_WR_SEND); }},
      {"Inline.Write_BufferIsFreeAtOnceAndNeedsNoKey", clause, with_inline,
       [](World& world) { Inline(world, IBV_WR_RDMA_WRITE); }},
      {"Inline.TwoPieces_OneMessage", clause, with_inline, InlineGathers},
      {"Inline.TooLong_Refused", "man ibv_post_send, ibv_create_qp", with_inline, InlineTooLong},
  };
}

}  // namespace railhop::conformance
