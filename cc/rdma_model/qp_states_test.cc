#include "cc/rdma_model/qp_states.h"

#include <gtest/gtest.h>

namespace railhop::rdma {
namespace {

using S = QpState;
using C = TransitionCheck;

constexpr S kAll[] = {S::kReset, S::kInit, S::kRtr, S::kRts, S::kSqd, S::kSqe, S::kErr};
constexpr uint32_t kInit = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccess;
constexpr uint32_t kUcRtr = kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
constexpr uint32_t kRcRtr = kUcRtr | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
constexpr uint32_t kUcRts = kAttrState | kAttrSqPsn;
constexpr uint32_t kRcRts =
    kUcRts | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxRdAtomic;

TEST(CheckTransition, TheUsualWay_IsLegal) {
  EXPECT_EQ(CheckTransition(QpType::kRc, S::kReset, S::kInit, kInit), C::kOk);
  EXPECT_EQ(CheckTransition(QpType::kRc, S::kInit, S::kRtr, kRcRtr), C::kOk);
  EXPECT_EQ(CheckTransition(QpType::kRc, S::kRtr, S::kRts, kRcRts), C::kOk);
  EXPECT_EQ(CheckTransition(QpType::kUc, S::kInit, S::kRtr, kUcRtr), C::kOk);
  EXPECT_EQ(CheckTransition(QpType::kUc, S::kRtr, S::kRts, kUcRts), C::kOk);
}

TEST(CheckTransition, EachRequiredAttributeLeftOut_IsMissing) {
  const struct {
    QpType type;
    S from, to;
    uint32_t mask;
  } steps[] = {{QpType::kRc, S::kReset, S::kInit, kInit}, {QpType::kUc, S::kReset, S::kInit, kInit},
               {QpType::kRc, S::kInit, S::kRtr, kRcRtr},  {QpType::kUc, S::kInit, S::kRtr, kUcRtr},
               {QpType::kRc, S::kRtr, S::kRts, kRcRts},   {QpType::kUc, S::kRtr, S::kRts, kUcRts}};
  for (const auto& step : steps) {
    for (uint32_t bit = 1; bit <= kAttrDestQpn; bit <<= 1) {
      if (bit == kAttrState || (step.mask & bit) == 0) continue;
      EXPECT_EQ(CheckTransition(step.type, step.from, step.to, step.mask & ~bit),
                C::kMissingAttribute)
          << "bit " << bit;
    }
  }
}

TEST(CheckTransition, AttributeOfAnotherStep_IsForbidden) {
  EXPECT_EQ(CheckTransition(QpType::kRc, S::kReset, S::kInit, kInit | kAttrSqPsn),
            C::kForbiddenAttribute);
  EXPECT_EQ(CheckTransition(QpType::kUc, S::kInit, S::kRtr, kRcRtr), C::kForbiddenAttribute);
  EXPECT_EQ(CheckTransition(QpType::kUc, S::kRtr, S::kRts, kRcRts), C::kForbiddenAttribute);
  EXPECT_EQ(CheckTransition(QpType::kRc, S::kRts, S::kRts, kAttrState | kAttrTimeout),
            C::kForbiddenAttribute);
}

TEST(CheckTransition, ResetFromAnywhere_ErrFromAllButReset) {
  for (const QpType type : {QpType::kRc, QpType::kUc}) {
    for (const S from : kAll) {
      EXPECT_EQ(CheckTransition(type, from, S::kReset, kAttrState), C::kOk);
      EXPECT_EQ(CheckTransition(type, from, S::kErr, kAttrState),
                from == S::kReset ? C::kNoSuchTransition : C::kOk);
      EXPECT_EQ(CheckTransition(type, from, S::kReset, kAttrState | kAttrPort),
                C::kForbiddenAttribute);
    }
  }
}

TEST(CheckTransition, AllOthers_DoNotExist) {
  const auto legal = [](S from, S to) {
    if (to == S::kReset || to == S::kErr) return true;
    return (from == S::kReset && to == S::kInit) || (from == S::kInit && to == S::kInit) ||
           (from == S::kInit && to == S::kRtr) || (from == S::kRtr && to == S::kRts) ||
           (from == S::kRts && (to == S::kRts || to == S::kSqd)) ||
           (from == S::kSqd && (to == S::kRts || to == S::kSqd)) ||
           (from == S::kSqe && to == S::kRts);
  };
  for (const S from : kAll) {
    for (const S to : kAll) {
      if (legal(from, to)) continue;
      EXPECT_EQ(CheckTransition(QpType::kRc, from, to, kAttrState), C::kNoSuchTransition)
          << static_cast<int>(from) << " to " << static_cast<int>(to);
    }
  }
}

TEST(CheckTransition, DrainAndBack_IsLegal) {
  EXPECT_EQ(CheckTransition(QpType::kRc, S::kRts, S::kSqd, kAttrState | kAttrEnSqdNotify), C::kOk);
  EXPECT_EQ(CheckTransition(QpType::kRc, S::kSqd, S::kSqd, kAttrState | kAttrTimeout), C::kOk);
  EXPECT_EQ(CheckTransition(QpType::kUc, S::kSqd, S::kSqd, kAttrState | kAttrTimeout),
            C::kForbiddenAttribute);
  EXPECT_EQ(CheckTransition(QpType::kRc, S::kSqd, S::kRts, kAttrState), C::kOk);
}

}  // namespace
}  // namespace railhop::rdma
