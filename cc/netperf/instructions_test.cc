// The whole way of `--instructions`, with the loopback plugin.
#include <string>

#include "cc/netperf/testing/run_program.h"
#include "gtest/gtest.h"

namespace railhop::netperf {
namespace {

TEST(Instructions, Loopback_HasFiguresForEachCallAndIsAbove) {
  const Ran ran = RunNetperf("--json --instructions --assert-budget --size 100");
  // Nothing is optimised here: above the budget.
  EXPECT_EQ(ran.status, 1) << ran.out;
  ASSERT_EQ(ran.lines.size(), 4u) << ran.out;
  for (const std::string& line : ran.lines) {
    double sum = 0;
    for (const char* key : {"isend", "send_done", "irecv", "recv_done"}) {
      EXPECT_GT(Number(line, key), 10) << key << " in " << line;
      sum += Number(line, key);
    }
    EXPECT_NEAR(Number(line, "sum"), sum, 1) << line;
    EXPECT_GT(Number(line, "pending_test"), 10) << line;
    EXPECT_GT(Number(line, "isend_early"), 10) << line;
  }
  EXPECT_EQ(Number(ran.lines[0], "budget"), 1221);
  EXPECT_EQ(Number(ran.lines[1], "outstanding"), 8);
  EXPECT_EQ(Number(ran.lines[2], "devices"), 2);
}

}  // namespace
}  // namespace railhop::netperf
