// The part of `--instructions` that runs under callgrind: makes the calls of a message one by one,
// with counting switched on for the call alone, and dumps what each kind of call came to.
//
// Every phase of a round (all irecv, all isend, ...) is one dump, named "PHASE CALLS". Between the
// phases nothing is called and the network has time, so that a test() that should complete does. A
// phase in which a call came out otherwise is dumped as "discarded 0".
#ifndef RAILHOP_CC_NETPERF_COUNTED_CALLS_H_
#define RAILHOP_CC_NETPERF_COUNTED_CALLS_H_

#include "cc/netperf/options.h"

namespace railhop::netperf {

inline constexpr char kPhaseSend[] = "isend";
inline constexpr char kPhaseSendDone[] = "send_done";
inline constexpr char kPhaseReceive[] = "irecv";
inline constexpr char kPhaseReceiveDone[] = "recv_done";
inline constexpr char kPhasePending[] = "pending_test";
inline constexpr char kPhaseEarlySend[] = "isend_early";  // before the receive is posted

// With options.devices, .in_flight, .sizes.front(). Returns the program's exit status.
int RunCountedCalls(const Options& options);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_COUNTED_CALLS_H_
