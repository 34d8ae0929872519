#include "cc/netperf/statistics.h"

#include <vector>

#include "gtest/gtest.h"

namespace railhop::netperf {
namespace {

std::vector<double> UpTo(int n) {
  std::vector<double> values;
  for (int i = n; i >= 1; --i) values.push_back(i);
  return values;
}

// Ranks of the binomial interval, from published tables.
TEST(MedianInterval, KnownSizes_HaveTheTablesRanks) {
  EXPECT_EQ(MedianInterval(UpTo(6)).low, 1);
  EXPECT_EQ(MedianInterval(UpTo(6)).high, 6);
  EXPECT_EQ(MedianInterval(UpTo(10)).low, 2);
  EXPECT_EQ(MedianInterval(UpTo(10)).high, 9);
  EXPECT_EQ(MedianInterval(UpTo(30)).low, 10);
  EXPECT_EQ(MedianInterval(UpTo(30)).high, 21);
  EXPECT_EQ(MedianInterval(UpTo(30)).median, 15.5);
}

TEST(MedianInterval, FewValues_AreAllOfIt) {
  EXPECT_EQ(MedianInterval(UpTo(3)).low, 1);
  EXPECT_EQ(MedianInterval(UpTo(3)).high, 3);
  EXPECT_EQ(MedianInterval({}).median, 0);
}

TEST(Quantile, Ends_AreTheEnds) {
  const std::vector<double> values = {1, 2, 4};
  EXPECT_EQ(Quantile(values, 0), 1);
  EXPECT_EQ(Quantile(values, 0.75), 3);
  EXPECT_EQ(Quantile(values, 1), 4);
}

}  // namespace
}  // namespace railhop::netperf
