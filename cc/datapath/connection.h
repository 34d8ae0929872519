// What both ends of a connection have: lock, lanes, devices, the route, and faults.
//
// Lanes come and go while the connection stands. A lane that has failed is never repaired: it is
// fenced (ERR, drained to a marker, destroyed), and its place is taken later by a new queue pair of
// a higher epoch. What was lost with it is found by comparing the two ends' records, and goes out
// again over whatever lanes are in the route.
//
// The hard case is late news: a completion of a queue pair whose place has a new one by now. Each
// work request's id carries its lane's epoch, and a completion of another epoch is dropped.
#ifndef RAILHOP_CC_DATAPATH_CONNECTION_H_
#define RAILHOP_CC_DATAPATH_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/datapath/connection_lock.h"
#include "cc/datapath/fault.h"
#include "cc/datapath/lane.h"
#include "cc/datapath/outcome.h"
#include "cc/datapath/record.h"
#include "cc/datapath/request.h"
#include "cc/datapath/wire_format.h"
#include "cc/verbs/completion_queue.h"
#include "cc/verbs/memory_region.h"

namespace railhop::datapath {

// A queue pair connected to itself, on one device: reading GPU memory over it pushes out what the
// NIC wrote before.
struct FlushLane {
  std::unique_ptr<verbs::QueuePair> qp;
  uint32_t landing_key = 0;
};

// A device at this end of a connection. Destroyed after the lanes that use it.
struct ConnectionDevice {
  std::unique_ptr<verbs::CompletionQueue> cq;
  std::unique_ptr<verbs::MemoryRegion> control;  // SenderMemory or ReceiverMemory
  int physical = 0;                              // PhysicalDevice::id, below kPhysicalMax
  FlushLane flush;  // receiver into GPU memory; destroyed before the queue
};

// Where the peer's SenderMemory or ReceiverMemory is.
struct PeerMemory {
  uint64_t address = 0;
  uint32_t remote_keys[kDevicesMax] = {};  // by the peer's device
};

// The rules of a connection that both ends have agreed on.
struct ConnectionRules {
  // Each message is cut for so many lanes: all of them, or one for each device. It stays for life.
  uint32_t lanes_per_send = 1;
  // Sends above ar_threshold bytes write their data and announce it by a write of its own.
  bool adaptive_routing = false;
  uint64_t ar_threshold = 0;
  bool inline_cts = false;
  // A fault ends a lane and not the connection. Somebody takes the faults (TakeFaults).
  bool failover = false;
  // A send is done only once the receiver has confirmed it.
  bool confirm = false;
};

// What a work request's id says.
enum class WorkKind : uint8_t {
  kData = 1,
  kReceive = 2,
  kCts = 3,
  kFlush = 4,
  kRepeat = 5,         // an entry that was announced before; index: its slot
  kNoOp = 6,           // tells by its completion that what came before it is done
  kConfirm = 7,        // SenderMemory::complete_below
  kSendMarker = 8,     // the last of a send queue
  kReceiveMarker = 9,  // the last of a receive queue
};

struct WorkId {
  WorkKind kind;
  uint8_t lane;        // place; flush: slot
  uint8_t stripe;      // data; kCts, kRepeat, kNoOp, kConfirm: writes that it completes
  uint16_t index;      // of the request, or slot
  uint16_t epoch = 0;  // of the lane, low bits
};

constexpr uint64_t PackWorkId(const WorkId& id) {
  return static_cast<uint64_t>(id.kind) | uint64_t{id.lane} << 8 | uint64_t{id.stripe} << 16 |
         uint64_t{id.index} << 32 | uint64_t{id.epoch} << 48;
}

constexpr WorkId UnpackWorkId(uint64_t bits) {
  return {.kind = static_cast<WorkKind>(bits),
          .lane = static_cast<uint8_t>(bits >> 8),
          .stripe = static_cast<uint8_t>(bits >> 16),
          .index = static_cast<uint16_t>(bits >> 32),
          .epoch = static_cast<uint16_t>(bits >> 48)};
}

class Connection {
 public:
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // ---- Faults. Any thread.

  // The fault that ended the connection, once: the second call finds kNone.
  Fault TakeFault();
  // With rules.failover: what has happened since the last call, one for each lane generation.
  std::vector<Fault> TakeFaults();

  // For events of the device that come outside the queues. Any thread.
  bool Uses(const ibv_qp* qp) const;
  bool Uses(const ibv_cq* cq) const;
  bool Uses(const verbs::Context* context) const;
  // Live lanes that are this ibv_qp or use this ibv_cq. For comparison only: it may be gone.
  std::vector<LaneRef> LanesOf(const void* object) const;
  // Ends the connection as by a fault of its device: `event` is the ibv_event_type.
  void GiveUp(int event);
  // Ends the connection: every call gives `outcome` from now on, but what is done is still done.
  // Nothing is posted any more. With failover: after all lanes are fenced (rule 6).
  void GiveUp(Outcome outcome, const Fault& fault);

  // ---- Lanes and devices, for whoever looks after the connection. Any thread; none blocks but
  // FenceLane and Close.

  // The lanes that posts take, in turn; one may stand in it several times, for its share. Those
  // that are not open are left out. Empty: nothing is posted, and NCCL is told "not now". What was
  // waiting is posted. At first all lanes that the handshake made.
  void SetRoute(absl::Span<const uint8_t> lanes);
  // These become suspect and leave the route. A lane of another epoch is none of these.
  void StopPosting(absl::Span<const LaneRef> lanes);
  // These leave the route; nothing new is posted to them.
  void Retire(absl::Span<const LaneRef> lanes);
  // Nothing of ours is outstanding on it (sender: stripes; receiver: entries that are not known
  // done, which this brings about), or it is not there any more. Polls.
  bool Drained(LaneRef lane);
  // One step of fencing: ERR, markers, polling, destroying. On a worker thread, since it may hang;
  // repeatedly until it does not say kAgain. last_try: the time is up, destroy it without markers.
  // Different lanes at once on different threads; with NCCL's threads and Close at the same time.
  // A lane of another epoch is kFenced. After kHeld it may be called again.
  FenceProgress FenceLane(LaneRef lane, bool last_try);
  // All lanes that there are. Polls, and posts what was waiting. See LaneView::owed: an entry that
  // did not ask for a completion gets a no-op behind it if two calls in a row see no progress.
  void Observe(std::vector<LaneView>* lanes);

  // What it has moved so far, fenced lanes included. Does not poll.
  Traffic CountTraffic() const;

  // A device for new lanes, in a slot that has no lanes, or none that is not fenced. What was in
  // the slot before is left in *device: the caller destroys it where that may hang. False: the slot
  // is in use or beyond kDevicesMax - 1, or (receiver, another physical device than before) entries
  // with the slot's old keys may still be under way: later.
  bool AddDevice(uint32_t slot, ConnectionDevice* device);
  // A new lane, not in the route. qp (receiver: with no receives posted yet; they are posted here,
  // so before the peer may send), local_device, remote_device and epoch are filled in. False: the
  // place is not free, the slot has no device, or receives are refused; *lane is as it was.
  bool AddLane(uint32_t index, Lane* lane);
  // A new device of the peer's in a slot, or its new key.
  void SetPeerDevice(uint32_t remote_slot, uint32_t control_key);

  // Null if the slot has no device. The caller knows that the slot stays as it is meanwhile.
  verbs::CompletionQueue* completion_queue(uint32_t slot) const;
  // -1 if the slot has no device.
  int physical(uint32_t slot) const;
  uint32_t device_count() const;          // slots in use are below
  size_t lane_count() const;              // places in use are below
  uint32_t qp_number(size_t lane) const;  // 0 if there is none
  uint64_t stale_completions() const;
  const ConnectionRules& rules() const { return rules_; }
  // Before anything is posted; receiver: confirm is the sender's wish.
  void SetFailover(bool failover, bool confirm);

  // Puts the lanes into ERR, then destroys them, the completion queues and the registrations: after
  // success no NIC writes into anybody's memory for this connection. Requests are over. Nobody may
  // be in another call but FenceLane, whose end is waited for, for a bounded time.
  // Errors: Internal (what could not be destroyed stays, and may be tried again), Unavailable (a
  // lane is being fenced and the call on its device does not return).
  absl::Status Close();

  // Names the connection in messages; set before it is used. `label` outlives it.
  void set_label(const char* label) { label_ = label; }
  const char* label() const { return label_; }
  // Whatever the owner wants to find the connection's surroundings by; null at first.
  void set_context(void* context) { context_ = context; }
  void* context() const { return context_; }

 protected:
  Connection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
             const ConnectionRules& rules, const PeerMemory& peer);
  ~Connection() = default;

  // What a call has to look at before or after its own business: bits of attention_.
  enum Attention : uint32_t {
    kFailed = 1,     // failed_ is not kOk
    kNews = 2,       // faults_ has something that nobody was told of
    kWaiting = 4,    // something waits to be posted
    kNoRoute = 8,    // the route is empty
    kRepeats = 16,   // receiver: repeated entries are under way
    kConfirms = 32,  // sender: done only when confirmed; receiver: a confirmation may be owed
  };
  // Of a call that has gone well.
  Outcome Good() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    return (attention_ & kNews) == 0 ? Outcome::kOk : TellNews();
  }
  Outcome TellNews() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Of a call for which there was nothing to do: the error, if there is one.
  Outcome NotNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    return (attention_ & (kFailed | kNews)) == 0 ? Outcome::kOk : NotNowSlow();
  }
  Outcome NotNowSlow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  // Records the first fault and gives the connection up; with failover it is only queued as fatal,
  // and nothing is posted any more.
  void Fail(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void FailPost(uint32_t lane, int error_number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void FailProtocol(uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // For a completion in error: of a lane, or (lane < 0) of a flush.
  void FailCompletion(int lane, uint32_t device, const ibv_wc& wc)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void FailQueue(uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void AskCover(const MemoryKeys* keys, uint32_t physical) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Queue(const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  Fault FaultOf(Fault::Kind kind, uint32_t lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  // Entries taken from a completion queue at once.
  static constexpr int kPollBatch = 8;
  // More than a completion queue of 128 lanes can hold.
  static constexpr uint32_t kBatchesMax = 16384;

  // Takes everything that has completed.
  virtual void PollAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) = 0;
  // Posts what waits for a lane; there is a route.
  virtual void PostWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) = 0;
  // What is due when the connection is not as usual: posts what waits, and confirmations. idle:
  // NCCL has nothing else to do here, so a confirmation is not going to ride on an entry.
  virtual void Settle(bool idle) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) = 0;
  // Receiver: posts the receives of a new lane, or one marker.
  virtual bool PostReceives(Lane* lane, uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) = 0;
  virtual bool has_receives() const = 0;
  // A completion would tell that all we have posted is done: asks for it.
  virtual void PostNoOp(uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) = 0;
  // The slot goes to another physical device. MayReplace: nothing of the old one is in use.
  virtual bool MayReplace(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) = 0;
  // is_same: only its queues are new.
  virtual void Replaced(uint32_t slot, bool is_same) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) = 0;

  // Posts what is missing of the markers; what does not fit yet is posted next time.
  void PostMarkers(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Adds the lane's counts to those of its port.
  void CountLane(const Lane& lane, std::vector<PortTraffic>* ports) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Destroyed: nothing of it counts from now on.
  void SetFenced(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool HasLiveLane(uint32_t slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // A marker's completion, in error or not.
  void TakeMarker(const ibv_wc& wc) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  static bool IsLive(const Lane& lane) { return lane.state <= LaneState::kSuspect; }
  static uint32_t NumberOf(const Lane& lane) { return lane.qp == nullptr ? 0 : lane.qp->number(); }
  // Of a completion: its lane is fenced, or its place has another one.
  static bool IsStale(const Lane& lane, uint64_t work_id) {
    return lane.live_epoch != work_id >> 48;
  }
  // The lane is at this place now.
  void Start(Lane* lane, uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The lane, if it is there and not fenced.
  Lane* Find(LaneRef ref) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The place of these lanes, fenced in this epoch: as bits.
  struct LaneSet {
    uint64_t bits[2] = {};
    bool Has(uint32_t lane) const { return (bits[lane / 64] >> lane % 64 & 1) != 0; }
    void Add(uint32_t lane) { bits[lane / 64] |= uint64_t{1} << lane % 64; }
  };
  LaneSet FencedOf(absl::Span<const LaneRef> lanes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Their records have been compared: the places are free.
  void Free(const LaneSet& lanes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void LeaveRoute(uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Suspect(uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void RouteChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void QueuesChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void End(Outcome outcome, const Fault& fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  // The lane whose turn it is; the route is not empty.
  uint32_t NextLane() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) { return route_[route_next_]; }
  void TakeTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    const uint32_t next = route_next_ + 1;
    route_next_ = next == route_count_ ? 0 : next;
  }

  // No bit of MemoryKeys::covered, and a shift of 64 bits may have it.
  static constexpr uint8_t kNoDevice = 63;
  static_assert(kNoDevice >= kPhysicalMax);

  ConnectionRules rules_;
  mutable ConnectionLock lock_;
  uint32_t attention_ ABSL_GUARDED_BY(lock_) = 0;
  // Queues that are polled: those of slots with lanes that are not fenced, or with a flush lane.
  uint32_t polled_count_ ABSL_GUARDED_BY(lock_) = 0;
  struct Polled {
    verbs::CompletionQueue* cq;
    uint32_t slot;
  };
  Polled polled_[kDevicesMax] ABSL_GUARDED_BY(lock_) = {};
  uint8_t broken_slots_ ABSL_GUARDED_BY(lock_) = 0;            // their queue cannot be polled
  uint8_t route_slots_ ABSL_GUARDED_BY(lock_) = 0;             // of the lanes in the route
  uint32_t device_count_ ABSL_GUARDED_BY(lock_) = 0;           // slots
  uint8_t slot_physical_[kDevicesMax] ABSL_GUARDED_BY(lock_);  // kNoDevice: no lane lives there
  // Slots that have lost their last lane since they got their device, as bits.
  uint8_t vacated_slots_ ABSL_GUARDED_BY(lock_) = 0;
  uint32_t route_next_ ABSL_GUARDED_BY(lock_) = 0;  // where the next stripe or entry goes
  uint32_t route_count_ ABSL_GUARDED_BY(lock_) = 0;
  const uint8_t* route_ ABSL_GUARDED_BY(lock_) = nullptr;  // route_list_'s
  uint64_t next_sequence_ ABSL_GUARDED_BY(lock_) = kFirstSequence;
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(lock_);
  std::vector<ConnectionDevice> devices_ ABSL_GUARDED_BY(lock_);
  PeerMemory peer_ ABSL_GUARDED_BY(lock_);
  uint64_t stale_completions_ ABSL_GUARDED_BY(lock_) = 0;
  // Of lanes that were fenced.
  std::vector<PortTraffic> past_traffic_ ABSL_GUARDED_BY(lock_);
  Outcome failed_ ABSL_GUARDED_BY(lock_) = Outcome::kOk;
  bool doomed_ ABSL_GUARDED_BY(lock_) = false;  // a fatal fault: nothing is posted any more

 private:
  bool IsFencing();

  std::vector<uint8_t> route_list_ ABSL_GUARDED_BY(lock_);
  std::vector<Fault> faults_ ABSL_GUARDED_BY(lock_);
  const char* label_ = "";
  void* context_ = nullptr;
  Fault fault_ ABSL_GUARDED_BY(lock_);
  bool fault_taken_ ABSL_GUARDED_BY(lock_) = false;
  bool closing_ ABSL_GUARDED_BY(lock_) = false;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_CONNECTION_H_
