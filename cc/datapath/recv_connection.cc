#include "cc/datapath/recv_connection.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <utility>

#include "cc/datapath/striping.h"

namespace railhop::datapath {
namespace {

// Writes with the peer's keys at PeerMemory::address, which is a SenderMemory.
static_assert(offsetof(SenderMemory, fifo) == 0);
constexpr uint64_t kSlotBytes = sizeof(CtsEntry) * kReceivesMax;

// Inline room that the lanes were made with: one entry.
constexpr uint32_t kInlineEntries = 1;

std::vector<ConnectionDevice> WithFlush(std::vector<ConnectionDevice> devices,
                                        std::vector<FlushLane> lanes) {
  for (size_t i = 0; i < lanes.size() && i < devices.size(); ++i) {
    devices[i].flush = std::move(lanes[i]);
  }
  return devices;
}

}  // namespace

RecvConnection::RecvConnection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
                               const ConnectionRules& rules, std::unique_ptr<ReceiverMemory> memory,
                               std::vector<FlushLane> flush_lanes)
    : Connection(WithFlush(std::move(devices), std::move(flush_lanes)), std::move(lanes), rules,
                 {}),
      memory_(std::move(memory)),
      wants_flush_(std::any_of(devices_.begin(), devices_.end(),
                               [](const ConnectionDevice& d) { return d.flush.qp != nullptr; })) {
  announce_.sg_list = &sge_;
  announce_.num_sge = 1;
  announce_.opcode = IBV_WR_RDMA_WRITE;
  for (uint32_t i = 0; i + 1 < kReceiveBatch; ++i) batch_[i].next = &batch_[i + 1];
  for (Transfer& transfer : transfers_) transfer.owner = this;
  for (FlushRequest& flush : flushes_) flush.owner = this;
  for (const Lane& lane : lanes_) epoch_ = std::max(epoch_, lane.epoch);
}

// In line: a test in vain is the commonest call of all.
__attribute__((always_inline)) inline void RecvConnection::PollLocked() {
  for (uint32_t i = 0; i < polled_count_; ++i) {
    ibv_wc completions[kPollBatch];
    const Polled polled = polled_[i];
    const int count = polled.cq->Poll(kPollBatch, completions);
    if (count != 0) Take(completions, count, polled.slot);
  }
}

void RecvConnection::PollAll() {
  for (uint32_t i = 0; i < polled_count_; ++i) {
    ibv_wc completions[kPollBatch];
    const Polled polled = polled_[i];
    // As many as its queue can hold; what a peer sends meanwhile is for the next time.
    for (uint32_t batch = 0; batch < kBatchesMax; ++batch) {
      const int count = polled.cq->Poll(kPollBatch, completions);
      if (count != 0) Take(completions, count, polled.slot);
      if (count < kPollBatch) break;
    }
  }
}

Outcome RecvConnection::PostReceives() {
  ConnectionGuard guard(&lock_);
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (!PostReceives(&lanes_[lane], lane)) {
      FailPost(lane, lanes_[lane].fence);
      return Outcome::kSystem;
    }
  }
  return Outcome::kOk;
}

void RecvConnection::SetPeer(const PeerMemory& peer) {
  ConnectionGuard guard(&lock_);
  peer_ = peer;
}

bool RecvConnection::PostReceives(Lane* lane, uint32_t) {
  const uint64_t id = lane->work_id | static_cast<uint64_t>(WorkKind::kReceive);
  for (ibv_recv_wr& receive : batch_) receive.wr_id = id;
  for (uint32_t posted = 0; posted < kReceivesPosted; posted += kReceiveBatch) {
    if (lane->qp->PostReceive(batch_) != 0) return false;
  }
  return true;
}

void RecvConnection::PostBatch(uint32_t index) {
  Lane& lane = lanes_[index];
  // A suspect one is about to be fenced.
  if (lane.state >= LaneState::kSuspect) return;
  const uint64_t id = lane.work_id | static_cast<uint64_t>(WorkKind::kReceive);
  for (ibv_recv_wr& receive : batch_) receive.wr_id = id;
  const int error = lane.qp->PostReceive(batch_);
  if (error != 0) FailPost(index, error);
}

// ---- New receives.

__attribute__((always_inline)) inline bool RecvConnection::FillKeys(CtsEntry* entry,
                                                                    const MemoryKeys* keys) {
  // Wider than the word, so that kNoDevice is a bit that is never set.
  const uint64_t covered = keys->covered.load(std::memory_order_acquire);
  uint32_t slots = 0;
  for (uint32_t slot = 0; slot < device_count_; ++slot) {
    const uint32_t physical = slot_physical_[slot];
    const uint32_t is_covered = covered >> physical & 1;
    slots |= is_covered << slot;
    entry->remote_keys[slot] = is_covered != 0 ? keys->Remote(physical) : 0;
  }
  if ((~slots & route_slots_) != 0) [[unlikely]]
    AskCoverOfRoute(keys);
  return (slots & route_slots_) != 0;
}

void RecvConnection::AskCoverOfRoute(const MemoryKeys* keys) {
  for (uint32_t slot = 0; slot < device_count_; ++slot) {
    const uint32_t physical = slot_physical_[slot];
    if ((route_slots_ >> slot & 1) == 0 || physical == kNoDevice) continue;
    if (!keys->On(physical)) AskCover(keys, physical);
  }
}

uint32_t RecvConnection::FindLane() {
  for (uint32_t i = 0; i < route_count_; ++i) {
    const uint32_t index = NextLane();
    TakeTurn();
    if (lanes_[index].outstanding < kCtsWritesMax) return index;
  }
  return kNotAnnounced;
}

void RecvConnection::Settle(bool idle) {
  if ((attention_ & kFailed) != 0) return;
  if ((attention_ & (kWaiting | kNoRoute)) == kWaiting) PostWaiting();
  if (idle && (attention_ & kConfirms) != 0 && !confirm_under_way_ &&
      CompleteBelow() > confirmed_below_) {
    PostConfirmation();
  }
}

bool RecvConnection::IsIdle() const {
  return std::all_of(std::begin(transfers_), std::end(transfers_),
                     [](const Transfer& transfer) { return transfer.kind == Request::kNone; });
}

bool RecvConnection::Attend(Outcome* outcome) {
  // Only what has landed lets a slot's next transfer be announced.
  if ((attention_ & kRepeats) != 0) PollLocked();
  Settle(false);
  *outcome = NotNow();
  return *outcome == Outcome::kOk && (attention_ & kNoRoute) == 0;
}

Outcome RecvConnection::Receive(int n, void* const* data, const size_t* sizes, const int* tags,
                                const MemoryKeys* const* keys, Request** request) {
  *request = nullptr;
  if (n < 1 || n > static_cast<int>(kReceivesMax)) return Outcome::kMisuse;
  ConnectionGuard guard(&lock_);
  const uint64_t sequence = next_sequence_;
  const uint32_t slot = SlotOf(sequence);
  uint32_t open_before = 0;
  if (attention_ != 0) [[unlikely]] {
    Outcome outcome;
    if (!Attend(&outcome)) return outcome;
    if ((repeat_slots_ >> slot & 1) != 0) return Outcome::kOk;
    if (rules_.confirm) open_before = static_cast<uint32_t>(sequence - CompleteBelow());
  }
  Transfer* const transfer = &transfers_[slot];
  if (transfer->kind != Request::kNone) return Outcome::kOk;
  const auto receives = static_cast<uint32_t>(n);
  for (uint32_t i = 0; i < receives; ++i) {
    CtsEntry& entry = memory_->staging[slot][i];
    entry.address = reinterpret_cast<uintptr_t>(data[i]);
    entry.size = sizes[i];
    if (keys[i] != nullptr && keys[i]->Covers(data[i], sizes[i])) {
      if (!FillKeys(&entry, keys[i]) && sizes[i] > 0) [[unlikely]]
        return NotNow();
    } else if (sizes[i] > 0) {
      return Outcome::kMisuse;
    }
    entry.tag = tags[i];
    entry.receives = static_cast<uint8_t>(receives);
    entry.open_before = static_cast<uint8_t>(open_before);
    entry.epoch_low = static_cast<uint16_t>(epoch_);
    entry.sequence = sequence;
    transfer->keys[i] = keys[i];
    transfer->records[i] = {
        .arrived = {0, 0}, .bytes = 0, .missing = kStripesUnknown, .reserved = 0};
  }
  uint32_t lane = NextLane();
  if (lanes_[lane].outstanding < kCtsWritesMax) [[likely]] {
    TakeTurn();
  } else {
    PollLocked();
    lane = FindLane();
    if (lane == kNotAnnounced) return NotNow();
  }
  transfer->kind = Request::kReceive;
  transfer->done = false;
  transfer->sequence = sequence;
  transfer->receives = receives;
  transfer->open = receives;
  transfer->slots = 0;
  transfer->lost_slots = 0;
  next_sequence_ = sequence + 1;
  Announce(lane, slot, receives);
  if (attention_ != 0) [[unlikely]] {
    if (rules_.confirm) confirmed_below_ = std::max(confirmed_below_, sequence - open_before);
    Settle(false);
    if ((attention_ & kFailed) != 0) return failed_;
  }
  *request = transfer;
  return Good();
}

inline void RecvConnection::FillAnnounce(const Lane& lane, uint32_t slot, uint32_t receives) {
  sge_.addr = reinterpret_cast<uintptr_t>(memory_->staging[slot]);
  sge_.length = receives * static_cast<uint32_t>(sizeof(CtsEntry));
  sge_.lkey = devices_[lane.local_device].control->local_key();
  announce_.wr.rdma.remote_addr = peer_.address + slot * kSlotBytes;
  announce_.wr.rdma.rkey = peer_.remote_keys[lane.remote_device];
  announce_.send_flags =
      rules_.inline_cts && receives <= kInlineEntries ? unsigned{IBV_SEND_INLINE} : 0u;
}

inline void RecvConnection::Announce(uint32_t index, uint32_t slot, uint32_t receives) {
  Lane& lane = lanes_[index];
  FillAnnounce(lane, slot, receives);
  uint32_t unsignalled = lane.unsignalled + 1u;
  if (unsignalled == kCtsSignalEvery) {
    unsignalled = 0;
    announce_.send_flags |= IBV_SEND_SIGNALED;
  }
  announce_.wr_id =
      lane.work_id | static_cast<uint64_t>(WorkKind::kCts) | uint64_t{kCtsSignalEvery} << 16;
  transfers_[slot].announce_lane = static_cast<uint8_t>(index);
  transfers_[slot].announce_epoch = lane.epoch;
  const int error = lane.qp->PostSend(&announce_);
  if (error != 0) [[unlikely]] {
    // Nothing is under way, so another lane may take it at once.
    transfers_[slot].announce_lane = kNotAnnounced;
    to_announce_ |= uint32_t{1} << slot;
    attention_ |= kWaiting;
    return FailPost(index, error);
  }
  lane.unsignalled = static_cast<uint8_t>(unsignalled);
  ++lane.outstanding;
}

Outcome RecvConnection::Test(Transfer* request, int* done, int* sizes) {
  *done = 0;
  ConnectionGuard guard(&lock_);
  if (request->kind != Request::kReceive) [[unlikely]]
    return Outcome::kMisuse;
  if (!request->done) {
    PollLocked();
    // What had arrived before a fault is done all the same.
    if (!request->done) {
      if (attention_ == 0) [[likely]]
        return Outcome::kOk;
      Settle(true);
      return NotNow();
    }
  }
  *done = 1;
  if (sizes != nullptr) {
    for (uint32_t i = 0; i < request->receives; ++i) {
      sizes[i] = static_cast<int>(std::min<uint64_t>(request->records[i].bytes, INT_MAX));
    }
  }
  request->kind = Request::kNone;
  last_tested_ = SlotOf(request->sequence);
  if (attention_ != 0) [[unlikely]]
    Settle((attention_ & kConfirms) != 0 && IsIdle());
  return Good();
}

Outcome RecvConnection::Poll() {
  ConnectionGuard guard(&lock_);
  PollLocked();
  Settle(true);
  return NotNow();
}

// ---- Completions.

__attribute__((always_inline)) inline void RecvConnection::Arrive(const ibv_wc& wc,
                                                                  uint32_t lane_index) {
  Lane& lane = lanes_[lane_index];
  ++lane.arrived;
  if (++lane.consumed == kReceiveBatch) {
    lane.consumed = 0;
    PostBatch(lane_index);
  }
  const Immediate immediate = UnpackImmediate(ntohl(wc.imm_data));
  Transfer& transfer = transfers_[immediate.slot];
  ArrivalRecord& record = transfer.records[immediate.receive];
  const uint64_t bit = uint64_t{1} << immediate.stripe % 64;
  uint64_t& arrived = record.arrived[immediate.stripe / 64];
  // A slot that waits for nothing, a stripe twice, or a lane of another epoch: not by this
  // protocol.
  if (transfer.kind != Request::kReceive || transfer.done ||
      immediate.receive >= transfer.receives || (arrived & bit) != 0 || record.missing == 0 ||
      immediate.epoch != (lane.epoch & kImmediateEpochMask)) {
    return FailProtocol(lane_index);
  }
  arrived |= bit;
  transfer.slots |= static_cast<uint8_t>(1u << lane.local_device);
  if (immediate.has_record) {
    record.bytes = memory_->sizes.bytes[immediate.slot][immediate.receive];
    lane.bytes +=
        PlanStripes(record.bytes, rules_.lanes_per_send).Length(immediate.stripe, record.bytes);
  } else {
    record.bytes += wc.byte_len;
    lane.bytes += wc.byte_len;
  }
  if (record.missing == kStripesUnknown) record.missing = immediate.stripes;
  if (--record.missing == 0) transfer.done = --transfer.open == 0;
}

__attribute__((always_inline)) inline void RecvConnection::Complete(const ibv_wc& wc,
                                                                    uint32_t device) {
  const WorkId id = UnpackWorkId(wc.wr_id);
  if (id.kind != WorkKind::kReceive || wc.status != IBV_WC_SUCCESS) {
    return CompleteOther(wc, device);
  }
  if (IsStale(lanes_[id.lane], wc.wr_id)) [[unlikely]] {
    ++stale_completions_;
    return;
  }
  Arrive(wc, id.lane);
}

void RecvConnection::Take(const ibv_wc* completions, int count, uint32_t device) {
  if (count < 0) [[unlikely]]
    FailQueue(device);
  for (int i = 0; i < count; ++i) Complete(completions[i], device);
}

void RecvConnection::CompleteOther(const ibv_wc& wc, uint32_t device) {
  const WorkId id = UnpackWorkId(wc.wr_id);
  if (id.kind == WorkKind::kFlush) return CompleteFlush(id, wc);
  Lane& lane = lanes_[id.lane];
  if (IsStale(lane, wc.wr_id)) {
    ++stale_completions_;
    return;
  }
  if (id.kind == WorkKind::kSendMarker || id.kind == WorkKind::kReceiveMarker) {
    return TakeMarker(wc);
  }
  if (wc.status != IBV_WC_SUCCESS) return FailCompletion(id.lane, device, wc);
  lane.outstanding -= id.stripe;
  lane.completed += id.stripe;
  if (id.kind == WorkKind::kRepeat) EndRepeat(id.index, id.lane);
  if (id.kind == WorkKind::kConfirm) confirm_under_way_ = false;
}

// ---- Entries that are announced again, and other writes of our own.

bool RecvConnection::PostSignalled(uint32_t index, WorkKind kind, uint32_t work_index,
                                   ibv_send_wr* write) {
  Lane& lane = lanes_[index];
  write->send_flags |= IBV_SEND_SIGNALED;
  write->wr_id = lane.work_id | static_cast<uint64_t>(kind) |
                 (uint64_t{lane.unsignalled} + 1) << 16 | uint64_t{work_index} << 32;
  const int error = lane.qp->PostSend(write);
  if (error != 0) {
    FailPost(index, error);
    return false;
  }
  lane.unsignalled = 0;
  ++lane.outstanding;
  return true;
}

void RecvConnection::PostNoOp(uint32_t index) {
  const Lane& lane = lanes_[index];
  if (lane.outstanding >= kCtsWritesMax) return;
  ibv_send_wr write = {};
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma.remote_addr = peer_.address;
  write.wr.rdma.rkey = peer_.remote_keys[lane.remote_device];
  PostSignalled(index, WorkKind::kNoOp, 0, &write);
}

bool RecvConnection::Repeat(uint32_t slot) {
  Transfer& transfer = transfers_[slot];
  for (uint32_t i = 0; i < transfer.receives; ++i) {
    CtsEntry& entry = memory_->staging[slot][i];
    if (transfer.keys[i] != nullptr) FillKeys(&entry, transfer.keys[i]);
    if (rules_.confirm) {
      entry.open_before =
          static_cast<uint8_t>(transfer.sequence - std::min(CompleteBelow(), transfer.sequence));
    }
    // Last: an earlier write of this entry may be reading it.
    __atomic_store_n(&entry.epoch_low, static_cast<uint16_t>(epoch_), __ATOMIC_RELEASE);
  }
  while (true) {
    uint32_t index = transfer.announce_lane;
    // Behind its last announcement, if that lane is still there: the later one must land last.
    if (index < lanes_.size() && lanes_[index].epoch == transfer.announce_epoch &&
        lanes_[index].state == LaneState::kOpen) {
      if (lanes_[index].outstanding >= kCtsWritesMax) return false;
    } else {
      index = FindLane();
      if (index == kNotAnnounced) return false;
    }
    FillAnnounce(lanes_[index], slot, transfer.receives);
    if (!PostSignalled(index, WorkKind::kRepeat, slot, &announce_)) continue;
    transfer.announce_lane = static_cast<uint8_t>(index);
    transfer.announce_epoch = lanes_[index].epoch;
    repeats_.push_back(
        {static_cast<uint8_t>(slot), static_cast<uint8_t>(index), lanes_[index].epoch});
    RepeatsChanged();
    return true;
  }
}

void RecvConnection::RepeatsChanged() {
  repeat_slots_ = 0;
  for (const UnderWay& repeat : repeats_) repeat_slots_ |= uint32_t{1} << repeat.slot;
  attention_ = repeats_.empty() ? attention_ & ~kRepeats : attention_ | kRepeats;
}

void RecvConnection::EndRepeat(uint32_t slot, uint32_t lane) {
  const auto found = std::find_if(
      repeats_.begin(), repeats_.end(),
      [slot, lane](const UnderWay& repeat) { return repeat.slot == slot && repeat.lane == lane; });
  if (found == repeats_.end()) return;
  repeats_.erase(found);
  RepeatsChanged();
}

void RecvConnection::PostWaiting() {
  // The oldest first.
  for (uint32_t i = 0; i < kSlots && to_announce_ != 0; ++i) {
    const uint32_t slot = SlotOf(next_sequence_ + i);
    const uint32_t bit = uint32_t{1} << slot;
    if ((to_announce_ & bit) == 0) continue;
    if (IsOpen(slot) && !Repeat(slot)) continue;
    to_announce_ &= ~bit;
  }
  if (to_announce_ == 0) attention_ &= ~kWaiting;
}

uint32_t RecvConnection::waiting() const {
  ConnectionGuard guard(&lock_);
  return static_cast<uint32_t>(std::popcount(to_announce_));
}

uint64_t RecvConnection::CompleteBelow() {
  while (complete_below_ < next_sequence_) {
    const uint32_t slot = SlotOf(complete_below_);
    if (transfers_[slot].sequence == complete_below_ && IsOpen(slot)) break;
    ++complete_below_;
  }
  return complete_below_;
}

void RecvConnection::PostConfirmation() {
  const uint32_t index = FindLane();
  if (index == kNotAnnounced) return;
  const Lane& lane = lanes_[index];
  memory_->complete_below = complete_below_;
  ibv_sge word = {.addr = reinterpret_cast<uintptr_t>(&memory_->complete_below),
                  .length = sizeof(uint64_t),
                  .lkey = devices_[lane.local_device].control->local_key()};
  ibv_send_wr write = {};
  write.sg_list = &word;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  if (rules_.inline_cts) write.send_flags = IBV_SEND_INLINE;
  write.wr.rdma.remote_addr = peer_.address + offsetof(SenderMemory, complete_below);
  write.wr.rdma.rkey = peer_.remote_keys[lane.remote_device];
  if (!PostSignalled(index, WorkKind::kConfirm, 0, &write)) return;
  confirmed_below_ = complete_below_;
  // One at a time: an older one must not land over it.
  confirm_under_way_ = true;
  confirm_on_ = {0, static_cast<uint8_t>(index), lane.epoch};
}

absl::Status RecvConnection::Close() {
  absl::Status closed = Connection::Close();
  ConnectionGuard guard(&lock_);
  for (Transfer& transfer : transfers_) transfer.kind = Request::kNone;
  for (FlushRequest& flush : flushes_) flush.kind = Request::kNone;
  return closed;
}

}  // namespace railhop::datapath
