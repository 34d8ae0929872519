#include "cc/verbs/queue_pair.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "cc/verbs/verbs_error.h"

namespace railhop::verbs {
namespace {

// As NCCL sets them. Source: NCCL 2.30.7 src/transport/net_ib.
constexpr uint8_t kMinRnrTimer = 12;  // 0.64 ms
constexpr uint8_t kRnrRetryForEver = 7;
constexpr uint8_t kHopLimit = 255;

}  // namespace

absl::StatusOr<std::unique_ptr<QueuePair>> QueuePair::Create(Context* context, CompletionQueue* cq,
                                                             const QueuePairSize& size) {
  absl::StatusOr<ibv_pd*> pd = context->ProtectionDomain();
  if (!pd.ok()) return pd.status();
  ibv_qp_init_attr attr = {};
  attr.send_cq = cq->raw();
  attr.recv_cq = cq->raw();
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = size.send_requests;
  attr.cap.max_recv_wr = size.receive_requests;
  attr.cap.max_send_sge = 1;
  attr.cap.max_recv_sge = 1;
  attr.cap.max_inline_data = size.inline_bytes;
  errno = 0;
  ibv_qp* qp = context->table().create_qp(*pd, &attr);
  if (qp == nullptr) {
    return VerbsError(
        context->name(),
        absl::StrCat("ibv_create_qp (", size.send_requests, " sends, ", size.receive_requests,
                     " receives, ", size.inline_bytes, " B inline)"),
        errno);
  }
  return std::unique_ptr<QueuePair>(new QueuePair(context, qp));
}

QueuePair::~QueuePair() {
  if (!Destroy().ok()) context_->Keep(qp_);
}

absl::Status QueuePair::Modify(ibv_qp_attr* attr, int mask, const char* state) {
  const int error = context_->table().modify_qp(qp_, attr, mask);
  if (error == 0) return absl::OkStatus();
  return VerbsError(context_->name(),
                    absl::StrCat("ibv_modify_qp of qp 0x", absl::Hex(number()), " to ", state),
                    error);
}

absl::Status QueuePair::ToInit(const InitAttributes& attributes) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = attributes.pkey_index;
  attr.port_num = attributes.port;
  attr.qp_access_flags = static_cast<unsigned>(attributes.access);
  return Modify(&attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                "INIT");
}

absl::Status QueuePair::ToReadyToReceive(const PathAttributes& path) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = path.mtu;
  attr.dest_qp_num = path.remote_qp_number;
  attr.rq_psn = path.remote_psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = kMinRnrTimer;
  attr.ah_attr.port_num = path.port;
  attr.ah_attr.sl = path.service_level;
  attr.ah_attr.dlid = path.lid;
  if (path.is_global) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = path.gid;
    attr.ah_attr.grh.sgid_index = path.gid_index;
    attr.ah_attr.grh.hop_limit = kHopLimit;
    attr.ah_attr.grh.traffic_class = path.traffic_class;
  }
  return Modify(&attr,
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                "RTR");
}

absl::Status QueuePair::ToReadyToSend(const PathAttributes& path) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = path.timeout;
  attr.retry_cnt = path.retry_count;
  attr.rnr_retry = kRnrRetryForEver;
  attr.sq_psn = path.local_psn;
  attr.max_rd_atomic = 1;
  return Modify(&attr,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "RTS");
}

absl::Status QueuePair::ToError() {
  if (qp_ == nullptr) return absl::OkStatus();
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  return Modify(&attr, IBV_QP_STATE, "ERR");
}

ibv_ece QueuePair::QueryEce() const {
  ibv_ece ece = {};
  if (context_->table().query_ece == nullptr || context_->table().query_ece(qp_, &ece) != 0) {
    return {};
  }
  return ece;
}

absl::Status QueuePair::SetEce(ibv_ece ece) {
  if (ece.vendor_id == 0 || context_->table().set_ece == nullptr) return absl::OkStatus();
  const int error = context_->table().set_ece(qp_, &ece);
  if (error == 0) return absl::OkStatus();
  absl::Status status = VerbsError(context_->name(), "ibv_set_ece", error);
  // A device without them goes on without them.
  return absl::IsUnimplemented(status) ? absl::OkStatus() : status;
}

absl::Status QueuePair::Destroy() {
  if (qp_ == nullptr) return absl::OkStatus();
  const int error = context_->table().destroy_qp(qp_);
  gone_ = IsGone(error);
  if (error != 0) return VerbsError(context_->name(), "ibv_destroy_qp", error);
  qp_ = nullptr;
  // A device that lets go again may let go of what it has refused before.
  context_->EndKept();
  return absl::OkStatus();
}

}  // namespace railhop::verbs
