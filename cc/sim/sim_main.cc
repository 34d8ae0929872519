// Runs simulated schedules of faults and checks every byte.
//
//   sim --seeds 20000            seeds 1 .. 20000, over the processors there are
//   sim --seeds 1 --first 4711   one seed, with its plan; add --record for every packet
//   sim --file seeds.txt         the seeds in a file: one a line, '#' starts a comment
//
// Prints one JSON object for each figure (`schedules`, `faults`, `violations`, ...) on standard
// output, everything else on standard error. Status 1 if there was a violation.
#include <memory>

#include "cc/sim/seed_plan.h"
#include "cc/sim/seed_runner.h"
#include "cc/sim/sim_program.h"

int main(int argc, char** argv) {
  using namespace railhop::sim;
  const auto runner = std::make_shared<SeedRunner>();
  return RunSimPrograms(
      argc, argv,
      {{.command = "bazel run -c opt //cc/sim:sim --",
        .describe = [](uint64_t seed) { return Describe(DrawPlan(seed)); },
        .run = [runner](uint64_t seed, bool record) { return runner->Run(seed, record); }}});
}
