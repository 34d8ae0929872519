// A worker's part in a leg: drives its streams in turn until all is done, as NCCL's progress thread
// does.
#ifndef RAILHOP_CC_NETPERF_TRAFFIC_H_
#define RAILHOP_CC_NETPERF_TRAFFIC_H_

#include <cstdint>
#include <functional>
#include <string>

#include "cc/netperf/board.h"
#include "cc/netperf/links.h"
#include "cc/netperf/plan.h"

namespace railhop::netperf {

struct TrafficResult {
  Counts counts;
  std::string problem;  // empty: none
};

// Every worker of the session runs the same leg at the same time. `at_mark` is called by the worker
// that receives a message of leg.marks, with its number. After a problem the session is over.
TrafficResult RunLeg(const SessionPlan& plan, const Leg& leg, int process, Links* links,
                     Board* board, const std::function<void(uint64_t)>& at_mark);

// How many groups of the leg go over connection `number` (0 where it takes no part).
uint64_t GroupsOf(const SessionPlan& plan, const Leg& leg, int number);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_TRAFFIC_H_
