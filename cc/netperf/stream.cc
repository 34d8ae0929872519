#include "cc/netperf/stream.h"

#include <algorithm>

#include "cc/base/clock.h"
#include "cc/netperf/pattern.h"

namespace railhop::netperf {
namespace {

std::string Problem(const char* call, NetResult result, const Link& link, uint64_t group) {
  return std::string(call) + " of connection " + std::to_string(link.number) + ", group " +
         std::to_string(group) + ": " + NetResultName(result) + " (" + std::to_string(result) + ")";
}

// A connection that has failed says so every time.
constexpr char kThenGood[] = ", and success when asked again";

// Without check_all a slot keeps the pattern of its first group.
uint64_t Key(const Link& link, const Leg& leg, uint64_t group, int part) {
  const uint64_t own = leg.check_all ? group : group % static_cast<uint64_t>(leg.in_flight);
  return PatternKey(static_cast<uint64_t>(link.number), link.sent_before + own,
                    static_cast<uint64_t>(part));
}

uint64_t SizeOf(const Leg& leg, uint64_t group, int part) {
  return MessageSize(leg, group * static_cast<uint64_t>(leg.group) + static_cast<uint64_t>(part));
}

// Slots that the leg uses.
uint64_t Slots(const Leg& leg, uint64_t groups) {
  return std::min(groups, static_cast<uint64_t>(leg.in_flight));
}

}  // namespace

SendStream::SendStream(NetPlugin& plugin, Link& link, const Leg& leg, uint64_t groups)
    : plugin_(plugin),
      link_(link),
      leg_(leg),
      groups_(groups),
      slots_(Slots(leg, groups)),
      limit_(groups),
      requests_(static_cast<size_t>(leg.in_flight * leg.group)) {
  for (uint64_t slot = 0; slot < slots_; ++slot) {
    for (int part = 0; part < leg_.group; ++part) {
      SetGuards(link_.buffers.Data(slot, part), leg_.size);
    }
    if (!leg_.check_all) Fill(slot);
  }
}

void SendStream::Fill(uint64_t group) {
  for (int part = 0; part < leg_.group; ++part) {
    FillPattern(Key(link_, leg_, group, part), link_.buffers.Data(Slot(group), part),
                SizeOf(leg_, group, part));
  }
}

Step SendStream::Advance() {
  const Step posted = Post();
  if (posted == Step::kFailed) return posted;
  const Step tested = Test();
  return tested == Step::kIdle ? posted : tested;
}

Step SendStream::Post() {
  Step step = Step::kIdle;
  while (next_ < limit_ && next_ - done_ < static_cast<uint64_t>(leg_.in_flight)) {
    const uint64_t slot = Slot(next_);
    if (leg_.check_all && next_part_ == 0) Fill(next_);
    while (next_part_ < leg_.group) {
      // NCCL's variable may hold anything: the plugin has to write it.
      void* request = reinterpret_cast<void*>(1);
      const NetResult result =
          plugin_.Send(link_.comm, link_.buffers.Data(slot, next_part_),
                       SizeOf(leg_, next_, next_part_), next_part_, link_.memory, &request);
      if (result != kNetSuccess) {
        problem_ = Problem("isend", result, link_, next_);
        return Step::kFailed;
      }
      if (request == nullptr) return step;
      requests_[slot * static_cast<uint64_t>(leg_.group) + static_cast<uint64_t>(next_part_)] =
          request;
      ++next_part_;
      step = Step::kMoved;
    }
    next_part_ = 0;
    ++next_;
  }
  return step;
}

Step SendStream::Test() {
  Step step = Step::kIdle;
  while (done_ < next_) {
    const uint64_t slot = Slot(done_);
    for (int part = 0; part < leg_.group; ++part) {
      void*& request =
          requests_[slot * static_cast<uint64_t>(leg_.group) + static_cast<uint64_t>(part)];
      if (request == nullptr) continue;
      int done = 0;
      int size = -1;
      const NetResult result = plugin_.Test(request, &done, &size);
      if (result != kNetSuccess) {
        problem_ = Problem("test of a send", result, link_, done_);
        if (plugin_.Test(request, &done, &size) == kNetSuccess) problem_ += kThenGood;
        return Step::kFailed;
      }
      if (done == 0) return step;
      request = nullptr;
      step = Step::kMoved;
      if (leg_.check_all) Poison(link_.buffers.Data(slot, part), leg_.size);
    }
    ++done_;
  }
  return step;
}

uint64_t SendStream::Finish() {
  uint64_t wrong = 0;
  for (uint64_t slot = 0; slot < slots_; ++slot) {
    for (int part = 0; part < leg_.group; ++part) {
      wrong += CountBrokenGuards(link_.buffers.Data(slot, part), leg_.size);
    }
  }
  link_.sent_before += groups_;
  return wrong;
}

void SendStream::MeetEnd(Board::Meeting* meeting) {
  if (!stopping_) {
    stopping_ = true;
    limit_ = next_ + (next_part_ > 0 ? 1 : 0);
    meeting->sent.store(limit_ + 1, std::memory_order_relaxed);
  }
  const uint64_t end = meeting->end.load(std::memory_order_relaxed);
  if (end != 0) groups_ = limit_ = end - 1;
}

RecvStream::RecvStream(NetPlugin& plugin, Link& link, const Leg& leg, uint64_t groups,
                       Counts* counts)
    : plugin_(plugin),
      link_(link),
      leg_(leg),
      groups_(groups),
      slots_(Slots(leg, groups)),
      counts_(counts),
      limit_(groups),
      requests_(static_cast<size_t>(leg.in_flight)) {
  for (uint64_t slot = 0; slot < slots_; ++slot) {
    for (int part = 0; part < leg_.group; ++part) {
      SetGuards(link_.buffers.Data(slot, part), leg_.size);
      Poison(link_.buffers.Data(slot, part), leg_.size);
    }
  }
}

Step RecvStream::Advance(int* received) {
  *received = 0;
  Step step = Post();
  while (step != Step::kFailed && done_ < next_) {
    int done = 0;
    int sizes[kGroupMax];
    std::fill(std::begin(sizes), std::end(sizes), -1);
    const NetResult result = plugin_.Test(requests_[Slot(done_)], &done, sizes);
    if (result != kNetSuccess) {
      problem_ = Problem("test of a receive", result, link_, done_);
      if (plugin_.Test(requests_[Slot(done_)], &done, sizes) == kNetSuccess) problem_ += kThenGood;
      return Step::kFailed;
    }
    if (done == 0) break;
    Accept(sizes);
    *received += leg_.group;
    ++done_;
    step = Step::kMoved;
  }
  return step;
}

Step RecvStream::Post() {
  Step step = Step::kIdle;
  while (next_ < limit_ && next_ - done_ < static_cast<uint64_t>(leg_.in_flight)) {
    void* data[kGroupMax];
    size_t sizes[kGroupMax];
    int tags[kGroupMax];
    void* memories[kGroupMax];
    for (int part = 0; part < leg_.group; ++part) {
      data[part] = link_.buffers.Data(Slot(next_), part);
      sizes[part] = leg_.size;
      tags[part] = part;
      memories[part] = link_.memory;
    }
    void* request = nullptr;
    const NetResult result =
        plugin_.Receive(link_.comm, leg_.group, data, sizes, tags, memories, &request);
    if (result != kNetSuccess) {
      problem_ = Problem("irecv", result, link_, next_);
      return Step::kFailed;
    }
    if (request == nullptr) return step;
    requests_[Slot(next_)] = request;
    ++next_;
    step = Step::kMoved;
  }
  return step;
}

// Group done_ has come.
void RecvStream::Accept(const int* sizes) {
  NoteGap(RealClock().NowNs());
  for (int part = 0; part < leg_.group; ++part) {
    const uint64_t size = SizeOf(leg_, done_, part);
    ++counts_->messages;
    counts_->bytes += size;
    counts_->wrong_sizes += static_cast<uint64_t>(sizes[part]) != size;
    if (!leg_.check_all) continue;
    Compare(done_, part);
    Poison(link_.buffers.Data(Slot(done_), part), leg_.size);
  }
}

void RecvStream::Compare(uint64_t group, int part) {
  const uint8_t* data = link_.buffers.Data(Slot(group), part);
  const uint64_t size = SizeOf(leg_, group, part);
  counts_->wrong_bytes += CountWrong(Key(link_, leg_, group, part), data, size);
  counts_->wrong_bytes += CountTouched(data + size, leg_.size - size);
}

void RecvStream::NoteGap(int64_t now_ns) {
  const uint64_t after = done_ * static_cast<uint64_t>(leg_.group);
  if (last_ns_ != 0 && now_ns - last_ns_ > counts_->longest_gap_ns) {
    counts_->longest_gap_ns = now_ns - last_ns_;
    counts_->longest_gap_after = after;
  }
  if (leg_.gap_min_ns > 0 && last_ns_ != 0 && now_ns - last_ns_ >= leg_.gap_min_ns) {
    gaps_.push_back({link_.number, after, last_ns_, now_ns});
  }
  last_ns_ = now_ns;
}

void RecvStream::MeetEnd(Board::Meeting* meeting) {
  if (met_) return;
  if (!stopping_) {
    stopping_ = true;
    limit_ = next_;
  }
  const uint64_t sent = meeting->sent.load(std::memory_order_relaxed);
  if (sent == 0) return;
  met_ = true;
  groups_ = limit_ = std::max(next_, sent - 1);
  meeting->end.store(groups_ + 1, std::memory_order_relaxed);
}

void RecvStream::Finish() {
  for (uint64_t slot = 0; slot < slots_; ++slot) {
    for (int part = 0; part < leg_.group; ++part) {
      const uint8_t* data = link_.buffers.Data(slot, part);
      counts_->wrong_bytes += CountBrokenGuards(data, leg_.size);
      if (leg_.check_all) {
        // Poisoned since its last message: nothing may have come after it.
        counts_->wrong_bytes += CountTouched(data, leg_.size);
      } else if (slot < done_) {
        Compare(slot, part);
      }
    }
  }
  link_.sent_before += groups_;
}

}  // namespace railhop::netperf
