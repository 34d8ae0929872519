#include "cc/rdma_model/qp_states.h"

namespace railhop::rdma {
namespace {

struct Row {
  QpState from, to;
  uint32_t required[2];  // RC, UC
  uint32_t optional[2];
};

using S = QpState;

constexpr uint32_t kInitAttrs = kAttrPkeyIndex | kAttrPort | kAttrAccess;
constexpr uint32_t kUcRtr = kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr uint32_t kRcRtr = kUcRtr | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr uint32_t kRtrOptional = kAttrAltPath | kAttrAccess | kAttrPkeyIndex;
constexpr uint32_t kRcRts =
    kAttrSqPsn | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxRdAtomic;
constexpr uint32_t kUcRtsOptional = kAttrCurState | kAttrAltPath | kAttrAccess | kAttrPathMig;
constexpr uint32_t kRcRtsOptional = kUcRtsOptional | kAttrMinRnrTimer;
constexpr uint32_t kUcSqd =
    kAttrPort | kAttrAv | kAttrAltPath | kAttrAccess | kAttrPkeyIndex | kAttrPathMig;
constexpr uint32_t kRcSqd = kUcSqd | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry |
                            kAttrMaxRdAtomic | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;

constexpr Row kRows[] = {
    {S::kReset, S::kInit, {kInitAttrs, kInitAttrs}, {0, 0}},
    {S::kInit, S::kInit, {0, 0}, {kInitAttrs, kInitAttrs}},
    {S::kInit, S::kRtr, {kRcRtr, kUcRtr}, {kRtrOptional, kRtrOptional}},
    {S::kRtr, S::kRts, {kRcRts, kAttrSqPsn}, {kRcRtsOptional, kUcRtsOptional}},
    {S::kRts, S::kRts, {0, 0}, {kRcRtsOptional, kUcRtsOptional}},
    {S::kRts,
     S::kSqd,
     {0, 0},
     {kAttrEnSqdNotify | kAttrCurState, kAttrEnSqdNotify | kAttrCurState}},
    {S::kSqd, S::kRts, {0, 0}, {kRcRtsOptional, kUcRtsOptional}},
    {S::kSqd, S::kSqd, {0, 0}, {kRcSqd, kUcSqd}},
    {S::kSqe, S::kRts, {0, 0}, {kAttrCurState | kAttrAccess, kAttrCurState | kAttrAccess}},
};

}  // namespace

TransitionCheck CheckTransition(QpType type, QpState from, QpState to, uint32_t mask) {
  mask &= ~uint32_t{kAttrState};
  if (to == S::kReset || (to == S::kErr && from != S::kReset)) {
    // The kernel's own table (ib_modify_qp_is_ok) lets these two carry the current state and
    // nothing else.
    return (mask & ~uint32_t{kAttrCurState}) == 0 ? TransitionCheck::kOk
                                                  : TransitionCheck::kForbiddenAttribute;
  }
  const int column = type == QpType::kRc ? 0 : 1;
  for (const Row& row : kRows) {
    if (row.from != from || row.to != to) continue;
    const uint32_t required = row.required[column];
    if ((mask & required) != required) return TransitionCheck::kMissingAttribute;
    const uint32_t rest = mask & ~(required | row.optional[column] | kAttrCurState);
    return rest == 0 ? TransitionCheck::kOk : TransitionCheck::kForbiddenAttribute;
  }
  return TransitionCheck::kNoSuchTransition;
}

}  // namespace railhop::rdma
