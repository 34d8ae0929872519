#include "cc/base/invariant.h"

#include <string>

#include "cc/base/log.h"
#include "gtest/gtest.h"

namespace railhop {
namespace {

int g_reports = 0;
std::string g_last;

void Count(const char* /*file*/, int /*line*/, const char* condition, const char* text) {
  ++g_reports;
  g_last = std::string(text) + "/" + condition;
}

// Returns -1 where the invariant is broken, as code in a job would.
int Guarded(int slot) {
  if (!RAILHOP_INVARIANT(slot < 4, "slot out of range")) return -1;
  return slot;
}

TEST(Invariant, Holds_HandlerIsNotCalled) {
  g_reports = 0;
  const InvariantHandler before = SetInvariantHandler(&Count);
  EXPECT_EQ(Guarded(3), 3);
  EXPECT_EQ(g_reports, 0);
  SetInvariantHandler(before);
}

TEST(Invariant, BrokenUnderAReturningHandler_CallerGetsFalse) {
  g_reports = 0;
  const InvariantHandler before = SetInvariantHandler(&Count);
  EXPECT_EQ(before, &AbortOnBrokenInvariant);
  EXPECT_EQ(Guarded(4), -1);
  EXPECT_EQ(g_reports, 1);
  EXPECT_EQ(g_last, "slot out of range/slot < 4");
  EXPECT_EQ(SetInvariantHandler(nullptr), &Count);
}

TEST(Invariant, LoggingHandler_StopsAfterFiveLines) {
  int lines = 0;
  SetLogSink({[](void* context, LogSeverity /*severity*/, const char* /*file*/, int /*line*/,
                 const char* /*text*/) { ++*static_cast<int*>(context); },
              &lines});
  SetInvariantHandler(&LogBrokenInvariant);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Guarded(9), -1);
  SetInvariantHandler(nullptr);
  SetLogSink({});
  EXPECT_EQ(lines, 5);
}

TEST(InvariantDeathTest, Default_AbortsWithTheText) {
  EXPECT_DEATH((void)Guarded(5), "invariant_test.cc:[0-9]+: broken invariant: slot out of range");
}

TEST(InvariantDeathTest, Check_AbortsWhateverTheHandler) {
  SetInvariantHandler(&Count);
  EXPECT_DEATH(RAILHOP_CHECK(1 > 2, "order"), "broken invariant: order \\(1 > 2\\)");
  SetInvariantHandler(nullptr);
}

}  // namespace
}  // namespace railhop
