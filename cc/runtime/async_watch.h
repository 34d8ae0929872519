// The thread that reads the asynchronous events of the devices that carry data.
//
// Such an event is often the first and sometimes the only word of a fault: a device that has died,
// a queue pair that the NIC has stopped. Unread they fill the kernel's queue.
#ifndef RAILHOP_CC_RUNTIME_ASYNC_WATCH_H_
#define RAILHOP_CC_RUNTIME_ASYNC_WATCH_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/verbs/context.h"

namespace railhop::runtime {

// An event, acknowledged already.
struct AsyncEvent {
  verbs::Context* context = nullptr;
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  uint8_t port = 0;      // of port events
  ibv_qp* qp = nullptr;  // of queue pair events; may be destroyed by now: for comparison only
  ibv_cq* cq = nullptr;  // the same
};

// Whether what it happened to is of no use any more. Source: as NCCL 2.30.7 counts fatal events.
bool IsFatal(ibv_event_type type);
// "device fatal", "port 1 down".
const char* EventText(ibv_event_type type);

// Thread-safe.
class AsyncWatch {
 public:
  // `handle` is called on the watch's thread.
  explicit AsyncWatch(std::function<void(const AsyncEvent&)> handle);
  // Ends the thread; waits for it.
  ~AsyncWatch();
  AsyncWatch(const AsyncWatch&) = delete;
  AsyncWatch& operator=(const AsyncWatch&) = delete;

  // From now on; once for each context, which outlives the watch.
  void Watch(verbs::Context* context);

 private:
  void Run();
  // Whether there was any.
  bool Read(verbs::Context* context);
  // No more events come from it; that is one itself.
  void Drop(verbs::Context* context);
  void Wake();

  const std::function<void(const AsyncEvent&)> handle_;
  const int wake_fd_;  // eventfd
  absl::Mutex mutex_;
  std::vector<verbs::Context*> contexts_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_ASYNC_WATCH_H_
