#include "cc/fabric/process.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace railhop::fabric {
namespace {

Segment* MapSegment(int fd) {
  void* memory =
      mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Segment*>(memory);
}

}  // namespace

bool LockRobust(pthread_mutex_t& mutex) {
  if (pthread_mutex_lock(&mutex) != EOWNERDEAD) return false;
  pthread_mutex_consistent(&mutex);
  return true;
}

void InitRobust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

Peer::~Peer() { munmap(segment_, kSegmentBytes); }

bool Peer::Alive() const {
  // Held for life by the peer's NIC thread: taking it succeeds only when that thread is gone.
  const int rc = pthread_mutex_trylock(&segment_->alive);
  if (rc == EBUSY) return true;
  if (rc == 0 || rc == EOWNERDEAD) {
    if (rc == EOWNERDEAD) pthread_mutex_consistent(&segment_->alive);
    pthread_mutex_unlock(&segment_->alive);
  }
  return false;
}

std::unique_ptr<Process> Process::Join(DirectoryHandle* directory, uint32_t host) {
  const int fd = memfd_create("railhop-process", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  Segment* segment =
      ftruncate(fd, static_cast<off_t>(kSegmentBytes)) == 0 ? MapSegment(fd) : nullptr;
  if (segment == nullptr) {
    const int saved = errno;
    close(fd);
    errno = saved;
    return nullptr;
  }
  segment->size = sizeof(Segment);
  segment->pid = static_cast<uint32_t>(getpid());
  InitRobust(segment->alive);
  InitRobust(segment->atomics);
  segment->magic = kSegmentMagic;
  // Peers move the bytes of this process; where the kernel restricts that to descendants, all are
  // let in.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const SlotRef slot = directory->ClaimSlot(host, static_cast<uint32_t>(fd));
  if (slot.slot == kNoSlot) {
    munmap(segment, kSegmentBytes);
    close(fd);
    errno = directory->OwnerAlive() ? ENOMEM : EPIPE;
    return nullptr;
  }
  return std::unique_ptr<Process>(new Process(directory, segment, fd, slot, host));
}

Process::Process(DirectoryHandle* directory, Segment* segment, int fd, SlotRef slot, uint32_t host)
    : directory_(directory),
      segment_(segment),
      fd_(fd),
      slot_(slot),
      host_(host),
      peers_(kMaxProcesses) {}

Process::~Process() {
  directory_->ReleaseSlot(slot_);
  munmap(segment_, kSegmentBytes);
  close(fd_);
}

void Process::FreeRing(uint64_t offset, uint64_t bytes) {
  // Gives the pages back to the kernel; what is read next is zero again.
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(RingHeap::RoundUp(bytes)));
  heap_.Free(offset, bytes);
}

std::shared_ptr<Peer> Process::FindPeer(SlotRef slot) {
  std::lock_guard<std::mutex> lock(peers_mutex_);
  std::shared_ptr<Peer>& known = peers_[slot.slot];
  if (known != nullptr && known->slot().generation == slot.generation) return known;
  known.reset();
  const int fd = directory_->OpenSegment(slot);
  if (fd < 0) return nullptr;
  // A process that has called exec since has another file there, or closed it and opened another.
  struct stat file = {};
  const bool may_be = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) &&
                      static_cast<uint64_t>(file.st_size) == kSegmentBytes;
  Segment* segment = may_be ? MapSegment(fd) : nullptr;
  close(fd);
  if (segment == nullptr) return nullptr;
  auto peer = std::make_shared<Peer>(segment, slot);
  if (segment->magic != kSegmentMagic || segment->size != sizeof(Segment)) return nullptr;
  known = peer;
  return peer;
}

void Process::ForgetDeadPeers() {
  std::vector<std::shared_ptr<Peer>> gone;  // unmapped without the lock
  std::lock_guard<std::mutex> lock(peers_mutex_);
  for (std::shared_ptr<Peer>& peer : peers_) {
    if (peer != nullptr && !peer->Alive()) gone.push_back(std::move(peer));
  }
}

void Process::Ring(SlotRef slot) const {
  ProcessSlot& target = directory_->dir().processes[slot.slot];
  target.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (target.sleeping.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, &target.doorbell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace railhop::fabric
