// Objects: made, used, taken down in order; refused with an errno when that is not possible.
#include <errno.h>
#include <sys/mman.h>

#include <set>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

void PdBusyByMr(World& world) {
  Device device(world, world.first_device());
  ibv_pd* pd = world.v.alloc_pd(device.context);
  {
    Region region(world, pd, 4096);
    ExpectEq(world.v.dealloc_pd(pd), EBUSY, "ibv_dealloc_pd with a region");
  }
  ExpectEq(world.v.dealloc_pd(pd), 0, "ibv_dealloc_pd after it");
}

void PdBusyByQp(World& world) {
  Side side(world, world.first_device());
  ExpectEq(world.v.dealloc_pd(side.pd), EBUSY, "ibv_dealloc_pd with a queue pair");
  side.DestroyQp();
  ExpectEq(world.v.dealloc_pd(side.pd), 0, "ibv_dealloc_pd after it");
  side.pd = nullptr;
}

void CqBusyByQp(World& world) {
  Side side(world, world.first_device());
  ExpectEq(world.v.destroy_cq(side.send_cq), EBUSY, "ibv_destroy_cq of the send queue");
  ExpectEq(world.v.destroy_cq(side.recv_cq), EBUSY, "ibv_destroy_cq of the receive queue");
  side.DestroyQp();
  ExpectEq(world.v.destroy_cq(side.send_cq), 0, "ibv_destroy_cq after it");
  ExpectEq(world.v.destroy_cq(side.recv_cq), 0, "ibv_destroy_cq after it");
  side.send_cq = side.recv_cq = nullptr;
}

void ChannelBusyByCq(World& world) {
  Device device(world, world.first_device());
  ibv_comp_channel* channel = world.v.create_comp_channel(device.context);
  ibv_cq* cq = world.v.create_cq(device.context, 8, nullptr, channel, 0);
  ExpectTrue(cq != nullptr, "ibv_create_cq");
  ExpectEq(world.v.destroy_comp_channel(channel), EBUSY, "ibv_destroy_comp_channel");
  ExpectEq(world.v.destroy_cq(cq), 0, "ibv_destroy_cq");
  ExpectEq(world.v.destroy_comp_channel(channel), 0, "ibv_destroy_comp_channel after it");
}

void CqKeepsPromise(World& world) {
  Device device(world, world.first_device());
  for (const int wanted : {1, 2, 7, 64, 1000}) {
    ibv_cq* cq = world.v.create_cq(device.context, wanted, &device, nullptr, 0);
    ExpectTrue(cq != nullptr, "ibv_create_cq of " + std::to_string(wanted));
    ExpectTrue(cq->cqe >= wanted, "at least as many entries as asked for");
    ExpectTrue(cq->cq_context == &device && cq->context == device.context, "its contexts");
    ExpectEq(world.v.destroy_cq(cq), 0, "ibv_destroy_cq");
  }
}

void CqBadSize(World& world) {
  Device device(world, world.first_device());
  for (const int wanted : {0, -1, device.attr.max_cqe + 1}) {
    errno = 0;
    ibv_cq* cq = world.v.create_cq(device.context, wanted, nullptr, nullptr, 0);
    ExpectTrue(cq == nullptr, "ibv_create_cq of " + std::to_string(wanted) + " is refused");
    ExpectOneOf(errno, {EINVAL, ENOMEM}, "errno");
  }
}

void CqBadVector(World& world) {
  Device device(world, world.first_device());
  for (const int vector : {-1, device.context->num_comp_vectors}) {
    errno = 0;
    ibv_cq* cq = world.v.create_cq(device.context, 8, nullptr, nullptr, vector);
    ExpectTrue(cq == nullptr, "completion vector " + std::to_string(vector) + " is refused");
    ExpectEq(errno, EINVAL, "errno");
  }
}

void QpKeepsPromise(World& world) {
  Side side(world, world.first_device());
  ibv_qp_init_attr attr = {};
  attr.send_cq = side.send_cq;
  attr.recv_cq = side.recv_cq;
  attr.cap = {33, 17, 3, 2, 40};
  attr.qp_type = IBV_QPT_RC;
  attr.qp_context = &side;
  ibv_qp* qp = world.v.create_qp(side.pd, &attr);
  ExpectTrue(qp != nullptr, "ibv_create_qp");
  ExpectTrue(attr.cap.max_send_wr >= 33 && attr.cap.max_recv_wr >= 17, "room for requests");
  ExpectTrue(attr.cap.max_send_sge >= 3 && attr.cap.max_recv_sge >= 2, "room for lists");
  ExpectTrue(attr.cap.max_inline_data >= 40, "room for inline data");
  ExpectTrue(qp->qp_context == &side && qp->pd == side.pd, "its contexts");
  ExpectTrue(qp->send_cq == side.send_cq && qp->recv_cq == side.recv_cq, "its queues");
  ExpectEq(static_cast<int>(qp->qp_type), static_cast<int>(IBV_QPT_RC), "its type");
  ExpectEq(static_cast<int>(qp->state), static_cast<int>(IBV_QPS_RESET), "its state");
  ExpectEq(world.v.destroy_qp(qp), 0, "ibv_destroy_qp");
}

// One queue pair whose `spoil`ed capabilities are beyond the device.
void RefuseQp(World& world, const std::function<void(ibv_qp_cap*, const ibv_device_attr&)>& spoil) {
  Side side(world, world.first_device());
  ibv_qp_init_attr attr = {};
  attr.send_cq = side.send_cq;
  attr.recv_cq = side.recv_cq;
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  spoil(&attr.cap, side.device->attr);
  errno = 0;
  ExpectTrue(world.v.create_qp(side.pd, &attr) == nullptr, "ibv_create_qp is refused");
  ExpectOneOf(errno, {EINVAL, ENOMEM}, "errno");
}

void QpTooManyRequests(World& world) {
  RefuseQp(world, [](ibv_qp_cap* cap, const ibv_device_attr& attr) {
    cap->max_send_wr = static_cast<uint32_t>(attr.max_qp_wr) + 1;
  });
  RefuseQp(world, [](ibv_qp_cap* cap, const ibv_device_attr& attr) {
    cap->max_recv_wr = static_cast<uint32_t>(attr.max_qp_wr) + 1;
  });
}

void QpTooManySges(World& world) {
  RefuseQp(world, [](ibv_qp_cap* cap, const ibv_device_attr& attr) {
    cap->max_send_sge = static_cast<uint32_t>(attr.max_sge) + 1;
  });
  RefuseQp(world, [](ibv_qp_cap* cap, const ibv_device_attr& attr) {
    cap->max_recv_sge = static_cast<uint32_t>(attr.max_sge) + 1;
  });
}

void QpTooMuchInline(World& world) {
  RefuseQp(world, [](ibv_qp_cap* cap, const ibv_device_attr&) { cap->max_inline_data = 1u << 20; });
}

void QpBadType(World& world) {
  Side side(world, world.first_device());
  ibv_qp_init_attr attr = {};
  attr.send_cq = side.send_cq;
  attr.recv_cq = side.recv_cq;
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = static_cast<ibv_qp_type>(77);
  errno = 0;
  ExpectTrue(world.v.create_qp(side.pd, &attr) == nullptr, "a type that is none is refused");
  ExpectOneOf(errno, {EINVAL, EOPNOTSUPP, ENOSYS}, "errno");
}

void PostBeyondSendQueue(World& world) {
  Pair pair(world, {.send_wr = 4, .cq_entries = 1000}, {.rnr_retry = 7});
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ExpectEq(world.v.query_qp(pair.first.qp, &attr, IBV_QP_CAP, &init), 0, "ibv_query_qp");
  // The peer has no receive, so nothing completes and no slot comes back.
  std::vector<ibv_sge> nothing;
  int posted = 0;
  int error = 0;
  while (posted < static_cast<int>(init.cap.max_send_wr) + 2 && error == 0) {
    error = pair.first.PostSend(SendWr(IBV_WR_SEND, 1, nothing));
    posted += error == 0 ? 1 : 0;
  }
  ExpectEq(error, ENOMEM, "posting to a full send queue");
  ExpectTrue(posted >= 4, "as many as asked for fit");
  for (int i = 0; i <= posted; ++i) {
    pair.second.MustRecv(2, {});
    if (i < posted) ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  }
  ExpectEq(pair.first.PostSend(SendWr(IBV_WR_SEND, 3, nothing)), 0, "posting after polling");
  ExpectCompletion(world, pair.first.send_cq, 3, IBV_WC_SUCCESS);
}

void PostBeyondRecvQueue(World& world) {
  Pair pair(world, {.recv_wr = 4}, {});
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ExpectEq(world.v.query_qp(pair.first.qp, &attr, IBV_QP_CAP, &init), 0, "ibv_query_qp");
  uint32_t posted = 0;
  int error = 0;
  while (posted <= init.cap.max_recv_wr + 1 && error == 0) {
    error = pair.first.PostRecv(posted, {});
    posted += error == 0 ? 1 : 0;
  }
  ExpectEq(error, ENOMEM, "posting to a full receive queue");
  ExpectTrue(posted >= 4, "as many as asked for fit");
}

void PostTooManySges(World& world) {
  Pair pair(world, {.send_sge = 2, .recv_sge = 2}, {});
  Region region = pair.first.NewRegion(4096);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ExpectEq(world.v.query_qp(pair.first.qp, &attr, IBV_QP_CAP, &init), 0, "ibv_query_qp");
  std::vector<ibv_sge> list(init.cap.max_send_sge + 1, region.Sge(0, 8));
  ExpectOneOf(pair.first.PostSend(SendWr(IBV_WR_SEND, 1, list)), {EINVAL, ENOMEM}, "ibv_post_send");
  list.assign(init.cap.max_recv_sge + 1, region.Sge(0, 8));
  ExpectOneOf(pair.first.PostRecv(1, list), {EINVAL, ENOMEM}, "ibv_post_recv");
}

// The chain's first bad request is named, those before it are posted.
void BadRequestIsNamed(World& world) {
  Pair pair(world);
  Region region = pair.first.NewRegion(64);
  std::vector<ibv_sge> good = {region.Sge(0, 8)};
  std::vector<ibv_sge> many(64, region.Sge(0, 1));
  ibv_send_wr third = SendWr(IBV_WR_SEND, 3, good);
  ibv_send_wr second = SendWr(IBV_WR_SEND, 2, many);
  ibv_send_wr first = SendWr(IBV_WR_SEND, 1, good);
  second.next = &third;
  first.next = &second;
  Region sink = pair.second.NewRegion(64);
  for (int i = 0; i < 3; ++i) pair.second.MustRecv(10, {sink.Sge(0, 64)});
  ibv_send_wr* bad = nullptr;
  ExpectTrue(world.v.post_send(pair.first.qp, &first, &bad) != 0, "the chain is refused");
  ExpectTrue(bad == &second, "bad_wr is the second request");
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectQuiet(world, pair.first.send_cq, 0.05);
}

void MrRightsNeedLocalWrite(World& world, int access) {
  Side side(world, world.first_device());
  Buffer& buffer = world.NewBuffer(4096);
  errno = 0;
  ibv_mr* mr = world.v.reg_mr(side.pd, buffer.data(), buffer.size(), access);
  ExpectTrue(mr == nullptr, "ibv_reg_mr is refused");
  ExpectEq(errno, EINVAL, "errno");
}

void MrUnmapped(World& world) {
  Side side(world, world.first_device());
  void* hole = mmap(nullptr, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ExpectEq(munmap(hole, 1 << 16), 0, "munmap");
  errno = 0;
  ibv_mr* mr = world.v.reg_mr(side.pd, hole, 4096, kAllAccess);
  ExpectTrue(mr == nullptr, "ibv_reg_mr of unmapped memory is refused");
  ExpectOneOf(errno, {EFAULT, ENOMEM, EINVAL}, "errno");
}

void MrReadOnlyMemory(World& world) {
  Pair pair(world);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static_cast<uint8_t*>(page)[5] = 42;
  ExpectEq(mprotect(page, 4096, PROT_READ), 0, "mprotect");
  errno = 0;
  ExpectTrue(world.v.reg_mr(pair.second.pd, page, 4096, kAllAccess) == nullptr,
             "read-only memory is refused with write access");
  ExpectOneOf(errno, {EFAULT, EACCES, EINVAL}, "errno");
  ibv_mr* mr = world.v.reg_mr(pair.second.pd, page, 4096, IBV_ACCESS_REMOTE_READ);
  ExpectTrue(mr != nullptr, "read-only memory can be registered for reading");
  Region local = pair.first.NewRegion(16);
  std::vector<ibv_sge> list = {local.Sge(0, 16)};
  pair.first.MustSend(
      RdmaWr(IBV_WR_RDMA_READ, 1, list, reinterpret_cast<uint64_t>(page), mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectEq(local.data()[5], 42, "the byte read");
  ExpectEq(world.v.dereg_mr(mr), 0, "ibv_dereg_mr");
}

void MrKeysDiffer(World& world) {
  Side side(world, world.first_device());
  std::vector<Region> regions;
  std::set<uint32_t> lkeys, rkeys;
  for (int i = 0; i < 200; ++i) {
    regions.push_back(side.NewRegion(4096));
    lkeys.insert(regions.back().mr->lkey);
    rkeys.insert(regions.back().mr->rkey);
    ExpectEq(regions.back().mr->length, 4096u, "length");
    ExpectTrue(regions.back().mr->addr == regions.back().data(), "address");
  }
  ExpectEq(lkeys.size(), 200u, "different local keys");
  ExpectEq(rkeys.size(), 200u, "different remote keys");
}

// Registering the same bytes twice gives two independent keys.
void MrOverlap(World& world) {
  Pair pair(world);
  Region target = pair.second.NewRegion(4096);
  ibv_mr* twin = world.v.reg_mr(pair.second.pd, target.data(), 4096, kAllAccess);
  ExpectTrue(twin != nullptr, "ibv_reg_mr of the same memory");
  const uint32_t rkey = target.mr->rkey;
  ExpectEq(world.v.dereg_mr(twin), 0, "ibv_dereg_mr of the second");
  Region local = pair.first.NewRegion(64);
  local.buffer->Fill(3);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 64, 3);
}

void MrRelaxedOrdering(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(4096);
  local.buffer->Fill(9);
  Region target = pair.second.NewRegion(4096, kAllAccess | IBV_ACCESS_RELAXED_ORDERING);
  std::vector<ibv_sge> list = {local.Sge(0, 4096)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectTrue(world.WaitUntil([&] { return target.data()[4095] == Buffer::Pattern(9, 4095); }),
             "the data arrives");
  target.buffer->ExpectPattern(0, 4096, 9);
}

void MrReRegister(World& world) {
  Pair pair(world);
  Region target = pair.second.NewRegion(4096);
  ExpectEq(world.v.rereg_mr(target.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
           0, "ibv_rereg_mr");
  Region local = pair.first.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
}

void CreateAndDestroyOften(World& world) {
  for (int i = 0; i < 50; ++i) {
    Pair pair(world);
    Region region = pair.first.NewRegion(64);
    Region target = pair.second.NewRegion(64);
    region.buffer->Fill(static_cast<uint32_t>(i));
    std::vector<ibv_sge> list = {region.Sge(0, 64)};
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
    target.buffer->ExpectPattern(0, 64, static_cast<uint32_t>(i));
  }
}

}  // namespace

std::vector<Case> LifecycleCases() {
  const std::vector<std::string> none;
  const char* const post_send = "man ibv_post_send";
  return {
      {"Pd.DeallocWithRegion_Ebusy", "man ibv_alloc_pd", none, PdBusyByMr},
      {"Pd.DeallocWithQp_Ebusy", "man ibv_alloc_pd", none, PdBusyByQp},
      {"Cq.DestroyWithQp_Ebusy", "man ibv_create_cq", none, CqBusyByQp},
      {"Channel.DestroyWithCq_Ebusy", "man ibv_create_comp_channel", {"channels"}, ChannelBusyByCq},
      {"Cq.Create_AtLeastAsManyEntries", "man ibv_create_cq", none, CqKeepsPromise},
      {"Cq.CreateBadSize_Refused", "man ibv_create_cq", none, CqBadSize},
      {"Cq.CreateBadVector_Einval", "man ibv_create_cq", none, CqBadVector},
      {"Qp.Create_AtLeastTheCapabilitiesAsked", "man ibv_create_qp", none, QpKeepsPromise},
      {"Qp.CreateTooManyRequests_Refused", "man ibv_create_qp", none, QpTooManyRequests},
      {"Qp.CreateTooManySges_Refused", "man ibv_create_qp", none, QpTooManySges},
      {"Qp.CreateTooMuchInline_Refused", "man ibv_create_qp", {"inline"}, QpTooMuchInline},
      {"Qp.CreateBadType_Refused", "man ibv_create_qp", none, QpBadType},
      {"Qp.PostToFullSendQueue_Enomem", post_send, none, PostBeyondSendQueue},
      {"Qp.PostToFullRecvQueue_Enomem", "man ibv_post_recv", none, PostBeyondRecvQueue},
      {"Qp.PostTooManySges_Refused", post_send, none, PostTooManySges},
      {"Qp.PostChainWithBadRequest_NamesIt", post_send, none, BadRequestIsNamed},
      {"Mr.RemoteWriteWithoutLocalWrite_Einval", "man ibv_reg_mr", none,
       [](World& world) { MrRightsNeedLocalWrite(world, IBV_ACCESS_REMOTE_WRITE); }},
      {"Mr.RemoteAtomicWithoutLocalWrite_Einval", "man ibv_reg_mr", none,
       [](World& world) { MrRightsNeedLocalWrite(world, IBV_ACCESS_REMOTE_ATOMIC); }},
      {"Mr.UnmappedMemory_Refused", "IBTA 11.2.8.1; man ibv_reg_mr", none, MrUnmapped},
      {"Mr.ReadOnlyMemory_ForReadingOnly", "man ibv_reg_mr", none, MrReadOnlyMemory},
      {"Mr.ManyRegions_KeysDiffer", "IBTA 10.6.3", none, MrKeysDiffer},
      {"Mr.SameMemoryTwice_KeysAreIndependent", "IBTA 10.6.3", none, MrOverlap},
      {"Mr.RelaxedOrdering_IsAcceptedAndDelivers", "man ibv_reg_mr", none, MrRelaxedOrdering},
      {"Mr.ReRegisterWithFewerRights_IsRefusedRemotely",
       "man ibv_rereg_mr",
       {"rereg_mr"},
       MrReRegister},
      {"Objects.MadeAndDestroyed50Times_StillWork", "man ibv_destroy_qp", none,
       CreateAndDestroyOften},
  };
}

}  // namespace railhop::conformance
