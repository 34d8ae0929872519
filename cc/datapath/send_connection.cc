#include "cc/datapath/send_connection.h"

#include <arpa/inet.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace railhop::datapath {
SendConnection::SendConnection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
                               const ConnectionRules& rules, std::unique_ptr<SenderMemory> memory,
                               const PeerMemory& peer)
    : Connection(std::move(devices), std::move(lanes), rules, peer), memory_(std::move(memory)) {
  write_.sg_list = &sge_;
  write_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  write_.send_flags = IBV_SEND_SIGNALED;
  announce_.sg_list = &record_sge_;
  announce_.num_sge = 1;
  announce_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  announce_.send_flags = IBV_SEND_SIGNALED;
  record_sge_.length = sizeof(uint64_t);
  for (SendRequest& request : requests_) request.owner = this;
}

// In line: a test in vain is the commonest call of all.
__attribute__((always_inline)) inline void SendConnection::PollLocked() {
  for (uint32_t i = 0; i < polled_count_; ++i) {
    ibv_wc completions[kPollBatch];
    const Polled polled = polled_[i];
    const int count = polled.cq->Poll(kPollBatch, completions);
    if (count != 0) Take(completions, count, polled.slot);
  }
}

void SendConnection::PollAll() {
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

int SendConnection::Match(const CtsEntry* group, uint64_t sequence, int tag) {
  const uint32_t receives = group[0].receives;
  for (uint32_t i = 0; i < receives; ++i) {
    if (!HasArrived(group[i], sequence)) return -1;
    if (group[i].tag == tag && (matched_ >> i & 1) == 0) return static_cast<int>(i);
  }
  return -1;
}

inline bool SendConnection::IsUsable(const Lane& lane, const CtsEntry& entry,
                                     const MemoryKeys* keys, bool has_bytes) const {
  if (lane.outstanding >= kLaneStripesMax) return false;
  // The epoch first: the receiver may be writing the entry again, and its keys come before it.
  const uint16_t epoch = __atomic_load_n(&entry.epoch_low, __ATOMIC_ACQUIRE);
  if (static_cast<int16_t>(epoch - static_cast<uint16_t>(lane.epoch)) < 0) return false;
  return !has_bytes || (entry.remote_keys[lane.remote_device] != 0 && keys->On(lane.physical));
}

uint32_t SendConnection::FindLane(const CtsEntry& entry, const MemoryKeys* keys, bool has_bytes) {
  for (uint32_t i = 0; i < route_count_; ++i) {
    const uint32_t index = NextLane();
    TakeTurn();
    const Lane& lane = lanes_[index];
    if (IsUsable(lane, entry, keys, has_bytes)) return index;
    if (has_bytes && !keys->On(lane.physical)) AskCover(keys, lane.physical);
  }
  return kNoLane;
}

bool SendConnection::HasRoom(const StripePlan& plan) {
  const uint32_t each = (plan.stripes + route_count_ - 1) / route_count_;
  uint32_t at = route_next_;
  for (uint32_t i = 0; i < plan.stripes && i < route_count_; ++i) {
    if (lanes_[route_[at]].outstanding + each > kLaneStripesMax) return false;
    at = at + 1 == route_count_ ? 0 : at + 1;
  }
  return true;
}

void SendConnection::Settle(bool) {
  if ((attention_ & kFailed) != 0) return;
  if ((attention_ & (kWaiting | kNoRoute)) == kWaiting) PostWaiting();
  if ((attention_ & kConfirms) != 0) TakeConfirmations();
}

bool SendConnection::Attend(Outcome* outcome) {
  Settle(false);
  *outcome = NotNow();
  return *outcome == Outcome::kOk && (attention_ & kNoRoute) == 0;
}

__attribute__((always_inline)) inline void SendConnection::PostStripe(
    uint32_t lane_index, uint64_t address, uint64_t length, uint64_t remote_address, uint32_t index,
    uint32_t stripe, uint32_t bits, const CtsEntry& entry, const MemoryKeys* keys,
    uint64_t total_size) {
  Lane& lane = lanes_[lane_index];
  // Without data no address and no key may be named, and a length of 0 would mean 2 GiB to some.
  write_.num_sge = 0;
  if (length > 0) {
    write_.num_sge = 1;
    sge_.addr = address;
    sge_.length = static_cast<uint32_t>(length);
    sge_.lkey = keys->Local(lane.physical);
  }
  write_.wr_id = lane.work_id | static_cast<uint64_t>(WorkKind::kData) | uint64_t{stripe} << 16 |
                 uint64_t{index} << 32;
  write_.wr.rdma.remote_addr = remote_address;
  write_.wr.rdma.rkey = entry.remote_keys[lane.remote_device];
  write_.imm_data = htonl(bits | lane.epoch << kImmediateEpochShift);
  if (rules_.adaptive_routing && total_size > rules_.ar_threshold) {
    AddAnnouncement(lane, index, total_size);
  } else if (rules_.adaptive_routing) {
    write_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write_.send_flags = IBV_SEND_SIGNALED;
    write_.next = nullptr;
  }
  const int error = lane.qp->PostSend(&write_);
  if (error != 0) [[unlikely]]
    return FailPost(lane_index, error);
  ++lane.outstanding;
  lane.bytes += length;
}

Outcome SendConnection::Send(const void* data, uint64_t size, int tag, const MemoryKeys* keys,
                             Request** request) {
  *request = nullptr;
  ConnectionGuard guard(&lock_);
  // Asked again and again before the receive is there: nothing else is done until then.
  if (attention_ == 0 && !HasArrived(memory_->fifo[SlotOf(next_sequence_)][0], next_sequence_)) {
    return Outcome::kOk;
  }
  return SendNow(data, size, tag, keys, request);
}

__attribute__((noinline)) Outcome SendConnection::SendNow(const void* data, uint64_t size, int tag,
                                                          const MemoryKeys* keys,
                                                          Request** request) {
  if (attention_ != 0) [[unlikely]] {
    Outcome outcome;
    if (!Attend(&outcome)) return outcome;
    if (!HasArrived(memory_->fifo[SlotOf(next_sequence_)][0], next_sequence_)) return Outcome::kOk;
  }
  return SendAnnounced(data, size, tag, keys, request);
}

inline Outcome SendConnection::SendAnnounced(const void* data, uint64_t size, int tag,
                                             const MemoryKeys* keys, Request** request) {
  const uint64_t sequence = next_sequence_;
  const uint32_t slot = SlotOf(sequence);
  const CtsEntry* group = memory_->fifo[slot];
  uint32_t index = slot * kReceivesMax;
  const bool alone = group[0].receives == 1;
  if (!alone || group[0].tag != tag) {
    if (group[0].receives - 1u >= kReceivesMax) [[unlikely]] {
      FailProtocol(NextLane());
      return NotNow();
    }
    const int receive = Match(group, sequence, tag);
    if (receive < 0) return Outcome::kOk;
    index += static_cast<uint32_t>(receive);
  }
  const CtsEntry& entry = (&memory_->fifo[0][0])[index];
  if (size > entry.size || size > kSendBytesMax) return Outcome::kMisuse;
  if (keys == nullptr ? size > 0 : !keys->Covers(data, size)) return Outcome::kMisuse;
  SendRequest* const taken = &requests_[index];
  if (taken->kind != Request::kNone) return Outcome::kOk;
  const bool one_stripe = IsOneStripe(size, rules_.lanes_per_send);
  StripePlan plan;
  if (!one_stripe) {
    plan = PlanStripes(size, rules_.lanes_per_send);
    if (!HasRoom(plan)) return Outcome::kOk;
  }
  uint32_t lane = NextLane();
  if (IsUsable(lanes_[lane], entry, keys, size > 0)) [[likely]] {
    TakeTurn();
  } else {
    lane = FindLane(entry, keys, size > 0);
    if (lane == kNoLane) return NotNow();
  }

  taken->kind = Request::kSend;
  taken->done = false;
  taken->sequence = sequence;
  taken->size = size;
  taken->address = reinterpret_cast<uintptr_t>(data);
  taken->keys = keys;
  if (alone) {
    next_sequence_ = sequence + 1;
  } else {
    matched_ |= 1u << index % kReceivesMax;
    if (matched_ == (1u << group[0].receives) - 1) {
      matched_ = 0;
      next_sequence_ = sequence + 1;
    }
  }
  if (one_stripe) {
    taken->unacknowledged = 1;
    taken->missing = 1;
    taken->lanes[0] = static_cast<uint8_t>(lane);
    PostStripe(lane, taken->address, size, entry.address, index, 0,
               index / kReceivesMax | index % kReceivesMax << 5, entry, keys, size);
  } else {
    PostStripes(taken, plan, entry, index, lane);
  }
  if ((attention_ & kFailed) != 0) [[unlikely]]
    return failed_;
  *request = taken;
  return Good();
}

void SendConnection::PostStripes(SendRequest* request, const StripePlan& plan,
                                 const CtsEntry& entry, uint32_t index, uint32_t first_lane) {
  const uint32_t stripes = plan.stripes;
  if (stripes > 8) {
    if (tables_[index] == nullptr) tables_[index] = std::make_unique<StripeTable>();
    tables_[index]->unacknowledged = HighStripes(stripes);
  }
  request->unacknowledged = LowStripes(stripes);
  request->missing = static_cast<uint8_t>(stripes);
  uint8_t* const lanes = LanesOf(index, stripes);
  Immediate immediate = {.slot = index / kReceivesMax,
                         .receive = index % kReceivesMax,
                         .stripe = 0,
                         .stripes = stripes,
                         .has_record = false,
                         .epoch = 0};
  uint32_t lane = first_lane;
  for (uint32_t stripe = 0; stripe < stripes; ++stripe) {
    // Without failover the first refused post is the end. With it, the stripe belongs to a lane
    // that is suspect now, and the records will tell that it is missing.
    if ((attention_ & kFailed) != 0) [[unlikely]]
      return;
    if (stripe > 0) {
      lane = route_count_ == 0 ? 0 : NextLane();
      if (route_count_ != 0 && IsUsable(lanes_[lane], entry, request->keys, true)) [[likely]] {
        TakeTurn();
      } else {
        lane = FindLane(entry, request->keys, true);
      }
    }
    lanes[stripe] = static_cast<uint8_t>(lane);
    if (lane == kNoLane) [[unlikely]] {
      Wait(index, stripe);
      continue;
    }
    immediate.stripe = stripe;
    const uint64_t offset = plan.Offset(stripe);
    PostStripe(lane, request->address + offset, plan.Length(stripe, request->size),
               entry.address + offset, index, stripe, PackImmediate(immediate), entry,
               request->keys, request->size);
  }
}

void SendConnection::AddAnnouncement(const Lane& lane, uint32_t index, uint64_t size) {
  uint64_t* const record = &memory_->sizes.bytes[0][0] + index;
  *record = size;
  write_.opcode = IBV_WR_RDMA_WRITE;
  write_.send_flags = 0;
  write_.next = &announce_;
  announce_.wr_id = write_.wr_id;
  announce_.imm_data = write_.imm_data | htonl(kImmediateRecordBit);
  announce_.wr.rdma.remote_addr =
      peer_.address + offsetof(ReceiverMemory, sizes) + index * sizeof(uint64_t);
  announce_.wr.rdma.rkey = peer_.remote_keys[lane.remote_device];
  record_sge_.addr = reinterpret_cast<uintptr_t>(record);
  record_sge_.lkey = devices_[lane.local_device].control->local_key();
}

Outcome SendConnection::Test(SendRequest* request, int* done, int* size) {
  *done = 0;
  ConnectionGuard guard(&lock_);
  if (request->kind != Request::kSend) [[unlikely]]
    return Outcome::kMisuse;
  if (!request->done) {
    PollLocked();
    // What had completed before a fault is done all the same.
    if (!request->done) {
      if (attention_ == 0) [[likely]]
        return Outcome::kOk;
      Settle(false);
      if (!request->done) return NotNow();
    }
  }
  *done = 1;
  if (size != nullptr) *size = static_cast<int>(std::min<uint64_t>(request->size, INT_MAX));
  request->kind = Request::kNone;
  return Good();
}

Outcome SendConnection::Poll() {
  ConnectionGuard guard(&lock_);
  PollLocked();
  Settle(false);
  return NotNow();
}

absl::Status SendConnection::Close() {
  absl::Status closed = Connection::Close();
  ConnectionGuard guard(&lock_);
  for (SendRequest& request : requests_) request.kind = Request::kNone;
  return closed;
}

__attribute__((always_inline)) inline void SendConnection::Complete(const ibv_wc& wc,
                                                                    uint32_t device) {
  const WorkId id = UnpackWorkId(wc.wr_id);
  Lane& lane = lanes_[id.lane];
  if (IsStale(lane, wc.wr_id)) [[unlikely]] {
    ++stale_completions_;
    return;
  }
  if (wc.status != IBV_WC_SUCCESS || id.kind != WorkKind::kData) [[unlikely]]
    return CompleteOther(wc, device);
  --lane.outstanding;
  ++lane.completed;
  uint64_t* const word = Unacknowledged(id.index, id.stripe);
  const uint64_t bit = uint64_t{1} << id.stripe % 64;
  if ((*word & bit) == 0) [[unlikely]]
    return;
  *word &= ~bit;
  SendRequest& request = requests_[id.index];
  if (--request.missing == 0) Acknowledged(&request);
}

void SendConnection::Take(const ibv_wc* completions, int count, uint32_t device) {
  if (count < 0) [[unlikely]]
    FailQueue(device);
  for (int i = 0; i < count; ++i) Complete(completions[i], device);
}

void SendConnection::CompleteOther(const ibv_wc& wc, uint32_t device) {
  const WorkId id = UnpackWorkId(wc.wr_id);
  if (id.kind == WorkKind::kData) return FailCompletion(id.lane, device, wc);
  TakeMarker(wc);
}

void SendConnection::TakeConfirmations() {
  uint64_t below = __atomic_load_n(&memory_->complete_below, __ATOMIC_ACQUIRE);
  // Entries below were read by Send, so they are there, or newer ones in their slots.
  next_announced_ = std::max(next_announced_, next_sequence_ - 1);
  for (uint32_t i = 0; i < kSlots; ++i) {
    const CtsEntry& entry = memory_->fifo[SlotOf(next_announced_)][0];
    const uint64_t sequence = __atomic_load_n(&entry.sequence, __ATOMIC_ACQUIRE);
    if (sequence < next_announced_ || sequence == 0) break;
    if (entry.open_before != UINT8_MAX) below = std::max(below, sequence - entry.open_before);
    ++next_announced_;
  }
  if (below <= confirmed_below_) return;
  if (below > next_sequence_) return FailProtocol(0);
  for (uint64_t s = confirmed_below_ + kSlots < below ? below - kSlots : confirmed_below_;
       s < below; ++s) {
    for (uint32_t i = 0; i < kReceivesMax; ++i) {
      SendRequest& request = requests_[SlotOf(s) * kReceivesMax + i];
      if (request.sequence == s && request.missing == 0) request.done = true;
    }
  }
  confirmed_below_ = below;
}

// ---- What waits for a lane.

void SendConnection::Wait(uint32_t index, uint32_t stripe) {
  if (waiting_ == nullptr) waiting_ = std::make_unique<Waiting[]>(kRequests);
  waiting_[index].stripes[stripe / 64] |= uint64_t{1} << stripe % 64;
  ++waiting_count_;
  attention_ |= kWaiting;
}

bool SendConnection::PostWaitingOf(uint32_t index) {
  const SendRequest& request = requests_[index];
  const CtsEntry& entry = (&memory_->fifo[0][0])[index];
  if (!HasArrived(entry, request.sequence)) return false;
  const StripePlan plan = PlanStripes(request.size, rules_.lanes_per_send);
  uint8_t* const lanes = LanesOf(index, plan.stripes);
  for (uint32_t stripe = 0; stripe < plan.stripes; ++stripe) {
    if (!IsWaiting(index, stripe)) continue;
    const uint64_t length = plan.Length(stripe, request.size);
    const uint32_t lane = FindLane(entry, request.keys, length > 0);
    if (lane == kNoLane) return false;
    lanes[stripe] = static_cast<uint8_t>(lane);
    waiting_[index].stripes[stripe / 64] &= ~(uint64_t{1} << stripe % 64);
    --waiting_count_;
    const uint64_t offset = plan.Offset(stripe);
    PostStripe(lane, request.address + offset, length, entry.address + offset, index, stripe,
               PackImmediate({.slot = index / kReceivesMax,
                              .receive = index % kReceivesMax,
                              .stripe = stripe,
                              .stripes = plan.stripes,
                              .has_record = false,
                              .epoch = 0}),
               entry, request.keys, request.size);
  }
  return true;
}

void SendConnection::PostWaiting() {
  // The oldest first.
  for (uint32_t i = 1; i <= kRequests && waiting_count_ > 0 && route_count_ > 0; ++i) {
    const uint32_t index = (SlotOf(next_sequence_) * kReceivesMax + i) % kRequests;
    const Waiting& waiting = waiting_[index];
    if ((waiting.stripes[0] | waiting.stripes[1]) != 0) PostWaitingOf(index);
  }
  if (waiting_count_ == 0) attention_ &= ~kWaiting;
}

uint32_t SendConnection::waiting() const {
  ConnectionGuard guard(&lock_);
  return waiting_count_;
}

}  // namespace railhop::datapath
