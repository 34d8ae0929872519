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
inline constexpr uint32_t kStripesUnknown = ~uint32_t{0};

// One grouped receive: its entry in the ledger.
struct alignas(64) Transfer : Request {
  uint64_t sequence;
  uint32_t receives;
  uint32_t missing;  // receives that are not complete
  ArrivalRecord records[kReceivesMax];
};

struct FlushRequest : Request {
  uint32_t missing;  // reads that have not completed
};

// A queue pair connected to itself, on one device: reading GPU memory over it pushes out what the
// NIC wrote before.
struct FlushLane {
  std::unique_ptr<verbs::QueuePair> qp;
  uint32_t landing_key = 0;
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

  // Announces n receives (1..8). *request is null if there is no room.
  // kMisuse: n out of range, memory not registered.
  Outcome Receive(int n, void* const* data, const size_t* sizes, const int* tags,
                  const MemoryKeys* const* keys, Request** request);

  // *done, and if so sizes[0..receives) (unless null) as NCCL wants them: at most INT_MAX.
  Outcome Test(Transfer* request, int* done, int* sizes);

  // Reads the first byte of the last receive that is not empty, over each device. *request is null
  // if there is nothing to flush. kMisuse: more flushes than transfers.
  Outcome Flush(int n, void* const* data, const int* sizes, const MemoryKeys* const* keys,
                Request** request);
  Outcome Test(FlushRequest* request, int* done);

  Outcome Poll();

  // As Connection::Close; every request is over then.
  absl::Status Close();

 private:
  Outcome PostBatch(uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  Outcome Announce(uint32_t slot, uint32_t receives) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void PollLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void Take(const ibv_wc* completions, int count, uint32_t device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  Outcome Complete(const ibv_wc& wc, uint32_t device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  Outcome Arrive(const ibv_wc& wc, uint32_t lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  const std::unique_ptr<ReceiverMemory> memory_;
  PeerMemory peer_ ABSL_GUARDED_BY(lock_);
  std::vector<FlushLane> flush_lanes_;
  ibv_sge sge_ ABSL_GUARDED_BY(lock_) = {};
  ibv_send_wr announce_ ABSL_GUARDED_BY(lock_) = {};
  ibv_recv_wr batch_[kReceiveBatch] ABSL_GUARDED_BY(lock_) = {};
  Transfer transfers_[kSlots] ABSL_GUARDED_BY(lock_) = {};
  FlushRequest flushes_[kSlots] ABSL_GUARDED_BY(lock_) = {};
  uint32_t next_flush_ ABSL_GUARDED_BY(lock_) = 0;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_RECV_CONNECTION_H_
