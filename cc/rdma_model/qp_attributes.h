// What a program may set on a queue pair, and whether a change with these values is allowed.
//
// The attributes of ibv_modify_qp that mean something here, with the values that verbs has, and
// the checks that come before anything changes: a refused call leaves the queue pair as it was.
#ifndef RAILHOP_CC_RDMA_MODEL_QP_ATTRIBUTES_H_
#define RAILHOP_CC_RDMA_MODEL_QP_ATTRIBUTES_H_

#include <cstdint>

#include "cc/rdma_model/qp_states.h"
#include "cc/rdma_model/requester.h"
#include "cc/rdma_model/responder.h"
#include "cc/rdma_model/types.h"

namespace railhop::rdma {

struct QpAttributes {
  uint32_t pkey_index = 0, port = 1, access = 0;
  uint32_t path_mtu = 0;  // code
  uint32_t dest_qpn = 0, rq_psn = 0, sq_psn = 0;
  uint32_t timeout = 0, retry_cnt = 0, rnr_retry = 0, min_rnr_timer = 0;
  uint32_t max_rd_atomic = 0, max_dest_rd_atomic = 0;
  bool is_global = false;
  Gid dgid;
  uint32_t sgid_index = 0, dlid = 0, service_level = 0, traffic_class = 0;
  QpState current = QpState::kReset;  // cur_qp_state, when in the mask
  bool sqd_notify = false;
};

// Of the port that the change names (or the queue pair has).
struct PortFacts {
  bool exists = false;
  LinkLayer link_layer = LinkLayer::kEthernet;
  uint32_t pkey_count = 1;
  uint32_t active_mtu = 5;  // code
  bool sgid_valid = false;  // whether attributes.sgid_index names an address
};

// Whether ibv_modify_qp may do this. `mask` has QpAttr bits.
bool ModifyAllowed(QpType type, QpState from, QpState to, uint32_t mask, const QpAttributes& wanted,
                   const PortFacts& port);

// Copies what `mask` names from `wanted` into `mine`.
void MergeAttributes(uint32_t mask, const QpAttributes& wanted, QpAttributes* mine);

// Puts what `mask` names into the responder's state.
void ConfigureResponder(uint32_t mask, const QpAttributes& mine, ResponderState* state);

// The requester's settings that follow; qpn, signal_all and quirks are the caller's.
RequesterConfig RequesterConfigOf(QpType type, const QpAttributes& mine);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_QP_ATTRIBUTES_H_
