#include "cc/verbs/memory_region.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "cc/verbs/verbs_error.h"

namespace railhop::verbs {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryRegion>> MemoryRegion::Register(Context* context,
                                                                     void* address, size_t length,
                                                                     bool relaxed_ordering) {
  absl::StatusOr<ibv_pd*> pd = context->ProtectionDomain();
  if (!pd.ok()) return pd.status();
  const Table& table = context->table();
  errno = 0;
  ibv_mr* mr;
  if (relaxed_ordering && table.reg_mr_iova2 != nullptr) {
    mr = table.reg_mr_iova2(*pd, address, length, reinterpret_cast<uintptr_t>(address),
                            static_cast<unsigned>(kAccess) | IBV_ACCESS_RELAXED_ORDERING);
  } else {
    mr = table.reg_mr(*pd, address, length, kAccess);
  }
  if (mr == nullptr) {
    return VerbsError(context->name(), absl::StrCat("ibv_reg_mr of ", length, " B"), errno);
  }
  return std::unique_ptr<MemoryRegion>(new MemoryRegion(context, mr));
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> MemoryRegion::RegisterDmaBuf(Context* context,
                                                                           uint64_t offset,
                                                                           size_t length,
                                                                           uint64_t address, int fd,
                                                                           bool relaxed_ordering) {
  absl::StatusOr<ibv_pd*> pd = context->ProtectionDomain();
  if (!pd.ok()) return pd.status();
  const Table& table = context->table();
  if (table.reg_dmabuf_mr == nullptr) {
    return VerbsError(context->name(), "ibv_reg_dmabuf_mr", ENOSYS);
  }
  errno = 0;
  const int access =
      relaxed_ordering ? kAccess | static_cast<int>(IBV_ACCESS_RELAXED_ORDERING) : kAccess;
  ibv_mr* mr = table.reg_dmabuf_mr(*pd, offset, length, address, fd, access);
  if (mr == nullptr) {
    return VerbsError(context->name(), absl::StrCat("ibv_reg_dmabuf_mr of ", length, " B"), errno);
  }
  return std::unique_ptr<MemoryRegion>(new MemoryRegion(context, mr));
}

MemoryRegion::~MemoryRegion() { Deregister().IgnoreError(); }

absl::Status MemoryRegion::Deregister() {
  if (mr_ == nullptr) return absl::OkStatus();
  const int error = context_->table().dereg_mr(mr_);
  // A device that is gone has dropped it.
  if (error != 0 && !context_->IsGone(error)) {
    return VerbsError(context_->name(), "ibv_dereg_mr", error);
  }
  mr_ = nullptr;
  return absl::OkStatus();
}

bool ProbeRelaxedOrdering(Context* context) {
  if (context->table().reg_mr_iova2 == nullptr) return false;
  alignas(4096) static char page[4096];
  return MemoryRegion::Register(context, page, sizeof(page), true).ok();
}

bool ProbeDmaBuf(Context* context) {
  const Table& table = context->table();
  if (table.reg_dmabuf_mr == nullptr) return false;
  absl::StatusOr<ibv_pd*> pd = context->ProtectionDomain();
  if (!pd.ok()) return false;
  errno = 0;
  ibv_mr* mr = table.reg_dmabuf_mr(*pd, 0, 0, 0, -1, 0);
  if (mr != nullptr) {
    table.dereg_mr(mr);
    return true;
  }
  return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS;
}

}  // namespace railhop::verbs
