// The saved seeds, and a share of the random ones that CI runs (see BUILD.bazel for how many).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "cc/sim/seed_plan.h"
#include "cc/sim/seed_runner.h"

namespace railhop::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string Complaint(const SeedPlan& plan, const SeedResult& result) {
  std::string text = Describe(plan);
  for (const std::string& line : result.texts) text += "  !! " + line + "\n";
  return text + "  repeat: bazel run -c opt //cc/sim:sim -- --seeds 1 --first " +
         std::to_string(plan.seed) + " --record\n";
}

TEST(Seeds, Saved_AreCleanAndRepeatTheirRecord) {
  std::ifstream file("testdata/seeds/saved.txt");
  ASSERT_TRUE(file.good());
  SeedRunner runner;
  int seeds = 0;
  for (std::string line; std::getline(file, line);) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const SeedPlan plan = DrawPlan(std::stoull(line));
    const SeedResult result = runner.Run(plan);
    EXPECT_EQ(result.violations, 0u) << Complaint(plan, result);
    EXPECT_EQ(runner.Run(plan).record_hash, result.record_hash) << Complaint(plan, result);
    ++seeds;
  }
  EXPECT_GT(seeds, 0);
}

// In two halves, so that Bazel can run them side by side.
constexpr uint64_t kParts = 2;
class RandomSeeds : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomSeeds, Run_AreClean) {
  const uint64_t count = FromEnvironment("RAILHOP_SIM_SEEDS", 500);
  SeedRunner runner;
  uint64_t faults = 0, transfers = 0, failed = 0;
  for (uint64_t seed = 1 + GetParam(); seed <= count; seed += kParts) {
    const SeedPlan plan = DrawPlan(seed);
    const SeedResult result = runner.Run(plan);
    EXPECT_EQ(result.violations, 0u) << Complaint(plan, result);
    if (seed % 100 == 1) {
      EXPECT_EQ(runner.Run(plan).record_hash, result.record_hash) << Complaint(plan, result);
    }
    faults += result.faults;
    transfers += result.transfers;
    failed += result.failed;
    if (HasFailure()) return;
  }
  // A run in which nothing happens proves nothing.
  EXPECT_GT(faults, count / kParts);
  EXPECT_GT(transfers, 10 * count / kParts);
  EXPECT_GT(failed, count / kParts);
}

INSTANTIATE_TEST_SUITE_P(Half, RandomSeeds, testing::Range<uint64_t>(0, kParts));

TEST(SeedRunner, SameSeed_SameRecordByteForByte) {
  SeedRunner runner;
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    EXPECT_EQ(runner.Run(seed, true).record, SeedRunner().Run(seed, true).record);
  }
  EXPECT_NE(runner.Run(1).record_hash, runner.Run(2).record_hash);
}

TEST(SeedPlan, EveryFault_IsInTheGrammar) {
  Memory memory;
  for (uint64_t seed = 1; seed < 3000; ++seed) {
    for (const PlannedFault& fault : DrawPlan(seed).faults) {
      rdma::FaultCommand command;
      std::string error;
      EXPECT_TRUE(rdma::ParseFault(fault.text, &command, &error)) << fault.text << ": " << error;
    }
  }
}

}  // namespace
}  // namespace railhop::sim
