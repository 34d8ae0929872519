// Order: data before completions, requests of a queue pair one after the other, fences.
#include <string.h>

#include <atomic>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

// As soon as the receive completes, every byte of the writes before it is there.
void DataBeforeCompletion(World& world, ibv_wr_opcode last) {
  Pair pair(world);
  constexpr size_t kBytes = 20000;
  Region source = pair.first.NewRegion(kBytes), target = pair.second.NewRegion(kBytes);
  std::vector<ibv_sge> list = {source.Sge(0, kBytes)};
  std::vector<ibv_sge> nothing;
  for (uint32_t round = 0; round < 50; ++round) {
    source.buffer->Fill(round);
    memset(target.data(), 0, kBytes);
    pair.second.MustRecv(round, {});
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey, 0));
    pair.first.MustSend(RdmaWr(last, 2, nothing, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.second.recv_cq, round, IBV_WC_SUCCESS);
    target.buffer->ExpectPattern(0, kBytes, round);
    ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
  }
}

// A requester's success means that the bytes are in the peer's memory.
void SuccessMeansPlaced(World& world) {
  Pair pair(world);
  Region source = pair.first.NewRegion(5000), target = pair.second.NewRegion(5000);
  std::vector<ibv_sge> list = {source.Sge(0, 5000)};
  for (uint32_t round = 0; round < 100; ++round) {
    source.buffer->Fill(round);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, round, list, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, round, IBV_WC_SUCCESS);
    target.buffer->ExpectPattern(0, 5000, round);
  }
}

void ReadSeesWriteBefore(World& world) {
  Pair pair(world);
  Region source = pair.first.NewRegion(5000), target = pair.second.NewRegion(5000);
  Region back = pair.first.NewRegion(5000);
  std::vector<ibv_sge> out = {source.Sge(0, 5000)}, in = {back.Sge(0, 5000)};
  for (uint32_t round = 0; round < 50; ++round) {
    source.buffer->Fill(round);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, out, target.addr(), target.mr->rkey, 0));
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_READ, 2, in, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
    back.buffer->ExpectPattern(0, 5000, round);
  }
}

// A fenced request starts when the reads before it are done, so it may send what they brought.
void FencedWriteSendsWhatWasRead(World& world) {
  Pair pair(world);
  Region source = pair.second.NewRegion(4000), middle = pair.first.NewRegion(4000);
  Region target = pair.second.NewRegion(4000);
  std::vector<ibv_sge> list = {middle.Sge(0, 4000)};
  for (uint32_t round = 0; round < 50; ++round) {
    source.buffer->Fill(round);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_READ, 1, list, source.addr(), source.mr->rkey));
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 2, list, target.addr(), target.mr->rkey,
                               IBV_SEND_SIGNALED | IBV_SEND_FENCE));
    ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
    ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
    target.buffer->ExpectPattern(0, 4000, round);
  }
}

// Reads, writes, sends and atomics of one queue pair complete in the order of posting.
void MixedCompleteInOrder(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  constexpr ibv_wr_opcode kTurns[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND};
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 30; ++i) {
      const ibv_wr_opcode opcode = kTurns[(i + i / 7) % 3];
      if (opcode == IBV_WR_SEND) pair.second.MustRecv(i, {target.Sge(0, 64)});
      ibv_send_wr wr = RdmaWr(opcode, i, list, target.addr(), target.mr->rkey);
      if (opcode == IBV_WR_SEND) wr.wr = {};
      pair.first.MustSend(wr);
    }
    for (uint64_t i = 0; i < 30; ++i) {
      ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
    }
  }
}

// Receives are taken in the order of posting, by sends and writes with immediate alike.
void ReceivesInOrder(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64), sink = pair.second.NewRegion(64 * 20);
  Region target = pair.second.NewRegion(64);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  for (uint64_t i = 0; i < 20; ++i) pair.second.MustRecv(i, {sink.Sge(i * 64, 64)});
  for (uint64_t i = 0; i < 20; ++i) {
    const bool send = i % 3 != 0;
    ibv_send_wr wr = RdmaWr(send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, i, list, target.addr(),
                            target.mr->rkey);
    if (send) wr.wr = {};
    wr.imm_data = static_cast<uint32_t>(i);
    pair.first.MustSend(wr);
  }
  for (uint64_t i = 0; i < 20; ++i) {
    const ibv_wc wc = ExpectCompletion(world, pair.second.recv_cq, i, IBV_WC_SUCCESS);
    ExpectEq(+wc.opcode, i % 3 != 0 ? +IBV_WC_RECV : +IBV_WC_RECV_RDMA_WITH_IMM, "opcode");
    if (i % 3 != 0) {
      sink.buffer->ExpectPattern(i * 64, 64, 1);
    } else {
      for (size_t b = 0; b < 64; ++b) ExpectEq(sink.data()[i * 64 + b], 0, "an untouched receive");
    }
  }
  Poll(world, pair.first.send_cq, 20);
}

// A later write to the same place wins.
void LastWriteWins(World& world) {
  Pair pair(world);
  Region target = pair.second.NewRegion(3000);
  std::vector<Region> sources;
  for (uint32_t i = 0; i < 20; ++i) {
    sources.push_back(pair.first.NewRegion(3000));
    sources.back().buffer->Fill(i);
  }
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<ibv_sge> list = {sources[i].Sge(0, 3000)};
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey,
                               i == 19 ? unsigned{IBV_SEND_SIGNALED} : 0u));
  }
  ExpectCompletion(world, pair.first.send_cq, 19, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 3000, 19);
}

// A program that polls memory for the last eight bytes of an eight-byte write never sees half of
// it.
void EightBytesAtOnce(World& world) {
  Pair pair(world);
  Region source = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  std::vector<ibv_sge> list = {source.Sge(0, 8)};
  auto* const from = reinterpret_cast<uint64_t*>(source.data());
  auto* const to = reinterpret_cast<std::atomic<uint64_t>*>(target.data());
  for (uint64_t i = 1; i <= 500; ++i) {
    *from = i * 0x0101010101010101;
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey));
    uint64_t seen = 0;
    ExpectTrue(world.WaitUntil([&] {
      seen = to->load(std::memory_order_acquire);
      return seen != (i - 1) * 0x0101010101010101;
    }),
               "the word changes");
    ExpectEq(seen, i * 0x0101010101010101, "the whole word");
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
  }
}

}  // namespace

std::vector<Case> OrderingCases() {
  const std::vector<std::string> none;
  const char* const rules = "IBTA 9.5, 10.8.3.3 (ordering of work requests)";
  return {
      {"Order.WriteThenSend_DataIsThereWithTheReceive", rules, none,
       [](World& world) { DataBeforeCompletion(world, IBV_WR_SEND); }},
      {"Order.WriteThenWriteImm_DataIsThereWithTheReceive", rules, none,
       [](World& world) { DataBeforeCompletion(world, IBV_WR_RDMA_WRITE_WITH_IMM); }},
      {"Order.WriteSucceeded_DataIsPlaced", "IBTA 9.7.5.1.2", none, SuccessMeansPlaced},
      {"Order.ReadAfterWrite_SeesIt", rules, none, ReadSeesWriteBefore},
      {"Order.FencedWriteAfterRead_SendsWhatWasRead", rules, none, FencedWriteSendsWhatWasRead},
      {"Order.MixedRequests_CompleteInOrder", rules, none, MixedCompleteInOrder},
      {"Order.Receives_AreTakenInOrder", "IBTA 10.8.3.2", none, ReceivesInOrder},
      {"Order.WritesToOnePlace_TheLastWins", rules, none, LastWriteWins},
      {"Order.EightAlignedBytes_AppearAtOnce", "IBTA o9-20; practice of all vendors", none,
       EightBytesAtOnce},
  };
}

}  // namespace railhop::conformance
