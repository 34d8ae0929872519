// Runs cases, each in a process of its own with a deadline, and compares the outcomes with what was
// declared.
//
// A case that crashes, hangs or leaves the library in a bad state so costs only itself. The child
// joins a new process group; whatever it started is killed with it.
#ifndef RAILHOP_INTEGRATION_VERBS_RUNNER_H_
#define RAILHOP_INTEGRATION_VERBS_RUNNER_H_

#include <string>
#include <vector>

#include "integration/verbs/case.h"
#include "integration/verbs/expectations.h"
#include "integration/verbs/world.h"

namespace railhop::conformance {

enum class Outcome { kSupported, kUnsupported, kDiffers, kFailed };

const char* OutcomeName(Outcome outcome);

struct Result {
  std::string name;
  std::string clause;
  Outcome outcome = Outcome::kFailed;
  std::string detail;  // reason of a declaration, or why it failed
  double seconds = 0;
  bool run = true;  // false: declared, and nothing to try
};

// Prints a line for each case. The results are in the order of the cases; probes of declared
// capabilities come first, as "Capability.WORD".
std::vector<Result> RunCases(const VerbsTable& verbs, const Options& options,
                             const std::vector<Case>& cases, const Expectations& expectations);

// The whole program but for the table: parse --expect, run, report. Returns the exit status: 0 when
// nothing failed, 1 when a case did, 2 for a bad argument or file.
int RunConformance(const VerbsTable& verbs, const Options& options);

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_RUNNER_H_
