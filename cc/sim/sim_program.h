// The command line around programs that run seeds: over all processors, with a report of each
// violation and the command that repeats it, and with the figures at the end.
//
// A seed that crashes, or hangs for a minute of real time, is a violation like any other: the
// process is replaced and goes on behind it.
#ifndef RAILHOP_CC_SIM_SIM_PROGRAM_H_
#define RAILHOP_CC_SIM_SIM_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/sim/seed_runner.h"

namespace railhop::sim {

struct SimProgram {
  std::string command;  // what repeats a seed: "bazel run -c opt //cc/sim:sim --"
  std::function<std::string(uint64_t seed)> describe;  // its plan, a few lines
  std::function<SeedResult(uint64_t seed, bool record)> run;
};

// Runs the seeds that the arguments name through each of `programs` and prints figures on standard
// output: sums over all. Returns the exit status: 1 if there was a violation.
int RunSimPrograms(int argc, char** argv, const std::vector<SimProgram>& programs);

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_SIM_PROGRAM_H_
