// What NCCL's listenComm, sendComm, recvComm and mhandle point to.
//
// Each begins with a mark that is erased when it ends, and comes from a pool that uses memory again
// only for its own kind: a call with a closed one finds no mark.
#ifndef RAILHOP_CC_RUNTIME_COMM_H_
#define RAILHOP_CC_RUNTIME_COMM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cc/datapath/recv_connection.h"
#include "cc/datapath/request.h"
#include "cc/datapath/send_connection.h"
#include "cc/engine/ids.h"
#include "cc/runtime/net_device.h"

namespace railhop::runtime {

class CoverEntry;
class RegistrationCache;
struct Registration;

// A close that is under way on a device's worker.
struct Closing {
  std::atomic<bool> ended = false;  // released after `status`
  absl::Status status;
};

class ConnectionComm {
 public:
  enum class Mark : uint32_t { kClosed = 0, kSend = 0x5e4dc044, kRecv = 0x4ecfc044 };

  Mark mark = Mark::kClosed;
  const NetDevice* device = nullptr;
  std::string label;                 // "mlx5_0 -> node-17 mlx5_0", for messages
  std::shared_ptr<Closing> closing;  // of a close that has not come back in time
  // With failover: what the driver knows it by.
  bool is_protected = false;
  engine::EndId end;
};

class SendComm : public ConnectionComm {
 public:
  datapath::SendConnection* connection = nullptr;  // in `storage`; null when closed
  alignas(datapath::SendConnection) unsigned char storage[sizeof(datapath::SendConnection)];
};

class RecvComm : public ConnectionComm {
 public:
  datapath::RecvConnection* connection = nullptr;
  alignas(datapath::RecvConnection) unsigned char storage[sizeof(datapath::RecvConnection)];
};

class Memory {
 public:
  enum class Mark : uint32_t { kOver = 0, kLive = 0x3e304e60 };

  // First: the data path reads it.
  datapath::MemoryKeys keys;
  Mark mark = Mark::kOver;
  // Where it is registered; Cover's.
  std::shared_ptr<CoverEntry> entry;
  // For hosts of the simulator without failover.
  uint32_t parts = 0;
  RegistrationCache* caches[kFusedDevicesMax] = {};
  Registration* registrations[kFusedDevicesMax] = {};
};

// Objects of one kind that are used again and never given back before the pool ends. Thread-safe.
template <typename T>
class StablePool {
 public:
  T* Take() {
    absl::MutexLock lock(&mutex_);
    if (free_.empty()) {
      all_.push_back(std::make_unique<T>());
      return all_.back().get();
    }
    T* const taken = free_.back();
    free_.pop_back();
    return taken;
  }

  void Give(T* object) {
    absl::MutexLock lock(&mutex_);
    free_.push_back(object);
  }

  // Every object there has ever been.
  std::vector<T*> All() {
    absl::MutexLock lock(&mutex_);
    std::vector<T*> all;
    for (const auto& object : all_) all.push_back(object.get());
    return all;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<T>> all_ ABSL_GUARDED_BY(mutex_);
  std::vector<T*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_COMM_H_
