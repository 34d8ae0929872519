// One connection of the plugin in one direction, with a ring of registered slots.
//
// Slots are used in order. Their memory is registered once; messages are copied through it, so a
// user's memory may go as soon as an operation is done, and needs no registration of its own.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_LANE_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_LANE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cc/netperf/net_plugin.h"
#include "python/railhop/_transport/message.h"
#include "python/railhop/_transport/operation.h"

namespace railhop::transport {

// Page-aligned memory for the slots of a lane.
class SlotMemory {
 public:
  SlotMemory();
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  uint8_t* data() const { return data_; }
  uint8_t* slot(uint64_t number) const { return data_ + number % kSlots * kSlotBytes; }
  static constexpr size_t kBytes = kSlots * kSlotBytes;

 private:
  uint8_t* data_;
};

// Counts of a lane since it was made.
struct LaneCounts {
  uint64_t bytes = 0;  // without headers
  uint64_t parts = 0;
};

// Thread: the progress thread. Results are the plugin's.
class SendLane {
 public:
  explicit SendLane(netperf::NetPlugin& plugin) : plugin_(plugin) {}

  void* comm = nullptr;

  netperf::NetResult Register();
  bool HasRoom() const { return filled_ - done_ < kSlots; }
  // Room for a header and a part.
  uint8_t* Slot() const { return memory_.slot(filled_); }
  // The slot holds `part` bytes of the operation.
  void Commit(size_t part, std::shared_ptr<Operation> operation);
  // Posts and tests. *moved is set if anything did; `finished` is called for each part that is
  // done.
  netperf::NetResult Advance(
      bool* moved, const std::function<void(const std::shared_ptr<Operation>&)>& finished);
  bool idle() const { return filled_ == done_; }
  const LaneCounts& counts() const { return counts_; }
  // Gives memory and connection back. May be called once, at any time.
  void Close();

 private:
  struct Entry {
    size_t bytes = 0;  // with the header
    void* request = nullptr;
    std::shared_ptr<Operation> operation;
  };
  Entry& entry(uint64_t number) { return entries_[number % kSlots]; }

  netperf::NetPlugin& plugin_;
  SlotMemory memory_;
  void* registered_ = nullptr;
  std::array<Entry, kSlots> entries_;
  uint64_t filled_ = 0;
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  LaneCounts counts_;
};

class RecvLane {
 public:
  explicit RecvLane(netperf::NetPlugin& plugin) : plugin_(plugin) {}

  void* listener = nullptr;
  void* comm = nullptr;

  netperf::NetResult Register();
  // Posts receives and tests. `came` is called for each message, in order; false from it ends the
  // call.
  netperf::NetResult Advance(bool* moved,
                             const std::function<bool(const uint8_t* slot, size_t bytes)>& came);
  const LaneCounts& counts() const { return counts_; }
  void Close();

 private:
  netperf::NetResult Post();

  netperf::NetPlugin& plugin_;
  SlotMemory memory_;
  void* registered_ = nullptr;
  std::array<void*, kSlots> requests_ = {};
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  LaneCounts counts_;
};

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_LANE_H_
