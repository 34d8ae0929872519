// The saved seeds of whole hosts, and the random ones that CI runs, in shards.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "cc/rdma_model/fault_grammar.h"
#include "cc/sim/plugin_plan.h"
#include "cc/sim/plugin_runner.h"

namespace railhop::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string Complaint(const PluginPlan& plan, const SeedResult& result) {
  std::string text = Describe(plan);
  for (const std::string& line : result.texts) text += "  !! " + line + "\n";
  return text + "  repeat: bazel run -c opt //cc/sim:plugin_sim -- --seeds 1 --first " +
         std::to_string(plan.seed) + " --record\n";
}

std::set<uint64_t> SeedsIn(const char* path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::set<uint64_t> seeds;
  for (std::string line; std::getline(file, line);) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t") != std::string::npos) seeds.insert(std::stoull(line));
  }
  return seeds;
}

TEST(PluginSeeds, Saved_AreCleanAndRepeatTheirRecord) {
  PluginRunner runner;
  int seeds = 0;
  for (const uint64_t seed : SeedsIn("testdata/seeds/plugin.txt")) {
    const PluginPlan plan = DrawPluginPlan(seed);
    const SeedResult result = runner.Run(plan);
    EXPECT_EQ(result.violations, 0u) << Complaint(plan, result);
    EXPECT_EQ(runner.Run(plan).record_hash, result.record_hash) << Complaint(plan, result);
    ++seeds;
  }
  EXPECT_GT(seeds, 0);
}

// In parts, which Bazel's shards run side by side.
constexpr uint64_t kParts = 8;
class RandomPluginSeeds : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomPluginSeeds, Run_AreClean) {
  const uint64_t count = FromEnvironment("RAILHOP_SIM_SEEDS", 500);
  const std::set<uint64_t> known = SeedsIn("testdata/seeds/plugin_known.txt");
  PluginRunner runner;
  uint64_t faults = 0, transfers = 0;
  for (uint64_t seed = 1 + GetParam(); seed <= count; seed += kParts) {
    if (known.contains(seed)) continue;
    const PluginPlan plan = DrawPluginPlan(seed);
    const SeedResult result = runner.Run(plan);
    EXPECT_EQ(result.violations, 0u) << Complaint(plan, result);
    if (seed % 100 == 1) {
      EXPECT_EQ(runner.Run(plan).record_hash, result.record_hash) << Complaint(plan, result);
    }
    faults += result.faults;
    transfers += result.transfers;
    if (HasFailure()) return;
  }
  // A run in which nothing happens proves nothing.
  EXPECT_GT(faults, count / kParts / 10);
  EXPECT_GT(transfers, 10 * count / kParts);
}

INSTANTIATE_TEST_SUITE_P(Part, RandomPluginSeeds, testing::Range<uint64_t>(0, kParts));

TEST(PluginPlan, EveryFault_IsInTheGrammar) {
  for (uint64_t seed = 1; seed < 3000; ++seed) {
    for (const PlannedFault& fault : DrawPluginPlan(seed).faults) {
      rdma::FaultCommand command;
      std::string error;
      EXPECT_TRUE(rdma::ParseFault(fault.text, &command, &error)) << fault.text << ": " << error;
    }
  }
}

}  // namespace
}  // namespace railhop::sim
