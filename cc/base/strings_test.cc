#include "cc/base/strings.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace railhop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kIntMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kIntMax = std::numeric_limits<int64_t>::max();
constexpr uint64_t kUintMax = std::numeric_limits<uint64_t>::max();

TEST(Split, EmptyParts_AreKept) {
  EXPECT_THAT(Split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(Split(",", ','), ElementsAre("", ""));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
}

TEST(SplitWords, RunsOfBlanks_SeparateOnce) {
  EXPECT_THAT(SplitWords("  port \t 1 down\r\n"), ElementsAre("port", "1", "down"));
  EXPECT_THAT(SplitWords(" \t"), IsEmpty());
  EXPECT_THAT(SplitWords(""), IsEmpty());
}

TEST(Trim, Blanks_GoAtBothEndsOnly) {
  EXPECT_EQ(Trim("  a b\n"), "a b");
  EXPECT_EQ(Trim(" \t "), "");
}

TEST(Join, Parts_GetSeparatorsBetween) {
  EXPECT_EQ(Join({"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(Join({}, ", "), "");
}

TEST(Quote, OddBytes_AreEscaped) {
  EXPECT_EQ(Quote("it's"), "'it\\'s'");
  EXPECT_EQ(Quote(std::string_view("a\n\0", 3)), "'a\\x0a\\x00'");
  EXPECT_EQ(Quote("\xc3\xa4"), "'\\xc3\\xa4'");
}

TEST(Quote, LongText_IsCut) {
  EXPECT_EQ(Quote(std::string(80, 'x')), "'" + std::string(80, 'x') + "'");
  EXPECT_EQ(Quote(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
}

TEST(ParseInt, WholeRange_IsRead) {
  EXPECT_EQ(*ParseInt("-9223372036854775808", kIntMin, kIntMax), kIntMin);
  EXPECT_EQ(*ParseInt("9223372036854775807", kIntMin, kIntMax), kIntMax);
  EXPECT_EQ(*ParseInt("-0x10", -16, 0), -16);
  EXPECT_EQ(*ParseInt("-0", -1, 1), 0);
}

TEST(ParseInt, OutOfRange_SaysTheRange) {
  EXPECT_THAT(ParseInt("9223372036854775808", kIntMin, kIntMax).error(), HasSubstr("out of range"));
  EXPECT_THAT(ParseInt("-9223372036854775809", kIntMin, kIntMax).error(),
              HasSubstr("out of range"));
  EXPECT_EQ(ParseInt("5", 1, 4).error(),
            "'5' is out of range (a whole number from 1 to 4 is wanted)");
  EXPECT_FALSE(ParseInt("-1", -4, -2).ok());
  EXPECT_FALSE(ParseInt("1", -4, -2).ok());
}

TEST(ParseInt, NoNumber_SaysSo) {
  for (const char* text : {"", "-", "0x", "4x", " 4", "4 ", "+4", "--4", "four", "1.5"}) {
    EXPECT_THAT(ParseInt(text, -10, 10).error(), HasSubstr("is no number")) << text;
  }
}

TEST(ParseUint, WholeRange_IsRead) {
  EXPECT_EQ(*ParseUint("18446744073709551615", 0, kUintMax), kUintMax);
  EXPECT_EQ(*ParseUint("0xFFFFFFFFFFFFFFFF", 0, kUintMax), kUintMax);
  EXPECT_EQ(*ParseUint("007", 0, 10), 7u);
}

TEST(ParseUint, Negative_IsNoNumber) {
  EXPECT_THAT(ParseUint("-1", 0, 10).error(), HasSubstr("is no number"));
  EXPECT_THAT(ParseUint("18446744073709551616", 0, kUintMax).error(), HasSubstr("out of range"));
}

}  // namespace
}  // namespace railhop
