#include "cc/runtime/journal.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "cc/base/log.h"

namespace railhop::runtime {

const char* JournalKindText(JournalEntry::Kind kind) {
  switch (kind) {
    case JournalEntry::Kind::kPortState:
      return "port";
    case JournalEntry::Kind::kPathState:
      return "path";
    case JournalEntry::Kind::kEpisode:
      return "episode";
    case JournalEntry::Kind::kSuspect:
      return "suspect";
    case JournalEntry::Kind::kResumed:
      return "resumed";
    case JournalEntry::Kind::kMoved:
      return "moved";
    case JournalEntry::Kind::kRetired:
      return "retired";
    case JournalEntry::Kind::kRecovered:
      return "recovered";
    case JournalEntry::Kind::kNoPath:
      return "no-path";
    case JournalEntry::Kind::kGaveUp:
      return "gave-up";
    case JournalEntry::Kind::kPeerLost:
      return "peer-lost";
    case JournalEntry::Kind::kSession:
      return "session";
    case JournalEntry::Kind::kNoCover:
      return "no-cover";
    case JournalEntry::Kind::kCommand:
      return "command";
    case JournalEntry::Kind::kOption:
      return "option";
    case JournalEntry::Kind::kCount_:
      break;
  }
  return "?";
}

const char* CauseText(engine::Cause cause) {
  switch (cause) {
    case engine::Cause::kNone:
      return "no cause";
    case engine::Cause::kCompletion:
      return "a work request ended in error";
    case engine::Cause::kPost:
      return "a work request was refused";
    case engine::Cause::kPortDown:
      return "the port is down";
    case engine::Cause::kDeviceFatal:
      return "the device has failed";
    case engine::Cause::kQueuePair:
      return "a queue pair has failed";
    case engine::Cause::kStall:
      return "nothing gets through and nothing says why";
    case engine::Cause::kPeer:
      return "the other end has left it";
    case engine::Cause::kAddress:
      return "the port's address has changed";
    case engine::Cause::kCommand:
      return "failover was asked for";
    case engine::Cause::kDrain:
      return "drain was asked for";
    case engine::Cause::kFailBack:
      return "back to the nearest port";
  }
  return "?";
}

void Journal::Append(JournalEntry entry) {
  absl::MutexLock lock(&mutex_);
  entry.serial = ++last_;
  ++counters_.entries[static_cast<size_t>(entry.kind)];
  RAILHOP_LOG(kTrace,
              "journal %" PRIu64 " %s: episode %" PRIu64 ", port %d, peer %" PRIx64
              " port %d, connection %" PRIx64 " %s, epoch %u, %s, %s, %" PRIu64 ", %" PRIu64
              " bytes %s",
              entry.serial, JournalKindText(entry.kind), entry.episode, entry.local, entry.peer,
              entry.remote, entry.end.connection,
              entry.end.end == engine::End::kSender ? "sender" : "receiver", entry.epoch,
              CauseText(entry.cause), engine::BlameText(entry.blame), entry.value, entry.bytes,
              entry.text.c_str());
  entries_.push_back(std::move(entry));
  if (entries_.size() > kEntriesMax) entries_.pop_front();
  if (listener_) listener_();
}

void Journal::SetListener(std::function<void()> listener) {
  absl::MutexLock lock(&mutex_);
  listener_ = std::move(listener);
}

std::vector<JournalEntry> Journal::Since(uint64_t after, size_t limit, uint64_t* gone) const {
  absl::MutexLock lock(&mutex_);
  *gone = 0;
  // From here on `after + 1` is a number: a caller may give the greatest there is.
  if (after >= last_) return {};
  const uint64_t first = last_ - entries_.size() + 1;
  const uint64_t from = std::max(after + 1, first);
  *gone = after + 1 < first ? first - after - 1 : 0;
  std::vector<JournalEntry> found;
  for (uint64_t serial = from; serial <= last_ && found.size() < limit; ++serial) {
    found.push_back(entries_[serial - first]);
  }
  return found;
}

uint64_t Journal::last_serial() const {
  absl::MutexLock lock(&mutex_);
  return last_;
}

JournalCounters Journal::counters() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace railhop::runtime
