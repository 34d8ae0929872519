// Everything that a seed of the plugin's simulator decides: hosts, NICs, connections, what NCCL
// does on them, what goes wrong, and what may come of it.
//
// Drawn before anything runs, so that it can be printed; a run has no other source of chance.
#ifndef RAILHOP_CC_SIM_PLUGIN_PLAN_H_
#define RAILHOP_CC_SIM_PLUGIN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/datapath/datapath_config.h"
#include "cc/rdma_model/topology.h"
#include "cc/runtime/failover_config.h"
#include "cc/sim/nic.h"
#include "cc/sim/plugin_traffic.h"
#include "cc/sim/seed_plan.h"

namespace railhop::sim {

// How much goes wrong.
enum class Trouble : uint8_t {
  kNone,
  kTolerable,  // slow, lossy, waiting: nothing that may be called a fault
  kFaults,
};

// What goes wrong between two processes on the way of their messages.
struct ChannelFault {
  enum class Kind : uint8_t {
    kSlow,    // messages take longer
    kBreak,   // the session is lost with all that is under way; a new one comes
    kOutage,  // no session for a while
    kDeaf,    // messages vanish, the session seems to stand, until it is found out
  };
  Kind kind = Kind::kBreak;
  uint64_t at_ns = 0;
  uint64_t for_ns = 0;
  size_t host = 0, other = 0;
};

// What somebody asks of a process.
struct PlannedCommand {
  enum class Kind : uint8_t { kDrain, kForce, kRelease, kFailBack };
  Kind kind = Kind::kDrain;
  uint64_t at_ns = 0;
  size_t host = 0;
  int physical = 0;
};

struct PluginPlan {
  uint64_t seed = 0;
  Trouble trouble = Trouble::kNone;
  rdma::Topology topology;
  Options options;
  datapath::DatapathConfig datapath;
  runtime::FailoverConfig failover;
  std::vector<TrafficPlan> traffic;
  std::vector<PlannedFault> faults;
  std::vector<ChannelFault> channel;
  std::vector<PlannedCommand> commands;
  uint64_t channel_delay_ns = 20'000;
  uint64_t heal_ns = 0;  // everything is as at the start again, but for what is gone for good

  // What may come of it:
  std::vector<bool> killed;      // by host: may die
  bool may_fail = false;         // connections may end in an error for other reasons
  bool unwritten = false;        // acknowledged bytes may be missing (rule 4's error)
  bool refuses_memory = false;   // registrations may fail
  bool refuses_destroy = false;  // so things may be left behind
  bool false_alarm = false;      // a device says that it has failed, and has not
  bool hangs = false;            // verbs calls take up to a minute
};

PluginPlan DrawPluginPlan(uint64_t seed);

// For people: a few lines.
std::string Describe(const PluginPlan& plan);

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_PLAN_H_
