// Runs whole hosts with the plugin under simulated faults and judges what NCCL would see.
//
//   plugin_sim --seeds 20000            seeds 1 .. 20000, over the processors there are
//   plugin_sim --seeds 1 --first 4711   one seed; --plans for its plan, --record for every packet
//   plugin_sim --file seeds.txt         the seeds in a file: one a line, '#' starts a comment
//
// Output and status as of sim.
#include <memory>

#include "cc/sim/plugin_plan.h"
#include "cc/sim/plugin_runner.h"
#include "cc/sim/sim_program.h"

int main(int argc, char** argv) {
  using namespace railhop::sim;
  const auto runner = std::make_shared<PluginRunner>();
  return RunSimPrograms(
      argc, argv,
      {{.command = "bazel run -c opt //cc/sim:plugin_sim --",
        .describe = [](uint64_t seed) { return Describe(DrawPluginPlan(seed)); },
        .run = [runner](uint64_t seed, bool record) { return runner->Run(seed, record); }}});
}
