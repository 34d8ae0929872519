// A message under way: what send and receive of Messenger give back.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_OPERATION_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_OPERATION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "python/railhop/_transport/failure.h"

namespace railhop::transport {

struct Operation {
  // Const after it was given to the progress thread.
  bool sends = false;
  int peer = 0;  // -1 in a receive: from anyone
  uint32_t kind = 0;
  uint64_t tag = 0;
  uint8_t* data = nullptr;
  uint64_t size = 0;

  // The progress thread's.
  uint64_t serial = 0;  // of a send: given when it is taken up
  uint64_t moved = 0;   // bytes put into slots, or come
  int parts = 0;        // sent and not yet done
  bool begun = false;   // a send of 0 bytes has a part as well

  // Written before `done` is set (release), read after it (acquire).
  FailureKind failure = FailureKind::kClosed;
  std::string problem;  // empty: good
  int source = -1;      // the peer that a receive matched
  std::atomic<bool> done = false;
};

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_OPERATION_H_
