// railhop-netperf: see options.cc for its command line, docs/reference/netperf.md for its output.
#include <csignal>
#include <cstdio>

#include "cc/netperf/counted_calls.h"
#include "cc/netperf/instructions.h"
#include "cc/netperf/measure.h"
#include "cc/netperf/options.h"
#include "cc/netperf/report.h"

namespace railhop::netperf {
namespace {

constexpr int kUsage = 2;

int Main(int argc, char** argv) {
  if (WantsHelp(argc, argv)) {
    fputs(HelpText().c_str(), stdout);
    return 0;
  }
  const Result<Options> options = ParseOptions(argc, argv);
  if (!options.ok()) {
    fprintf(stderr, "railhop-netperf: %s\n", options.error().c_str());
    return kUsage;
  }
  signal(SIGPIPE, SIG_IGN);
  Report report(*options);
  switch (options->kind) {
    case Options::Kind::kMemory:
      return MeasureMemory(*options, &report);
    case Options::Kind::kInstructions:
      return MeasureInstructions(*options, &report);
    case Options::Kind::kInstructionsInside:
      return RunCountedCalls(*options);
    case Options::Kind::kMeasure:
      break;
  }
  return options->sides.size() > 1 ? Compare(*options, &report) : Measure(*options, &report);
}

}  // namespace
}  // namespace railhop::netperf

int main(int argc, char** argv) { return railhop::netperf::Main(argc, argv); }
