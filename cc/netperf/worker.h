// What a forked process of a session does: connects, says that it is ready, runs the legs that it
// is told to, and closes.
#ifndef RAILHOP_CC_NETPERF_WORKER_H_
#define RAILHOP_CC_NETPERF_WORKER_H_

#include <cstdint>

#include "cc/netperf/board.h"
#include "cc/netperf/plan.h"
#include "cc/netperf/resident.h"

namespace railhop::netperf {

// To the worker, one packet each.
struct Order {
  enum class Kind : uint32_t { kRun, kMemory, kClose, kQuit };
  Kind kind = Kind::kQuit;  // kClose and kQuit: everything is closed; kQuit: and the process ends
  Leg leg;                  // kRun
};

// From the worker, one packet each.
struct Note {
  enum class Kind : uint32_t {
    kReady,      // connected; facts, resident
    kAtMessage,  // a message of leg.marks has come; counts.messages is its number
    kResult,     // of a leg; counts, problem
    kMemory,     // resident
    kClosed,     // all closed; left; problem if something refused
    kFailed      // over; problem
  };
  Kind kind = Kind::kFailed;
  PluginFacts facts;
  Counts counts;
  Resident before;    // connecting
  Resident resident;  // now
  Leftovers left;
  char problem[400] = {};
};

// Never returns. `socket` is a packet socket to the parent.
[[noreturn]] void RunWorker(const SessionPlan& plan, int process, Board* board, int socket);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_WORKER_H_
