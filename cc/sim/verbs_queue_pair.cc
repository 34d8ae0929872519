// Queue pairs and posting.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "cc/sim/verbs_objects.h"
#include "cc/sim/verbs_table.h"

namespace railhop::sim {
namespace {

using rdma::Opcode;
using rdma::VerbCall;

constexpr uint32_t kSendFlags =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
constexpr uint32_t kIgnoredAccess =
    uint32_t{IBV_ACCESS_MW_BIND} | uint32_t{IBV_ACCESS_OPTIONAL_RANGE};
constexpr uint32_t kKnownAttributes = (static_cast<uint32_t>(IBV_QP_DEST_QPN) << 1) - 1;

// The value of an enum that a program set, which may be any.
template <typename Enum>
uint32_t Raw(const Enum& value) {
  uint32_t raw;
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

int CheckInit(const ibv_pd& pd, const ibv_qp_init_attr& attr) {
  if (attr.qp_type != IBV_QPT_RC && attr.qp_type != IBV_QPT_UC) return EOPNOTSUPP;
  if (attr.srq != nullptr) return EOPNOTSUPP;
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return EINVAL;
  return attr.send_cq->context != pd.context || attr.recv_cq->context != pd.context ? EINVAL : 0;
}

ibv_qp* CreateQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  auto made = std::make_unique<SimQp>();
  SimQp* object = made.get();
  int error = CheckInit(*pd, *attr);
  if (error == 0) {
    object->cap = attr->cap;
    object->cap.max_send_wr = std::max(attr->cap.max_send_wr, 1u);
    object->cap.max_recv_wr = std::max(attr->cap.max_recv_wr, 1u);
    object->cap.max_send_sge = std::max(attr->cap.max_send_sge, 1u);
    object->cap.max_recv_sge = std::max(attr->cap.max_recv_sge, 1u);
    object->signal_all = attr->sq_sig_all;
    QpInit init;
    init.type = static_cast<rdma::QpType>(attr->qp_type);
    init.pd = Of(pd)->number;
    init.max_send_wr = object->cap.max_send_wr;
    init.max_recv_wr = object->cap.max_recv_wr;
    init.max_send_sge = object->cap.max_send_sge;
    init.max_recv_sge = object->cap.max_recv_sge;
    init.max_inline_data = object->cap.max_inline_data;
    init.signal_all = attr->sq_sig_all != 0;
    init.send_cq = Of(attr->send_cq)->core;
    init.recv_cq = Of(attr->recv_cq)->core;
    init.user = object;
    error = Of(pd->context)->core->CreateQp(init, &object->core);
  }
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  Of(pd->context)->world->kept().Add(std::move(made));
  ibv_qp& qp = object->qp;
  qp.context = pd->context;
  qp.qp_context = attr->qp_context;
  qp.pd = pd;
  qp.send_cq = attr->send_cq;
  qp.recv_cq = attr->recv_cq;
  qp.handle = object->core->id();
  qp.qp_num = object->core->qpn();
  qp.state = IBV_QPS_RESET;
  qp.qp_type = attr->qp_type;
  attr->cap = object->cap;
  return &qp;
}

int CheckAttributes(const Nic& nic, const ibv_qp_attr& attr, uint32_t mask) {
  constexpr uint32_t kModel = 15;
  const uint32_t ports = static_cast<uint32_t>(nic.port_count());
  if ((mask & ~kKnownAttributes) != 0) return EINVAL;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 &&
      (attr.qp_access_flags & ~(kModel | kIgnoredAccess)) != 0) {
    return EINVAL;
  }
  if ((mask & IBV_QP_STATE) != 0 && Raw(attr.qp_state) > IBV_QPS_ERR) return EINVAL;
  if ((mask & IBV_QP_CUR_STATE) != 0 && Raw(attr.cur_qp_state) > IBV_QPS_ERR) return EINVAL;
  if ((mask & IBV_QP_PORT) != 0 && (attr.port_num == 0 || attr.port_num > ports)) return EINVAL;
  if ((mask & IBV_QP_AV) != 0 && (attr.ah_attr.port_num == 0 || attr.ah_attr.port_num > ports)) {
    return EINVAL;
  }
  return 0;
}

rdma::QpAttributes ToAttributes(const ibv_qp_attr& attr, uint32_t mask) {
  rdma::QpAttributes to;
  to.pkey_index = attr.pkey_index;
  to.port = attr.port_num;
  to.access = attr.qp_access_flags & ~kIgnoredAccess;
  to.path_mtu = attr.path_mtu;
  to.dest_qpn = attr.dest_qp_num;
  to.rq_psn = attr.rq_psn;
  to.sq_psn = attr.sq_psn;
  to.timeout = attr.timeout;
  to.retry_cnt = attr.retry_cnt;
  to.rnr_retry = attr.rnr_retry;
  to.min_rnr_timer = attr.min_rnr_timer;
  to.max_rd_atomic = attr.max_rd_atomic;
  to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  to.is_global = attr.ah_attr.is_global != 0;
  std::memcpy(to.dgid.raw, attr.ah_attr.grh.dgid.raw, sizeof(to.dgid.raw));
  to.sgid_index = attr.ah_attr.grh.sgid_index;
  to.traffic_class = attr.ah_attr.grh.traffic_class;
  to.dlid = attr.ah_attr.dlid;
  to.service_level = attr.ah_attr.sl;
  if ((mask & IBV_QP_CUR_STATE) != 0) to.current = static_cast<rdma::QpState>(attr.cur_qp_state);
  to.sqd_notify = attr.en_sqd_async_notify != 0;
  return to;
}

// Keeps what `mask` names for ibv_query_qp.
void Remember(const ibv_qp_attr& from, uint32_t mask, ibv_qp_attr* to) {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) to->qp_access_flags = from.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) to->pkey_index = from.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) to->port_num = from.port_num;
  if ((mask & IBV_QP_AV) != 0) to->ah_attr = from.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) to->path_mtu = from.path_mtu;
  if ((mask & IBV_QP_TIMEOUT) != 0) to->timeout = from.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) to->retry_cnt = from.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) to->rnr_retry = from.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) to->rq_psn = from.rq_psn;
  if ((mask & IBV_QP_SQ_PSN) != 0) to->sq_psn = from.sq_psn;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) to->max_rd_atomic = from.max_rd_atomic;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) to->max_dest_rd_atomic = from.max_dest_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) to->min_rnr_timer = from.min_rnr_timer;
  if ((mask & IBV_QP_DEST_QPN) != 0) to->dest_qp_num = from.dest_qp_num;
  if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) to->en_sqd_async_notify = from.en_sqd_async_notify;
}

int ModifyQp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  SimQp* object = Of(qp);
  Context* core = Of(qp->context)->core;
  const auto mask = static_cast<uint32_t>(attr_mask);
  if (const int error = CheckAttributes(*core->nic(), *attr, mask)) {
    const int first = core->Enter(VerbCall::kModifyQp);
    return first != 0 ? first : error;
  }
  const rdma::QpState to = (mask & IBV_QP_STATE) != 0 ? static_cast<rdma::QpState>(attr->qp_state)
                                                      : object->core->state();
  if (const int error = core->ModifyQp(object->core, mask, to, ToAttributes(*attr, mask))) {
    return error;
  }
  Remember(*attr, mask, &object->attr);
  if (to == rdma::QpState::kReset) std::memset(&object->attr, 0, sizeof(object->attr));
  if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  return 0;
}

int QueryQp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  SimQp* object = Of(qp);
  if (const int error = Of(qp->context)->core->Enter(VerbCall::kQueryQp)) return error;
  *attr = object->attr;
  qp->state = static_cast<ibv_qp_state>(object->core->state());
  attr->qp_state = attr->cur_qp_state = qp->state;
  attr->sq_draining = object->core->sq_draining() ? 1 : 0;
  attr->cap = object->cap;
  std::memset(init, 0, sizeof(*init));
  init->qp_context = qp->qp_context;
  init->send_cq = qp->send_cq;
  init->recv_cq = qp->recv_cq;
  init->cap = object->cap;
  init->qp_type = qp->qp_type;
  init->sq_sig_all = object->signal_all;
  return 0;
}

int DestroyQp(ibv_qp* qp) {
  SimQp* object = Of(qp);
  Context* core = Of(qp->context)->core;
  if (object->async_events != qp->events_completed) return EBUSY;
  if (const int error = core->DestroyQp(object->core)) return error;
  SetReadable(Of(qp->context)->async_fd, core->HasEvents());
  Of(qp->context)->world->kept().Delete(object);
  return 0;
}

// 0 or EINVAL.
int ToRequest(const ibv_send_wr& wr, SendRequest* request, rdma::Sge* sges) {
  if (Raw(wr.opcode) > IBV_WR_ATOMIC_FETCH_AND_ADD || wr.num_sge < 0 ||
      wr.num_sge > rdma::kMaxSge || (wr.send_flags & ~kSendFlags) != 0) {
    return EINVAL;
  }
  request->wr_id = wr.wr_id;
  request->opcode = static_cast<Opcode>(wr.opcode);
  request->flags = wr.send_flags;
  if (request->opcode == Opcode::kSendImm || request->opcode == Opcode::kWriteImm) {
    request->imm_data = wr.imm_data;
  }
  if (request->opcode == Opcode::kCompareSwap || request->opcode == Opcode::kFetchAdd) {
    request->remote_addr = wr.wr.atomic.remote_addr;
    request->rkey = wr.wr.atomic.rkey;
    request->compare_add = wr.wr.atomic.compare_add;
    request->swap = wr.wr.atomic.swap;
  } else if (request->opcode != Opcode::kSend && request->opcode != Opcode::kSendImm) {
    request->remote_addr = wr.wr.rdma.remote_addr;
    request->rkey = wr.wr.rdma.rkey;
  }
  for (int i = 0; i < wr.num_sge; ++i) {
    sges[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
  }
  request->sges = sges;
  request->sge_count = static_cast<uint32_t>(wr.num_sge);
  return 0;
}

}  // namespace

int SimPostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  Context* core = Of(qp->context)->core;
  for (; wr != nullptr; wr = wr->next) {
    SendRequest request;
    rdma::Sge sges[rdma::kMaxSge];
    int error = ToRequest(*wr, &request, sges);
    if (error == 0) error = core->PostSend(Of(qp)->core, request);
    if (error != 0) {
      *bad = wr;
      return error;
    }
  }
  return 0;
}

int SimPostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Context* core = Of(qp->context)->core;
  for (; wr != nullptr; wr = wr->next) {
    rdma::Sge sges[rdma::kMaxSge];
    int error = wr->num_sge < 0 || wr->num_sge > rdma::kMaxSge ? EINVAL : 0;
    for (int i = 0; error == 0 && i < wr->num_sge; ++i) {
      sges[i] = {wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
    }
    if (error == 0) {
      error = core->PostReceive(Of(qp)->core, wr->wr_id, sges, static_cast<uint32_t>(wr->num_sge));
    }
    if (error != 0) {
      *bad = wr;
      return error;
    }
  }
  return 0;
}

void FillQueuePairVerbs(VerbsFunctions* table) {
  table->create_qp = CreateQp;
  table->modify_qp = ModifyQp;
  table->query_qp = QueryQp;
  table->destroy_qp = DestroyQp;
  table->post_send = SimPostSend;
  table->post_recv = SimPostRecv;
}

}  // namespace railhop::sim
