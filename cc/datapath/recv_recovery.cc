// What a receiving end does after a fence, and the flush, which must know what has died.
#include <algorithm>
#include <bit>
#include <utility>

#include "cc/datapath/recv_connection.h"

namespace railhop::datapath {

// ---- After a fence.

ReceiverRecord RecvConnection::Record() {
  ConnectionGuard guard(&lock_);
  ReceiverRecord record;
  record.next_sequence = next_sequence_;
  record.complete_below = CompleteBelow();
  for (uint64_t s = record.complete_below; s < next_sequence_; ++s) {
    const Transfer& transfer = transfers_[SlotOf(s)];
    if (transfer.sequence != s || !IsOpen(SlotOf(s))) continue;
    OpenTransfer open = {.sequence = s, .receives = {}};
    for (uint32_t i = 0; i < transfer.receives; ++i) {
      const ArrivalRecord& arrival = transfer.records[i];
      OpenReceive receive;
      if (arrival.missing != kStripesUnknown) {
        receive.arrived = {arrival.arrived[0], arrival.arrived[1]};
        receive.stripes =
            arrival.missing + static_cast<uint32_t>(std::popcount(arrival.arrived[0]) +
                                                    std::popcount(arrival.arrived[1]));
      }
      open.receives.push_back(receive);
    }
    record.open.push_back(std::move(open));
  }
  return record;
}

ResumeResult RecvConnection::Resume(const SenderRecord& record, absl::Span<const LaneRef> lanes,
                                    uint32_t epoch) {
  ConnectionGuard guard(&lock_);
  ResumeResult result;
  // It has sent nothing that was not announced. The record may be older than our ledger.
  result.sequence = record.next_sequence;
  const bool is_possible =
      record.next_sequence >= kFirstSequence && record.next_sequence <= next_sequence_ &&
      std::all_of(record.announcements.begin(), record.announcements.end(),
                  [this](uint64_t sequence)
                      ABSL_NO_THREAD_SAFETY_ANALYSIS { return sequence < next_sequence_; });
  if (!is_possible) {
    result.status = ResumeResult::Status::kLie;
    return result;
  }
  result.sequence = 0;
  const LaneSet fenced = FencedOf(lanes);
  const auto is_over = [this, &fenced](const UnderWay& write) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return fenced.Has(write.lane) && lanes_[write.lane].epoch == write.epoch;
  };
  repeats_.erase(std::remove_if(repeats_.begin(), repeats_.end(), is_over), repeats_.end());
  RepeatsChanged();
  if (confirm_under_way_ && is_over(confirm_on_)) {
    confirm_under_way_ = false;
    confirmed_below_ = kFirstSequence;
  }
  AnnounceAgain(epoch);
  result.stripes = static_cast<uint32_t>(std::popcount(to_announce_));
  Free(fenced);
  Settle(false);
  return result;
}

void RecvConnection::AnnounceAgain(uint32_t epoch) {
  epoch_ = std::max(epoch_, epoch);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    if (IsOpen(slot)) to_announce_ |= uint32_t{1} << slot;
  }
  if (to_announce_ != 0) attention_ |= kWaiting;
  renewed_slots_ |= vacated_slots_;
}

void RecvConnection::Reannounce(uint32_t epoch) {
  ConnectionGuard guard(&lock_);
  AnnounceAgain(epoch);
  Settle(false);
}

uint32_t RecvConnection::epoch() const {
  ConnectionGuard guard(&lock_);
  return epoch_;
}

bool RecvConnection::MayReplace(uint32_t slot) {
  // Entries from before it was vacated have the old device's keys in its slot.
  const uint32_t bit = 1u << slot;
  if ((vacated_slots_ & bit) == 0) return true;
  return (renewed_slots_ & bit) != 0 && to_announce_ == 0 && repeats_.empty();
}

void RecvConnection::Replaced(uint32_t slot, bool is_same) {
  const auto bit = static_cast<uint8_t>(1u << slot);
  renewed_slots_ &= static_cast<uint8_t>(~bit);
  for (const FlushRequest& flush : flushes_) {
    if (flush.kind == Request::kFlush && !flush.done && (flush.slots & bit) != 0) {
      Fail({.kind = Fault::Kind::kLost, .device = static_cast<int>(slot)});
    }
  }
  if (is_same) return;
  for (Transfer& transfer : transfers_) {
    transfer.lost_slots |= static_cast<uint8_t>(transfer.slots & bit);
    transfer.slots &= static_cast<uint8_t>(~bit);
  }
}

// ---- Flushes.

uint32_t RecvConnection::SlotsToFlush(const void* data, bool* lost) {
  uint32_t all = 0;
  for (uint32_t slot = 0; slot < device_count_; ++slot) {
    if (devices_[slot].flush.qp != nullptr && (broken_slots_ >> slot & 1) == 0) all |= 1u << slot;
  }
  const auto address = reinterpret_cast<uintptr_t>(data);
  *lost = false;
  // NCCL flushes what it has just been given; else the newest that fits.
  for (uint32_t i = 0; i < kSlots; ++i) {
    const uint32_t slot = (last_tested_ + kSlots - i) % kSlots;
    const Transfer& transfer = transfers_[slot];
    if (transfer.kind != Request::kNone || transfer.sequence == 0) continue;
    for (uint32_t r = 0; r < transfer.receives; ++r) {
      if (memory_->staging[slot][r].address != address) continue;
      *lost = transfer.lost_slots != 0 || (transfer.slots & ~all) != 0;
      return transfer.slots & all;
    }
  }
  return all;
}

bool RecvConnection::PostFlush(uint32_t index, uint32_t slot, uint64_t address, uint32_t key) {
  ibv_sge landing = {.addr = reinterpret_cast<uintptr_t>(&memory_->flush_landing[slot]),
                     .length = 1,
                     .lkey = devices_[slot].control->local_key()};
  ibv_send_wr read = {};
  read.wr_id = PackWorkId({.kind = WorkKind::kFlush,
                           .lane = static_cast<uint8_t>(slot),
                           .stripe = 0,
                           .index = static_cast<uint16_t>(index)});
  read.sg_list = &landing;
  read.num_sge = 1;
  read.opcode = IBV_WR_RDMA_READ;
  read.send_flags = IBV_SEND_SIGNALED;
  read.wr.rdma.remote_addr = address;
  read.wr.rdma.rkey = key;
  const int error = devices_[slot].flush.qp->PostSend(&read);
  if (error == 0) return true;
  Fail({.kind = Fault::Kind::kPost, .device = static_cast<int>(slot), .code = error});
  return false;
}

Outcome RecvConnection::Flush(int n, void* const* data, const int* sizes,
                              const MemoryKeys* const* keys, Request** request) {
  *request = nullptr;
  if (n < 1 || n > static_cast<int>(kReceivesMax)) return Outcome::kMisuse;
  ConnectionGuard guard(&lock_);
  if ((attention_ & kFailed) != 0) return failed_;
  if (!wants_flush_) return Outcome::kOk;
  int last = n - 1;
  while (last >= 0 && sizes[last] <= 0) --last;
  if (last < 0) return Outcome::kOk;
  if (keys[last] == nullptr || !keys[last]->Covers(data[last], 1)) return Outcome::kMisuse;
  const uint32_t index = next_flush_;
  FlushRequest* const flush = &flushes_[index];
  // 32 transfers at most wait for a flush, one for each: the place is free unless the caller has
  // broken the rule.
  if (flush->kind != Request::kNone) return Outcome::kMisuse;
  bool lost;
  const uint32_t slots = SlotsToFlush(data[last], &lost);
  if (lost && (flush_without_nic_ == nullptr || !flush_without_nic_(data[last]))) {
    Fail({.kind = Fault::Kind::kLost});
    return NotNow();
  }
  if (slots == 0) return Good();
  flush->kind = Request::kFlush;
  flush->done = false;
  flush->slots = slots;
  flush->missing = static_cast<uint8_t>(std::popcount(slots));
  for (uint32_t slot = 0; slot < device_count_; ++slot) {
    if ((slots >> slot & 1) == 0) continue;
    const auto physical = static_cast<uint32_t>(devices_[slot].physical);
    if (!PostFlush(index, slot, reinterpret_cast<uintptr_t>(data[last]),
                   keys[last]->Remote(physical))) {
      break;
    }
  }
  if ((attention_ & kFailed) != 0) return failed_;
  next_flush_ = (next_flush_ + 1) % kSlots;
  *request = flush;
  return Good();
}

void RecvConnection::CompleteFlush(const WorkId& id, const ibv_wc& wc) {
  FlushRequest& flush = flushes_[id.index];
  const uint32_t bit = 1u << id.lane;
  // Of a device that has been replaced since.
  if (flush.kind != Request::kFlush || (flush.slots & bit) == 0) {
    ++stale_completions_;
    return;
  }
  if (wc.status != IBV_WC_SUCCESS) return FailCompletion(-1, id.lane, wc);
  flush.slots &= ~bit;
  flush.done = --flush.missing == 0;
}

Outcome RecvConnection::Test(FlushRequest* request, int* done) {
  *done = 0;
  ConnectionGuard guard(&lock_);
  if (request->kind != Request::kFlush) [[unlikely]]
    return Outcome::kMisuse;
  if (!request->done) {
    PollAll();
    if (!request->done) {
      Settle(true);
      return NotNow();
    }
  }
  *done = 1;
  request->kind = Request::kNone;
  return Good();
}

}  // namespace railhop::datapath
