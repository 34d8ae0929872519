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
    if (found->state != Registration::State::kMaking &&
        found->state != Registration::State::kReady) {
      continue;
    }
    if (found->end >= end && found->is_dmabuf == is_dmabuf) return found;
  }
  return nullptr;
}

void RegistrationCache::Erase(const Registration* registration) {
  const auto same = by_begin_.equal_range(registration->begin);
  for (auto i = same.first; i != same.second; ++i) {
    if (i->second.get() == registration) {
      by_begin_.erase(i);
      return;
    }
  }
}

absl::StatusOr<Registration*> RegistrationCache::Take(uintptr_t begin, uintptr_t end,
                                                      bool is_dmabuf,
                                                      const std::function<Region()>& make) {
  Registration* made;
  {
    absl::MutexLock lock(&mutex_);
    while (Registration* const found = FindCovering(begin, end, is_dmabuf)) {
      ++found->users;
      const auto is_made = [found] { return found->state != Registration::State::kMaking; };
      mutex_.Await(absl::Condition(&is_made));
      if (found->state == Registration::State::kReady) return found;
      // Whoever made it could not; the last one to know takes it away, and tries for itself.
      if (--found->users == 0) Erase(found);
    }
    auto registration = std::make_unique<Registration>();
    registration->begin = begin;
    registration->end = end;
    registration->is_dmabuf = is_dmabuf;
    registration->users = 1;
    made = by_begin_.emplace(begin, std::move(registration))->second.get();
  }
  Region region = make();
  absl::MutexLock lock(&mutex_);
  if (region.ok() && !abandoned_) {
    made->region = *std::move(region);
    made->local_key = made->region->local_key();
    made->remote_key = made->region->remote_key();
    made->state = Registration::State::kReady;
    return made;
  }
  if (region.ok()) {
    (*region)->Abandon();
    region = absl::InternalError("the device is gone");
  }
  made->state = Registration::State::kFailed;
  if (--made->users == 0) Erase(made);
  return region.status();
}

absl::StatusOr<Registration*> RegistrationCache::Acquire(const void* data, size_t size) {
  const absl::StatusOr<Range> pages = PagesOf(data, size);
  if (!pages.ok()) return pages.status();
  return Take(pages->begin, pages->end, false, [this, &pages] {
    return verbs::MemoryRegion::Register(context_, reinterpret_cast<void*>(pages->begin),
                                         pages->end - pages->begin, relaxed_ordering_);
  });
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
  return Take(range->begin, range->end, true, [this, &range, begin, offset, fd] {
    return verbs::MemoryRegion::RegisterDmaBuf(context_, offset - (begin - range->begin),
                                               range->end - range->begin, range->begin, fd,
                                               relaxed_ordering_);
  });
}

absl::Status RegistrationCache::Release(Registration* registration) {
  {
    absl::MutexLock lock(&mutex_);
    // 0 already if an earlier deregistration has failed.
    if (registration->users > 0) --registration->users;
    if (registration->users > 0) return absl::OkStatus();
    registration->state = Registration::State::kEnding;
  }
  absl::Status deregistered = registration->region->Deregister();
  absl::MutexLock lock(&mutex_);
  if (!deregistered.ok() && !abandoned_) {
    registration->state = Registration::State::kReady;
    return deregistered;
  }
  registration->region->Abandon();
  Erase(registration);
  return absl::OkStatus();
}

void RegistrationCache::Abandon() {
  absl::MutexLock lock(&mutex_);
  abandoned_ = true;
  for (auto i = by_begin_.begin(); i != by_begin_.end();) {
    // The others belong to a call that is under way.
    if (i->second->state != Registration::State::kReady) {
      ++i;
      continue;
    }
    i->second->state = Registration::State::kFailed;
    dropped_.push_back(std::move(i->second));
    i = by_begin_.erase(i);
  }
}

void RegistrationCache::EndAbandoned() {
  std::vector<std::unique_ptr<verbs::MemoryRegion>> regions;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& registration : dropped_) {
      if (registration->region != nullptr) regions.push_back(std::move(registration->region));
    }
  }
  for (const auto& region : regions) {
    if (!region->Deregister().ok()) region->Abandon();
  }
}

RegistrationCache::~RegistrationCache() {
  for (const auto& registration : dropped_) {
    if (registration->region != nullptr) registration->region->Abandon();
  }
}

size_t RegistrationCache::size() const {
  absl::MutexLock lock(&mutex_);
  return by_begin_.size();
}

}  // namespace railhop::runtime
