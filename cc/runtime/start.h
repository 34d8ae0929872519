// Brings the process's transport up from its settings, and down again.
//
// The one place where options become devices, sockets and a data path. What can go wrong here
// decides whether a job is protected at all, so every refusal names its reason in one sentence.
#ifndef RAILHOP_CC_RUNTIME_START_H_
#define RAILHOP_CC_RUNTIME_START_H_

#include "absl/status/status.h"

namespace railhop::runtime {

// Adds a reference; the first one reads the settings (once in a process), finds the devices and
// starts the transport. Says at INFO which options and devices are in force, and at WARN what is
// wrong with them. Thread-safe. Errors: FailedPrecondition (a setting forbids it), NotFound (no
// verbs library), Unavailable (no device, no interface), InvalidArgument (settings that contradict
// each other), Internal. In a forked copy: FailedPrecondition.
absl::Status StartTransport();

// What becomes of the devices when the last reference goes.
enum class Devices {
  kClose,  // a later start finds them anew
  kKeep,   // their numbers stay good: NCCL before API v11 remembers them
};

// Drops a reference. The last one ends all threads. More stops than starts are ignored,
// and so are those in a forked copy.
void StopTransport(Devices devices);

// Whether the transport runs.
bool TransportRuns();

// Whether this process was forked from one while the transport ran there. It has none of the
// threads, and its locks may be held for ever: nothing of the transport is to be touched. Takes no
// lock.
bool IsForkedCopy();

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_START_H_
