// What the verbs ABI and the model must agree on, checked by the compiler.
//
// Source of the numbers: <infiniband/verbs.h> of rdma-core v28 to v64 on x86-64; these structs have
// not changed in between, or only at the end that this library keeps empty (objects.h).
#ifndef RAILHOP_CC_FABRIC_ABI_LAYOUT_ASSERTS_H_
#define RAILHOP_CC_FABRIC_ABI_LAYOUT_ASSERTS_H_

#include <cstddef>

#include "cc/fabric/abi/verbs_header.h"
#include "cc/rdma_model/qp_states.h"
#include "cc/rdma_model/types.h"

namespace railhop::fabric::abi {

static_assert(sizeof(ibv_device) == 664);
static_assert(sizeof(ibv_context) == 328);
static_assert(sizeof(ibv_pd) == 16);
static_assert(sizeof(ibv_mr) == 48);
static_assert(sizeof(ibv_comp_channel) == 16);
static_assert(sizeof(ibv_cq) == 128);
static_assert(sizeof(ibv_qp) == 160);
static_assert(sizeof(ibv_cq_ex) == 288);
static_assert(sizeof(ibv_qp_ex) >= 344 && sizeof(ibv_qp_ex) <= 408);
static_assert(sizeof(ibv_wc) == 48);
static_assert(sizeof(ibv_sge) == 16);
static_assert(sizeof(ibv_send_wr) == 128);
static_assert(sizeof(ibv_recv_wr) == 32);
static_assert(sizeof(ibv_qp_attr) == 144);
static_assert(sizeof(ibv_qp_init_attr) == 64);
static_assert(sizeof(ibv_device_attr) == 232);
static_assert(sizeof(ibv_device_attr_ex) == 400);
static_assert(sizeof(ibv_async_event) == 16);
static_assert(sizeof(ibv_ece) == 12);
static_assert(sizeof(verbs_context) >= 648);
// Clients find every operation by its distance from the end.
static_assert(sizeof(verbs_context) - offsetof(verbs_context, context) == sizeof(ibv_context));
static_assert(offsetof(verbs_context, context) - offsetof(verbs_context, sz) == sizeof(size_t));
static_assert(sizeof(verbs_context) - offsetof(verbs_context, create_qp_ex) == 384);
static_assert(sizeof(verbs_context) - offsetof(verbs_context, create_cq_ex) == 448);
static_assert(sizeof(verbs_context) - offsetof(verbs_context, query_port) == 648);

template <typename A, typename B>
constexpr bool Same(A a, B b) {
  return static_cast<long>(a) == static_cast<long>(b);
}

static_assert(Same(rdma::QpType::kRc, IBV_QPT_RC) && Same(rdma::QpType::kUc, IBV_QPT_UC));

static_assert(Same(rdma::QpState::kReset, IBV_QPS_RESET) &&
              Same(rdma::QpState::kInit, IBV_QPS_INIT));
static_assert(Same(rdma::QpState::kRtr, IBV_QPS_RTR) && Same(rdma::QpState::kRts, IBV_QPS_RTS));
static_assert(Same(rdma::QpState::kSqd, IBV_QPS_SQD) && Same(rdma::QpState::kSqe, IBV_QPS_SQE));
static_assert(Same(rdma::QpState::kErr, IBV_QPS_ERR));

static_assert(Same(rdma::Opcode::kWrite, IBV_WR_RDMA_WRITE));
static_assert(Same(rdma::Opcode::kWriteImm, IBV_WR_RDMA_WRITE_WITH_IMM));
static_assert(Same(rdma::Opcode::kSend, IBV_WR_SEND) &&
              Same(rdma::Opcode::kSendImm, IBV_WR_SEND_WITH_IMM));
static_assert(Same(rdma::Opcode::kRead, IBV_WR_RDMA_READ));
static_assert(Same(rdma::Opcode::kCompareSwap, IBV_WR_ATOMIC_CMP_AND_SWP));
static_assert(Same(rdma::Opcode::kFetchAdd, IBV_WR_ATOMIC_FETCH_AND_ADD));

static_assert(Same(rdma::WcStatus::kSuccess, IBV_WC_SUCCESS) &&
              Same(rdma::WcStatus::kLocLenErr, IBV_WC_LOC_LEN_ERR));
static_assert(Same(rdma::WcStatus::kLocQpOpErr, IBV_WC_LOC_QP_OP_ERR));
static_assert(Same(rdma::WcStatus::kLocEecOpErr, IBV_WC_LOC_EEC_OP_ERR));
static_assert(Same(rdma::WcStatus::kLocProtErr, IBV_WC_LOC_PROT_ERR));
static_assert(Same(rdma::WcStatus::kWrFlushErr, IBV_WC_WR_FLUSH_ERR));
static_assert(Same(rdma::WcStatus::kMwBindErr, IBV_WC_MW_BIND_ERR));
static_assert(Same(rdma::WcStatus::kBadRespErr, IBV_WC_BAD_RESP_ERR));
static_assert(Same(rdma::WcStatus::kLocAccessErr, IBV_WC_LOC_ACCESS_ERR));
static_assert(Same(rdma::WcStatus::kRemInvReqErr, IBV_WC_REM_INV_REQ_ERR));
static_assert(Same(rdma::WcStatus::kRemAccessErr, IBV_WC_REM_ACCESS_ERR));
static_assert(Same(rdma::WcStatus::kRemOpErr, IBV_WC_REM_OP_ERR));
static_assert(Same(rdma::WcStatus::kRetryExcErr, IBV_WC_RETRY_EXC_ERR));
static_assert(Same(rdma::WcStatus::kRnrRetryExcErr, IBV_WC_RNR_RETRY_EXC_ERR));
static_assert(Same(rdma::WcStatus::kLocRddViolErr, IBV_WC_LOC_RDD_VIOL_ERR));
static_assert(Same(rdma::WcStatus::kRemInvRdReqErr, IBV_WC_REM_INV_RD_REQ_ERR));
static_assert(Same(rdma::WcStatus::kRemAbortErr, IBV_WC_REM_ABORT_ERR));
static_assert(Same(rdma::WcStatus::kInvEecnErr, IBV_WC_INV_EECN_ERR));
static_assert(Same(rdma::WcStatus::kInvEecStateErr, IBV_WC_INV_EEC_STATE_ERR));
static_assert(Same(rdma::WcStatus::kFatalErr, IBV_WC_FATAL_ERR));
static_assert(Same(rdma::WcStatus::kRespTimeoutErr, IBV_WC_RESP_TIMEOUT_ERR));
static_assert(Same(rdma::WcStatus::kGeneralErr, IBV_WC_GENERAL_ERR));

static_assert(Same(rdma::WcOpcode::kSend, IBV_WC_SEND) &&
              Same(rdma::WcOpcode::kWrite, IBV_WC_RDMA_WRITE));
static_assert(Same(rdma::WcOpcode::kRead, IBV_WC_RDMA_READ));
static_assert(Same(rdma::WcOpcode::kCompareSwap, IBV_WC_COMP_SWAP));
static_assert(Same(rdma::WcOpcode::kFetchAdd, IBV_WC_FETCH_ADD));
static_assert(Same(rdma::WcOpcode::kRecv, IBV_WC_RECV));
static_assert(Same(rdma::WcOpcode::kRecvWriteImm, IBV_WC_RECV_RDMA_WITH_IMM));

static_assert(Same(rdma::kAccessLocalWrite, IBV_ACCESS_LOCAL_WRITE));
static_assert(Same(rdma::kAccessRemoteWrite, IBV_ACCESS_REMOTE_WRITE));
static_assert(Same(rdma::kAccessRemoteRead, IBV_ACCESS_REMOTE_READ));
static_assert(Same(rdma::kAccessRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC));

static_assert(Same(rdma::kSendFence, IBV_SEND_FENCE) &&
              Same(rdma::kSendSignaled, IBV_SEND_SIGNALED));
static_assert(Same(rdma::kSendSolicited, IBV_SEND_SOLICITED) &&
              Same(rdma::kSendInline, IBV_SEND_INLINE));

static_assert(Same(rdma::AsyncEvent::kCqErr, IBV_EVENT_CQ_ERR));
static_assert(Same(rdma::AsyncEvent::kQpFatal, IBV_EVENT_QP_FATAL));
static_assert(Same(rdma::AsyncEvent::kQpReqErr, IBV_EVENT_QP_REQ_ERR));
static_assert(Same(rdma::AsyncEvent::kQpAccessErr, IBV_EVENT_QP_ACCESS_ERR));
static_assert(Same(rdma::AsyncEvent::kCommEst, IBV_EVENT_COMM_EST));
static_assert(Same(rdma::AsyncEvent::kSqDrained, IBV_EVENT_SQ_DRAINED));
static_assert(Same(rdma::AsyncEvent::kPathMig, IBV_EVENT_PATH_MIG));
static_assert(Same(rdma::AsyncEvent::kPathMigErr, IBV_EVENT_PATH_MIG_ERR));
static_assert(Same(rdma::AsyncEvent::kDeviceFatal, IBV_EVENT_DEVICE_FATAL));
static_assert(Same(rdma::AsyncEvent::kPortActive, IBV_EVENT_PORT_ACTIVE));
static_assert(Same(rdma::AsyncEvent::kPortErr, IBV_EVENT_PORT_ERR));
static_assert(Same(rdma::AsyncEvent::kLidChange, IBV_EVENT_LID_CHANGE));
static_assert(Same(rdma::AsyncEvent::kPkeyChange, IBV_EVENT_PKEY_CHANGE));
static_assert(Same(rdma::AsyncEvent::kSmChange, IBV_EVENT_SM_CHANGE));
static_assert(Same(rdma::AsyncEvent::kSrqErr, IBV_EVENT_SRQ_ERR));
static_assert(Same(rdma::AsyncEvent::kSrqLimitReached, IBV_EVENT_SRQ_LIMIT_REACHED));
static_assert(Same(rdma::AsyncEvent::kQpLastWqeReached, IBV_EVENT_QP_LAST_WQE_REACHED));
static_assert(Same(rdma::AsyncEvent::kClientReregister, IBV_EVENT_CLIENT_REREGISTER));
static_assert(Same(rdma::AsyncEvent::kGidChange, IBV_EVENT_GID_CHANGE));

static_assert(Same(rdma::GidType::kIb, IBV_GID_TYPE_IB) &&
              Same(rdma::GidType::kRoceV1, IBV_GID_TYPE_ROCE_V1));
static_assert(Same(rdma::GidType::kRoceV2, IBV_GID_TYPE_ROCE_V2));
static_assert(Same(rdma::LinkLayer::kInfiniBand, IBV_LINK_LAYER_INFINIBAND));
static_assert(Same(rdma::LinkLayer::kEthernet, IBV_LINK_LAYER_ETHERNET));
static_assert(Same(rdma::PortLinkState::kDown, IBV_PORT_DOWN) &&
              Same(rdma::PortLinkState::kInit, IBV_PORT_INIT));
static_assert(Same(rdma::PortLinkState::kArmed, IBV_PORT_ARMED) &&
              Same(rdma::PortLinkState::kActive, IBV_PORT_ACTIVE));
static_assert(rdma::MtuBytes(IBV_MTU_256) == 256 && rdma::MtuBytes(IBV_MTU_4096) == 4096);

static_assert(Same(rdma::kAttrState, IBV_QP_STATE) && Same(rdma::kAttrCurState, IBV_QP_CUR_STATE));
static_assert(Same(rdma::kAttrEnSqdNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY));
static_assert(Same(rdma::kAttrAccess, IBV_QP_ACCESS_FLAGS) &&
              Same(rdma::kAttrPkeyIndex, IBV_QP_PKEY_INDEX));
static_assert(Same(rdma::kAttrPort, IBV_QP_PORT) && Same(rdma::kAttrQkey, IBV_QP_QKEY));
static_assert(Same(rdma::kAttrAv, IBV_QP_AV) && Same(rdma::kAttrPathMtu, IBV_QP_PATH_MTU));
static_assert(Same(rdma::kAttrTimeout, IBV_QP_TIMEOUT) &&
              Same(rdma::kAttrRetryCnt, IBV_QP_RETRY_CNT));
static_assert(Same(rdma::kAttrRnrRetry, IBV_QP_RNR_RETRY) && Same(rdma::kAttrRqPsn, IBV_QP_RQ_PSN));
static_assert(Same(rdma::kAttrMaxRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC));
static_assert(Same(rdma::kAttrAltPath, IBV_QP_ALT_PATH) &&
              Same(rdma::kAttrMinRnrTimer, IBV_QP_MIN_RNR_TIMER));
static_assert(Same(rdma::kAttrSqPsn, IBV_QP_SQ_PSN));
static_assert(Same(rdma::kAttrMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC));
static_assert(Same(rdma::kAttrPathMig, IBV_QP_PATH_MIG_STATE) && Same(rdma::kAttrCap, IBV_QP_CAP));
static_assert(Same(rdma::kAttrDestQpn, IBV_QP_DEST_QPN));

}  // namespace railhop::fabric::abi

#endif  // RAILHOP_CC_FABRIC_ABI_LAYOUT_ASSERTS_H_
