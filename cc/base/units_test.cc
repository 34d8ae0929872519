#include "cc/base/units.h"

#include <cstdint>
#include <limits>
#include <string>

#include "cc/base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace railhop {
namespace {

using ::testing::HasSubstr;

TEST(ParseDurationNs, EachUnit_HasItsFactor) {
  EXPECT_EQ(*ParseDurationNs("7ns"), 7);
  EXPECT_EQ(*ParseDurationNs("4.096us"), 4096);
  EXPECT_EQ(*ParseDurationNs("100ms"), 100'000'000);
  EXPECT_EQ(*ParseDurationNs("1.5s"), 1'500'000'000);
  EXPECT_EQ(*ParseDurationNs("2min"), 120'000'000'000);
  EXPECT_EQ(*ParseDurationNs("1h"), 3'600'000'000'000);
  EXPECT_EQ(*ParseDurationNs("0"), 0);
  EXPECT_EQ(*ParseDurationNs("0.0"), 0);
}

TEST(ParseDurationNs, BadText_NamesInputAndUnits) {
  EXPECT_EQ(ParseDurationNs("5 ms").error(),
            "'5 ms' is no duration: it has the unknown unit ' ms' (a number and one of ns, us, ms, "
            "s, min, h is wanted)");
  EXPECT_THAT(ParseDurationNs("5").error(), HasSubstr("has no unit"));
  EXPECT_THAT(ParseDurationNs("ms").error(), HasSubstr("does not start with a number"));
  EXPECT_THAT(ParseDurationNs("-5ms").error(), HasSubstr("does not start with a number"));
  EXPECT_THAT(ParseDurationNs("").error(), HasSubstr("does not start with a number"));
  EXPECT_THAT(ParseDurationNs("5.ms").error(), HasSubstr("no digit after the point"));
  EXPECT_THAT(ParseDurationNs("0.5ns").error(), HasSubstr("not a whole number of ns"));
  EXPECT_THAT(ParseDurationNs("1.0000000000000000001s").error(), HasSubstr("too many digits"));
}

TEST(ParseDurationNs, TooLarge_IsRefusedNotWrapped) {
  EXPECT_EQ(*ParseDurationNs("9223372036854775807ns"), std::numeric_limits<int64_t>::max());
  EXPECT_THAT(ParseDurationNs("9223372036854775808ns").error(), HasSubstr("too large"));
  EXPECT_THAT(ParseDurationNs("9999999999h").error(), HasSubstr("too large"));
}

TEST(ParseSizeBytes, BinaryAndDecimal_Differ) {
  EXPECT_EQ(*ParseSizeBytes("1MiB"), 1 << 20);
  EXPECT_EQ(*ParseSizeBytes("1MB"), 1'000'000);
  EXPECT_EQ(*ParseSizeBytes("1.5KiB"), 1536);
  EXPECT_EQ(*ParseSizeBytes("4096"), 4096);
  EXPECT_THAT(ParseSizeBytes("1mb").error(), HasSubstr("unknown unit 'mb'"));
}

TEST(ParseRateBps, BitsAndBytes_Differ) {
  EXPECT_EQ(*ParseRateBps("10Gb/s"), 10'000'000'000);
  EXPECT_EQ(*ParseRateBps("10GB/s"), 80'000'000'000);
  EXPECT_EQ(*ParseRateBps("2.5Gb/s"), 2'500'000'000);
  EXPECT_THAT(ParseRateBps("10Gbps").error(), HasSubstr("unknown unit 'Gbps'"));
}

TEST(Format, LargestUnit_IsTaken) {
  EXPECT_EQ(FormatDurationNs(1'500'000), "1.5ms");
  EXPECT_EQ(FormatDurationNs(0), "0ns");
  EXPECT_EQ(FormatDurationNs(-2'000), "-2us");
  EXPECT_EQ(FormatDurationNs(61'000'000'000), "61s");
  EXPECT_EQ(FormatSizeBytes(1536), "1.5KiB");
  EXPECT_EQ(FormatSizeBytes(1000), "1000B");
  EXPECT_EQ(FormatRateBps(12'500'000'000), "12.5Gb/s");
}

TEST(Format, AnyValue_ParsesBackToItself) {
  Prng prng(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto value = static_cast<int64_t>(prng.Next() >> (1 + prng.Below(63)));
    ASSERT_EQ(*ParseDurationNs(FormatDurationNs(value)), value);
    ASSERT_EQ(*ParseSizeBytes(FormatSizeBytes(value)), value);
    ASSERT_EQ(*ParseRateBps(FormatRateBps(value)), value);
  }
  EXPECT_EQ(FormatDurationNs(std::numeric_limits<int64_t>::min()), "-9223372036.854775808s");
}

}  // namespace
}  // namespace railhop
