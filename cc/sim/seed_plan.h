// Everything that a seed decides: the cluster, who talks to whom about what, and what goes wrong.
//
// A plan is drawn before anything runs, so it can be printed, and a run of it has no other source
// of chance than its seed. Most seeds are small; long transfers and long timeouts are rare.
#ifndef RAILHOP_CC_SIM_SEED_PLAN_H_
#define RAILHOP_CC_SIM_SEED_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/rdma_model/topology.h"
#include "cc/sim/conversation.h"
#include "cc/sim/nic.h"

namespace railhop::sim {

struct PlannedFault {
  uint64_t at_ns = 0;  // since the start
  std::string text;    // in the words of docs/reference/faults.md
};

struct SeedPlan {
  uint64_t seed = 0;
  rdma::Topology topology;
  Options options;
  std::vector<ConversationPlan> conversations;
  std::vector<PlannedFault> faults;
  bool mild = false;     // faults that nobody may notice
  uint64_t heal_ns = 0;  // all faults end and all ports are up, since the start; 0: never
  // A NIC that retries without end (quirk retry7_forever) is among the faults; then there is a
  // heal.
  bool retries_forever = false;
};

SeedPlan DrawPlan(uint64_t seed);

// For people: a few lines.
std::string Describe(const SeedPlan& plan);

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_SEED_PLAN_H_
