// The whole program with the loopback plugin: what an honest plugin gives, and that each way of
// being dishonest is found.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cc/netperf/testing/run_program.h"
#include "gtest/gtest.h"

namespace railhop::netperf {
namespace {

bool Survived(const Ran& ran) {
  return !ran.lines.empty() && ran.lines.back().find("\"survived\":true") != std::string::npos;
}

class EachApi : public testing::TestWithParam<int> {};

TEST_P(EachApi, AllTraffic_IsRight) {
  const std::string api = std::to_string(GetParam());
  const Ran ran =
      RunNetperf("--json --size 0,1,4096,70000 --count 64 --group 3 --in-flight 4 --api " + api);
  EXPECT_EQ(ran.status, 0) << ran.out;
  ASSERT_EQ(ran.lines.size(), 13u) << ran.out;
  EXPECT_TRUE(Survived(ran)) << ran.out;
  EXPECT_EQ(Number(ran.lines.front(), "api"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, EachApi, testing::Values(6, 7, 8, 9, 10, 11, 12));

TEST(Netperf, NoApiGiven_TakesTheNewest) {
  const Ran ran = RunNetperf("--json --size 64 --count 16 --metric bandwidth");
  EXPECT_EQ(Number(ran.lines.front(), "api"), 12) << ran.out;
}

TEST(Netperf, JsonLines_HaveTheDocumentedKeys) {
  const Ran ran = RunNetperf("--json --size 1000 --count 40");
  ASSERT_EQ(ran.lines.size(), 4u) << ran.out;
  for (size_t i = 0; i + 1 < ran.lines.size(); ++i) {
    for (const char* key : {"metric", "size", "value", "unit", "messages", "connections",
                            "in_flight", "group", "devices", "fused", "plugin", "path", "api",
                            "wrong_bytes", "wrong_sizes", "errors", "longest_gap_ms"}) {
      EXPECT_NE(ran.lines[i].find("\"" + std::string(key) + "\":"), std::string::npos)
          << key << " in " << ran.lines[i];
    }
    EXPECT_GT(Number(ran.lines[i], "value"), 0) << ran.lines[i];
  }
  for (const char* key : {"survived", "messages", "bytes", "wrong_bytes", "wrong_sizes", "errors",
                          "longest_gap_ms", "longest_gap_after", "problem"}) {
    EXPECT_NE(ran.lines.back().find("\"" + std::string(key) + "\":"), std::string::npos) << key;
  }
  EXPECT_EQ(Number(ran.lines[0], "messages"), 40);
  EXPECT_EQ(Number(ran.lines[0], "size"), 1000);
}

TEST(Netperf, ManyConnectionsBothWays_EachCarriesItsShare) {
  const Ran ran = RunNetperf(
      "--json --size 512 --count 520 --connections 64 --bidirectional --devices 0,1 "
      "--metric bandwidth --check all");
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_EQ(Number(ran.lines.front(), "messages"), 520) << ran.out;
}

TEST(Netperf, RingOfThree_AllSendAndReceive) {
  const Ran ran = RunNetperf("--json --processes 3 --size 512 --count 300");
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_EQ(Number(ran.lines.front(), "messages"), 300) << ran.out;
}

TEST(Netperf, FusedDevices_AreOne) {
  const Ran ran = RunNetperf("--json --devices 0,1 --fuse --size 64 --count 32 --metric bandwidth");
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_NE(ran.lines.front().find("\"fused\":true"), std::string::npos) << ran.out;
  const Ran old = RunNetperf("--json --devices 0,1 --fuse --size 64 --count 32 --api 8");
  EXPECT_EQ(old.status, 1);
  EXPECT_NE(old.out.find("makeVDevice"), std::string::npos) << old.out;
}

struct Fault {
  const char* word;
  // What the last line must have above 0, or the words of its problem.
  const char* count;
  const char* problem;
};

class EachFault : public testing::TestWithParam<Fault> {};

TEST_P(EachFault, IsFound) {
  const Fault& fault = GetParam();
  const Ran ran = RunNetperf("--json --size 1000 --count 200 --timeout 1 --metric bandwidth",
                             "LOOPBACK_AT=6 LOOPBACK_FAULT=" + std::string(fault.word));
  EXPECT_EQ(ran.status, 1) << ran.out;
  ASSERT_FALSE(ran.lines.empty());
  EXPECT_FALSE(Survived(ran)) << ran.out;
  EXPECT_GT(Number(ran.lines.back(), fault.count), 0) << ran.out;
  EXPECT_NE(ran.lines.back().find(fault.problem), std::string::npos) << ran.out;
}

INSTANTIATE_TEST_SUITE_P(
    All, EachFault,
    testing::Values(
        Fault{"corrupt", "wrong_bytes", ""}, Fault{"short", "wrong_sizes", ""},
        Fault{"behind", "wrong_bytes", ""}, Fault{"before", "wrong_bytes", ""},
        Fault{"duplicate", "wrong_bytes", ""}, Fault{"late", "wrong_bytes", ""},
        Fault{"early_done", "wrong_bytes", ""}, Fault{"error", "errors", "ncclRemoteError"},
        Fault{"hang", "errors", "no message for"}, Fault{"stuck", "errors", "no message for"},
        Fault{"die", "errors", "ended with status 3"},
        Fault{"init", "errors", "init: ncclSystemError"}, Fault{"no_device", "errors", "no device"},
        Fault{"close", "errors", "closeRecv"}),
    [](const testing::TestParamInfo<Fault>& info) { return std::string(info.param.word); });

// Measured passes look at the last messages and the guard zones only, but they do look.
TEST(Netperf, UncheckedPass_FindsWhatLastsAndGuards) {
  const Ran last = RunNetperf("--json --size 1000 --count 8 --check none --metric bandwidth",
                              "LOOPBACK_AT=6 LOOPBACK_FAULT=corrupt");
  EXPECT_EQ(Number(last.lines.back(), "wrong_bytes"), 1) << last.out;
  const Ran guard = RunNetperf("--json --size 1000 --count 80 --check none --metric bandwidth",
                               "LOOPBACK_AT=6 LOOPBACK_FAULT=behind");
  EXPECT_EQ(Number(guard.lines.back(), "wrong_bytes"), 1) << guard.out;
}

TEST(Netperf, Pause_IsTheLongestGap) {
  const Ran ran = RunNetperf("--json --size 1000 --count 200 --metric bandwidth",
                             "LOOPBACK_AT=6 LOOPBACK_FAULT=pause");
  EXPECT_TRUE(Survived(ran)) << ran.out;
  EXPECT_GE(Number(ran.lines.back(), "longest_gap_ms"), 499) << ran.out;
}

TEST(Netperf, AtMessage_RunsTheCommandOnceAndChecksAll) {
  const Ran ran = RunNetperf(
      "--json --size 1000 --count 3000 --at-message 1000 --run 'echo now; echo more' "
      "--metric bandwidth");
  EXPECT_TRUE(Survived(ran)) << ran.out;
  ASSERT_EQ(ran.lines.size(), 4u) << ran.out;
  // In the background: where its lines come among ours is chance.
  EXPECT_EQ(std::count(ran.lines.begin(), ran.lines.end(), "now"), 1) << ran.out;
  EXPECT_EQ(std::count(ran.lines.begin(), ran.lines.end(), "more"), 1) << ran.out;
  const Ran wrong = RunNetperf("--json --size 1000 --count 3000 --at-message 1000 --run true",
                               "LOOPBACK_AT=2000 LOOPBACK_FAULT=corrupt");
  EXPECT_EQ(Number(wrong.lines.back(), "wrong_bytes"), 1) << wrong.out;
}

TEST(Netperf, CommandThatFails_IsAnError) {
  const Ran ran = RunNetperf("--json --size 10 --count 30 --at-message 10 --run 'exit 7'");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("the command ended with status 7"), std::string::npos) << ran.out;
}

TEST(Netperf, Seconds_EndTheRunWithNothingUnderWay) {
  const Ran ran = RunNetperf(
      "--json --size 3001 --mixed --group 3 --connections 5 --bidirectional --seconds 0.3 "
      "--at-time 0.05,0.1 --run 'echo at $AT' --metric bandwidth");
  EXPECT_TRUE(Survived(ran)) << ran.out;
  EXPECT_EQ(std::count(ran.lines.begin(), ran.lines.end(), "at 0.05"), 1) << ran.out;
  EXPECT_EQ(std::count(ran.lines.begin(), ran.lines.end(), "at 0.1"), 1) << ran.out;
  EXPECT_GT(Number(ran.lines.back(), "messages"), 100) << ran.out;
  EXPECT_GE(Number(ran.lines.back(), "seconds"), 0.25) << ran.out;
  EXPECT_EQ(Number(ran.lines.back(), "threads_left"), 0) << ran.out;
  EXPECT_EQ(Number(ran.lines.back(), "descriptors_left"), 0) << ran.out;
}

TEST(Netperf, Interrupt_EndsTheRunWell) {
  const Ran ran = RunNetperf(
      "--json --size 1000 --seconds 60 --at-message 500 --run 'kill -INT $PPID' "
      "--metric bandwidth");
  EXPECT_TRUE(Survived(ran)) << ran.out;
  EXPECT_LT(Number(ran.lines.back(), "seconds"), 50) << ran.out;
}

TEST(Netperf, MixedSizes_FaultIsFound) {
  const Ran ran = RunNetperf("--json --size 1000 --mixed --count 700 --check all",
                             "LOOPBACK_AT=7 LOOPBACK_FAULT=behind");
  EXPECT_GT(Number(ran.lines.back(), "wrong_bytes"), 0) << ran.out;
}

TEST(Netperf, Gaps_AreWritten) {
  const Ran ran = RunNetperf(
      "--json --size 1000 --count 200 --check all --metric bandwidth --gaps "
      "$TEST_TMPDIR/gaps --gap-min 100; cat $TEST_TMPDIR/gaps",
      "LOOPBACK_AT=6 LOOPBACK_FAULT=pause");
  EXPECT_GE(Number(ran.lines.back(), "to_ns") - Number(ran.lines.back(), "from_ns"), 499e6)
      << ran.out;
}

TEST(Netperf, AfterClose_ProcessesAreStillThere) {
  const Ran ran = RunNetperf(
      "--json --size 10 --count 30 --metric bandwidth --after-close 'pgrep -c -P $PPID'");
  EXPECT_TRUE(Survived(ran)) << ran.out;
  // Two workers and the shell.
  EXPECT_EQ(std::count(ran.lines.begin(), ran.lines.end(), "3"), 1) << ran.out;
}

TEST(Netperf, Outlive_OthersGoOnUntilTheySeeAnError) {
  const Ran ran = RunNetperf("--json --size 10 --count 300 --outlive --timeout 1 --check all",
                             "LOOPBACK_AT=6 LOOPBACK_FAULT=die");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.lines.back().find("\"after_death\":\"process "), std::string::npos) << ran.out;
  EXPECT_GE(Number(ran.lines.back(), "after_death_ms"), 0) << ran.out;
  EXPECT_NE(ran.lines.back().find("ncclRemoteError"), std::string::npos) << ran.out;
}

TEST(Netperf, TwoPlugins_GiveARatioWithItsInterval) {
  const Ran ran =
      RunNetperf("--json --size 64 --count 400 --pairs 8 --metric bandwidth,latency --compare " +
                 std::string(kPlugin));
  EXPECT_EQ(ran.status, 0) << ran.out;
  ASSERT_EQ(ran.lines.size(), 7u) << ran.out;
  const std::string& ratio = ran.lines[2];
  EXPECT_NE(ran.lines[0].find("\"side\":\"A\""), std::string::npos) << ran.lines[0];
  EXPECT_NE(ran.lines[1].find("\"side\":\"B\""), std::string::npos) << ran.lines[1];
  EXPECT_NE(ratio.find("\"side\":\"A/B\""), std::string::npos) << ratio;
  EXPECT_NE(ratio.find("\"bandwidth_ratio\""), std::string::npos) << ratio;
  EXPECT_GT(Number(ratio, "value"), 0);
  EXPECT_LE(Number(ratio, "low"), Number(ratio, "value"));
  EXPECT_GE(Number(ratio, "high"), Number(ratio, "value"));
  EXPECT_EQ(Number(ratio, "pairs"), 8);
}

TEST(Netperf, SecondPluginsEnvironment_IsItsOwn) {
  const Ran ran =
      RunNetperf("--json --size 64 --count 100 --pairs 2 --metric bandwidth --compare " +
                 std::string(kPlugin) + " --compare-env LOOPBACK_FAULT=corrupt,LOOPBACK_AT=3");
  EXPECT_EQ(ran.status, 1) << ran.out;
  EXPECT_EQ(Number(ran.lines[0], "wrong_bytes"), 0) << ran.out;
  EXPECT_EQ(Number(ran.lines.back(), "wrong_bytes"), 1) << ran.out;
}

TEST(Netperf, Memory_IsPrintedForOneAndMany) {
  const Ran ran = RunNetperf("--json --memory --connections 16");
  EXPECT_EQ(ran.status, 0) << ran.out;
  ASSERT_EQ(ran.lines.size(), 4u) << ran.out;
  EXPECT_EQ(Number(ran.lines[0], "connections"), 1);
  EXPECT_EQ(Number(ran.lines[2], "connections"), 16);
}

TEST(Netperf, BadCommandLine_NamesTheWordAndTheAllowed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--sizes 8", "unknown option '--sizes'; options: --plugin"},
      {"8", "unexpected word '8'"},
      {"--count", "--count needs a value"},
      {"--count many", "--count: 'many' is not a value for it"},
      {"--size 8Q", "--size: '8Q' is not a size up to 1G, such as 64K"},
      {"--metric speed", "--metric: 'speed' is not bandwidth, latency or message_rate"},
      {"--check some", "--check: 'some' is not auto, all or none"},
      {"--devices a", "--devices: 'a'"},
      {"--api 5", "--api: 5 is not from 6 to 12"},
      {"--group 9", "--group: 9 is not from 1 to 8"},
      {"--in-flight 33", "--in-flight: 33 is not from 1 to 32"},
      {"--processes 1", "--processes: 1 is not from 2 to 64"},
      {"--env A", "--env: 'A' is not NAME=VALUE"},
      {"--at-message 5", "--at-message and --run go together"},
      {"--at-message x --run true", "--at-message: "},
      {"--at-time 1 --run true --size 8", "--at-time goes with --seconds"},
      {"--seconds 1 --at-time x --run true --size 8", "--at-time: 'x' is no time in seconds"},
      {"--pause-side left", "--pause-side: 'left' is not sender, receiver or both"},
      {"--at-message 5 --run true --size 8 --count 4", "--at-message: 5 is above --count 4"},
      {"--processes 3 --metric latency,bandwidth", "latency goes with two processes"},
  };
  for (const auto& [arguments, words] : cases) {
    const Ran ran = RunNetperf(arguments);
    EXPECT_EQ(ran.status, 2) << arguments << ": " << ran.out;
    EXPECT_NE(ran.out.find(words), std::string::npos) << arguments << ": " << ran.out;
  }
  const Ran none = Shell(kProgram);
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.out.find("--plugin FILE is missing"), std::string::npos) << none.out;
}

TEST(Netperf, PluginThatIsNone_IsNamed) {
  const Ran missing = Shell(std::string(kProgram) + " --plugin /nowhere/x.so");
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.out.find("/nowhere/x.so"), std::string::npos) << missing.out;
  const Ran other = Shell(std::string(kProgram) + " --plugin libm.so.6");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.out.find("exports no ncclNetPlugin_v6 to _v12"), std::string::npos) << other.out;
}

TEST(Netperf, ReferencePage_HasTheHelp) {
  const Ran help = Shell(std::string(kProgram) + " --help");
  EXPECT_EQ(help.status, 0);
  std::ifstream file("docs/reference/netperf.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(help.out), std::string::npos)
      << "docs/reference/netperf.md must have the output of --help:\n"
      << help.out;
}

}  // namespace
}  // namespace railhop::netperf
