// From the command line to sessions, legs and figures.
#ifndef RAILHOP_CC_NETPERF_LEGS_H_
#define RAILHOP_CC_NETPERF_LEGS_H_

#include <cstdint>

#include "cc/netperf/options.h"
#include "cc/netperf/plan.h"
#include "cc/netperf/report.h"

namespace railhop::netperf {

// Whether commands are run, or the run has a time: all bytes are checked then.
bool HasFaults(const Options& options);
bool Wants(const Options& options, Metric metric);

// A session that can run all legs of the options.
SessionPlan PlanOf(const Options& options, const Side& side);

// `share`: of the messages of a whole run, for the short runs of a pair.
Leg StreamLeg(const Options& options, uint64_t size, double share);
Leg PingPongLeg(const Options& options, uint64_t size, double share);
// Every byte of messages of all lengths; few messages.
Leg CheckLeg(const Options& options, uint64_t size);

double GigabytesPerSecond(const Outcome& outcome);
double MessagesPerSecond(const Outcome& outcome);
double LatencyUs(const Outcome& outcome);  // median, one way

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_LEGS_H_
