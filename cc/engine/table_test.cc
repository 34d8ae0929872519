#include "cc/engine/table.h"

#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

enum class Guard : uint8_t { kAlways, kSometimes };
enum class Do : uint8_t { kNone, kThis, kThat };
using Row = TableRow<Guard, Do>;

constexpr Row MakeRow(const char* id, uint32_t states, uint32_t events, Guard guard,
                      int next = Row::kSame) {
  return {id, states, events, guard, {}, next, ""};
}

// Two states and two events.
constexpr std::array kGood = {MakeRow("A", 3, 1, Guard::kSometimes, 1),
                              MakeRow("B", 3, 3, Guard::kAlways)};
constexpr std::array kHole = {MakeRow("A", 3, 1, Guard::kAlways),
                              MakeRow("B", 1, 2, Guard::kAlways)};
constexpr std::array kOpenEnd = {MakeRow("A", 3, 3, Guard::kSometimes)};
constexpr std::array kOutOfReach = {MakeRow("A", 3, 3, Guard::kAlways),
                                    MakeRow("B", 1, 1, Guard::kSometimes)};
constexpr std::array kTwice = {MakeRow("A", 1, 3, Guard::kAlways),
                               MakeRow("A", 2, 3, Guard::kAlways)};

TEST(IsComplete, HoleOrRowOutOfReach_IsNot) {
  EXPECT_TRUE(IsComplete(kGood, 3, 2));
  EXPECT_FALSE(IsComplete(kHole, 3, 2));
  EXPECT_FALSE(IsComplete(kOpenEnd, 3, 2));
  EXPECT_FALSE(IsComplete(kOutOfReach, 3, 2));
  EXPECT_TRUE(IsComplete(kTwice, 3, 2));
}

TEST(IdsAreUnique, Twice_IsNot) {
  EXPECT_TRUE(IdsAreUnique(kGood));
  EXPECT_FALSE(IdsAreUnique(kTwice));
}

TEST(IsWithin, StateOrEventThatCannotBe_IsNot) {
  EXPECT_TRUE(IsWithin(kGood, 3, 2));
  EXPECT_FALSE(IsWithin(kGood, 1, 2));
  EXPECT_FALSE(IsWithin(kGood, 3, 1));
  EXPECT_FALSE(IsWithin(std::array{MakeRow("A", 1, 1, Guard::kAlways, 1)}, 1, 1));
  EXPECT_FALSE(IsWithin(std::array{MakeRow("A", 0, 1, Guard::kAlways)}, 1, 1));
}

TEST(Page, Rows_AreReadable) {
  constexpr std::array<const char*, 2> kStates = {"up", "down"};
  constexpr std::array<const char*, 2> kEvents = {"Fall", "Rise"};
  constexpr std::array<const char*, 2> kGuards = {"", "it rains"};
  constexpr std::array<const char*, 3> kDos = {"", "this", "that"};
  constexpr std::array<BitGroup, 1> kGroups = {{{3, "any"}}};
  const std::array rows = {Row{"A", 1, 1, Guard::kSometimes, {Do::kThis, Do::kThat}, 1, "so"},
                           Row{"B", 3, 3, Guard::kAlways, {}, Row::kSame, ""}};
  const std::string page = Page("T", "Text.\n", PageEdges(rows, 2, kStates, kEvents),
                                PageRows(rows, kGroups, kStates, kEvents, kGuards, kDos, kStates));
  EXPECT_NE(page.find("# T\n\nText.\n"), std::string::npos);
  EXPECT_NE(page.find("  up --> down: Fall\n"), std::string::npos);
  EXPECT_NE(page.find("| A | up | Fall | it rains | this, that | down | so |\n"),
            std::string::npos);
  EXPECT_NE(page.find("| B | any | any |  |  |  |  |\n"), std::string::npos);
}

}  // namespace
}  // namespace railhop::engine
