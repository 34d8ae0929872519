// What a sending end does after a fence: its record, and the comparison with the receiver's.
#include <algorithm>

#include "cc/datapath/send_connection.h"

namespace railhop::datapath {

// ---- After a fence.

SenderRecord SendConnection::Record() {
  ConnectionGuard guard(&lock_);
  SenderRecord record;
  record.next_sequence = next_sequence_;
  if (rules_.confirm) TakeConfirmations();
  record.confirmed_below = confirmed_below_;
  for (const auto& group : memory_->fifo) {
    const uint64_t sequence = __atomic_load_n(&group[0].sequence, __ATOMIC_ACQUIRE);
    if (sequence != 0 && sequence + kSlots >= next_sequence_) {
      record.announcements.push_back(sequence);
    }
  }
  std::sort(record.announcements.begin(), record.announcements.end());
  return record;
}

bool SendConnection::IsPossible(const OpenReceive& open, uint32_t index) {
  const SendRequest& request = requests_[index];
  const uint32_t stripes = PlanStripes(request.size, rules_.lanes_per_send).stripes;
  const bool some = (open.arrived[0] | open.arrived[1]) != 0;
  if (open.stripes == 0 ? some : open.stripes != stripes) return false;
  if ((open.arrived[0] & ~LowStripes(stripes)) != 0) return false;
  if ((open.arrived[1] & ~HighStripes(stripes)) != 0) return false;
  // What has not been posted, or was missing before, cannot be there.
  return waiting_ == nullptr || ((open.arrived[0] & waiting_[index].stripes[0]) |
                                 (open.arrived[1] & waiting_[index].stripes[1])) == 0;
}

bool SendConnection::IsPossible(const OpenTransfer& open) {
  const uint32_t slot = SlotOf(open.sequence);
  const CtsEntry* const group = memory_->fifo[slot];
  const size_t receives = open.receives.size();
  if (receives < 1 || receives > kReceivesMax) return false;
  if (HasArrived(group[0], open.sequence) && group[0].receives != receives) return false;
  for (uint32_t i = 0; i < kReceivesMax; ++i) {
    const uint64_t here = requests_[slot * kReceivesMax + i].sequence;
    if (here > open.sequence) continue;  // the record is older: it has completed since
    const bool sent = here == open.sequence;
    if (i >= receives) {
      if (sent) return false;
    } else if (sent) {
      if (!IsPossible(open.receives[i], slot * kReceivesMax + i)) return false;
    } else if (open.receives[i] != OpenReceive{}) {
      return false;
    }
  }
  return true;
}

bool SendConnection::IsPossible(const ReceiverRecord& record, const LaneSet& lanes,
                                uint64_t* sequence) {
  const uint64_t below = record.complete_below;
  const uint64_t next = record.next_sequence;
  *sequence = next;
  if (below < kFirstSequence || below > next || next - below > kSlots) return false;
  if (below > next_sequence_) return false;
  const auto is_open = [&record](uint64_t s) {
    return std::any_of(record.open.begin(), record.open.end(),
                       [s](const OpenTransfer& open) { return open.sequence == s; });
  };
  for (uint32_t i = 0; i < kRequests; ++i) {
    *sequence = requests_[i].sequence;
    // Complete, though something of it is not even posted.
    if (waiting_count_ > 0 && (waiting_[i].stripes[0] | waiting_[i].stripes[1]) != 0 &&
        *sequence < next && !is_open(*sequence)) {
      return false;
    }
    // Not announced, though we were sending it before the fence. What went over other lanes may
    // have been announced after the record was made.
    if (*sequence >= next && WentOver(i, lanes)) return false;
  }
  size_t at = 0;
  for (uint64_t s = below; s < next; ++s) {
    *sequence = s;
    if (at < record.open.size() && record.open[at].sequence == s) {
      if (!IsPossible(record.open[at])) return false;
      ++at;
    } else if (s >= next_sequence_) {
      return false;  // complete, but not all of it was sent
    }
  }
  return at == record.open.size();
}

bool SendConnection::WentOver(uint32_t index, const LaneSet& lanes) {
  const uint32_t stripes = PlanStripes(requests_[index].size, rules_.lanes_per_send).stripes;
  const uint8_t* const went_over = LanesOf(index, stripes);
  return std::any_of(went_over, went_over + stripes,
                     [&lanes](uint8_t lane) { return lane != kNoLane && lanes.Has(lane); });
}

bool SendConnection::Compare(uint32_t index, const OpenReceive* open, const LaneSet& lanes,
                             bool apply, ResumeResult* result) {
  SendRequest& request = requests_[index];
  const StripePlan plan = PlanStripes(request.size, rules_.lanes_per_send);
  uint8_t* const went_over = LanesOf(index, plan.stripes);
  for (uint32_t stripe = 0; stripe < plan.stripes; ++stripe) {
    if (went_over[stripe] == kNoLane || !lanes.Has(went_over[stripe])) continue;
    uint64_t* const word = Unacknowledged(index, stripe);
    const uint64_t bit = uint64_t{1} << stripe % 64;
    if (open == nullptr || (open->arrived[stripe / 64] & bit) != 0) {
      if (!apply || (*word & bit) == 0) continue;
      *word &= ~bit;
      if (--request.missing == 0) Acknowledged(&request);
      continue;
    }
    // Missing. If NCCL has the buffer back, there is nothing to send it from (rule 4).
    if (request.kind != Request::kSend) return false;
    if (!apply) continue;
    if ((*word & bit) == 0) {
      *word |= bit;
      ++request.missing;
    }
    request.done = false;
    went_over[stripe] = kNoLane;
    Wait(index, stripe);
    ++result->stripes;
    result->bytes += plan.Length(stripe, request.size);
  }
  return true;
}

bool SendConnection::CompareAll(const ReceiverRecord& record, const LaneSet& lanes, bool apply,
                                ResumeResult* result) {
  for (uint32_t index = 0; index < kRequests; ++index) {
    const SendRequest& request = requests_[index];
    if (request.sequence == 0) continue;
    const OpenReceive* open = nullptr;
    for (const OpenTransfer& transfer : record.open) {
      if (transfer.sequence == request.sequence) open = &transfer.receives[index % kReceivesMax];
    }
    if (open == nullptr && request.kind != Request::kSend) continue;
    result->sequence = request.sequence;
    if (!Compare(index, open, lanes, apply, result)) {
      result->status = ResumeResult::Status::kLost;
      return false;
    }
  }
  result->sequence = 0;
  return true;
}

ResumeResult SendConnection::Resume(const ReceiverRecord& record, absl::Span<const LaneRef> lanes) {
  ConnectionGuard guard(&lock_);
  ResumeResult result;
  const LaneSet fenced = FencedOf(lanes);
  if (!IsPossible(record, fenced, &result.sequence)) {
    result.status = ResumeResult::Status::kLie;
    return result;
  }
  if (!CompareAll(record, fenced, false, &result)) return result;
  confirmed_below_ = std::max(confirmed_below_, record.complete_below);
  CompareAll(record, fenced, true, &result);
  for (SendRequest& request : requests_) {
    if (request.kind == Request::kSend && request.missing == 0) Acknowledged(&request);
  }
  Free(fenced);
  Settle(false);
  return result;
}

void SendConnection::CompleteBelow(uint64_t sequence) {
  ConnectionGuard guard(&lock_);
  // What is not all sent is not complete.
  if (sequence > next_sequence_) return;
  for (uint32_t index = 0; index < kRequests; ++index) {
    SendRequest& request = requests_[index];
    if (request.kind != Request::kSend || request.sequence >= sequence) continue;
    if (waiting_ != nullptr && (waiting_[index].stripes[0] | waiting_[index].stripes[1]) != 0) {
      continue;
    }
    request.unacknowledged = 0;
    if (tables_[index] != nullptr) tables_[index]->unacknowledged = 0;
    request.missing = 0;
    request.done = true;
  }
}

}  // namespace railhop::datapath
