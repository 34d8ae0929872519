#include "python/railhop/_transport/lane.h"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace railhop::transport {

using netperf::kNetSuccess;
using netperf::NetResult;

SlotMemory::SlotMemory()
    : data_(static_cast<uint8_t*>(
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  if (data_ == MAP_FAILED) throw std::bad_alloc();
}

SlotMemory::~SlotMemory() { munmap(data_, kBytes); }

NetResult SendLane::Register() {
  return plugin_.Register(comm, memory_.data(), SlotMemory::kBytes, &registered_);
}

void SendLane::Commit(size_t part, std::shared_ptr<Operation> operation) {
  entry(filled_) = {kHeaderBytes + part, nullptr, std::move(operation)};
  ++filled_;
  ++counts_.parts;
  counts_.bytes += part;
}

NetResult SendLane::Advance(
    bool* moved, const std::function<void(const std::shared_ptr<Operation>&)>& finished) {
  while (posted_ < filled_) {
    Entry& next = entry(posted_);
    const NetResult result =
        plugin_.Send(comm, memory_.slot(posted_), next.bytes, 0, registered_, &next.request);
    if (result != kNetSuccess) return result;
    if (next.request == nullptr) break;
    ++posted_;
    *moved = true;
  }
  while (done_ < posted_) {
    Entry& oldest = entry(done_);
    int done = 0;
    int size = 0;
    const NetResult result = plugin_.Test(oldest.request, &done, &size);
    if (result != kNetSuccess) return result;
    if (done == 0) break;
    const std::shared_ptr<Operation> operation = std::move(oldest.operation);
    oldest = {};
    ++done_;
    *moved = true;
    finished(operation);
  }
  return kNetSuccess;
}

void SendLane::Close() {
  if (registered_ != nullptr) plugin_.Deregister(comm, registered_);
  if (comm != nullptr) plugin_.CloseSend(comm);
  registered_ = comm = nullptr;
}

NetResult RecvLane::Register() {
  return plugin_.Register(comm, memory_.data(), SlotMemory::kBytes, &registered_);
}

NetResult RecvLane::Post() {
  while (posted_ - done_ < kSlots) {
    void* data = memory_.slot(posted_);
    const size_t size = kSlotBytes;
    const int tag = 0;
    // As NCCL does: what the variable holds says whether completion is wanted, and null means yes.
    void*& request = requests_[posted_ % kSlots];
    request = nullptr;
    const NetResult result = plugin_.Receive(comm, 1, &data, &size, &tag, &registered_, &request);
    if (result != kNetSuccess) return result;
    if (request == nullptr) break;
    ++posted_;
  }
  return kNetSuccess;
}

NetResult RecvLane::Advance(bool* moved,
                            const std::function<bool(const uint8_t* slot, size_t bytes)>& came) {
  if (const NetResult result = Post(); result != kNetSuccess) return result;
  while (done_ < posted_) {
    int done = 0;
    int size = 0;
    const NetResult result = plugin_.Test(requests_[done_ % kSlots], &done, &size);
    if (result != kNetSuccess) return result;
    if (done == 0) break;
    *moved = true;
    const uint8_t* slot = memory_.slot(done_);
    ++done_;
    ++counts_.parts;
    if (static_cast<size_t>(size) > kHeaderBytes) {
      counts_.bytes += static_cast<size_t>(size) - kHeaderBytes;
    }
    if (!came(slot, static_cast<size_t>(size))) return kNetSuccess;
  }
  return Post();
}

void RecvLane::Close() {
  if (registered_ != nullptr) plugin_.Deregister(comm, registered_);
  if (comm != nullptr) plugin_.CloseRecv(comm);
  if (listener != nullptr) plugin_.CloseListen(listener);
  registered_ = comm = listener = nullptr;
}

}  // namespace railhop::transport
