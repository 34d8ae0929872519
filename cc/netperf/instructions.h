// `--instructions`: how many instructions a message costs inside the plugin, next to NCCL's own
// transport.
//
// Counted by callgrind, so the figures hardly vary from run to run; they are what the plugin's own
// file executes: libibverbs and what is below it do not count, nor does what the plugin calls
// elsewhere (libc), which is shown apart.
#ifndef RAILHOP_CC_NETPERF_INSTRUCTIONS_H_
#define RAILHOP_CC_NETPERF_INSTRUCTIONS_H_

#include "cc/netperf/options.h"
#include "cc/netperf/report.h"

namespace railhop::netperf {

// Returns the program's exit status.
int MeasureInstructions(const Options& options, Report* report);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_INSTRUCTIONS_H_
