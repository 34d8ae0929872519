#include "cc/netperf/options.h"

#include <vector>

#include "gtest/gtest.h"

namespace railhop::netperf {
namespace {

TEST(ParseSizes, ListsUnitsAndRanges_AreBytes) {
  EXPECT_EQ(*ParseSizes("0,8,64K"), (std::vector<uint64_t>{0, 8, 65536}));
  EXPECT_EQ(*ParseSizes("1K-8K,1G"), (std::vector<uint64_t>{1024, 2048, 4096, 8192, 1u << 30}));
  EXPECT_EQ(*ParseSizes("3-10"), (std::vector<uint64_t>{3, 6}));
}

TEST(ParseSizes, NoSizes_AreRefused) {
  for (const char* text :
       {"", "K", "8-", "8-4", "0-4", "2G", "-8", "1.5K", "99999999999999999999"}) {
    EXPECT_FALSE(ParseSizes(text).ok()) << text;
  }
}

TEST(SizeText, Sizes_AreShort) {
  EXPECT_EQ(SizeText(0), "0");
  EXPECT_EQ(SizeText(1000), "1000");
  EXPECT_EQ(SizeText(65536), "64K");
  EXPECT_EQ(SizeText(3u << 20), "3M");
}

}  // namespace
}  // namespace railhop::netperf
