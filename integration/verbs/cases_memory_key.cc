// Memory keys: who may touch what, to the byte, and what each side sees when a request is refused.
#include <errno.h>
#include <string.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

constexpr size_t kBytes = 4096;

// A request with `remote` and `rkey` that must be refused by the responder, and change nothing
// there.
void ExpectRefused(World& world, Pair& pair, const Region& target, ibv_wr_opcode opcode,
                   uint64_t remote, uint32_t rkey, size_t length = 64) {
  Region local = pair.first.NewRegion(length + 1);
  local.buffer->Fill(1);
  target.buffer->Fill(2);
  std::vector<ibv_sge> list = {local.Sge(0, length)};
  ibv_send_wr wr = RdmaWr(opcode, 3, list, remote, rkey);
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr = AtomicWr(opcode, 3, list, remote, rkey, 1, 0);
  }
  pair.first.MustSend(wr);
  const ibv_wc wc = ExpectCompletion(world, pair.first.send_cq, 3, IBV_WC_REM_ACCESS_ERR);
  ExpectEq(wc.qp_num, pair.first.qp->qp_num, "qp_num");
  ExpectEq(+pair.first.State(), +IBV_QPS_ERR, "state of the requester");
  target.buffer->ExpectPattern(0, kBytes, 2);
  if (opcode == IBV_WR_RDMA_READ) local.buffer->ExpectPattern(0, length, 1);
}

struct Spot {
  ptrdiff_t offset;
  size_t length;
};

void OutOfBounds(World& world, ibv_wr_opcode opcode, Spot spot) {
  Pair pair(world);
  Region target = pair.second.NewRegion(kBytes);
  ExpectRefused(world, pair, target, opcode, target.addr() + static_cast<uint64_t>(spot.offset),
                target.mr->rkey, spot.length);
}

void BadRkey(World& world, ibv_wr_opcode opcode) {
  Pair pair(world);
  Region target = pair.second.NewRegion(kBytes);
  ExpectRefused(world, pair, target, opcode, target.addr(), target.mr->rkey ^ 0x55555500);
}

// The eight low bits of a key tell a region from the one that had its place before.
void OldRkey(World& world) {
  Pair pair(world);
  Region target = pair.second.NewRegion(kBytes);
  ExpectRefused(world, pair, target, IBV_WR_RDMA_WRITE, target.addr(), target.mr->rkey ^ 1);
}

void WrongRight(World& world, ibv_wr_opcode opcode, int access) {
  Pair pair(world);
  Region target = pair.second.NewRegion(kBytes, access);
  ExpectRefused(world, pair, target, opcode, target.addr(), target.mr->rkey,
                opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 64);
}

void WrongPd(World& world) {
  Pair pair(world);
  ibv_pd* other = world.v.alloc_pd(pair.second.device->context);
  {
    Region target(world, other, kBytes);
    ExpectRefused(world, pair, target, IBV_WR_RDMA_WRITE, target.addr(), target.mr->rkey);
  }
  ExpectEq(world.v.dealloc_pd(other), 0, "ibv_dealloc_pd");
}

void Deregistered(World& world) {
  Pair pair(world);
  Region target = pair.second.NewRegion(kBytes);
  const uint32_t rkey = target.mr->rkey;
  target.Deregister();
  ExpectRefused(world, pair, target, IBV_WR_RDMA_WRITE, target.addr(), rkey);
}

// A region that is made after another was taken down does not answer to the old key.
void ReusedSlot(World& world) {
  Pair pair(world);
  Region old = pair.second.NewRegion(kBytes);
  const uint32_t rkey = old.mr->rkey;
  old.Deregister();
  Buffer& buffer = *old.buffer;
  ibv_mr* mr = world.v.reg_mr(pair.second.pd, buffer.data(), kBytes, kAllAccess);
  ExpectTrue(mr != nullptr && mr->rkey != rkey, "another key for the same memory");
  ExpectRefused(world, pair, old, IBV_WR_RDMA_WRITE, old.addr(), rkey);
  ExpectEq(world.v.dereg_mr(mr), 0, "ibv_dereg_mr");
}

// The very first and last bytes are inside.
void EdgesAreInside(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(kBytes),
         target = pair.second.NewRegion(kBytes, kAllAccess, 7);
  local.buffer->Fill(1);
  for (const Spot spot : {Spot{0, 1}, Spot{kBytes - 1, 1}, Spot{0, kBytes}}) {
    std::vector<ibv_sge> list = {local.Sge(0, spot.length)};
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list,
                               target.addr() + static_cast<uint64_t>(spot.offset),
                               target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_READ, 2, list,
                               target.addr() + static_cast<uint64_t>(spot.offset),
                               target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_SUCCESS);
  }
  target.buffer->ExpectPattern(0, kBytes, 1);
}

// An empty request touches nothing, so the key is not looked at.
void EmptyWithBadKey(World& world, ibv_wr_opcode opcode) {
  Pair pair(world);
  std::vector<ibv_sge> nothing;
  pair.first.MustSend(RdmaWr(opcode, 1, nothing, 0x1234, 0xdead));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
}

void WrapsAround(World& world) {
  Pair pair(world);
  Region target = pair.second.NewRegion(kBytes);
  ExpectRefused(world, pair, target, IBV_WR_RDMA_WRITE, ~uint64_t{0} - 10, target.mr->rkey);
}

// Keys may start at another address than the memory has.
void OtherAddress(World& world) {
  Pair pair(world);
  constexpr uint64_t kStart = 0x7000000000;
  Buffer& buffer = world.NewBuffer(kBytes);
  ibv_mr* mr = world.v.reg_mr_iova2(pair.second.pd, buffer.data(), kBytes,
                                    kStart + (buffer.addr() & 4095), kAllAccess);
  ExpectTrue(mr != nullptr, "ibv_reg_mr_iova2");
  const uint64_t start = kStart + (buffer.addr() & 4095);
  Region local = pair.first.NewRegion(100);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 100)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, start + 1000, mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  buffer.ExpectPattern(1000, 100, 1);
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 2, list, buffer.addr(), mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
  ExpectEq(world.v.dereg_mr(mr), 0, "ibv_dereg_mr");
}

// Local addresses of such a region are the other ones, too.
void OtherAddressLocally(World& world) {
  Pair pair(world);
  Buffer& buffer = world.NewBuffer(kBytes);
  buffer.Fill(4);
  ibv_mr* mr =
      world.v.reg_mr_iova2(pair.first.pd, buffer.data(), kBytes, buffer.addr() & 4095, kAllAccess);
  ExpectTrue(mr != nullptr, "ibv_reg_mr_iova2 from near zero");
  Region target = pair.second.NewRegion(100);
  std::vector<ibv_sge> list = {{(buffer.addr() & 4095) + 50, 100, mr->lkey}};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 100, 4, 50);
  ExpectEq(world.v.dereg_mr(mr), 0, "ibv_dereg_mr");
}

// The queue pair's own rights count as well as the region's.
void QpRights(World& world, ibv_wr_opcode opcode, int access) {
  Pair pair(world, {}, {.access = access});
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(kBytes);
  target.buffer->Fill(2);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(opcode, 3, list, target.addr(), target.mr->rkey));
  const ibv_wc wc = PollOne(world, pair.first.send_cq);
  ExpectOneOf<int>(wc.status, {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR}, "status");
  target.buffer->ExpectPattern(0, kBytes, 2);
}

// A message of several packets that leaves the region: nothing behind its end, an error for the
// whole.
void LongMessageLeavesRegion(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(3 * kBytes), target = pair.second.NewRegion(2 * kBytes + 10);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 3 * kBytes)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 3, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 3, IBV_WC_REM_ACCESS_ERR);
}

void AtomicUnaligned(World& world) {
  Pair pair(world);
  Region result = pair.first.NewRegion(8), target = pair.second.NewRegion(kBytes);
  target.buffer->Fill(2);
  std::vector<ibv_sge> list = {result.Sge(0, 8)};
  const int error = pair.first.PostSend(
      AtomicWr(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, list, target.addr() + 4, target.mr->rkey, 1, 0));
  if (error == EINVAL) return;  // found while posting: as good
  ExpectEq(error, 0, "ibv_post_send");
  const ibv_wc wc = PollOne(world, pair.first.send_cq);
  ExpectOneOf<int>(wc.status, {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR}, "status");
  target.buffer->ExpectPattern(0, kBytes, 2);
}

}  // namespace

std::vector<Case> MemoryKeyCases() {
  const std::vector<std::string> none, iova = {"iova"}, atomics = {"atomics"};
  const char* const key = "IBTA 9.7.4.1.5, 9.7.5.2.4, 10.6.3";
  std::vector<Case> cases;
  const struct {
    const char* name;
    Spot spot;
  } spots[] = {
      {"OneByteBefore", {-1, 64}}, {"OneByteTooLong", {kBytes - 63, 64}}, {"Behind", {kBytes, 1}}};
  for (const auto& spot : spots) {
    cases.push_back({std::string("Key.Write") + spot.name + "_RemAccessErrAndUntouched", key, none,
                     [=](World& w) { OutOfBounds(w, IBV_WR_RDMA_WRITE, spot.spot); }});
    cases.push_back({std::string("Key.Read") + spot.name + "_RemAccessErrAndUntouched", key, none,
                     [=](World& w) { OutOfBounds(w, IBV_WR_RDMA_READ, spot.spot); }});
  }
  constexpr int kNoWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  constexpr int kNoRead = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const std::vector<Case> more = {
      {"Key.WriteWithBadKey_RemAccessErr", key, none,
       [](World& w) { BadRkey(w, IBV_WR_RDMA_WRITE); }},
      {"Key.ReadWithBadKey_RemAccessErr", key, none,
       [](World& w) { BadRkey(w, IBV_WR_RDMA_READ); }},
      {"Key.WriteWithNeighbouringKey_RemAccessErr", key, none, OldRkey},
      {"Key.WriteWithoutRight_RemAccessErr", key, none,
       [](World& w) { WrongRight(w, IBV_WR_RDMA_WRITE, kNoWrite); }},
      {"Key.ReadWithoutRight_RemAccessErr", key, none,
       [](World& w) { WrongRight(w, IBV_WR_RDMA_READ, kNoRead); }},
      {"Key.AtomicWithoutRight_RemAccessErr", key, atomics,
       [](World& w) { WrongRight(w, IBV_WR_ATOMIC_FETCH_AND_ADD, kNoWrite | kNoRead); }},
      {"Key.OfAnotherProtectionDomain_RemAccessErr", key, none, WrongPd},
      {"Key.Deregistered_RemAccessErr", key, none, Deregistered},
      {"Key.OldKeyOfReusedMemory_RemAccessErr", key, none, ReusedSlot},
      {"Key.FirstAndLastByte_AreInside", key, none, EdgesAreInside},
      {"Key.AddressWrapsAround_RemAccessErr", key, none, WrapsAround},
      {"Key.EmptyWriteWithBadKey_Success", "IBTA 9.7.4.1.5 (a length of 0 is not checked)", none,
       [](World& w) { EmptyWithBadKey(w, IBV_WR_RDMA_WRITE); }},
      {"Key.EmptyReadWithBadKey_Success", "IBTA 9.7.4.1.5 (a length of 0 is not checked)", none,
       [](World& w) { EmptyWithBadKey(w, IBV_WR_RDMA_READ); }},
      {"Key.OtherStartAddress_PeerUsesThat", "man ibv_reg_mr_iova", iova, OtherAddress},
      {"Key.OtherStartAddress_LocalUsesThat", "man ibv_reg_mr_iova", iova, OtherAddressLocally},
      {"Key.QpWithoutWriteRight_Refused", key, none,
       [](World& w) { QpRights(w, IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_READ); }},
      {"Key.QpWithoutReadRight_Refused", key, none,
       [](World& w) { QpRights(w, IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_WRITE); }},
      {"Key.LongMessageLeavesTheRegion_RemAccessErrAndGuardsStay", key, none,
       LongMessageLeavesRegion},
      {"Key.AtomicAtUnalignedAddress_Refused", "IBTA 9.4.5, 9.7.4.1.5", atomics, AtomicUnaligned},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace railhop::conformance
