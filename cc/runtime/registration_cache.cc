#include "cc/runtime/registration_cache.h"

#include <unistd.h>

#include <utility>

namespace railhop::runtime {
namespace {

struct Range {
  uintptr_t begin;
  uintptr_t end;
};

absl::StatusOr<Range> PagesOf(const void* data, size_t size) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + size;
  if (size == 0 || end < begin || end + page - 1 < end) {
    return absl::InvalidArgumentError("memory to register is empty or wraps around");
  }
  return Range{begin & ~(page - 1), (end + page - 1) & ~(page - 1)};
}

}  // namespace

Registration* RegistrationCache::FindCovering(uintptr_t begin, uintptr_t end, bool is_dmabuf) {
  for (auto i = by_begin_.upper_bound(begin); i != by_begin_.begin();) {
    --i;
    Registration* const found = i->second.get();
    if (found->end >= end && found->is_dmabuf == is_dmabuf) {
      ++found->users;
      return found;
    }
  }
  return nullptr;
}

Registration* RegistrationCache::Insert(std::unique_ptr<Registration> registration) {
  registration->users = 1;
  const uintptr_t begin = registration->begin;
  return by_begin_.emplace(begin, std::move(registration))->second.get();
}

absl::StatusOr<Registration*> RegistrationCache::Acquire(const void* data, size_t size) {
  const absl::StatusOr<Range> pages = PagesOf(data, size);
  if (!pages.ok()) return pages.status();
  absl::MutexLock lock(&mutex_);
  if (Registration* const found = FindCovering(pages->begin, pages->end, false)) return found;
  auto registration = std::make_unique<Registration>();
  registration->begin = pages->begin;
  registration->end = pages->end;
  absl::StatusOr<std::unique_ptr<verbs::MemoryRegion>> region =
      verbs::MemoryRegion::Register(context_, reinterpret_cast<void*>(pages->begin),
                                    pages->end - pages->begin, relaxed_ordering_);
  if (!region.ok()) return region.status();
  registration->region = *std::move(region);
  return Insert(std::move(registration));
}

absl::StatusOr<Registration*> RegistrationCache::AcquireDmaBuf(const void* data, size_t size,
                                                               uint64_t offset, int fd) {
  absl::StatusOr<Range> range = PagesOf(data, size);
  if (!range.ok()) return range.status();
  // Rounded down only as far as the DMA-BUF goes; its end is a page's end already.
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uint64_t before = begin - range->begin;
  if (before > offset) range->begin = begin;
  range->end = begin + size;
  absl::MutexLock lock(&mutex_);
  if (Registration* const found = FindCovering(range->begin, range->end, true)) return found;
  auto registration = std::make_unique<Registration>();
  registration->begin = range->begin;
  registration->end = range->end;
  registration->is_dmabuf = true;
  absl::StatusOr<std::unique_ptr<verbs::MemoryRegion>> region = verbs::MemoryRegion::RegisterDmaBuf(
      context_, offset - (begin - range->begin), range->end - range->begin, range->begin, fd,
      relaxed_ordering_);
  if (!region.ok()) return region.status();
  registration->region = *std::move(region);
  return Insert(std::move(registration));
}

absl::Status RegistrationCache::Release(Registration* registration) {
  absl::MutexLock lock(&mutex_);
  // 0 already if an earlier deregistration has failed.
  if (registration->users > 0) --registration->users;
  if (registration->users > 0) return absl::OkStatus();
  absl::Status deregistered = registration->region->Deregister();
  if (!deregistered.ok()) return deregistered;
  const auto same = by_begin_.equal_range(registration->begin);
  for (auto i = same.first; i != same.second; ++i) {
    if (i->second.get() == registration) {
      by_begin_.erase(i);
      break;
    }
  }
  return absl::OkStatus();
}

size_t RegistrationCache::size() const {
  absl::MutexLock lock(&mutex_);
  return by_begin_.size();
}

}  // namespace railhop::runtime
