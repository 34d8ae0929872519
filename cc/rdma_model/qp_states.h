// Which changes of a queue pair's state are legal, and which attributes each must and may carry.
//
// One table, from the InfiniBand specification's "QP state transition" rules as the manual page
// ibv_modify_qp(3) lists them. Bits are those of enum ibv_qp_attr_mask.
#ifndef RAILHOP_CC_RDMA_MODEL_QP_STATES_H_
#define RAILHOP_CC_RDMA_MODEL_QP_STATES_H_

#include <cstdint>

#include "cc/rdma_model/types.h"

namespace railhop::rdma {

enum QpAttr : uint32_t {
  kAttrState = 1u << 0,
  kAttrCurState = 1u << 1,
  kAttrEnSqdNotify = 1u << 2,
  kAttrAccess = 1u << 3,
  kAttrPkeyIndex = 1u << 4,
  kAttrPort = 1u << 5,
  kAttrQkey = 1u << 6,
  kAttrAv = 1u << 7,
  kAttrPathMtu = 1u << 8,
  kAttrTimeout = 1u << 9,
  kAttrRetryCnt = 1u << 10,
  kAttrRnrRetry = 1u << 11,
  kAttrRqPsn = 1u << 12,
  kAttrMaxRdAtomic = 1u << 13,
  kAttrAltPath = 1u << 14,
  kAttrMinRnrTimer = 1u << 15,
  kAttrSqPsn = 1u << 16,
  kAttrMaxDestRdAtomic = 1u << 17,
  kAttrPathMig = 1u << 18,
  kAttrCap = 1u << 19,
  kAttrDestQpn = 1u << 20,
};

enum class TransitionCheck : uint8_t {
  kOk,
  kNoSuchTransition,
  kMissingAttribute,    // a required attribute is not in the mask
  kForbiddenAttribute,  // the mask has one that this transition does not take
};

// Judges a change from `from` to `to` that carries the attributes in `mask` (kAttrState or not).
TransitionCheck CheckTransition(QpType type, QpState from, QpState to, uint32_t mask);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_QP_STATES_H_
