#include "cc/rdma_model/qp_attributes.h"

namespace railhop::rdma {

bool ModifyAllowed(QpType type, QpState from, QpState to, uint32_t mask, const QpAttributes& a,
                   const PortFacts& port) {
  const auto has = [mask](QpAttr attribute) { return (mask & attribute) != 0; };
  if (has(kAttrCurState) && a.current != from) return false;
  if (CheckTransition(type, from, to, mask) != TransitionCheck::kOk) return false;
  if (has(kAttrPort) && !port.exists) return false;
  if (has(kAttrPkeyIndex) && a.pkey_index >= port.pkey_count) return false;
  if (has(kAttrPathMtu) && (a.path_mtu < 1 || a.path_mtu > port.active_mtu)) return false;
  if (has(kAttrTimeout) && a.timeout > 31) return false;
  if (has(kAttrRetryCnt) && a.retry_cnt > 7) return false;
  if (has(kAttrRnrRetry) && a.rnr_retry > 7) return false;
  if (has(kAttrMinRnrTimer) && a.min_rnr_timer > 31) return false;
  if (has(kAttrMaxRdAtomic) && a.max_rd_atomic > kAtomicReplays) return false;
  if (has(kAttrMaxDestRdAtomic) && a.max_dest_rd_atomic > kAtomicReplays) return false;
  if (has(kAttrAv)) {
    // RoCE has no other addresses than GIDs.
    if (port.link_layer == LinkLayer::kEthernet && !a.is_global) return false;
    if (a.is_global && !port.sgid_valid) return false;
  }
  return true;
}

void MergeAttributes(uint32_t mask, const QpAttributes& a, QpAttributes* mine) {
  const auto has = [mask](QpAttr attribute) { return (mask & attribute) != 0; };
  if (has(kAttrPort)) mine->port = a.port;
  if (has(kAttrPkeyIndex)) mine->pkey_index = a.pkey_index;
  if (has(kAttrAccess)) mine->access = a.access;
  if (has(kAttrDestQpn)) mine->dest_qpn = a.dest_qpn;
  if (has(kAttrRqPsn)) mine->rq_psn = a.rq_psn & kPsnMask;
  if (has(kAttrSqPsn)) mine->sq_psn = a.sq_psn & kPsnMask;
  if (has(kAttrMinRnrTimer)) mine->min_rnr_timer = a.min_rnr_timer;
  if (has(kAttrPathMtu)) mine->path_mtu = a.path_mtu;
  if (has(kAttrTimeout)) mine->timeout = a.timeout;
  if (has(kAttrRetryCnt)) mine->retry_cnt = a.retry_cnt;
  if (has(kAttrRnrRetry)) mine->rnr_retry = a.rnr_retry;
  if (has(kAttrMaxRdAtomic)) mine->max_rd_atomic = a.max_rd_atomic;
  if (has(kAttrMaxDestRdAtomic)) mine->max_dest_rd_atomic = a.max_dest_rd_atomic;
  if (has(kAttrEnSqdNotify)) mine->sqd_notify = a.sqd_notify;
  if (has(kAttrAv)) {
    mine->is_global = a.is_global;
    mine->dgid = a.dgid;
    mine->sgid_index = a.sgid_index;
    mine->dlid = a.dlid;
    mine->service_level = a.service_level;
    mine->traffic_class = a.traffic_class;
  }
}

void ConfigureResponder(uint32_t mask, const QpAttributes& mine, ResponderState* state) {
  if ((mask & kAttrAccess) != 0) state->access = mine.access;
  if ((mask & kAttrDestQpn) != 0) state->dest_qpn = mine.dest_qpn;
  if ((mask & kAttrRqPsn) != 0) state->expected_psn = mine.rq_psn;
  if ((mask & kAttrMinRnrTimer) != 0) {
    state->min_rnr_timer = static_cast<uint8_t>(mine.min_rnr_timer);
  }
  if ((mask & kAttrPathMtu) != 0) state->mtu = MtuBytes(mine.path_mtu);
}

RequesterConfig RequesterConfigOf(QpType type, const QpAttributes& mine) {
  RequesterConfig config;
  config.type = type;
  config.dest_qpn = mine.dest_qpn;
  config.mtu = mine.path_mtu != 0 ? MtuBytes(mine.path_mtu) : 4096;
  config.timeout = mine.timeout;
  config.retry_cnt = mine.retry_cnt;
  config.rnr_retry = mine.rnr_retry;
  config.max_rd_atomic = mine.max_rd_atomic;
  return config;
}

}  // namespace railhop::rdma
