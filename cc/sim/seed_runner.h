// Runs one seed: draws its plan, plays it to the end, and says what was wrong.
#ifndef RAILHOP_CC_SIM_SEED_RUNNER_H_
#define RAILHOP_CC_SIM_SEED_RUNNER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/sim/memory.h"
#include "cc/sim/seed_plan.h"

namespace railhop::sim {

struct SeedResult {
  uint64_t seed = 0;
  uint64_t faults = 0;  // that were set
  uint64_t conversations = 0;
  uint64_t transfers = 0;  // that ended well
  uint64_t failed = 0;     // that ended with an error
  uint64_t bytes = 0;      // of those that ended well
  uint64_t events = 0;
  uint64_t virtual_ns = 0;
  uint64_t record_hash = 0;  // the same for every run of the seed
  uint64_t violations = 0;
  std::vector<std::string> texts;  // of the first few violations
  std::string record;              // when it was asked for
};

class SeedRunner {
 public:
  // With `keep_record`, SeedResult::record has every packet.
  SeedResult Run(const SeedPlan& plan, bool keep_record = false);
  SeedResult Run(uint64_t seed, bool keep_record = false) {
    return Run(DrawPlan(seed), keep_record);
  }

 private:
  Memory memory_;  // used again by the next seed
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_SEED_RUNNER_H_
