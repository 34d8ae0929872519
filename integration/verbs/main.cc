// verbs_conformance: runs the suite on a library and devices. See README.md.
#include <stdio.h>

#include <string>
#include <vector>

#include "integration/verbs/options.h"
#include "integration/verbs/report.h"
#include "integration/verbs/runner.h"

int main(int argc, char** argv) {
  using namespace railhop::conformance;  // NOLINT: the program is nothing but a call into it
  Options options;
  std::string error;
  if (!ParseOptions(std::vector<std::string>(argv + 1, argv + argc), &options, &error)) {
    fprintf(stderr, "verbs_conformance: %s\n", error.c_str());
    return 2;
  }
  if (options.list) {
    fputs(CasesAsJson(AllCases()).c_str(), stdout);
    return 0;
  }
  VerbsTable verbs;
  if (!LoadVerbsTable(options.library, &verbs, &error)) {
    fprintf(stderr, "verbs_conformance: %s\n", error.c_str());
    return 2;
  }
  return RunConformance(verbs, options);
}
