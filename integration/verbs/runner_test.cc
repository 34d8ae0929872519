// The runner against cases that pass, fail, crash and hang; no library is needed.
#include "integration/verbs/runner.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "integration/verbs/options.h"
#include "integration/verbs/report.h"

namespace railhop::conformance {
namespace {

ibv_device** OneDevice(int* count) {
  static ibv_device device;
  auto** const list = static_cast<ibv_device**>(calloc(2, sizeof(ibv_device*)));
  list[0] = &device;
  *count = 1;
  return list;
}

VerbsTable Table() {
  VerbsTable table;
  FillInlineVerbs(&table);
  table.get_device_list = OneDevice;
  table.free_device_list = [](ibv_device** list) { free(list); };
  table.get_device_name = [](ibv_device*) { return "fake0"; };
  return table;
}

Result RunOne(const std::function<void(World&)>& body, const Expectations& expectations = {},
              const std::vector<std::string>& needs = {}, int deadline_s = 20) {
  Options options;
  options.deadline_s = deadline_s;
  const std::vector<Result> results =
      RunCases(Table(), options, {{"A.Case_Works", "clause", needs, body}}, expectations);
  return results.back();
}

TEST(Runner, CasePasses_Supported) {
  const Result result = RunOne([](World& world) { EXPECT_EQ(world.first_device(), "fake0"); });
  EXPECT_EQ(result.outcome, Outcome::kSupported) << result.detail;
}

TEST(Runner, CaseFails_SaysWhereAndWhat) {
  const Result result = RunOne([](World&) { ExpectEq(1, 2, "a number"); });
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.detail.substr(0, 15), "runner_test.cc:") << result.detail;
  EXPECT_NE(result.detail.find("a number: got 1, expected 2"), std::string::npos) << result.detail;
}

TEST(Runner, CaseCrashes_NamesTheSignal) {
  const Result result = RunOne([](World&) { abort(); });
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.detail, "died of signal Aborted");
}

TEST(Runner, CaseExits_NamesTheStatus) {
  EXPECT_EQ(RunOne([](World&) { _exit(3); }).detail, "ended with status 3");
}

TEST(Runner, CaseHangs_IsKilledWithItsChildren) {
  const Result result = RunOne(
      [](World&) {
        if (fork() == 0) pause();
        pause();
      },
      {}, {}, 1);
  EXPECT_EQ(result.detail, "no end after 1 s: killed");
}

TEST(Runner, GuardOverwritten_Fails) {
  const Result result = RunOne([](World& world) { world.NewBuffer(10).data()[10] = 1; });
  EXPECT_NE(result.detail.find("guard zone overwritten at offset 10 of a buffer of 10 bytes"),
            std::string::npos)
      << result.detail;
  const Result before = RunOne([](World& world) { world.NewBuffer(10, 3).data()[-1] = 1; });
  EXPECT_NE(before.detail.find("guard zone overwritten at offset -1 of a buffer of 10 bytes"),
            std::string::npos)
      << before.detail;
}

TEST(Runner, DeclaredUnsupported_IsNotRun) {
  Expectations expectations;
  expectations.unsupported = {{"processes", "it is one"}};
  const Result result = RunOne([](World&) { abort(); }, expectations, {"processes"});
  EXPECT_EQ(result.outcome, Outcome::kUnsupported);
  EXPECT_EQ(result.detail, "processes: it is one");
}

TEST(Runner, DeclaredDifferent_MustFailAsSaid) {
  Expectations expectations;
  expectations.differences = {{"A.*", "got 1", "man x", "it is old"}};
  const auto as_said = [](World&) { ExpectEq(1, 2, "a number"); };
  const auto other = [](World&) { ExpectEq(3, 2, "a number"); };
  EXPECT_EQ(RunOne(as_said, expectations).outcome, Outcome::kDiffers);
  EXPECT_EQ(RunOne(as_said, expectations).detail, "it is old (man x)");
  EXPECT_EQ(RunOne(other, expectations).outcome, Outcome::kFailed);
  EXPECT_EQ(RunOne([](World&) {}, expectations).detail, "declared as different, but it passes");
}

TEST(Report, Texts_AreEscaped) {
  const std::vector<Result> results = {
      {"A.B_C", "x", Outcome::kFailed, "a \"quote\" & <tag>", 0.5},
      {"A.D_E", "y", Outcome::kUnsupported, "no", 0, false},
      {"A.F_G", "z", Outcome::kDiffers, "old", 0},
  };
  EXPECT_NE(ReportAsJson("f", results).find("a \\\"quote\\\" & <tag>"), std::string::npos);
  const std::string xml = ReportAsJunit("f", results);
  EXPECT_NE(xml.find("tests=\"2\" failures=\"1\""), std::string::npos) << xml;
  EXPECT_EQ(xml.find("A.D_E"), std::string::npos) << "not run, so no test case: " << xml;
  EXPECT_NE(xml.find("<system-out>differs: old</system-out>"), std::string::npos) << xml;
  EXPECT_NE(xml.find("a &quot;quote&quot; &amp; &lt;tag&gt;"), std::string::npos) << xml;
}

TEST(Options, Good_AreSet) {
  Options options;
  std::string error;
  ASSERT_TRUE(ParseOptions({"--devices=a,b", "--deadline=7", "--list", "--fault-command=x y"},
                           &options, &error))
      << error;
  EXPECT_EQ(options.devices, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.deadline_s, 7);
  EXPECT_TRUE(options.list);
  EXPECT_EQ(options.fault_command, "x y");
}

TEST(Options, Bad_NameTheArgument) {
  const auto error_of = [](const std::string& argument) {
    Options options;
    std::string error;
    EXPECT_FALSE(ParseOptions({argument}, &options, &error)) << argument;
    return error;
  };
  EXPECT_EQ(error_of("devices"), "give options as --name=value, not \"devices\"");
  EXPECT_EQ(error_of("--speed=1").substr(0, 35), "unknown option --speed; there are: ");
  EXPECT_EQ(error_of("--deadline=0"), "--deadline=0: 1 to 3600 seconds");
  EXPECT_EQ(error_of("--devices=a,b,c"),
            "--devices=a,b,c: give one or two names, as in --devices=soft0,soft1");
}

}  // namespace
}  // namespace railhop::conformance
