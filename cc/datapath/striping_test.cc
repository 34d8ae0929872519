#include "cc/datapath/striping.h"

#include <cstdint>
#include <vector>

#include "cc/base/prng.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

// What every plan must keep to: whole, in order, aligned, bounded.
void ExpectSound(uint64_t size, uint32_t lanes) {
  SCOPED_TRACE(testing::Message() << size << " bytes over " << lanes << " lanes");
  const StripePlan plan = PlanStripes(size, lanes);
  ASSERT_GE(plan.stripes, 1u);
  ASSERT_LE(plan.stripes, kStripesMax);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < plan.stripes; ++i) {
    EXPECT_EQ(plan.Offset(i), sum);
    EXPECT_EQ(plan.Offset(i) % kStripeAlignment, 0u);
    const uint64_t length = plan.Length(i, size);
    EXPECT_LE(length, kWorkRequestBytesMax);
    EXPECT_TRUE(length > 0 || size == 0);
    sum += length;
  }
  EXPECT_EQ(sum, size);
  EXPECT_EQ(IsOneStripe(size, lanes), plan.stripes == 1);
}

TEST(PlanStripes, SizesAroundEveryBound_Sound) {
  std::vector<uint64_t> sizes = {0, 1, 127, 128, 129, kSendBytesMax - 1, kSendBytesMax};
  for (const uint64_t edge :
       {kStripeBytesMin, 2 * kStripeBytesMin, 4 * kStripeBytesMin, uint64_t{1} << 20, kPieceBytes,
        2 * kPieceBytes, kStripesMax * kPieceBytes, uint64_t{1} << 31, uint64_t{1} << 32}) {
    for (const int64_t off : {-129, -128, -1, 0, 1, 127, 128, 129}) {
      sizes.push_back(edge + static_cast<uint64_t>(off));
    }
  }
  for (const uint64_t size : sizes) {
    for (uint32_t lanes = 1; lanes <= kLanesMax; ++lanes) ExpectSound(size, lanes);
  }
}

TEST(PlanStripes, AnySize_Sound) {
  Prng prng(11);
  for (int i = 0; i < 20000; ++i) {
    // Even over the orders of magnitude.
    const uint64_t size = prng.Next() >> prng.Between(27, 63);
    ExpectSound(size, static_cast<uint32_t>(prng.Between(1, kLanesMax)));
  }
}

TEST(PlanStripes, SeveralLanes_EvenlyCut) {
  const StripePlan plan = PlanStripes(1 << 20, 4);
  EXPECT_EQ(plan.stripes, 4u);
  EXPECT_EQ(plan.stripe_bytes, uint64_t{1} << 18);
}

TEST(PlanStripes, Small_OneLane) {
  EXPECT_EQ(PlanStripes(0, 8).stripes, 1u);
  EXPECT_EQ(PlanStripes(2 * kStripeBytesMin - 1, 8).stripes, 1u);
  EXPECT_EQ(PlanStripes(2 * kStripeBytesMin, 8).stripes, 2u);
}

TEST(PlanStripes, Long_CutIntoPieces) {
  EXPECT_EQ(PlanStripes(kPieceBytes, 1).stripes, 1u);
  EXPECT_EQ(PlanStripes(kPieceBytes + 1, 1).stripes, 2u);
  EXPECT_EQ(PlanStripes(64 << 20, 2).stripes, 4u);
  EXPECT_EQ(PlanStripes(kSendBytesMax, 1).stripes, kStripesMax);
}

}  // namespace
}  // namespace railhop::datapath
