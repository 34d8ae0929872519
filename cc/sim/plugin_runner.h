// Runs one seed of the plugin's simulator and says what was wrong.
#ifndef RAILHOP_CC_SIM_PLUGIN_RUNNER_H_
#define RAILHOP_CC_SIM_PLUGIN_RUNNER_H_

#include <cstdint>

#include "cc/sim/memory.h"
#include "cc/sim/plugin_plan.h"
#include "cc/sim/seed_runner.h"

namespace railhop::sim {

class PluginRunner {
 public:
  // With `keep_record`, SeedResult::record has every packet.
  SeedResult Run(const PluginPlan& plan, bool keep_record = false);
  SeedResult Run(uint64_t seed, bool keep_record = false) {
    return Run(DrawPluginPlan(seed), keep_record);
  }

 private:
  Memory memory_;  // used again by the next seed
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_RUNNER_H_
