// Carries out what the faults of a port have due: ports that go down, addresses that change.
//
// The fault table says what and when; this does it to the directory, sends the events and wakes
// those who must know. Traffic triggers are found by the process that moves the packet, times by
// the fabric's owner. The hard case is whoever does it and dies half-way: every step may be done
// twice.
#ifndef RAILHOP_CC_FABRIC_FAULT_ACTIONS_H_
#define RAILHOP_CC_FABRIC_FAULT_ACTIONS_H_

#include <cstdint>

#include "cc/fabric/directory.h"

namespace railhop::fabric {

// Does all that is due on `port` at this time, under the control lock. Any thread of any process;
// whoever dies inside leaves the rest to the next caller.
void RunFaultActions(DirectoryHandle& directory, PortRef port);

// The same for all ports. Returns when to look again (CLOCK_MONOTONIC ns, UINT64_MAX for never),
// unless a fault is put in before (which bumps Directory::change).
uint64_t RunAllFaultActions(DirectoryHandle& directory);

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_FAULT_ACTIONS_H_
