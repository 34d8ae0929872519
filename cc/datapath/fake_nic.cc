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
  if (nic->post_send_error != 0 && nic->posts_before_error-- <= 0) {
    *bad = wr;
    return nic->post_send_error;
  }
  for (; wr != nullptr; wr = wr->next) {
    PostedSend posted = {.qp = qp, .request = *wr, .sge = {}, .copy = {}, .is_lost = false};
    if (wr->num_sge > 0) posted.sge = wr->sg_list[0];
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
      const auto* data = reinterpret_cast<const uint8_t*>(posted.sge.addr);
      posted.copy.assign(data, data + posted.sge.length);
    }
    if (static_cast<FakeQp*>(qp)->is_error) {
      if (!nic->is_silent) nic->Complete(posted, IBV_WC_WR_FLUSH_ERR);
    } else {
      nic->sends.push_back(std::move(posted));
    }
  }
  return 0;
}

void FlushReceive(FakeNic* nic, ibv_qp* qp, uint64_t id) {
  ibv_wc wc = {};
  wc.wr_id = id;
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.qp_num = qp->qp_num;
  if (!nic->is_silent) nic->completions.push_back(wc);
}

int PostReceive(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  FakeNic* const nic = NicOf(qp->context);
  if (nic->post_receive_error != 0) {
    *bad = wr;
    return nic->post_receive_error;
  }
  auto* const fake = static_cast<FakeQp*>(qp);
  for (; wr != nullptr; wr = wr->next) {
    ++nic->receives_posted;
    if (fake->is_error) {
      FlushReceive(nic, qp, wr->wr_id);
    } else {
      fake->receives.push_back(wr->wr_id);
    }
  }
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
    FakeNic* const nic = NicOf(pd->context);
    mr->lkey = mr->rkey = nic->first_key + static_cast<uint32_t>(++nic->mrs);
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
    auto* qp = new FakeQp();
    qp->context = pd->context;
    ++NicOf(pd->context)->qps;
    qp->qp_num = ++NicOf(pd->context)->qps_created;
    NicOf(pd->context)->live_qps.insert(qp);
    return static_cast<ibv_qp*>(qp);
  };
  table_->modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
    FakeNic* const nic = NicOf(qp->context);
    if (!nic->modify_errors.empty()) {
      const int error = nic->modify_errors.front();
      nic->modify_errors.pop_front();
      if (error != 0) return error;
    }
    nic->modified.push_back({qp, *attr, mask});
    if ((mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_ERR) nic->Flush(qp);
    return 0;
  };
  table_->destroy_qp = [](ibv_qp* qp) {
    FakeNic* const nic = NicOf(qp->context);
    if (nic->before_destroy_qp) nic->before_destroy_qp();
    if (nic->destroy_qp_error != 0) return nic->destroy_qp_error;
    --nic->qps;
    nic->Forget(qp);
    nic->live_qps.erase(qp);
    delete static_cast<FakeQp*>(qp);
    return 0;
  };
  opening = this;
  context_ = verbs::Context::Open(table_, nullptr).value();
}

FakeNic::~FakeNic() {
  // The context tries those again that were refused.
  context_.reset();
  for (ibv_qp* qp : live_qps) delete static_cast<FakeQp*>(qp);
}

void FakeNic::CarryOut(const PostedSend& send) {
  if (send.request.num_sge == 0) return;
  const void* from = send.copy.empty() ? reinterpret_cast<const void*>(send.sge.addr)
                                       : static_cast<const void*>(send.copy.data());
  memcpy(reinterpret_cast<void*>(send.request.wr.rdma.remote_addr), from, send.sge.length);
}

void FakeNic::Flush(ibv_qp* qp) {
  auto* const fake = static_cast<FakeQp*>(qp);
  fake->is_error = true;
  // Unacknowledged ones were posted before those that have not even been carried out.
  for (const auto* queue : {&unacknowledged, &sends}) {
    for (const PostedSend& send : *queue) {
      if (send.qp == qp && !is_silent) Complete(send, IBV_WC_WR_FLUSH_ERR);
    }
  }
  for (const uint64_t id : fake->receives) FlushReceive(this, qp, id);
  fake->receives.clear();
  Forget(qp);
}

void FakeNic::Forget(ibv_qp* qp) {
  for (auto* queue : {&unacknowledged, &sends}) {
    for (auto i = queue->begin(); i != queue->end();) i = i->qp == qp ? queue->erase(i) : i + 1;
  }
}

void FakeNic::Complete(const PostedSend& send, ibv_wc_status status) {
  ibv_wc wc = {};
  wc.wr_id = send.request.wr_id;
  wc.status = status;
  wc.qp_num = send.qp->qp_num;
  // In error, nothing but these four counts.
  if (status != IBV_WC_SUCCESS) {
    wc.opcode = static_cast<ibv_wc_opcode>(0x5a);
    wc.byte_len = wc.imm_data = 0x5a5a5a5a;
  }
  completions.push_back(wc);
}

}  // namespace railhop::datapath
