#include "cc/verbs/completion_queue.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "cc/verbs/verbs_error.h"

namespace railhop::verbs {

absl::StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(Context* context,
                                                                         int entries) {
  errno = 0;
  ibv_cq* cq = context->table().create_cq(context->raw(), entries, nullptr, nullptr, 0);
  if (cq == nullptr) {
    absl::Status failed = VerbsError(context->name(), "ibv_create_cq", errno);
    const absl::StatusOr<ibv_device_attr> attr = context->QueryDevice();
    if (!attr.ok() || entries <= attr->max_cqe) return failed;
    return absl::InvalidArgumentError(
        absl::StrCat(failed.message(), "; ", entries, " entries are needed, and the device allows ",
                     attr->max_cqe, " in a completion queue (max_cqe)"));
  }
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(context, cq));
}

CompletionQueue::~CompletionQueue() {
  if (!Destroy().ok()) context_->Keep(cq_);
}

absl::Status CompletionQueue::Destroy() {
  if (cq_ == nullptr) return absl::OkStatus();
  int error = context_->table().destroy_cq(cq_);
  // A queue pair that could not be destroyed may use it still.
  if (error == EBUSY && context_->EndKept()) error = context_->table().destroy_cq(cq_);
  // Of a device that is gone: it writes nothing any more, and the kernel frees it with the context.
  if (error != 0 && !context_->IsGone(error)) {
    return VerbsError(context_->name(), "ibv_destroy_cq", error);
  }
  cq_ = nullptr;
  return absl::OkStatus();
}

}  // namespace railhop::verbs
