// The measurements: legs of each size with one plugin, interleaved pairs of legs with two, memory.
#ifndef RAILHOP_CC_NETPERF_MEASURE_H_
#define RAILHOP_CC_NETPERF_MEASURE_H_

#include "cc/netperf/options.h"
#include "cc/netperf/report.h"

namespace railhop::netperf {

// Each prints its results and returns the program's exit status.
int Measure(const Options& options, Report* report);
int Compare(const Options& options, Report* report);
int MeasureMemory(const Options& options, Report* report);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_MEASURE_H_
