// The sending end of a connection.
//
// A send waits in no queue: either the receiver has announced a buffer for it, then it goes out at
// once and takes the request of that buffer's slot and receive; or it has not, then there is no
// request and the caller comes again.
//
// The hard case is the slot's next transfer: the receiver may be through with one and announce the
// next in the same slot while our acknowledgement is still on its way. The request of the older
// transfer keeps the place, and the newer waits.
#ifndef RAILHOP_CC_DATAPATH_SEND_CONNECTION_H_
#define RAILHOP_CC_DATAPATH_SEND_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/datapath/connection.h"
#include "cc/datapath/request.h"
#include "cc/datapath/striping.h"

namespace railhop::datapath {

// One send in flight: its entry in the ledger. It is read after the request is over too, until the
// slot's next transfer takes it: a record may tell that it has not arrived.
struct alignas(64) SendRequest : Request {
  uint64_t unacknowledged;  // bit for each of the first 64 stripes; the others: StripeTable
  uint64_t sequence;        // of the transfer; 0 = never used
  uint64_t size;            // bytes
  uint64_t address;         // of the data
  const MemoryKeys* keys;   // of the data
  uint8_t lanes[8];         // that each stripe went over, if there are at most 8; else StripeTable
};
static_assert(sizeof(SendRequest) == 64);

// What a send of many stripes needs beyond that.
struct StripeTable {
  uint64_t unacknowledged;  // stripes 64..127
  uint8_t lanes[kStripesMax];
};
// The lane of a stripe that was never posted, or is to be posted again.
inline constexpr uint8_t kNoLane = 0xff;

class SendConnection final : public Connection {
 public:
  // Lanes are in RTS. `memory` is registered on each device (ConnectionDevice::control), zeroed.
  SendConnection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
                 const ConnectionRules& rules, std::unique_ptr<SenderMemory> memory,
                 const PeerMemory& peer);

  // Sends `size` bytes to the receive that has this tag in the oldest transfer with receives left.
  // *request is null if there is none yet, or no room, or no lane that may carry it.
  // kMisuse: memory not registered, size beyond the receive or beyond kSendBytesMax. Then nothing
  // was sent, and the receive is still there.
  // With failover, a stripe that finds no lane on its way waits for one.
  Outcome Send(const void* data, uint64_t size, int tag, const MemoryKeys* keys, Request** request);

  // *done, and if so *size (unless null) as NCCL wants it, at most INT_MAX; the request is over
  // then. Polls if it is not done.
  Outcome Test(SendRequest* request, int* done, int* size);

  // Takes what has completed. For connections that NCCL leaves idle.
  Outcome Poll();

  // ---- After a fence. Any thread.

  SenderRecord Record();
  // Compares what went over these lanes, which are fenced at both ends, with the receiver's record,
  // which was made after its fence, when we had stopped posting to them:
  // what has arrived is done, what is missing is posted again once a lane is there for it. Stripes
  // on other lanes are not touched. The places are free afterwards. Lanes of another epoch are left
  // out. With kLost or kLie nothing has changed.
  ResumeResult Resume(const ReceiverRecord& record, absl::Span<const LaneRef> lanes);
  // Before GiveUp, where the receiver has ended: all transfers below `sequence` are complete there,
  // so what of them is outstanding is done. What of it cannot be true is left out.
  void CompleteBelow(uint64_t sequence);
  // Stripes that wait for a lane.
  uint32_t waiting() const;

  // Registered on each device: SenderMemory.
  void* control_memory() const { return memory_.get(); }

  // As Connection::Close; every request is over then.
  absl::Status Close();

 private:
  void PollAll() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void PostWaiting() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool PostReceives(Lane*, uint32_t) override { return true; }
  bool has_receives() const override { return false; }
  void PostNoOp(uint32_t) override {}
  bool MayReplace(uint32_t) override { return true; }
  void Replaced(uint32_t, bool) override {}

  void Settle(bool idle) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Settles before a new send. False: return *outcome.
  bool Attend(Outcome* outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // All but the commonest way: something to attend to, or the receive is there.
  Outcome SendNow(const void* data, uint64_t size, int tag, const MemoryKeys* keys,
                  Request** request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The oldest transfer is there.
  Outcome SendAnnounced(const void* data, uint64_t size, int tag, const MemoryKeys* keys,
                        Request** request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The place of the receive for `tag` in the group at the head; -1 if there is none.
  int Match(const CtsEntry* group, uint64_t sequence, int tag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Whether this lane may carry bytes for the entry now.
  bool IsUsable(const Lane& lane, const CtsEntry& entry, const MemoryKeys* keys,
                bool has_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The next lane in turn that may; its turn is taken. kNoLane: none.
  uint32_t FindLane(const CtsEntry& entry, const MemoryKeys* keys, bool has_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool HasRoom(const StripePlan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Stripes of a send that is more than one, the first of them on this lane.
  void PostStripes(SendRequest* request, const StripePlan& plan, const CtsEntry& entry,
                   uint32_t index, uint32_t first_lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // One stripe of request `index` on this lane. `bits`: the immediate without epoch.
  void PostStripe(uint32_t lane_index, uint64_t address, uint64_t length, uint64_t remote_address,
                  uint32_t index, uint32_t stripe, uint32_t bits, const CtsEntry& entry,
                  const MemoryKeys* keys, uint64_t total_size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Follows the data in a write of its own.
  void AddAnnouncement(const Lane& lane, uint32_t index, uint64_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The stripe waits for a lane.
  void Wait(uint32_t index, uint32_t stripe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Posts what waits of one request; false if something is left.
  bool PostWaitingOf(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void PollLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Take(const ibv_wc* completions, int count, uint32_t device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Complete(const ibv_wc& wc, uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void CompleteOther(const ibv_wc& wc, uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // All stripes are acknowledged.
  void Acknowledged(SendRequest* request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    request->done = !rules_.confirm || request->sequence < confirmed_below_;
  }
  // Reads how far the receiver has confirmed, and ends what is.
  void TakeConfirmations() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  // The lanes of its stripes; the table is there.
  uint8_t* LanesOf(uint32_t index, uint32_t stripes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    return stripes <= 8 ? requests_[index].lanes : tables_[index]->lanes;
  }
  uint64_t* Unacknowledged(uint32_t index, uint32_t stripe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    return stripe < 64 ? &requests_[index].unacknowledged : &tables_[index]->unacknowledged;
  }
  bool IsWaiting(uint32_t index, uint32_t stripe) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    return waiting_ != nullptr && (waiting_[index].stripes[stripe / 64] >> stripe % 64 & 1) != 0;
  }

  // Whether the record can be true, given what we have sent; if not, *sequence shows it. It may be
  // older than our ledger as far as other lanes are concerned.
  bool IsPossible(const ReceiverRecord& record, const LaneSet& lanes, uint64_t* sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool WentOver(uint32_t index, const LaneSet& lanes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool IsPossible(const OpenTransfer& open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool IsPossible(const OpenReceive& open, uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // All sends, as Compare.
  bool CompareAll(const ReceiverRecord& record, const LaneSet& lanes, bool apply,
                  ResumeResult* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Compares one send; open: what has arrived of it, null = all. apply: changes the ledger.
  // False: it is lost.
  bool Compare(uint32_t index, const OpenReceive* open, const LaneSet& lanes, bool apply,
               ResumeResult* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  static constexpr uint32_t kRequests = kSlots * kReceivesMax;

  const std::unique_ptr<SenderMemory> memory_;
  uint32_t matched_ ABSL_GUARDED_BY(lock_) = 0;  // receives of the head transfer, as bits
  // Filled for each post: what does not change is set once.
  ibv_sge sge_ ABSL_GUARDED_BY(lock_) = {};
  ibv_sge record_sge_ ABSL_GUARDED_BY(lock_) = {};
  ibv_send_wr write_ ABSL_GUARDED_BY(lock_) = {};     // data; carries the immediate itself
  ibv_send_wr announce_ ABSL_GUARDED_BY(lock_) = {};  // the write of its own
  SendRequest requests_[kRequests] ABSL_GUARDED_BY(lock_) = {};
  // By request; made when first needed.
  std::unique_ptr<StripeTable> tables_[kRequests] ABSL_GUARDED_BY(lock_);
  // Stripes that wait for a lane: never posted, or missing after a fence.
  struct Waiting {
    uint64_t stripes[2];
  };
  std::unique_ptr<Waiting[]> waiting_ ABSL_GUARDED_BY(lock_);  // by request; null before any fault
  uint32_t waiting_count_ ABSL_GUARDED_BY(lock_) = 0;
  // With rules.confirm.
  uint64_t confirmed_below_ ABSL_GUARDED_BY(lock_) = kFirstSequence;
  uint64_t next_announced_ ABSL_GUARDED_BY(lock_) = kFirstSequence;  // to look at for confirmations
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_SEND_CONNECTION_H_
