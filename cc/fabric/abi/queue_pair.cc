// Queue pairs: making, changing, asking, destroying.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "cc/fabric/abi/admission.h"
#include "cc/fabric/abi/objects.h"

namespace railhop::fabric::abi {
namespace {

using rdma::VerbCall;

constexpr uint64_t kSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                              IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
constexpr uint64_t kUcSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr uint32_t kQpAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                               IBV_ACCESS_MW_BIND | IBV_ACCESS_OPTIONAL_RANGE;
constexpr uint32_t kKnownAttributes = (static_cast<uint32_t>(IBV_QP_DEST_QPN) << 1) - 1;

// Extended connection establishment: an identifier of the vendor that no NIC's is, and one option.
constexpr uint32_t kEceVendorId = 0x52484f50;  // "RHOP"
constexpr uint32_t kEceOptions = 1;

// 0 or an errno.
int CheckInit(const DeviceEntry& device, const ibv_qp_init_attr_ex& attr) {
  const uint32_t type = Raw(attr.qp_type);
  if (type != IBV_QPT_RC && type != IBV_QPT_UC) return EOPNOTSUPP;
  const bool no_uc = (device.quirks.load(std::memory_order_relaxed) & rdma::kQuirkNoUc) != 0;
  if (type == IBV_QPT_UC && no_uc) return EOPNOTSUPP;
  if (attr.srq != nullptr) return EOPNOTSUPP;
  if (attr.send_cq == nullptr || attr.recv_cq == nullptr) return EINVAL;
  if (attr.send_cq->context != attr.pd->context || attr.recv_cq->context != attr.pd->context)
    return EINVAL;
  const DeviceCaps& caps = device.caps;
  const ibv_qp_cap& cap = attr.cap;
  const uint32_t max_sge = std::min<uint32_t>(caps.max_sge, rdma::kMaxSge);
  if (cap.max_send_wr > caps.max_qp_wr || cap.max_recv_wr > caps.max_qp_wr) return EINVAL;
  if (cap.max_send_sge > max_sge || cap.max_recv_sge > max_sge) return EINVAL;
  return cap.max_inline_data > rdma::kMaxInlineData ? EINVAL : 0;
}

// 0 or an errno: the parts of ibv_qp_init_attr_ex that are asked for in comp_mask.
int CheckExtensions(const ibv_qp_init_attr_ex& attr) {
  constexpr uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || attr.pd == nullptr) return EINVAL;
  if ((attr.comp_mask & ~kKnown) != 0) return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attr.create_flags != 0)
    return EOPNOTSUPP;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) == 0) return 0;
  const uint64_t allowed = Raw(attr.qp_type) == IBV_QPT_UC ? kUcSendOps : kSendOps;
  return (attr.send_ops_flags & ~allowed) != 0 ? EOPNOTSUPP : 0;
}

QpInit ToInit(const ibv_qp_init_attr_ex& attr, QpObject* object) {
  QpInit init;
  init.type = static_cast<rdma::QpType>(attr.qp_type);
  init.pd = Of(attr.pd)->id;
  init.max_send_wr = object->cap.max_send_wr;
  init.max_recv_wr = object->cap.max_recv_wr;
  init.max_send_sge = object->cap.max_send_sge;
  init.max_recv_sge = object->cap.max_recv_sge;
  init.max_inline_data = object->cap.max_inline_data;
  init.signal_all = attr.sq_sig_all != 0;
  init.send_cq = Of(attr.send_cq)->core;
  init.recv_cq = Of(attr.recv_cq)->core;
  init.user = object;
  return init;
}

void FillPublic(const ibv_qp_init_attr_ex& attr, QpObject* object) {
  ibv_qp& qp = object->ex.qp_base;
  qp.context = attr.pd->context;
  qp.qp_context = attr.qp_context;
  qp.pd = attr.pd;
  qp.send_cq = attr.send_cq;
  qp.recv_cq = attr.recv_cq;
  qp.handle = object->core->index();
  qp.qp_num = object->core->qpn();
  qp.state = IBV_QPS_RESET;
  qp.qp_type = attr.qp_type;
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
}

QpObject* CreateError(int error) {
  errno = error;
  return nullptr;
}

// Null with errno. Writes what it gives to attr->cap.
QpObject* Create(ibv_qp_init_attr_ex* attr) {
  ContextObject& context = *Of(attr->pd->context);
  if (const int error = Admit(context, VerbCall::kCreateQp); error != 0) return CreateError(error);
  if (const int error = CheckInit(*context.device, *attr); error != 0) return CreateError(error);
  Usage& usage = UsageOf(context);
  if (!TakeOne(usage.qps, context.device->caps.max_qp)) return CreateError(ENOMEM);
  auto* const object = new (std::nothrow) QpObject();
  if (object == nullptr) {
    usage.qps.fetch_sub(1);
    return CreateError(ENOMEM);
  }
  object->cap = attr->cap;
  object->cap.max_send_wr = std::max(attr->cap.max_send_wr, 1u);
  object->cap.max_recv_wr = std::max(attr->cap.max_recv_wr, 1u);
  object->cap.max_send_sge = std::max(attr->cap.max_send_sge, 1u);
  object->cap.max_recv_sge = std::max(attr->cap.max_recv_sge, 1u);
  object->signal_all = attr->sq_sig_all;
  object->ece = {kEceVendorId, kEceOptions, 0};
  object->core = context.nic->CreateQp(context.core, ToInit(*attr, object));
  if (object->core == nullptr) {
    const int error = errno;
    delete object;
    usage.qps.fetch_sub(1);
    return CreateError(error);
  }
  FillPublic(*attr, object);
  Of(attr->pd)->users.fetch_add(1);
  attr->cap = object->cap;
  return object;
}

int CheckAttributes(const ContextObject& context, const ibv_qp_attr& attr, uint32_t mask) {
  if ((mask & ~kKnownAttributes) != 0) return EINVAL;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 && (attr.qp_access_flags & ~kQpAccess) != 0) return EINVAL;
  if ((mask & IBV_QP_STATE) != 0 && Raw(attr.qp_state) > IBV_QPS_ERR) return EINVAL;
  if ((mask & IBV_QP_CUR_STATE) != 0 && Raw(attr.cur_qp_state) > IBV_QPS_ERR) return EINVAL;
  const uint32_t ports = context.device->port_count;
  if ((mask & IBV_QP_PORT) != 0 && (attr.port_num == 0 || attr.port_num > ports)) return EINVAL;
  if ((mask & IBV_QP_AV) != 0 && (attr.ah_attr.port_num == 0 || attr.ah_attr.port_num > ports))
    return EINVAL;
  return 0;
}

QpAttributes ToAttributes(const ibv_qp_attr& attr, uint32_t mask) {
  QpAttributes to;
  to.pkey_index = attr.pkey_index;
  to.port = attr.port_num;
  to.access =
      attr.qp_access_flags & ~(uint32_t{IBV_ACCESS_OPTIONAL_RANGE} | uint32_t{IBV_ACCESS_MW_BIND});
  to.path_mtu = Raw(attr.path_mtu);
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

// Keeps the attributes in `mask` for ibv_query_qp.
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

}  // namespace

ibv_qp* CreateQpEx(ibv_context*, ibv_qp_init_attr_ex* attr) {
  if (const int error = CheckExtensions(*attr); error != 0) {
    errno = error;
    return nullptr;
  }
  QpObject* const object = Create(attr);
  if (object == nullptr) return nullptr;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
    object->extended = true;
    FillBuilder(&object->ex);
  }
  return Public(object);
}

}  // namespace railhop::fabric::abi

using namespace railhop::fabric;       // NOLINT: the verbs ABI has no namespace
using namespace railhop::fabric::abi;  // NOLINT
using railhop::rdma::QpState;
using railhop::rdma::VerbCall;

RAILHOP_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex extended;
  std::memset(&extended, 0, sizeof(extended));
  std::memcpy(static_cast<void*>(&extended), attr, offsetof(ibv_qp_init_attr_ex, comp_mask));
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  QpObject* const object = Create(&extended);
  if (object == nullptr) return nullptr;
  attr->cap = extended.cap;
  return Public(object);
}

RAILHOP_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return Of(qp)->extended ? &Of(qp)->ex : nullptr;
}

RAILHOP_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  QpObject* const object = Of(qp);
  const ContextObject& context = *Of(qp->context);
  const auto mask = static_cast<uint32_t>(attr_mask);
  const uint32_t detail = (mask & IBV_QP_STATE) != 0 ? Raw(attr->qp_state) + 1 : 0;
  if (const int error = Admit(context, VerbCall::kModifyQp, detail); error != 0) return error;
  if (const int error = CheckAttributes(context, *attr, mask); error != 0) return error;
  const QpState to =
      (mask & IBV_QP_STATE) != 0 ? static_cast<QpState>(attr->qp_state) : object->core->state();
  std::lock_guard<std::mutex> lock(object->attr_mutex);
  if (const int error = object->core->Modify(mask, to, ToAttributes(*attr, mask)); error != 0)
    return error;
  Remember(*attr, mask, &object->attr);
  if (to == QpState::kReset) std::memset(&object->attr, 0, sizeof(object->attr));
  if ((mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
  return 0;
}

RAILHOP_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init_attr) {
  QpObject* const object = Of(qp);
  if (const int error = Admit(*Of(qp->context), VerbCall::kQueryQp); error != 0) return error;
  {
    std::lock_guard<std::mutex> lock(object->attr_mutex);
    *attr = object->attr;
  }
  qp->state = static_cast<ibv_qp_state>(object->core->state());
  attr->qp_state = qp->state;
  attr->cur_qp_state = qp->state;
  attr->cap = object->cap;
  std::memset(init_attr, 0, sizeof(*init_attr));
  init_attr->qp_context = qp->qp_context;
  init_attr->send_cq = qp->send_cq;
  init_attr->recv_cq = qp->recv_cq;
  init_attr->cap = object->cap;
  init_attr->qp_type = qp->qp_type;
  init_attr->sq_sig_all = object->signal_all;
  return 0;
}

// Waits until all events of the queue pair that the program got are acknowledged.
RAILHOP_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  QpObject* const object = Of(qp);
  ContextObject& context = *Of(qp->context);
  if (const int error = Admit(context, VerbCall::kDestroyQp); error != 0) return error;
  if (const int error = context.nic->DestroyQp(object->core); error != 0) return error;
  // No event of it comes any more. Those that nobody got are taken back.
  context.core->events.Remove(
      [object](const AsyncRecord& record) { return record.user == object; });
  pthread_mutex_lock(&qp->mutex);
  while (qp->events_completed != object->async_events) pthread_cond_wait(&qp->cond, &qp->mutex);
  pthread_mutex_unlock(&qp->mutex);
  UsageOf(context).qps.fetch_sub(1);
  Of(qp->pd)->users.fetch_sub(1);
  pthread_mutex_destroy(&qp->mutex);
  pthread_cond_destroy(&qp->cond);
  delete object;
  return 0;
}

// Bytes of one request arrive in ascending order of their packets, but not within a packet.
RAILHOP_EXPORT int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) { return 0; }

RAILHOP_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  QpObject* const object = Of(qp);
  if (const int error = Admit(*Of(qp->context), VerbCall::kQueryQp); error != 0) return error;
  std::lock_guard<std::mutex> lock(object->attr_mutex);
  *ece = object->ece;
  return 0;
}

// The peer's options, before the queue pair goes to RTR. What both ends have is what ibv_query_ece
// gives then.
RAILHOP_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  QpObject* const object = Of(qp);
  if (const int error = Admit(*Of(qp->context), VerbCall::kModifyQp); error != 0) return error;
  if (ece->comp_mask != 0) return EINVAL;
  const QpState state = object->core->state();
  if (state != QpState::kReset && state != QpState::kInit) return EINVAL;
  if (ece->vendor_id != kEceVendorId && ece->vendor_id != 0) return EINVAL;
  std::lock_guard<std::mutex> lock(object->attr_mutex);
  object->ece.options = ece->vendor_id == 0 ? 0 : ece->options;
  return 0;
}
