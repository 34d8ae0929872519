// Data over reliable connections: every operation at every kind of size, every MTU, atomics.
#include <string.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

constexpr uint32_t kImm = 0xdeadbeef;

struct Operation {
  const char* name;
  ibv_wr_opcode opcode;
  ibv_wc_opcode local;
};

constexpr Operation kOperations[] = {
    {"Send", IBV_WR_SEND, IBV_WC_SEND},
    {"SendImm", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
    {"Write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
    {"WriteImm", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
    {"Read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
};

struct Size {
  const char* name;
  size_t mtus;  // bytes = mtus * MTU + extra
  ptrdiff_t extra;
};

constexpr Size kSizes[] = {{"0B", 0, 0},      {"1B", 0, 1},       {"MtuLess1", 1, -1},
                           {"Mtu", 1, 0},     {"MtuPlus1", 1, 1}, {"3MtuPlus7", 3, 7},
                           {"1MiB", 1024, 0}, {"8MiB", 8192, 0}};

bool IsSend(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}
bool HasImm(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

void ExpectReceive(World& world, const Side& side, const Operation& op, size_t size) {
  const ibv_wc wc = ExpectCompletion(world, side.recv_cq, 77, IBV_WC_SUCCESS);
  ExpectEq(wc.opcode, IsSend(op.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
           "opcode of the receive");
  ExpectEq(wc.byte_len, size, "byte_len of the receive");
  ExpectEq(wc.qp_num, side.qp->qp_num, "qp_num of the receive");
  ExpectEq((wc.wc_flags & IBV_WC_WITH_IMM) != 0, HasImm(op.opcode), "IBV_WC_WITH_IMM");
  if (HasImm(op.opcode)) ExpectEq(wc.imm_data, kImm, "imm_data");
}

// One message of `size` bytes; source and target at odd addresses, guards right behind the last
// byte.
void Move(World& world, Pair& pair, const Operation& op, size_t size) {
  Side& first = pair.first;
  Side& second = pair.second;
  Region local = first.NewRegion(size + 1, kAllAccess, 1);
  Region remote = second.NewRegion(size + 1, kAllAccess, 3);
  const bool read = op.opcode == IBV_WR_RDMA_READ;
  Region& source = read ? remote : local;
  Region& target = read ? local : remote;
  source.buffer->Fill(5);
  target.buffer->Fill(6);
  if (IsSend(op.opcode) || HasImm(op.opcode)) {
    second.MustRecv(77, {remote.Sge(0, IsSend(op.opcode) ? size : 0)});
  }
  std::vector<ibv_sge> list = {local.Sge(0, size)};
  ibv_send_wr wr = RdmaWr(op.opcode, 11, list, remote.addr(), remote.mr->rkey);
  if (size == 0) wr.num_sge = 0;
  if (IsSend(op.opcode)) wr.wr = {};
  wr.imm_data = kImm;
  first.MustSend(wr);
  const ibv_wc wc = ExpectCompletion(world, first.send_cq, 11, IBV_WC_SUCCESS, 20);
  ExpectEq(wc.opcode, op.local, "opcode of the request");
  ExpectEq(wc.qp_num, first.qp->qp_num, "qp_num of the request");
  if (read) ExpectEq(wc.byte_len, size, "byte_len of the read");
  if (IsSend(op.opcode) || HasImm(op.opcode)) ExpectReceive(world, second, op, size);
  // A write without immediate says nothing at the target; its acknowledgement says that it is
  // there.
  target.buffer->ExpectPattern(0, size, 5);
  target.buffer->ExpectPattern(size, 1, 6, size);
  ExpectQuiet(world, second.recv_cq, 0);
}

void OneMessage(World& world, const Operation& op, const Size& size) {
  Pair pair(world);
  Move(world, pair, op, static_cast<size_t>(static_cast<ptrdiff_t>(size.mtus * 1024) + size.extra));
}

void EveryOperationAtMtu(World& world, ibv_mtu mtu) {
  Pair pair(world, {}, {.mtu = mtu});
  const size_t bytes = size_t{128} << std::min(mtu, pair.first.device->port_attr.active_mtu);
  for (const Operation& op : kOperations) {
    for (const size_t size : {bytes - 1, bytes, bytes + 1, 5 * bytes + 3}) {
      Move(world, pair, op, size);
    }
  }
}

void BothDirections(World& world) {
  Pair pair(world);
  Region a = pair.first.NewRegion(100000), b = pair.second.NewRegion(100000);
  Region from_a = pair.second.NewRegion(100000), from_b = pair.first.NewRegion(100000);
  a.buffer->Fill(1);
  b.buffer->Fill(2);
  std::vector<ibv_sge> list_a = {a.Sge(0, 100000)}, list_b = {b.Sge(0, 100000)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list_a, from_a.addr(), from_a.mr->rkey));
  pair.second.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 2, list_b, from_b.addr(), from_b.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, pair.second.send_cq, 2, IBV_WC_SUCCESS);
  from_a.buffer->ExpectPattern(0, 100000, 1);
  from_b.buffer->ExpectPattern(0, 100000, 2);
}

// A queue pair connected to itself, as a program uses it to flush its own writes.
void Loopback(World& world) {
  Side side(world, world.first_device());
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange(side, {}, 50));
  side.MustModify(side.RtsChange({}, 50));
  Region source = side.NewRegion(5000), target = side.NewRegion(5000);
  source.buffer->Fill(4);
  std::vector<ibv_sge> list = {source.Sge(0, 5000)};
  side.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, side.send_cq, 1, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 5000, 4);
  std::vector<ibv_sge> one = {source.Sge(0, 1)};
  side.MustSend(RdmaWr(IBV_WR_RDMA_READ, 2, one, target.addr(), target.mr->rkey));
  ExpectCompletion(world, side.send_cq, 2, IBV_WC_SUCCESS);
}

uint64_t& Word(const Region& region) { return *reinterpret_cast<uint64_t*>(region.data()); }

void FetchAdd(World& world) {
  Pair pair(world);
  Region result = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  Word(target) = 0xfffffffffffffff0;
  std::vector<ibv_sge> list = {result.Sge(0, 8)};
  pair.first.MustSend(
      AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, list, target.addr(), target.mr->rkey, 0x20, 0));
  const ibv_wc wc = ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectEq(wc.opcode, IBV_WC_FETCH_ADD, "opcode");
  ExpectEq(Word(result), 0xfffffffffffffff0, "the value before");
  ExpectEq(Word(target), 0x10u, "the sum, which wraps");
}

void CompareSwap(World& world, uint64_t compare, uint64_t expected) {
  Pair pair(world);
  Region result = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  Word(target) = 1234;
  std::vector<ibv_sge> list = {result.Sge(0, 8)};
  pair.first.MustSend(
      AtomicWr(IBV_WR_ATOMIC_CMP_AND_SWP, 1, list, target.addr(), target.mr->rkey, compare, 5678));
  const ibv_wc wc = ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectEq(wc.opcode, IBV_WC_COMP_SWAP, "opcode");
  ExpectEq(Word(result), 1234u, "the value before");
  ExpectEq(Word(target), expected, "the value after");
}

// Two queue pairs add to one word; no addition is lost.
void AtomicsFromTwoQps(World& world) {
  Side target(world, world.second_device());
  Side other_target(target, {});
  Side one(world, world.first_device()), two(world, world.first_device());
  Connect(one, target);
  Connect(two, other_target);
  Region word = target.NewRegion(8);
  Region result_one = one.NewRegion(8), result_two = two.NewRegion(8);
  std::vector<ibv_sge> list_one = {result_one.Sge(0, 8)}, list_two = {result_two.Sge(0, 8)};
  for (int i = 0; i < 50; ++i) {
    one.MustSend(
        AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, list_one, word.addr(), word.mr->rkey, 1, 0));
    two.MustSend(
        AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, list_two, word.addr(), word.mr->rkey, 1000, 0));
    if (i % 10 == 9) {
      for (const ibv_wc& wc : Poll(world, one.send_cq, 10)) ExpectEq(+wc.status, 0, "status");
      for (const ibv_wc& wc : Poll(world, two.send_cq, 10)) ExpectEq(+wc.status, 0, "status");
    }
  }
  ExpectEq(Word(word), 50050u, "the sum");
}

// Repeated over one connection, sequence numbers pass 2^24.
void SequenceNumbersWrap(World& world) {
  Pair pair(world, {}, {.first_psn = 0xfffffd, .second_psn = 0xfffffe});
  for (int i = 0; i < 20; ++i) {
    for (const Operation& op : kOperations) Move(world, pair, op, 2500);
  }
}

void ManyMessagesInOrder(World& world) {
  Pair pair(world);
  constexpr int kCount = 2000;
  constexpr size_t kBytes = 512;
  Region source = pair.first.NewRegion(kBytes * 16), sink = pair.second.NewRegion(kBytes * 16);
  source.buffer->Fill(8);
  std::vector<ibv_sge> list(1);
  int sent = 0, completed = 0, received = 0;
  for (; sent < 16; ++sent) {
    pair.second.MustRecv(static_cast<uint64_t>(sent), {sink.Sge(kBytes * sent, kBytes)});
    list[0] = source.Sge(kBytes * sent, kBytes);
    pair.first.MustSend(SendWr(IBV_WR_SEND, static_cast<uint64_t>(sent), list));
  }
  while (received < kCount) {
    ExpectCompletion(world, pair.second.recv_cq, static_cast<uint64_t>(received), IBV_WC_SUCCESS);
    ExpectCompletion(world, pair.first.send_cq, static_cast<uint64_t>(completed), IBV_WC_SUCCESS);
    const size_t slot = kBytes * static_cast<size_t>(received % 16);
    sink.buffer->ExpectPattern(slot, kBytes, 8, slot);
    memset(sink.data() + slot, 0, kBytes);
    ++received, ++completed;
    if (sent >= kCount) continue;
    pair.second.MustRecv(static_cast<uint64_t>(sent), {sink.Sge(slot, kBytes)});
    list[0] = source.Sge(slot, kBytes);
    pair.first.MustSend(SendWr(IBV_WR_SEND, static_cast<uint64_t>(sent), list));
    ++sent;
  }
}

}  // namespace

std::vector<Case> TransferCases() {
  std::vector<Case> cases;
  const std::vector<std::string> none, atomics = {"atomics"};
  for (const Operation& op : kOperations) {
    for (const Size& size : kSizes) {
      cases.push_back({std::string("Rc.") + op.name + size.name + "_BytesArrive",
                       "IBTA 9.4, 10.7.2; man ibv_post_send", none,
                       [=](World& world) { OneMessage(world, op, size); }});
    }
  }
  for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; ++mtu) {
    cases.push_back({"Rc.EveryOperationAtMtu" + std::to_string(128 << mtu) + "_BytesArrive",
                     "IBTA 9.7.1, 11.2.5.2", none,
                     [=](World& world) { EveryOperationAtMtu(world, static_cast<ibv_mtu>(mtu)); }});
  }
  const std::vector<Case> more = {
      {"Rc.WritesInBothDirections_BytesArrive", "IBTA 9.7", none, BothDirections},
      {"Rc.QpConnectedToItself_WritesAndReads", "IBTA 10.2.4", none, Loopback},
      {"Rc.SequenceNumbersWrap_NothingIsLost", "IBTA 9.7.1", none, SequenceNumbersWrap},
      {"Rc.2000Messages_ArriveInOrder", "IBTA 9.5, 10.8.3.3", none, ManyMessagesInOrder},
      {"Atomic.FetchAdd_ReturnsOldValueAndWraps", "IBTA 9.4.5", atomics, FetchAdd},
      {"Atomic.CompareSwapEqual_Swaps", "IBTA 9.4.5", atomics,
       [](World& world) { CompareSwap(world, 1234, 5678); }},
      {"Atomic.CompareSwapUnequal_Keeps", "IBTA 9.4.5", atomics,
       [](World& world) { CompareSwap(world, 1, 1234); }},
      {"Atomic.TwoQpsAddToOneWord_NoneIsLost", "IBTA 9.4.5.1", atomics, AtomicsFromTwoQps},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace railhop::conformance
