#include "cc/runtime/cover.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/log.h"
#include "cc/runtime/registration_cache.h"
#include "cc/verbs/context.h"
#include "cc/verbs/verbs_error.h"

namespace railhop::runtime {
namespace {

// The end of the process's transport waits so long for what NCCL has left registered.
constexpr int64_t kStopNs = 2'000'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

std::string NameOf(const PhysicalDevice& device) {
  return absl::StrCat(device.name, ":", device.port);
}

}  // namespace

// Where one memory is registered. Guarded by Cover's mutex, but for what does not change.
class CoverEntry {
 public:
  enum class State : uint8_t { kNone, kQueued, kMaking, kHeld, kReleasing, kFailed, kGone };
  struct Part {
    State state = State::kNone;
    Registration* registration = nullptr;  // kHeld, kReleasing
    int64_t retry_at = 0;                  // kFailed; 0 = not set yet
  };

  CoverEntry(Memory* memory, const Cover::Range& range) : memory(memory), range(range) {
    this->range.fd = -1;
  }
  ~CoverEntry() {
    if (fd >= 0) close(fd);
  }
  CoverEntry(const CoverEntry&) = delete;
  CoverEntry& operator=(const CoverEntry&) = delete;

  Memory* const memory;
  Cover::Range range;  // its fd is not to be used
  bool is_dmabuf = false;
  int fd = -1;        // a duplicate of ours; of a DMA-BUF
  std::string no_fd;  // why there is none

  ConnectionComm* comm = nullptr;  // null once it is closed
  bool over = false;
  std::vector<int> base;                       // ids of the connection's own devices
  std::vector<const PhysicalDevice*> backups;  // the nearest first
  std::vector<Part> parts;                     // by id; grows

  Part& At(int physical) {
    if (parts.size() <= static_cast<size_t>(physical))
      parts.resize(static_cast<size_t>(physical) + 1);
    return parts[static_cast<size_t>(physical)];
  }
  State StateOn(int physical) const {
    return parts.size() <= static_cast<size_t>(physical)
               ? State::kNone
               : parts[static_cast<size_t>(physical)].state;
  }
};

using EntryPtr = std::shared_ptr<CoverEntry>;
using State = CoverEntry::State;

class Cover::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(DeviceSource* devices, Executor* executor, const CoverOptions& options)
      : devices_(devices), executor_(executor), options_(options) {}

  absl::Status Register(ConnectionComm* comm, Memory* memory, const Range& range);
  absl::Status Deregister(Memory* memory);
  void Closed(ConnectionComm* comm);
  void SetInService(uint32_t devices);
  void DeviceGone(int physical);
  void EndGone(int physical);
  void SetPresent(ConnectionComm* comm, uint32_t devices);
  bool Covers(const ConnectionComm* comm, int physical) const {
    absl::MutexLock lock(&mutex_);
    return CoversLocked(comm, physical);
  }
  void Ensure(ConnectionComm* comm, int physical);
  std::string WhyNot(const ConnectionComm* comm, int physical) const;
  std::vector<News> TakeNews();
  void Poll(int64_t now_ns);
  int64_t next_due() const;
  std::vector<std::string> Uncovered() const;
  size_t registrations() const;
  void Stop();

 private:
  struct Device {
    const PhysicalDevice* device = nullptr;
    std::unique_ptr<RegistrationCache> cache;
    bool gone = false;
    bool busy = false;  // a background job is on its way
    std::deque<EntryPtr> queue;
    std::string why_not;  // the last refusal; empty if the last one worked
    bool told = false;    // a person has been
  };
  struct Connection {
    std::vector<EntryPtr> entries;
    uint32_t present = 0;
    uint32_t covers = 0;  // as told by News
    uint32_t known = 0;   // bits of `covers` that have been told
  };

  // null if it is gone or there is no such.
  Device* Find(int physical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookForDevices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool InService(int physical) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (in_service_ >> physical & 1) != 0;
  }
  std::vector<const PhysicalDevice*> BackupsOf(const std::vector<const PhysicalDevice*>& base) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes one registration now, on the caller's thread. OK also if somebody else has by then.
  absl::Status MakeOne(const EntryPtr& entry, int physical, int fd) ABSL_LOCKS_EXCLUDED(mutex_);
  // What comes of it.
  void TakeMade(CoverEntry* entry, Device* device, int physical,
                const absl::StatusOr<Registration*>& made) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RegisterNow(const EntryPtr& entry, const std::vector<int>& wanted, int fd);
  void Queue(const EntryPtr& entry, int physical, bool first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump(int physical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The background job of a device: one registration.
  void Work(int physical) ABSL_LOCKS_EXCLUDED(mutex_);
  // On the device's worker.
  void Release(const EntryPtr& entry, int physical) ABSL_LOCKS_EXCLUDED(mutex_);

  bool CoversLocked(const ConnectionComm* comm, int physical) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(ConnectionComm* comm, int physical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool Busy(const CoverEntry& entry) {
    return std::any_of(entry.parts.begin(), entry.parts.end(), [](const CoverEntry::Part& part) {
      return part.state == State::kMaking || part.state == State::kReleasing;
    });
  }

  DeviceSource* const devices_;
  Executor* const executor_;
  const CoverOptions options_;
  mutable absl::Mutex mutex_;
  std::map<int, Device> all_ ABSL_GUARDED_BY(mutex_);  // never erased
  std::map<const ConnectionComm*, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::set<EntryPtr> entries_ ABSL_GUARDED_BY(mutex_);  // that are live or pinned
  std::vector<News> news_ ABSL_GUARDED_BY(mutex_);
  uint32_t in_service_ ABSL_GUARDED_BY(mutex_) = ~uint32_t{0};
  bool any_failed_ ABSL_GUARDED_BY(mutex_) = false;  // some part may be kFailed
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

void Cover::Impl::LookForDevices() {
  for (const PhysicalDevice* device : devices_->Physical()) {
    if (device->id >= static_cast<int>(datapath::kPhysicalMax)) continue;
    Device& entry = all_[device->id];
    if (entry.device != nullptr) continue;
    entry.device = device;
    entry.cache = std::make_unique<RegistrationCache>(
        device->context, device->relaxed_ordering && options_.relaxed_ordering);
  }
}

Cover::Impl::Device* Cover::Impl::Find(int physical) {
  auto found = all_.find(physical);
  if (found == all_.end()) {
    LookForDevices();
    found = all_.find(physical);
  }
  return found == all_.end() || found->second.gone ? nullptr : &found->second;
}

std::vector<const PhysicalDevice*> Cover::Impl::BackupsOf(
    const std::vector<const PhysicalDevice*>& base) const {
  std::vector<std::pair<Distance, const PhysicalDevice*>> sorted;
  for (const auto& [id, device] : all_) {
    if (device.gone) continue;
    Distance nearest = Distance::kSameHost;
    bool is_base = false;
    for (const PhysicalDevice* part : base) {
      is_base = is_base || part == device.device;
      nearest = std::min(nearest, DistanceBetween(*part, *device.device));
    }
    if (!is_base) sorted.emplace_back(nearest, device.device);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const size_t wanted =
      options_.backups < 0 ? sorted.size() : static_cast<size_t>(options_.backups) * base.size();
  std::vector<const PhysicalDevice*> backups;
  for (size_t i = 0; i < std::min(wanted, sorted.size()); ++i) backups.push_back(sorted[i].second);
  return backups;
}

// ---- One registration.

void Cover::Impl::TakeMade(CoverEntry* entry, Device* device, int physical,
                           const absl::StatusOr<Registration*>& made) {
  CoverEntry::Part& part = entry->At(physical);
  if (made.ok()) {
    part.state = State::kHeld;
    part.registration = *made;
    entry->memory->keys.Add(physical, (*made)->local_key, (*made)->remote_key);
    device->why_not.clear();
    device->told = false;
  } else {
    part.state = device->gone ? State::kGone : State::kFailed;
    part.retry_at = 0;
    any_failed_ = true;
    // The data path may ask again.
    entry->memory->keys.asked.fetch_and(~(uint32_t{1} << physical), std::memory_order_relaxed);
    device->why_not = std::string(made.status().message());
    if (executor_ != nullptr && !device->told && !device->gone && all_.size() > 1) {
      device->told = true;
      RAILHOP_LOG(kWarning,
                  "%s: no cover: %s; no connection can move to this port until its memory can be "
                  "registered there",
                  NameOf(*device->device).c_str(), device->why_not.c_str());
    }
  }
  Tell(entry->comm, physical);
}

absl::Status Cover::Impl::MakeOne(const EntryPtr& entry, int physical, int fd) {
  RegistrationCache* cache;
  {
    absl::MutexLock lock(&mutex_);
    Device* const device = Find(physical);
    if (device == nullptr) {
      return verbs::VerbsError(absl::StrCat("device ", physical), "registration", ENODEV);
    }
    CoverEntry::Part& part = entry->At(physical);
    if (entry->over || part.state == State::kHeld || part.state == State::kMaking ||
        part.state == State::kGone) {
      return absl::OkStatus();
    }
    part.state = State::kMaking;
    cache = device->cache.get();
  }
  absl::StatusOr<Registration*> made = absl::InternalError(entry->no_fd);
  if (!entry->is_dmabuf) {
    made = cache->Acquire(entry->range.data, entry->range.size);
  } else if (fd >= 0) {
    made = cache->AcquireDmaBuf(entry->range.data, entry->range.size, entry->range.offset, fd);
  }
  bool unwanted;
  {
    absl::MutexLock lock(&mutex_);
    Device& device = all_[physical];
    unwanted = entry->over && made.ok() && !device.gone;
    if (device.gone && made.ok()) made = absl::InternalError("the device is gone");
    if (unwanted) {
      entry->At(physical).state = State::kReleasing;
      entry->At(physical).registration = *made;
    } else if (entry->over) {
      entry->At(physical).state = State::kNone;
    } else {
      TakeMade(entry.get(), &device, physical, made);
    }
  }
  // Whoever deregisters waits for it.
  if (unwanted) Release(entry, physical);
  return made.status();
}

void Cover::Impl::Release(const EntryPtr& entry, int physical) {
  RegistrationCache* cache;
  Registration* registration;
  const PhysicalDevice* device;
  {
    absl::MutexLock lock(&mutex_);
    CoverEntry::Part& part = entry->At(physical);
    if (part.state != State::kReleasing) return;
    cache = all_[physical].cache.get();
    device = all_[physical].device;
    registration = part.registration;
    // A device that is gone has dropped it.
    if (all_[physical].gone) {
      part.state = State::kGone;
      return;
    }
  }
  const absl::Status released = cache->Release(registration);
  bool gone = verbs::ErrnoOf(released) == ENODEV;
  // An error that may be the first word of its end.
  if (!released.ok() && !gone && verbs::SaysGone(released)) {
    gone = verbs::SaysGone(device->context->QueryPort(device->port).status());
  }
  absl::MutexLock lock(&mutex_);
  CoverEntry::Part& part = entry->At(physical);
  if (part.state != State::kReleasing) return;
  if (!released.ok() && !gone && !all_[physical].gone) {
    all_[physical].why_not = std::string(released.message());
    part.state = State::kHeld;
    return;
  }
  part.state = released.ok() ? State::kNone : State::kGone;
  part.registration = nullptr;
}

// ---- In the background.

void Cover::Impl::Queue(const EntryPtr& entry, int physical, bool first) {
  Device* const device = Find(physical);
  if (executor_ == nullptr || stopping_ || device == nullptr) return;
  CoverEntry::Part& part = entry->At(physical);
  if (part.state == State::kQueued) {
    if (!first) return;
    device->queue.erase(std::find(device->queue.begin(), device->queue.end(), entry));
  } else if (part.state != State::kNone && part.state != State::kFailed) {
    return;
  }
  part.state = State::kQueued;
  if (first) {
    device->queue.push_front(entry);
  } else {
    device->queue.push_back(entry);
  }
  Pump(physical);
}

void Cover::Impl::Pump(int physical) {
  Device& device = all_[physical];
  if (device.busy || device.gone || stopping_ || device.queue.empty() || !InService(physical)) {
    return;
  }
  device.busy = true;
  // The empty `done` wakes the driver for the news.
  executor_->Run(
      physical, Executor::Queue::kBackground,
      [self = shared_from_this(), physical] { self->Work(physical); }, [] {});
}

void Cover::Impl::Work(int physical) {
  EntryPtr entry;
  {
    absl::MutexLock lock(&mutex_);
    Device& device = all_[physical];
    if (!device.queue.empty() && !device.gone && !stopping_) {
      entry = std::move(device.queue.front());
      device.queue.pop_front();
      if (entry->StateOn(physical) == State::kQueued) entry->At(physical).state = State::kNone;
    }
  }
  if (entry != nullptr) MakeOne(entry, physical, entry->fd).IgnoreError();
  absl::MutexLock lock(&mutex_);
  all_[physical].busy = false;
  Pump(physical);
}

// ---- NCCL's threads.

absl::Status Cover::Impl::RegisterNow(const EntryPtr& entry, const std::vector<int>& wanted,
                                      int fd) {
  const bool is_protected = entry->comm->is_protected;
  absl::Status first;
  bool any = false;
  for (const int physical : wanted) {
    const absl::Status covered = MakeOne(entry, physical, fd);
    any = any || covered.ok();
    if (covered.ok()) continue;
    if (first.ok()) first = covered;
    // Without failover each has to take it. With it, one that cannot is left for one that can.
    const bool is_base =
        std::find(entry->base.begin(), entry->base.end(), physical) != entry->base.end();
    if (executor_ == nullptr) return covered;
    if (is_base && !is_protected && !verbs::SaysGone(covered)) return covered;
  }
  if (any) return absl::OkStatus();
  for (const PhysicalDevice* backup : entry->backups) {
    {
      absl::MutexLock lock(&mutex_);
      if (!InService(backup->id)) continue;
    }
    if (MakeOne(entry, backup->id, fd).ok()) return absl::OkStatus();
  }
  // Nothing that works at present: that is no error of the memory's. It is covered when a device is
  // back, and until then nothing is sent from it.
  if (executor_ != nullptr && (first.ok() || verbs::SaysGone(first))) return absl::OkStatus();
  return first.ok() ? absl::InternalError("no device to register memory on") : first;
}

absl::Status Cover::Impl::Register(ConnectionComm* comm, Memory* memory, const Range& range) {
  const auto entry = std::make_shared<CoverEntry>(memory, range);
  const auto begin = reinterpret_cast<uintptr_t>(range.data);
  memory->keys.Start(begin, begin + range.size);
  entry->is_dmabuf = range.fd >= 0;
  entry->comm = comm;
  std::vector<int> wanted;
  {
    absl::MutexLock lock(&mutex_);
    LookForDevices();
    for (const PhysicalDevice* part : comm->device->parts) {
      if (Find(part->id) == nullptr && executor_ == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat(part->name, " is port number ", part->id,
                         " of this process, and memory is registered on the first ",
                         datapath::kPhysicalMax, " only"));
      }
      entry->base.push_back(part->id);
    }
    if (executor_ != nullptr) entry->backups = BackupsOf(comm->device->parts);
    Connection& connection = connections_[comm];
    uint32_t on = connection.present;
    for (const int physical : entry->base) on |= uint32_t{1} << physical;
    for (int physical = 0; physical < static_cast<int>(datapath::kPhysicalMax); ++physical) {
      if ((on >> physical & 1) != 0 && InService(physical)) wanted.push_back(physical);
    }
    connection.entries.push_back(entry);
    entries_.insert(entry);
  }
  if (entry->is_dmabuf && executor_ != nullptr) {
    entry->fd = fcntl(range.fd, F_DUPFD_CLOEXEC, 0);
    if (entry->fd < 0) {
      entry->no_fd = absl::StrCat("the DMA-BUF's descriptor cannot be duplicated: ",
                                  std::generic_category().message(errno));
    }
  }
  absl::Status registered = RegisterNow(entry, wanted, range.fd);
  if (!registered.ok()) {
    memory->entry = entry;
    // What is left of it stays pinned, as there is nobody to try again.
    Deregister(memory).IgnoreError();
    memory->entry = nullptr;
    return registered;
  }
  memory->entry = entry;
  memory->mark = Memory::Mark::kLive;
  absl::MutexLock lock(&mutex_);
  for (const int physical : entry->base) Queue(entry, physical, false);
  for (const PhysicalDevice* backup : entry->backups) Queue(entry, backup->id, false);
  for (const auto& [physical, device] : all_) Tell(comm, physical);
  return absl::OkStatus();
}

absl::Status Cover::Impl::Deregister(Memory* memory) {
  const EntryPtr entry = memory->entry;
  std::vector<std::pair<int, Executor::Job>> jobs;
  bool in_time = true;
  {
    absl::MutexLock lock(&mutex_);
    entry->over = true;
    for (size_t i = 0; i < entry->parts.size(); ++i) {
      const int physical = static_cast<int>(i);
      CoverEntry::Part& part = entry->parts[i];
      if (part.state == State::kQueued) {
        std::deque<EntryPtr>& queue = all_[physical].queue;
        queue.erase(std::remove(queue.begin(), queue.end(), entry), queue.end());
        part.state = State::kNone;
      }
      // An earlier try, which has been waited for.
      if (part.state == State::kReleasing) in_time = false;
      if (part.state != State::kHeld) continue;
      part.state = State::kReleasing;
      jobs.emplace_back(physical, [self = shared_from_this(), entry, physical] {
        self->Release(entry, physical);
      });
    }
  }
  if (executor_ == nullptr) {
    for (auto& [physical, job] : jobs) job();
  } else {
    // Devices on which calls hang first: they are waited for but shortly, and the others as ever.
    std::map<int64_t, std::vector<std::pair<int, Executor::Job>>> by_bound;
    for (auto& [physical, job] : jobs) {
      const int64_t bound = std::min(options_.release_bound_ns, executor_->CloseBoundNs(physical));
      by_bound[bound].emplace_back(physical, std::move(job));
    }
    for (auto& [bound, some] : by_bound) {
      if (!executor_->RunAndWait(std::move(some), bound)) in_time = false;
    }
  }
  absl::MutexLock lock(&mutex_);
  // A registration that is being made in the background lets go of it by itself.
  const auto settled = [&entry] { return !Busy(*entry); };
  if (in_time) {
    mutex_.AwaitWithTimeout(absl::Condition(&settled),
                            absl::Nanoseconds(options_.release_bound_ns));
  }
  std::vector<std::string> left;
  for (size_t i = 0; i < entry->parts.size(); ++i) {
    const State state = entry->parts[i].state;
    const Device& device = all_[static_cast<int>(i)];
    if (state == State::kHeld) {
      left.push_back(absl::StrCat(NameOf(*device.device), ": ", device.why_not));
    } else if (state == State::kReleasing || state == State::kMaking) {
      left.push_back(absl::StrCat(NameOf(*device.device), ": the call does not come back"));
    }
  }
  if (!left.empty()) {
    return absl::InternalError(absl::StrCat("memory stays pinned, a device may still reach it: ",
                                            absl::StrJoin(left, "; ")));
  }
  entries_.erase(entry);
  if (entry->comm != nullptr) {
    std::vector<EntryPtr>& mine = connections_[entry->comm].entries;
    mine.erase(std::remove(mine.begin(), mine.end(), entry), mine.end());
    for (const auto& [physical, device] : all_) Tell(entry->comm, physical);
  }
  memory->entry = nullptr;
  return absl::OkStatus();
}

void Cover::Impl::Closed(ConnectionComm* comm) {
  absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(comm);
  if (found == connections_.end()) return;
  for (const EntryPtr& entry : found->second.entries) entry->comm = nullptr;
  connections_.erase(found);
  news_.erase(std::remove_if(news_.begin(), news_.end(),
                             [comm](const News& news) { return news.comm == comm; }),
              news_.end());
}

// ---- The driver.

void Cover::Impl::SetInService(uint32_t devices) {
  absl::MutexLock lock(&mutex_);
  const uint32_t back = devices & ~std::exchange(in_service_, devices);
  for (const auto& [physical, device] : all_) {
    if ((back >> physical & 1) != 0) Pump(physical);
  }
}

void Cover::Impl::DeviceGone(int physical) {
  absl::MutexLock lock(&mutex_);
  Device* const device = Find(physical);
  if (device == nullptr) return;
  device->gone = true;
  device->why_not = "the device is gone";
  device->queue.clear();
  for (const EntryPtr& entry : entries_) {
    const State state = entry->StateOn(physical);
    if (state == State::kNone) continue;
    // Calls that are under way find it gone when they come back.
    if (state != State::kMaking && state != State::kReleasing) {
      entry->At(physical).state = State::kGone;
    }
    entry->memory->keys.Drop(physical);
    Tell(entry->comm, physical);
  }
  device->cache->Abandon();
}

void Cover::Impl::EndGone(int physical) {
  absl::MutexLock lock(&mutex_);
  const auto device = all_.find(physical);
  if (device == all_.end() || !device->second.gone || executor_ == nullptr) return;
  executor_->Run(
      physical, Executor::Queue::kEnding,
      [self = shared_from_this(), cache = device->second.cache.get()] { cache->EndAbandoned(); },
      nullptr);
}

void Cover::Impl::SetPresent(ConnectionComm* comm, uint32_t devices) {
  absl::MutexLock lock(&mutex_);
  connections_[comm].present = devices;
}

bool Cover::Impl::CoversLocked(const ConnectionComm* comm, int physical) const {
  const auto device = all_.find(physical);
  if (device != all_.end() && device->second.gone) return false;
  const auto found = connections_.find(comm);
  if (found == connections_.end()) return true;
  return std::all_of(found->second.entries.begin(), found->second.entries.end(),
                     [physical](const EntryPtr& entry) {
                       return entry->over || entry->StateOn(physical) == State::kHeld;
                     });
}

void Cover::Impl::Tell(ConnectionComm* comm, int physical) {
  if (executor_ == nullptr || comm == nullptr) return;
  const auto found = connections_.find(comm);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  const uint32_t bit = uint32_t{1} << physical;
  const bool covers = CoversLocked(comm, physical);
  if ((connection.known & bit) != 0 && ((connection.covers & bit) != 0) == covers) return;
  connection.known |= bit;
  connection.covers = covers ? connection.covers | bit : connection.covers & ~bit;
  news_.push_back({.comm = comm, .physical = physical, .covers = covers});
}

void Cover::Impl::Ensure(ConnectionComm* comm, int physical) {
  absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(comm);
  if (found == connections_.end()) return;
  for (const EntryPtr& entry : found->second.entries) {
    if (!entry->over) Queue(entry, physical, true);
  }
}

std::string Cover::Impl::WhyNot(const ConnectionComm* comm, int physical) const {
  absl::MutexLock lock(&mutex_);
  if (CoversLocked(comm, physical)) return "";
  const auto device = all_.find(physical);
  if (device == all_.end()) return absl::StrCat("there is no device ", physical);
  if (!device->second.why_not.empty()) return device->second.why_not;
  return Cover::kPending;
}

std::vector<Cover::News> Cover::Impl::TakeNews() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(news_, {});
}

void Cover::Impl::Poll(int64_t now_ns) {
  if (executor_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  const size_t before = all_.size();
  LookForDevices();
  const bool grown = all_.size() != before;
  if (!grown && !any_failed_) return;
  any_failed_ = false;
  for (const EntryPtr& entry : entries_) {
    if (entry->over) continue;
    if (grown && entry->comm != nullptr) {
      entry->backups = BackupsOf(entry->comm->device->parts);
      for (const PhysicalDevice* backup : entry->backups) Queue(entry, backup->id, false);
    }
    for (size_t i = 0; i < entry->parts.size(); ++i) {
      CoverEntry::Part& part = entry->parts[i];
      if (part.state != State::kFailed) continue;
      if (part.retry_at == 0) part.retry_at = now_ns + options_.retry_ns;
      if (now_ns >= part.retry_at) Queue(entry, static_cast<int>(i), false);
      any_failed_ = any_failed_ || part.state == State::kFailed;
    }
  }
}

int64_t Cover::Impl::next_due() const {
  absl::MutexLock lock(&mutex_);
  if (!news_.empty()) return 0;
  int64_t due = kNever;
  if (!any_failed_) return due;
  for (const EntryPtr& entry : entries_) {
    if (entry->over) continue;
    for (const CoverEntry::Part& part : entry->parts) {
      if (part.state == State::kFailed) due = std::min(due, part.retry_at);
    }
  }
  return due;
}

std::vector<std::string> Cover::Impl::Uncovered() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> lines;
  for (const auto& [physical, device] : all_) {
    if (!device.why_not.empty()) {
      lines.push_back(absl::StrCat(NameOf(*device.device), ": ", device.why_not));
    }
  }
  return lines;
}

size_t Cover::Impl::registrations() const {
  absl::MutexLock lock(&mutex_);
  size_t sum = 0;
  for (const auto& [physical, device] : all_) sum += device.cache->size();
  return sum;
}

// What NCCL has not deregistered goes with the process's last reference.
void Cover::Impl::Stop() {
  std::vector<std::pair<int, Executor::Job>> jobs;
  std::set<EntryPtr> entries;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    entries.swap(entries_);
    connections_.clear();
    for (const EntryPtr& entry : entries) entry->over = true;
    for (auto& [physical, device] : all_) {
      device.queue.clear();
      if (device.gone) continue;
      for (const EntryPtr& entry : entries) {
        CoverEntry::Part& part = entry->At(physical);
        if (part.state != State::kHeld) continue;
        part.state = State::kReleasing;
        jobs.emplace_back(physical, [self = shared_from_this(), entry, physical = physical] {
          self->Release(entry, physical);
        });
      }
    }
  }
  if (executor_ != nullptr) {
    executor_->RunAndWait(std::move(jobs), std::min(options_.release_bound_ns, kStopNs));
  } else {
    for (auto& [physical, job] : jobs) job();
  }
  absl::MutexLock lock(&mutex_);
  // What a device did not let go of stays as it is: a call to make it would hang here too.
  for (auto& [physical, device] : all_) device.cache->Abandon();
}

Cover::Cover(DeviceSource* devices, Executor* executor, const CoverOptions& options)
    : impl_(std::make_shared<Impl>(devices, executor, options)) {}

Cover::~Cover() { impl_->Stop(); }

absl::Status Cover::Register(ConnectionComm* comm, Memory* memory, const Range& range) {
  return impl_->Register(comm, memory, range);
}
absl::Status Cover::Deregister(Memory* memory) { return impl_->Deregister(memory); }
void Cover::Closed(ConnectionComm* comm) { impl_->Closed(comm); }
void Cover::SetInService(uint32_t devices) { impl_->SetInService(devices); }
void Cover::DeviceGone(int physical) { impl_->DeviceGone(physical); }
void Cover::EndGone(int physical) { impl_->EndGone(physical); }
void Cover::SetPresent(ConnectionComm* comm, uint32_t devices) { impl_->SetPresent(comm, devices); }
bool Cover::Covers(const ConnectionComm* comm, int physical) const {
  return impl_->Covers(comm, physical);
}
void Cover::Ensure(ConnectionComm* comm, int physical) { impl_->Ensure(comm, physical); }
std::string Cover::WhyNot(const ConnectionComm* comm, int physical) const {
  return impl_->WhyNot(comm, physical);
}
std::vector<Cover::News> Cover::TakeNews() { return impl_->TakeNews(); }
void Cover::Poll(int64_t now_ns) { impl_->Poll(now_ns); }
int64_t Cover::next_due() const { return impl_->next_due(); }
std::vector<std::string> Cover::Uncovered() const { return impl_->Uncovered(); }
size_t Cover::registrations() const { return impl_->registrations(); }

}  // namespace railhop::runtime
