#include "cc/datapath/recv_connection.h"

#include <arpa/inet.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace railhop::datapath {
namespace {

// Writes with SetPeer's keys at PeerMemory::address, which is a SenderMemory.
static_assert(offsetof(SenderMemory, fifo) == 0);
constexpr uint64_t kSlotBytes = sizeof(CtsEntry) * kReceivesMax;

// Inline room that the lanes were made with: one entry.
constexpr uint32_t kInlineEntries = 1;

}  // namespace

RecvConnection::RecvConnection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
                               const ConnectionRules& rules, std::unique_ptr<ReceiverMemory> memory,
                               std::vector<FlushLane> flush_lanes)
    : Connection(std::move(devices), std::move(lanes), rules),
      memory_(std::move(memory)),
      flush_lanes_(std::move(flush_lanes)) {
  announce_.sg_list = &sge_;
  announce_.num_sge = 1;
  announce_.opcode = IBV_WR_RDMA_WRITE;
  for (uint32_t i = 0; i + 1 < kReceiveBatch; ++i) batch_[i].next = &batch_[i + 1];
  for (Transfer& transfer : transfers_) transfer.owner = this;
  for (FlushRequest& flush : flushes_) flush.owner = this;
}

// In line: a test in vain is the commonest call of all.
__attribute__((always_inline)) inline void RecvConnection::PollLocked() {
  for (uint32_t device = 0; device < device_count_; ++device) {
    ibv_wc completions[kPollBatch];
    const int count = devices_[device].cq->Poll(kPollBatch, completions);
    if (count != 0) Take(completions, count, device);
  }
}

Outcome RecvConnection::PostReceives() {
  ConnectionGuard guard(&lock_);
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    for (uint32_t posted = 0; posted < kReceivesPosted; posted += kReceiveBatch) {
      const Outcome outcome = PostBatch(lane);
      if (outcome != Outcome::kOk) return outcome;
    }
  }
  return Outcome::kOk;
}

void RecvConnection::SetPeer(const PeerMemory& peer) {
  ConnectionGuard guard(&lock_);
  peer_ = peer;
}

Outcome RecvConnection::PostBatch(uint32_t lane) {
  const uint64_t id = PackWorkId(
      {.kind = WorkKind::kReceive, .lane = static_cast<uint16_t>(lane), .stripe = 0, .index = 0});
  for (ibv_recv_wr& receive : batch_) receive.wr_id = id;
  const int error = lanes_[lane].qp->PostReceive(batch_);
  return error == 0 ? Outcome::kOk : FailPost(lane, error);
}

Outcome RecvConnection::Receive(int n, void* const* data, const size_t* sizes, const int* tags,
                                const MemoryKeys* const* keys, Request** request) {
  *request = nullptr;
  if (n < 1 || n > static_cast<int>(kReceivesMax)) return Outcome::kMisuse;
  ConnectionGuard guard(&lock_);
  if (failed_ != Outcome::kOk) return failed_;
  const uint64_t sequence = next_sequence_;
  const uint32_t slot = SlotOf(sequence);
  Transfer* const transfer = &transfers_[slot];
  if (transfer->kind != Request::kNone) return Outcome::kOk;
  const auto receives = static_cast<uint32_t>(n);
  for (uint32_t i = 0; i < receives; ++i) {
    CtsEntry& entry = memory_->staging[slot][i];
    entry.address = reinterpret_cast<uintptr_t>(data[i]);
    entry.size = sizes[i];
    if (keys[i] != nullptr && keys[i]->Covers(data[i], sizes[i])) {
      for (uint32_t d = 0; d < device_count_; ++d) entry.remote_keys[d] = keys[i]->remote[d];
    } else if (sizes[i] > 0) {
      return Outcome::kMisuse;
    }
    entry.tag = tags[i];
    entry.receives = static_cast<uint8_t>(receives);
    entry.sequence = sequence;
    transfer->records[i] = {
        .arrived = {0, 0}, .bytes = 0, .missing = kStripesUnknown, .reserved = 0};
  }
  Lane& lane = lanes_[next_lane_];
  if (lane.outstanding >= kCtsWritesMax) {
    PollLocked();
    if (failed_ != Outcome::kOk || lane.outstanding >= kCtsWritesMax) return failed_;
  }
  transfer->kind = Request::kReceive;
  transfer->done = false;
  transfer->sequence = sequence;
  transfer->receives = receives;
  transfer->missing = receives;
  next_sequence_ = sequence + 1;
  const Outcome announced = Announce(slot, receives);
  if (announced != Outcome::kOk) return announced;
  *request = transfer;
  return Outcome::kOk;
}

inline Outcome RecvConnection::Announce(uint32_t slot, uint32_t receives) {
  const uint32_t lane_index = next_lane_;
  Lane& lane = lanes_[lane_index];
  next_lane_ = LaneAfter(lane_index);
  sge_.addr = reinterpret_cast<uintptr_t>(memory_->staging[slot]);
  sge_.length = receives * static_cast<uint32_t>(sizeof(CtsEntry));
  sge_.lkey = devices_[lane.local_device].control->local_key();
  announce_.wr.rdma.remote_addr = peer_.address + slot * kSlotBytes;
  announce_.wr.rdma.rkey = peer_.remote_keys[lane.remote_device];
  announce_.wr_id = PackWorkId(
      {.kind = WorkKind::kCts, .lane = static_cast<uint16_t>(lane_index), .stripe = 0, .index = 0});
  announce_.send_flags =
      rules_.inline_cts && receives <= kInlineEntries ? unsigned{IBV_SEND_INLINE} : 0u;
  if (++lane.unsignalled == kCtsSignalEvery) {
    lane.unsignalled = 0;
    announce_.send_flags |= IBV_SEND_SIGNALED;
  }
  ++lane.outstanding;
  const int error = lane.qp->PostSend(&announce_);
  return error == 0 ? Outcome::kOk : FailPost(lane_index, error);
}

Outcome RecvConnection::Test(Transfer* request, int* done, int* sizes) {
  *done = 0;
  ConnectionGuard guard(&lock_);
  if (request->kind != Request::kReceive) [[unlikely]]
    return Outcome::kMisuse;
  if (!request->done) {
    PollLocked();
    // What had arrived before a fault is done all the same.
    if (!request->done) return failed_;
  }
  *done = 1;
  if (sizes != nullptr) {
    for (uint32_t i = 0; i < request->receives; ++i) {
      sizes[i] = static_cast<int>(std::min<uint64_t>(request->records[i].bytes, INT_MAX));
    }
  }
  request->kind = Request::kNone;
  return Outcome::kOk;
}

Outcome RecvConnection::Flush(int n, void* const* data, const int* sizes,
                              const MemoryKeys* const* keys, Request** request) {
  *request = nullptr;
  if (n < 1 || n > static_cast<int>(kReceivesMax)) return Outcome::kMisuse;
  ConnectionGuard guard(&lock_);
  if (failed_ != Outcome::kOk) return failed_;
  if (flush_lanes_.empty()) return Outcome::kOk;
  int last = n - 1;
  while (last >= 0 && sizes[last] <= 0) --last;
  if (last < 0) return Outcome::kOk;
  if (keys[last] == nullptr || !keys[last]->Covers(data[last], 1)) return Outcome::kMisuse;
  FlushRequest* const flush = &flushes_[next_flush_];
  // 32 transfers at most wait for a flush, one for each: the place is free unless the caller has
  // broken the rule.
  if (flush->kind != Request::kNone) return Outcome::kMisuse;
  flush->kind = Request::kFlush;
  flush->done = false;
  flush->missing = static_cast<uint32_t>(flush_lanes_.size());
  for (uint32_t d = 0; d < flush_lanes_.size(); ++d) {
    ibv_sge landing = {.addr = reinterpret_cast<uintptr_t>(&memory_->flush_landing[d]),
                       .length = 1,
                       .lkey = devices_[d].control->local_key()};
    ibv_send_wr read = {};
    read.wr_id = PackWorkId({.kind = WorkKind::kFlush,
                             .lane = static_cast<uint16_t>(d),
                             .stripe = 0,
                             .index = static_cast<uint16_t>(next_flush_)});
    read.sg_list = &landing;
    read.num_sge = 1;
    read.opcode = IBV_WR_RDMA_READ;
    read.send_flags = IBV_SEND_SIGNALED;
    read.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(data[last]);
    read.wr.rdma.rkey = keys[last]->remote[d];
    const int error = flush_lanes_[d].qp->PostSend(&read);
    if (error != 0) {
      return Fail({.kind = Fault::Kind::kPost, .device = static_cast<int>(d), .code = error});
    }
  }
  next_flush_ = (next_flush_ + 1) % kSlots;
  *request = flush;
  return Outcome::kOk;
}

Outcome RecvConnection::Test(FlushRequest* request, int* done) {
  *done = 0;
  ConnectionGuard guard(&lock_);
  if (request->kind != Request::kFlush) [[unlikely]]
    return Outcome::kMisuse;
  if (!request->done) {
    PollLocked();
    if (!request->done) return failed_;
  }
  *done = 1;
  request->kind = Request::kNone;
  return Outcome::kOk;
}

Outcome RecvConnection::Poll() {
  ConnectionGuard guard(&lock_);
  PollLocked();
  return failed_;
}

void RecvConnection::Take(const ibv_wc* completions, int count, uint32_t device) {
  if (count < 0) [[unlikely]] {
    Fail({.kind = Fault::Kind::kQueue, .device = static_cast<int>(device)});
  }
  for (int i = 0; i < count; ++i) Complete(completions[i], device);
}

inline Outcome RecvConnection::Complete(const ibv_wc& wc, uint32_t device) {
  const WorkId id = UnpackWorkId(wc.wr_id);
  if (id.kind == WorkKind::kFlush) {
    if (wc.status != IBV_WC_SUCCESS) return FailCompletion(-1, device, wc);
    FlushRequest& flush = flushes_[id.index];
    flush.done = --flush.missing == 0;
    return Outcome::kOk;
  }
  Lane& lane = lanes_[id.lane];
  if (lane.state == LaneState::kFenced) {
    ++stale_completions_;
    return Outcome::kOk;
  }
  if (wc.status != IBV_WC_SUCCESS) return FailCompletion(id.lane, device, wc);
  if (id.kind == WorkKind::kReceive) return Arrive(wc, id.lane);
  lane.outstanding -= kCtsSignalEvery;
  return Outcome::kOk;
}

inline Outcome RecvConnection::Arrive(const ibv_wc& wc, uint32_t lane_index) {
  Lane& lane = lanes_[lane_index];
  if (++lane.consumed == kReceiveBatch) {
    lane.consumed = 0;
    const Outcome posted = PostBatch(lane_index);
    if (posted != Outcome::kOk) return posted;
  }
  const Immediate immediate = UnpackImmediate(ntohl(wc.imm_data));
  Transfer& transfer = transfers_[immediate.slot];
  ArrivalRecord& record = transfer.records[immediate.receive];
  const uint64_t bit = uint64_t{1} << immediate.stripe % 64;
  uint64_t& arrived = record.arrived[immediate.stripe / 64];
  // A slot that waits for nothing, a stripe twice, or a lane of another epoch: not by this
  // protocol.
  if (transfer.kind != Request::kReceive || transfer.done ||
      immediate.receive >= transfer.receives || (arrived & bit) != 0 ||
      immediate.epoch != (lane.epoch & kImmediateEpochMask)) {
    return FailProtocol(lane_index);
  }
  arrived |= bit;
  if (immediate.has_record) {
    record.bytes = memory_->sizes.bytes[immediate.slot][immediate.receive];
  } else {
    record.bytes += wc.byte_len;
  }
  if (record.missing == kStripesUnknown) record.missing = immediate.stripes;
  if (--record.missing == 0) transfer.done = --transfer.missing == 0;
  return Outcome::kOk;
}

absl::Status RecvConnection::Close() {
  for (FlushLane& lane : flush_lanes_) {
    if (lane.qp == nullptr) continue;
    lane.qp->ToError().IgnoreError();
    absl::Status destroyed = lane.qp->Destroy();
    if (!destroyed.ok()) return destroyed;
  }
  absl::Status closed = Connection::Close();
  ConnectionGuard guard(&lock_);
  for (Transfer& transfer : transfers_) transfer.kind = Request::kNone;
  for (FlushRequest& flush : flushes_) flush.kind = Request::kNone;
  return closed;
}

}  // namespace railhop::datapath
