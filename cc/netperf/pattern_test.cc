#include "cc/netperf/pattern.h"

#include <vector>

#include "gtest/gtest.h"

namespace railhop::netperf {
namespace {

class Pattern : public testing::TestWithParam<size_t> {};

TEST_P(Pattern, Filled_IsRightAndEachWrongByteCounts) {
  const size_t size = GetParam();
  std::vector<uint8_t> memory(size + 2 * kGuardBytes);
  uint8_t* data = memory.data() + kGuardBytes;
  SetGuards(data, size);
  FillPattern(PatternKey(1, 2, 3), data, size);
  EXPECT_EQ(CountWrong(PatternKey(1, 2, 3), data, size), 0u);
  EXPECT_EQ(CountBrokenGuards(data, size), 0u);
  for (size_t i = 0; i < size; ++i) {
    data[i] ^= 0x40;
    EXPECT_EQ(CountWrong(PatternKey(1, 2, 3), data, size), 1u) << i;
    data[i] ^= 0x40;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Pattern, testing::Values(0, 1, 7, 8, 9, 63, 64, 65, 1000));

TEST(Pattern, AnotherMessage_IsWrongNearlyEverywhere) {
  std::vector<uint8_t> data(4096);
  FillPattern(PatternKey(1, 2, 3), data.data(), data.size());
  EXPECT_GT(CountWrong(PatternKey(1, 3, 3), data.data(), data.size()), 3900u);
  EXPECT_GT(CountWrong(PatternKey(2, 2, 3), data.data(), data.size()), 3900u);
  Poison(data.data(), data.size());
  EXPECT_GT(CountWrong(PatternKey(1, 2, 3), data.data(), data.size()), 3900u);
}

TEST(Pattern, ByteOutside_BreaksAGuard) {
  std::vector<uint8_t> memory(64 + 2 * kGuardBytes);
  uint8_t* data = memory.data() + kGuardBytes;
  SetGuards(data, 64);
  data[-1] = 0;
  EXPECT_EQ(CountBrokenGuards(data, 64), 1u);
  data[64] = 0;
  EXPECT_EQ(CountBrokenGuards(data, 64), 2u);
}

}  // namespace
}  // namespace railhop::netperf
