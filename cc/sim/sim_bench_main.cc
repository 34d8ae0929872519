// tools/bench sim: the seeds of both simulators, of NICs alone and of whole hosts with the plugin.
#include <memory>

#include "cc/sim/plugin_plan.h"
#include "cc/sim/plugin_runner.h"
#include "cc/sim/seed_plan.h"
#include "cc/sim/seed_runner.h"
#include "cc/sim/sim_program.h"

int main(int argc, char** argv) {
  using namespace railhop::sim;
  const auto nics = std::make_shared<SeedRunner>();
  const auto hosts = std::make_shared<PluginRunner>();
  return RunSimPrograms(
      argc, argv,
      {{.command = "bazel run -c opt //cc/sim:plugin_sim --",
        .describe = [](uint64_t seed) { return Describe(DrawPluginPlan(seed)); },
        .run = [hosts](uint64_t seed, bool record) { return hosts->Run(seed, record); }},
       {.command = "bazel run -c opt //cc/sim:sim --",
        .describe = [](uint64_t seed) { return Describe(DrawPlan(seed)); },
        .run = [nics](uint64_t seed, bool record) { return nics->Run(seed, record); }}});
}
