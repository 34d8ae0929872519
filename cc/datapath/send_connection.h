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

// One send in flight: its entry in the ledger.
struct alignas(64) SendRequest : Request {
  uint64_t unacknowledged[2];  // bit for each stripe
  uint64_t sequence;           // of the transfer
  uint64_t size;               // bytes
  uint64_t address;            // of the data
  // With the plan of the size, where each stripe went: lane (first_lane + stripe) % lanes.
  uint32_t lanes_planned;
  uint32_t first_lane;
};
static_assert(sizeof(SendRequest) == 64 || sizeof(SendRequest) == 128);

class SendConnection final : public Connection {
 public:
  // Lanes are in RTS. `memory` is registered on each device (ConnectionDevice::control), zeroed.
  SendConnection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
                 const ConnectionRules& rules, std::unique_ptr<SenderMemory> memory,
                 const PeerMemory& peer);

  // Sends `size` bytes to the receive that has this tag in the oldest transfer with receives left.
  // *request is null if there is none yet, or no room.
  // kMisuse: memory not registered, size beyond the receive or beyond kSendBytesMax. Then nothing
  // was sent, and the receive is still there.
  Outcome Send(const void* data, uint64_t size, int tag, const MemoryKeys* keys, Request** request);

  // *done, and if so *size (unless null) as NCCL wants it, at most INT_MAX; the request is over
  // then. Polls if it is not done.
  Outcome Test(SendRequest* request, int* done, int* size);

  // Takes what has completed. For connections that NCCL leaves idle.
  Outcome Poll();

  // As Connection::Close; every request is over then.
  absl::Status Close();

 private:
  // The oldest transfer is there.
  Outcome SendAnnounced(const void* data, uint64_t size, int tag, const MemoryKeys* keys,
                        Request** request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // The place of the receive for `tag` in the group at the head; -1 if there is none.
  int Match(const CtsEntry* group, uint64_t sequence, int tag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool HasRoom(const StripePlan& plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Stripes of a send that is more than one.
  Outcome PostStripes(SendRequest* request, const StripePlan& plan, const CtsEntry& entry,
                      const MemoryKeys* keys, uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // One stripe on the next lane. `bits`: the immediate without epoch.
  Outcome PostStripe(uint64_t address, uint64_t length, uint64_t remote_address, uint32_t bits,
                     const CtsEntry& entry, const MemoryKeys* keys, uint64_t total_size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  // Follows the data in a write of its own.
  void AddAnnouncement(const Lane& lane, uint32_t index, uint64_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void PollLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Take(const ibv_wc* completions, int count, uint32_t device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  Outcome Complete(const ibv_wc& wc, uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  const PeerMemory peer_;
  const std::unique_ptr<SenderMemory> memory_;
  uint32_t matched_ ABSL_GUARDED_BY(lock_) = 0;  // receives of the head transfer, as bits
  // Filled for each post: what does not change is set once.
  ibv_sge sge_ ABSL_GUARDED_BY(lock_) = {};
  ibv_sge record_sge_ ABSL_GUARDED_BY(lock_) = {};
  ibv_send_wr write_ ABSL_GUARDED_BY(lock_) = {};     // data; carries the immediate itself
  ibv_send_wr announce_ ABSL_GUARDED_BY(lock_) = {};  // the write of its own
  SendRequest requests_[kSlots * kReceivesMax] ABSL_GUARDED_BY(lock_) = {};
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_SEND_CONNECTION_H_
