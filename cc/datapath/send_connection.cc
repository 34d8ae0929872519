#include "cc/datapath/send_connection.h"

#include <arpa/inet.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace railhop::datapath {
namespace {

// The NIC writes the entry; its sequence is the last word.
bool HasArrived(const CtsEntry& entry, uint64_t sequence) {
  return __atomic_load_n(&entry.sequence, __ATOMIC_ACQUIRE) == sequence;
}

}  // namespace

SendConnection::SendConnection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
                               const ConnectionRules& rules, std::unique_ptr<SenderMemory> memory,
                               const PeerMemory& peer)
    : Connection(std::move(devices), std::move(lanes), rules),
      peer_(peer),
      memory_(std::move(memory)) {
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
  for (uint32_t device = 0; device < device_count_; ++device) {
    ibv_wc completions[kPollBatch];
    const int count = devices_[device].cq->Poll(kPollBatch, completions);
    if (count != 0) Take(completions, count, device);
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

bool SendConnection::HasRoom(const StripePlan& plan) {
  const uint32_t each = (plan.stripes + lane_count_ - 1) / lane_count_;
  uint32_t lane = next_lane_;
  for (uint32_t i = 0; i < plan.stripes && i < lane_count_; ++i) {
    if (lanes_[lane].outstanding + each > kLaneStripesMax) return false;
    lane = LaneAfter(lane);
  }
  return true;
}

Outcome SendConnection::Send(const void* data, uint64_t size, int tag, const MemoryKeys* keys,
                             Request** request) {
  *request = nullptr;
  ConnectionGuard guard(&lock_);
  if (failed_ != Outcome::kOk) [[unlikely]]
    return failed_;
  // Asked again and again before the receive is there: nothing else is done until then.
  if (!HasArrived(memory_->fifo[SlotOf(next_sequence_)][0], next_sequence_)) return Outcome::kOk;
  return SendAnnounced(data, size, tag, keys, request);
}

Outcome SendConnection::SendAnnounced(const void* data, uint64_t size, int tag,
                                      const MemoryKeys* keys, Request** request) {
  const uint64_t sequence = next_sequence_;
  const uint32_t slot = SlotOf(sequence);
  const CtsEntry* group = memory_->fifo[slot];
  uint32_t index = slot * kReceivesMax;
  const bool alone = group[0].receives == 1;
  if (!alone || group[0].tag != tag) {
    if (group[0].receives - 1u >= kReceivesMax) [[unlikely]]
      return FailProtocol(0);
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
  if (one_stripe) {
    if (lanes_[next_lane_].outstanding >= kLaneStripesMax) return Outcome::kOk;
  } else {
    plan = PlanStripes(size, rules_.lanes_per_send);
    if (!HasRoom(plan)) return Outcome::kOk;
  }

  taken->kind = Request::kSend;
  taken->done = false;
  taken->sequence = sequence;
  taken->size = size;
  taken->address = reinterpret_cast<uintptr_t>(data);
  taken->lanes_planned = rules_.lanes_per_send;
  taken->first_lane = next_lane_;
  if (alone) {
    next_sequence_ = sequence + 1;
  } else {
    matched_ |= 1u << index % kReceivesMax;
    if (matched_ == (1u << group[0].receives) - 1) {
      matched_ = 0;
      next_sequence_ = sequence + 1;
    }
  }
  Outcome posted;
  if (one_stripe) {
    taken->unacknowledged[0] = 1;
    taken->unacknowledged[1] = 0;
    posted = PostStripe(taken->address, size, entry.address,
                        index / kReceivesMax | index % kReceivesMax << 5, entry, keys, size);
  } else {
    posted = PostStripes(taken, plan, entry, keys, index);
  }
  if (posted != Outcome::kOk) [[unlikely]]
    return posted;
  *request = taken;
  return Outcome::kOk;
}

Outcome SendConnection::PostStripes(SendRequest* request, const StripePlan& plan,
                                    const CtsEntry& entry, const MemoryKeys* keys, uint32_t index) {
  const uint32_t stripes = plan.stripes;
  request->unacknowledged[0] = stripes < 64 ? (uint64_t{1} << stripes) - 1 : ~uint64_t{0};
  request->unacknowledged[1] = stripes <= 64 ? 0 : ~uint64_t{0} >> (kStripesMax - stripes);
  Immediate immediate = {.slot = index / kReceivesMax,
                         .receive = index % kReceivesMax,
                         .stripe = 0,
                         .stripes = stripes,
                         .has_record = false,
                         .epoch = 0};
  for (uint32_t stripe = 0; stripe < stripes; ++stripe) {
    immediate.stripe = stripe;
    const uint64_t offset = plan.Offset(stripe);
    const Outcome posted =
        PostStripe(request->address + offset, plan.Length(stripe, request->size),
                   entry.address + offset, PackImmediate(immediate), entry, keys, request->size);
    if (posted != Outcome::kOk) return posted;
  }
  return Outcome::kOk;
}

inline Outcome SendConnection::PostStripe(uint64_t address, uint64_t length,
                                          uint64_t remote_address, uint32_t bits,
                                          const CtsEntry& entry, const MemoryKeys* keys,
                                          uint64_t total_size) {
  const uint32_t lane_index = next_lane_;
  Lane& lane = lanes_[lane_index];
  next_lane_ = LaneAfter(lane_index);
  // Without data no address and no key may be named, and a length of 0 would mean 2 GiB to some.
  write_.num_sge = 0;
  if (length > 0) {
    write_.num_sge = 1;
    sge_.addr = address;
    sge_.length = static_cast<uint32_t>(length);
    sge_.lkey = keys->local[lane.local_device];
  }
  const uint32_t index = (bits & 0x1f) * kReceivesMax | (bits >> 5 & 0x7);
  write_.wr_id = PackWorkId({.kind = WorkKind::kData,
                             .lane = static_cast<uint16_t>(lane_index),
                             .stripe = static_cast<uint8_t>(bits >> 8 & 0x7f),
                             .index = static_cast<uint16_t>(index)});
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
  ++lane.outstanding;
  const int error = lane.qp->PostSend(&write_);
  if (error != 0) [[unlikely]]
    return FailPost(lane_index, error);
  return Outcome::kOk;
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
    if (!request->done) return failed_;
  }
  *done = 1;
  if (size != nullptr) *size = static_cast<int>(std::min<uint64_t>(request->size, INT_MAX));
  request->kind = Request::kNone;
  return Outcome::kOk;
}

Outcome SendConnection::Poll() {
  ConnectionGuard guard(&lock_);
  PollLocked();
  return failed_;
}

absl::Status SendConnection::Close() {
  absl::Status closed = Connection::Close();
  ConnectionGuard guard(&lock_);
  for (SendRequest& request : requests_) request.kind = Request::kNone;
  return closed;
}

void SendConnection::Take(const ibv_wc* completions, int count, uint32_t device) {
  if (count < 0) [[unlikely]] {
    Fail({.kind = Fault::Kind::kQueue, .device = static_cast<int>(device)});
  }
  for (int i = 0; i < count; ++i) Complete(completions[i], device);
}

inline Outcome SendConnection::Complete(const ibv_wc& wc, uint32_t device) {
  const WorkId id = UnpackWorkId(wc.wr_id);
  Lane& lane = lanes_[id.lane];
  if (lane.state == LaneState::kFenced) {
    ++stale_completions_;
    return Outcome::kOk;
  }
  if (wc.status != IBV_WC_SUCCESS) return FailCompletion(id.lane, device, wc);
  --lane.outstanding;
  SendRequest& request = requests_[id.index];
  request.unacknowledged[id.stripe / 64] &= ~(uint64_t{1} << id.stripe % 64);
  request.done = (request.unacknowledged[0] | request.unacknowledged[1]) == 0;
  return Outcome::kOk;
}

}  // namespace railhop::datapath
