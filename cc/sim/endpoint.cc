#include "cc/sim/endpoint.h"

#include <cerrno>

namespace railhop::sim {
namespace {

using rdma::QpState;

constexpr uint32_t kInitMask =
    rdma::kAttrState | rdma::kAttrPkeyIndex | rdma::kAttrPort | rdma::kAttrAccess;
constexpr uint32_t kUcRtrMask =
    rdma::kAttrState | rdma::kAttrAv | rdma::kAttrPathMtu | rdma::kAttrDestQpn | rdma::kAttrRqPsn;
constexpr uint32_t kRcRtrMask = kUcRtrMask | rdma::kAttrMaxDestRdAtomic | rdma::kAttrMinRnrTimer;
constexpr uint32_t kUcRtsMask = rdma::kAttrState | rdma::kAttrSqPsn;
constexpr uint32_t kRcRtsMask = kUcRtsMask | rdma::kAttrTimeout | rdma::kAttrRetryCnt |
                                rdma::kAttrRnrRetry | rdma::kAttrMaxRdAtomic;

}  // namespace

int BestGid(const Port& port) {
  int any = -1;
  for (uint32_t i = 0; i < port.now.gids.size(); ++i) {
    const rdma::TopologyGid gid = port.GidAt(i);
    if (rdma::IsEmpty(gid.gid)) continue;
    if (any < 0) any = static_cast<int>(i);
    if (gid.type == rdma::GidType::kRoceV2 && !rdma::IsLinkLocal(gid.gid)) {
      return static_cast<int>(i);
    }
  }
  return any;
}

bool Endpoint::Open(World* world, Nic* nic, const EndpointOptions& options, int* error) {
  int rc = 0;
  port = options.port;
  context = world->Open(nic, &rc);
  if (context != nullptr) {
    rc = context->AllocPd(&pd);
    if (rc == 0) rc = context->CreateCq(options.cq_entries, nullptr, &send_cq);
    if (rc == 0) rc = context->CreateCq(options.cq_entries, nullptr, &recv_cq);
  }
  if (error != nullptr) *error = rc;
  return rc == 0 && MakeQp(options, error);
}

bool Endpoint::MakeQp(const EndpointOptions& options, int* error) {
  QpInit init;
  init.type = options.type;
  init.pd = pd;
  init.max_send_wr = options.send_depth;
  init.max_recv_wr = options.receive_depth;
  init.max_send_sge = init.max_recv_sge = options.sges;
  init.max_inline_data = 64;
  init.signal_all = options.signal_all;
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  const int rc = context->CreateQp(init, &qp);
  if (error != nullptr) *error = rc;
  return rc == 0;
}

int Connect(const Endpoint& mine, const Endpoint& peer, const ConnectOptions& options,
            uint32_t send_psn, uint32_t receive_psn) {
  const bool rc_type = mine.qp->init().type == rdma::QpType::kRc;
  const Port& from = *mine.context->nic()->port(mine.port);
  const Port& to = *peer.context->nic()->port(peer.port);
  rdma::QpAttributes a;
  a.port = mine.port;
  a.access = options.access;
  a.path_mtu = options.mtu;
  a.dest_qpn = peer.qp->qpn();
  a.sq_psn = send_psn;
  a.rq_psn = receive_psn;
  a.timeout = options.timeout;
  a.retry_cnt = options.retry_cnt;
  a.rnr_retry = options.rnr_retry;
  a.min_rnr_timer = options.min_rnr_timer;
  a.max_rd_atomic = a.max_dest_rd_atomic = options.max_rd_atomic;
  if (from.now.link_layer == rdma::LinkLayer::kEthernet) {
    const int source = BestGid(from), target = BestGid(to);
    if (source < 0 || target < 0) return ENODATA;
    a.is_global = true;
    a.sgid_index = static_cast<uint32_t>(source);
    a.dgid = to.GidAt(static_cast<uint32_t>(target)).gid;
  } else {
    a.dlid = to.now.lid;
  }
  int rc = mine.context->ModifyQp(mine.qp, kInitMask, QpState::kInit, a);
  if (rc == 0) {
    rc = mine.context->ModifyQp(mine.qp, rc_type ? kRcRtrMask : kUcRtrMask, QpState::kRtr, a);
  }
  if (rc == 0) {
    rc = mine.context->ModifyQp(mine.qp, rc_type ? kRcRtsMask : kUcRtsMask, QpState::kRts, a);
  }
  return rc;
}

}  // namespace railhop::sim
