#include "cc/datapath/fake_nic.h"

#include <cstring>
#include <utility>

namespace railhop::datapath {
namespace {

// The raw context, and the way back from it to the fake.
struct FakeContext {
  ibv_context context = {};
  ibv_device device = {};
  FakeNic* nic = nullptr;
};

FakeNic* NicOf(ibv_context* context) { return reinterpret_cast<FakeContext*>(context)->nic; }

FakeNic* opening = nullptr;  // the one whose constructor opens a device

int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  FakeNic* const nic = NicOf(qp->context);
  if (nic->post_send_error != 0) {
    *bad = wr;
    return nic->post_send_error;
  }
  for (; wr != nullptr; wr = wr->next) {
    PostedSend posted = {.qp = qp, .request = *wr, .sge = {}};
    if (wr->num_sge > 0) posted.sge = wr->sg_list[0];
    nic->sends.push_back(posted);
  }
  return 0;
}

int PostReceive(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
  for (; wr != nullptr; wr = wr->next) ++NicOf(qp->context)->receives_posted;
  return 0;
}

int PollCq(ibv_cq* cq, int count, ibv_wc* entries) {
  FakeNic* const nic = NicOf(cq->context);
  if (nic->poll_result < 0) return nic->poll_result;
  int n = 0;
  while (n < count && !nic->completions.empty()) {
    entries[n++] = nic->completions.front();
    nic->completions.pop_front();
  }
  return n;
}

ibv_context* OpenDevice(ibv_device*) {
  auto* made = new FakeContext();
  made->nic = opening;
  made->context.device = &made->device;
  made->context.ops.post_send = PostSend;
  made->context.ops.post_recv = PostReceive;
  made->context.ops.poll_cq = PollCq;
  return &made->context;
}

int CloseDevice(ibv_context* context) {
  delete reinterpret_cast<FakeContext*>(context);
  return 0;
}

template <typename T>
T* NewObject(ibv_context* context) {
  auto* object = new T();
  memset(object, 0, sizeof(T));
  object->context = context;
  return object;
}

}  // namespace

FakeNic::FakeNic() : table_(std::make_shared<verbs::Table>()) {
  table_->get_device_name = [](ibv_device*) -> const char* { return "fake0"; };
  table_->get_device_guid = [](ibv_device*) -> __be64 { return 1; };
  table_->open_device = OpenDevice;
  table_->close_device = CloseDevice;
  table_->alloc_pd = [](ibv_context* context) { return NewObject<ibv_pd>(context); };
  table_->dealloc_pd = [](ibv_pd* pd) {
    delete pd;
    return 0;
  };
  table_->reg_mr = [](ibv_pd* pd, void* addr, size_t length, int) {
    auto* mr = NewObject<ibv_mr>(pd->context);
    mr->addr = addr;
    mr->length = length;
    mr->lkey = mr->rkey = static_cast<uint32_t>(++NicOf(pd->context)->mrs);
    return mr;
  };
  table_->dereg_mr = [](ibv_mr* mr) {
    --NicOf(mr->context)->mrs;
    delete mr;
    return 0;
  };
  table_->create_cq = [](ibv_context* context, int, void*, ibv_comp_channel*, int) {
    ++NicOf(context)->cqs;
    return NewObject<ibv_cq>(context);
  };
  table_->destroy_cq = [](ibv_cq* cq) {
    --NicOf(cq->context)->cqs;
    delete cq;
    return 0;
  };
  table_->query_port = [](ibv_context* context, uint8_t, ibv_port_attr* attr) {
    *attr = NicOf(context)->port;
    return 0;
  };
  table_->query_gid = [](ibv_context* context, uint8_t, int, ibv_gid* gid) {
    *gid = NicOf(context)->gid;
    return 0;
  };
  table_->query_ece = [](ibv_qp* qp, ibv_ece* ece) {
    *ece = NicOf(qp->context)->ece;
    return 0;
  };
  table_->set_ece = [](ibv_qp* qp, ibv_ece* ece) {
    NicOf(qp->context)->ece = *ece;
    ++NicOf(qp->context)->ece_sets;
    return 0;
  };
  table_->create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) {
    NicOf(pd->context)->created_qps.push_back(*init);
    auto* qp = NewObject<ibv_qp>(pd->context);
    qp->qp_num = static_cast<uint32_t>(++NicOf(pd->context)->qps);
    return qp;
  };
  table_->modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    FakeNic* const nic = NicOf(qp->context);
    if (!nic->modify_errors.empty()) {
      const int error = nic->modify_errors.front();
      nic->modify_errors.pop_front();
      if (error != 0) return error;
    }
    nic->modified.push_back({qp, *attr, mask});
    return 0;
  };
  table_->destroy_qp = [](ibv_qp* qp) {
    if (NicOf(qp->context)->destroy_qp_error != 0) return NicOf(qp->context)->destroy_qp_error;
    --NicOf(qp->context)->qps;
    delete qp;
    return 0;
  };
  opening = this;
  context_ = verbs::Context::Open(table_, nullptr).value();
}

FakeNic::~FakeNic() = default;

void FakeNic::CarryOut(const PostedSend& send) {
  if (send.request.num_sge == 0) return;
  memcpy(reinterpret_cast<void*>(send.request.wr.rdma.remote_addr),
         reinterpret_cast<const void*>(send.sge.addr), send.sge.length);
}

void FakeNic::Complete(const PostedSend& send, ibv_wc_status status) {
  ibv_wc wc = {};
  wc.wr_id = send.request.wr_id;
  wc.status = status;
  wc.qp_num = send.qp->qp_num;
  completions.push_back(wc);
}

}  // namespace railhop::datapath
