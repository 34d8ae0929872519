// A completion queue of one connection on one device. Not thread-safe.
#ifndef RAILHOP_CC_VERBS_COMPLETION_QUEUE_H_
#define RAILHOP_CC_VERBS_COMPLETION_QUEUE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/verbs/context.h"

namespace railhop::verbs {

class CompletionQueue {
 public:
  // Room for `entries` at least. Errors: Internal; InvalidArgument (more than the device allows).
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(Context* context, int entries);
  // What cannot be destroyed is left to the context: call Destroy where that matters.
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // At most `count` entries into `entries`; negative = the queue is broken. Hot path.
  int Poll(int count, ibv_wc* entries) { return ibv_poll_cq(cq_, count, entries); }

  // After its queue pairs. Errors: Internal (it still exists).
  absl::Status Destroy();

  ibv_cq* raw() const { return cq_; }

 private:
  CompletionQueue(Context* context, ibv_cq* cq) : context_(context), cq_(cq) {}

  Context* const context_;
  ibv_cq* cq_;  // null once destroyed
};

}  // namespace railhop::verbs

#endif  // RAILHOP_CC_VERBS_COMPLETION_QUEUE_H_
