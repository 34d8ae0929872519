// The receiving end of a connection.
//
// A receive is announced to the sender at once and is done when each stripe of each of its sends
// has arrived. How many stripes there are, the first immediate tells; how long the send is, the
// stripes' lengths add up to.
//
// Receives are posted to every lane ahead of need, so the sender is free in its choice of lanes.
#ifndef RAILHOP_CC_DATAPATH_RECV_CONNECTION_H_
#define RAILHOP_CC_DATAPATH_RECV_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/datapath/connection.h"
#include "cc/datapath/request.h"

namespace railhop::datapath {

// What has arrived for one receive: the record that decides after a fault what is sent again.
struct ArrivalRecord {
  uint64_t arrived[2];  // bit for each stripe
  uint64_t bytes;       // sum of what arrived, or the send's size if it has a record
  uint32_t missing;     // stripes; kStripesUnknown before the first
  uint32_t reserved;
};
static_assert(sizeof(ArrivalRecord) == 32);
inline constexpr uint32_t kStripesUnknown = ~uint32_t{0};

// One grouped receive: its entry in the ledger.
struct alignas(64) Transfer : Request {
  uint64_t sequence;
  uint32_t receives;
  uint32_t open;  // receives that are not complete
  // The lane of the last announcement; kNoLane if it waits for one.
  uint32_t announce_epoch;
  uint8_t announce_lane;
  uint8_t slots;       // of the lanes that stripes came over, as bits; kept for the flush
  uint8_t lost_slots;  // of these, such as have gone to another device since
  const MemoryKeys* keys[kReceivesMax];
  ArrivalRecord records[kReceivesMax];
};
inline constexpr uint8_t kNotAnnounced = 0xff;

// `missing` counts its reads.
struct FlushRequest : Request {
  uint32_t slots;  // read over, as bits
};

class RecvConnection final : public Connection {
 public:
  // Lanes are in RTS and have no receives posted. `memory` is registered on each device
  // (ConnectionDevice::control), zeroed. flush_lanes: none, or one for each device.
  RecvConnection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
                 const ConnectionRules& rules, std::unique_ptr<ReceiverMemory> memory,
                 std::vector<FlushLane> flush_lanes);

  // Posts receives to every lane: before the lanes leave INIT for RTR would be early enough, before
  // the peer may send is needed.
  Outcome PostReceives();
  // Once the handshake has told.
  void SetPeer(const PeerMemory& peer);

  // Announces n receives (1..8). *request is null if there is no room, no lane, or memory that is
  // registered on none of the devices in the route.
  // kMisuse: n out of range, memory not registered.
  Outcome Receive(int n, void* const* data, const size_t* sizes, const int* tags,
                  const MemoryKeys* const* keys, Request** request);

  // *done, and if so sizes[0..receives) (unless null) as NCCL wants them: at most INT_MAX.
  Outcome Test(Transfer* request, int* done, int* sizes);

  // Reads the first byte of the last receive that is not empty, over each device that delivered
  // something of its transfer (all, if it is not known). *request is null if there is nothing to
  // flush. kMisuse: more flushes than transfers. A device that has died since: the connection is
  // over (rule 4), unless FlushWithoutNic can do it.
  Outcome Flush(int n, void* const* data, const int* sizes, const MemoryKeys* const* keys,
                Request** request);
  Outcome Test(FlushRequest* request, int* done);

  Outcome Poll();

  // ---- After a fence. Any thread.

  ReceiverRecord Record();
  // These lanes are fenced at both ends, and the sender's record is there: entries carry `epoch`
  // from now on, and each open transfer is announced again under its own sequence, with the keys of
  // all present devices. The places are free afterwards.
  ResumeResult Resume(const SenderRecord& record, absl::Span<const LaneRef> lanes, uint32_t epoch);
  // Lanes of this epoch are up at both ends, or memory is registered on more devices: the same for
  // what is open, without a fault.
  void Reannounce(uint32_t epoch);
  // The epoch that entries carry.
  uint32_t epoch() const;
  // Transfers whose announcement waits for a lane.
  uint32_t waiting() const;

  // Receives go into GPU memory: each device needs a flush lane (ConnectionDevice::flush).
  bool wants_flush() const { return wants_flush_; }

  // Makes what NICs have written to `data` visible without a NIC (CUDA's own flush); false if it
  // cannot. For transfers that a NIC delivered which has died since. At first there is none.
  using FlushWithoutNic = bool (*)(void* data);
  void set_flush_without_nic(FlushWithoutNic flush) { flush_without_nic_ = flush; }

  // Registered on each device: ReceiverMemory.
  void* control_memory() const { return memory_.get(); }

  // As Connection::Close; every request is over then.
  absl::Status Close();

 private:
  void PollAll() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void PostWaiting() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool PostReceives(Lane* lane, uint32_t index) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool has_receives() const override { return true; }
  void PostNoOp(uint32_t lane) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool MayReplace(uint32_t slot) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Replaced(uint32_t slot, bool is_same) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  void Settle(bool idle) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // NCCL waits for nothing.
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Settles before a new receive. False: return *outcome.
  bool Attend(Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Keys of one receive into its entry, the epoch last. False: no device in the route has any.
  bool FillKeys(CtsEntry* entry, const MemoryKeys* keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Nothing in the route can take it: asks for what is missing.
  void AskCoverOfRoute(const MemoryKeys* keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The next lane in turn with room for a write; its turn is taken. kNotAnnounced: none.
  uint32_t FindLane() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Posts *write on this lane, with a completion that accounts for all before it. False: refused.
  bool PostSignalled(uint32_t lane, WorkKind kind, uint32_t index, ibv_send_wr* write)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The slot's entries, over this lane; fills announce_.
  void FillAnnounce(const Lane& lane, uint32_t slot, uint32_t receives)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void AnnounceAgain(uint32_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // False if there is no lane for it now.
  bool Repeat(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void EndRepeat(uint32_t slot, uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void RepeatsChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  uint64_t CompleteBelow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void PostConfirmation() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool IsOpen(uint32_t slot) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    return transfers_[slot].kind == Request::kReceive && !transfers_[slot].done;
  }
  // Which slots have delivered this; all, if it is not known. *lost: one of them has died.
  uint32_t SlotsToFlush(const void* data, bool* lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void PostBatch(uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Announce(uint32_t lane, uint32_t slot, uint32_t receives)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool PostFlush(uint32_t index, uint32_t slot, uint64_t address, uint32_t key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void CompleteFlush(const WorkId& id, const ibv_wc& wc) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void PollLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Take(const ibv_wc* completions, int count, uint32_t device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Complete(const ibv_wc& wc, uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void CompleteOther(const ibv_wc& wc, uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Arrive(const ibv_wc& wc, uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  const std::unique_ptr<ReceiverMemory> memory_;
  const bool wants_flush_;
  FlushWithoutNic flush_without_nic_ = nullptr;
  uint32_t epoch_ ABSL_GUARDED_BY(lock_) = 0;  // that entries carry
  ibv_sge sge_ ABSL_GUARDED_BY(lock_) = {};
  ibv_send_wr announce_ ABSL_GUARDED_BY(lock_) = {};
  ibv_recv_wr batch_[kReceiveBatch] ABSL_GUARDED_BY(lock_) = {};
  Transfer transfers_[kSlots] ABSL_GUARDED_BY(lock_) = {};
  FlushRequest flushes_[kSlots] ABSL_GUARDED_BY(lock_) = {};
  uint32_t next_flush_ ABSL_GUARDED_BY(lock_) = 0;
  uint32_t last_tested_ ABSL_GUARDED_BY(lock_) = 0;  // slot of the transfer that NCCL got back last
  // Slots whose transfer waits to be announced (again), as bits.
  uint32_t to_announce_ ABSL_GUARDED_BY(lock_) = 0;
  // Entries that were announced again and are not known to have landed. Until then the slot's next
  // transfer is not announced: the late repeat would land over it.
  struct UnderWay {
    uint8_t slot;
    uint8_t lane;
    uint32_t epoch;
  };
  std::vector<UnderWay> repeats_ ABSL_GUARDED_BY(lock_);
  uint32_t repeat_slots_ ABSL_GUARDED_BY(lock_) = 0;  // of repeats_, as bits
  // Of vacated_slots_: what was open then has been announced again since.
  uint8_t renewed_slots_ ABSL_GUARDED_BY(lock_) = 0;
  // With rules.confirm: what the sender has been told, and the confirmation under way.
  uint64_t complete_below_ ABSL_GUARDED_BY(lock_) = kFirstSequence;  // as last looked at
  uint64_t confirmed_below_ ABSL_GUARDED_BY(lock_) = kFirstSequence;
  bool confirm_under_way_ ABSL_GUARDED_BY(lock_) = false;
  UnderWay confirm_on_ ABSL_GUARDED_BY(lock_) = {};
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_RECV_CONNECTION_H_
