#include "cc/datapath/send_connection.h"

#include <arpa/inet.h>

#include <atomic>
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
  announce_.sg_list = &record_sge_;
  announce_.num_sge = 1;
  announce_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  announce_.send_flags = IBV_SEND_SIGNALED;
  record_sge_.length = sizeof(uint64_t);
  for (SendRequest& request : requests_) request.owner = this;
}

int SendConnection::Match(const CtsEntry* group, uint64_t sequence, int tag) {
  const uint32_t receives = group[0].receives;
  for (uint32_t i = 0; i < receives && i < kReceivesMax; ++i) {
    if (!HasArrived(group[i], sequence)) return -1;
    if (group[i].tag == tag && (matched_ >> i & 1) == 0) return static_cast<int>(i);
  }
  return -1;
}

bool SendConnection::HasRoom(const StripePlan& plan) {
  const auto lanes = static_cast<uint32_t>(lanes_.size());
  const uint32_t each = plan.stripes <= lanes ? 1 : (plan.stripes + lanes - 1) / lanes;
  uint32_t lane = next_lane_;
  for (uint32_t i = 0; i < plan.stripes && i < lanes; ++i) {
    if (lanes_[lane].outstanding + each > kLaneStripesMax) return false;
    if (++lane == lanes) lane = 0;
  }
  return true;
}

Outcome SendConnection::Send(const void* data, uint64_t size, int tag, const MemoryKeys* keys,
                             Request** request) {
  *request = nullptr;
  ConnectionGuard guard(&lock_);
  if (failed_ != Outcome::kOk) return failed_;
  const uint64_t sequence = next_sequence_;
  const uint32_t slot = SlotOf(sequence);
  const CtsEntry* group = memory_->fifo[slot];
  if (!HasArrived(group[0], sequence)) return Outcome::kOk;
  const int receive = Match(group, sequence, tag);
  if (receive < 0) return Outcome::kOk;
  const CtsEntry& entry = group[receive];
  if (size > entry.size || size > kSendBytesMax) return Outcome::kMisuse;
  if (size > 0 && (keys == nullptr || !keys->Covers(data, size))) return Outcome::kMisuse;
  const uint32_t index = slot * kReceivesMax + static_cast<uint32_t>(receive);
  SendRequest* const taken = &requests_[index];
  if (taken->kind != Request::kNone) return Outcome::kOk;
  const StripePlan plan = PlanStripes(size, rules_.lanes_per_send);
  if (!HasRoom(plan)) return Outcome::kOk;

  taken->kind = Request::kSend;
  taken->done = false;
  taken->sequence = sequence;
  taken->size = size;
  taken->address = reinterpret_cast<uintptr_t>(data);
  taken->lanes_planned = rules_.lanes_per_send;
  taken->first_lane = next_lane_;
  if (group[0].receives == 1) {
    next_sequence_ = sequence + 1;
  } else {
    matched_ |= 1u << receive;
    if (matched_ == (1u << group[0].receives) - 1) {
      matched_ = 0;
      next_sequence_ = sequence + 1;
    }
  }
  const Outcome posted = Post(taken, plan, entry, keys, index);
  if (posted != Outcome::kOk) return posted;
  *request = taken;
  return Outcome::kOk;
}

Outcome SendConnection::Post(SendRequest* request, const StripePlan& plan, const CtsEntry& entry,
                             const MemoryKeys* keys, uint32_t index) {
  const uint32_t stripes = plan.stripes;
  request->unacknowledged[0] = stripes < 64 ? (uint64_t{1} << stripes) - 1 : ~uint64_t{0};
  request->unacknowledged[1] = stripes <= 64 ? 0 : ~uint64_t{0} >> (kStripesMax - stripes);
  const bool with_record = rules_.adaptive_routing && request->size > rules_.ar_threshold;
  if (with_record) (&memory_->sizes.bytes[0][0])[index] = request->size;
  const auto lanes = static_cast<uint32_t>(lanes_.size());
  uint32_t immediate = PackImmediate({.slot = index / kReceivesMax,
                                      .receive = index % kReceivesMax,
                                      .stripe = 0,
                                      .stripes = stripes,
                                      .has_record = with_record,
                                      .epoch = 0});
  uint64_t work_id = PackWorkId(
      {.kind = WorkKind::kData, .lane = 0, .stripe = 0, .index = static_cast<uint16_t>(index)});
  uint64_t offset = 0;
  uint64_t left = request->size;
  for (uint32_t stripe = 0;;) {
    const uint64_t length = left < plan.stripe_bytes ? left : plan.stripe_bytes;
    Lane& lane = lanes_[next_lane_];
    sge_.addr = request->address + offset;
    write_.wr.rdma.remote_addr = entry.address + offset;
    write_.imm_data = htonl(immediate | lane.epoch << 23);
    write_.wr_id = work_id | uint64_t{next_lane_} << 8;
    const Outcome posted = PostStripe(next_lane_, index, length, keys, entry, with_record);
    if (posted != Outcome::kOk) return posted;
    if (++next_lane_ == lanes) next_lane_ = 0;
    if (++stripe == stripes) return Outcome::kOk;
    offset += length;
    left -= length;
    immediate += 1u << 8;
    work_id += uint64_t{1} << 24;
  }
}

Outcome SendConnection::PostStripe(uint32_t lane_index, uint32_t index, uint64_t length,
                                   const MemoryKeys* keys, const CtsEntry& entry,
                                   bool with_record) {
  Lane& lane = lanes_[lane_index];
  // Without data no address and no key may be named, and a length of 0 would mean 2 GiB to some.
  write_.num_sge = 0;
  if (length > 0) {
    write_.num_sge = 1;
    sge_.length = static_cast<uint32_t>(length);
    sge_.lkey = keys->local[lane.local_device];
  }
  write_.wr.rdma.rkey = entry.remote_keys[lane.remote_device];
  if (!with_record) {
    write_.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write_.send_flags = IBV_SEND_SIGNALED;
    write_.next = nullptr;
  } else {
    write_.opcode = IBV_WR_RDMA_WRITE;
    write_.send_flags = 0;
    write_.next = &announce_;
    announce_.wr_id = write_.wr_id;
    announce_.imm_data = write_.imm_data;
    announce_.wr.rdma.remote_addr = peer_.address + offsetof(ReceiverMemory, sizes) + index * 8;
    announce_.wr.rdma.rkey = peer_.remote_keys[lane.remote_device];
    record_sge_.addr = reinterpret_cast<uintptr_t>(&memory_->sizes.bytes[0][0] + index);
    record_sge_.lkey = devices_[lane.local_device].control->local_key();
  }
  ++lane.outstanding;
  const int error = lane.qp->PostSend(&write_);
  return error == 0 ? Outcome::kOk : FailPost(lane_index, error);
}

Outcome SendConnection::Test(SendRequest* request, bool* done, uint64_t* size) {
  *done = false;
  ConnectionGuard guard(&lock_);
  if (request->kind != Request::kSend) return Outcome::kMisuse;
  if (!request->done) {
    if (failed_ != Outcome::kOk) return failed_;
    const Outcome polled = PollLocked();
    // What had completed before the fault is done all the same.
    if (!request->done) return polled;
  }
  *done = true;
  if (size != nullptr) *size = request->size;
  request->kind = Request::kNone;
  return Outcome::kOk;
}

Outcome SendConnection::Poll() {
  ConnectionGuard guard(&lock_);
  return failed_ != Outcome::kOk ? failed_ : PollLocked();
}

absl::Status SendConnection::Close() {
  absl::Status closed = Connection::Close();
  ConnectionGuard guard(&lock_);
  for (SendRequest& request : requests_) request.kind = Request::kNone;
  return closed;
}

Outcome SendConnection::PollLocked() {
  const auto devices = static_cast<uint32_t>(devices_.size());
  for (uint32_t device = 0; device < devices; ++device) {
    ibv_wc completions[kPollBatch];
    const int count = devices_[device].cq->Poll(kPollBatch, completions);
    if (count < 0) return Fail({.kind = Fault::Kind::kQueue, .device = static_cast<int>(device)});
    for (int i = 0; i < count; ++i) Complete(completions[i], device);
  }
  return failed_;
}

Outcome SendConnection::Complete(const ibv_wc& wc, uint32_t device) {
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
