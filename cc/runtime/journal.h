// What happened, one entry for each change of state: the source of log lines, metrics and traces.
//
// A ring: the oldest entries go when it is full, and whoever reads from an older place is told how
// many are gone. Counters never go back.
#ifndef RAILHOP_CC_RUNTIME_JOURNAL_H_
#define RAILHOP_CC_RUNTIME_JOURNAL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cc/engine/ids.h"
#include "cc/engine/messages.h"
#include "cc/engine/verdict.h"

namespace railhop::runtime {

struct JournalEntry {
  enum class Kind : uint8_t {
    kPortState,  // local: `text` names the state
    kPathState,  // local, peer, remote
    kEpisode,    // an episode began: cause, blame
    kSuspect,    // end, epoch, cause: lanes are left; value = how many
    kResumed,    // end, epoch: both records compared; value = bytes to be sent again
    kMoved,      // end, epoch: lanes were added; local, remote of the first; value = how many
    kRetired,    // end, epoch: surplus lanes are left in order; value = how many
    kRecovered,  // the episode is over: value = ns it took, bytes = resent
    kNoPath,     // end: nothing can carry it at present
    kGaveUp,     // end
    kPeerLost,   // peer: cause in `text`
    kSession,    // peer: the control channel came up or was lost
    kNoCover,    // local: memory cannot be registered there
    kCommand,    // local, or end: drain, hold, force, release, fail back
    kOption,     // text: NAME=VALUE
    kCount_,
  };

  uint64_t serial = 0;  // from 1, without gaps
  int64_t time_ns = 0;  // of the clock that the driver goes by
  Kind kind = Kind::kPortState;
  uint64_t episode = 0;  // 0 = none
  int local = -1;        // PhysicalDevice::id
  engine::InstanceId peer = 0;
  int remote = -1;
  engine::EndId end = {};
  uint32_t epoch = 0;
  engine::Cause cause = engine::Cause::kNone;
  engine::Blame blame = engine::Blame::kUnknown;
  uint64_t value = 0;
  uint64_t bytes = 0;
  std::string text = {};
};
const char* JournalKindText(JournalEntry::Kind kind);
const char* CauseText(engine::Cause cause);

struct JournalCounters {
  std::array<uint64_t, static_cast<size_t>(JournalEntry::Kind::kCount_)> entries = {};
  uint64_t bytes_resent = 0;
  uint64_t stripes_resent = 0;
  uint64_t probes_sent = 0;
  uint64_t probes_answered = 0;
  uint64_t probes_unanswered = 0;
  uint64_t stale_messages = 0;    // of an old epoch, or of nothing we know
  uint64_t refused_messages = 0;  // that no honest peer sends

  uint64_t Count(JournalEntry::Kind kind) const { return entries[static_cast<size_t>(kind)]; }
};

// Thread-safe.
class Journal {
 public:
  static constexpr size_t kEntriesMax = 8192;

  // Numbers the entry and keeps it. Also a line for the log, at trace.
  void Append(JournalEntry entry);

  // Entries with serial > after, oldest first, at most `limit`. *gone: how many of them the ring
  // has dropped.
  std::vector<JournalEntry> Since(uint64_t after, size_t limit, uint64_t* gone) const;
  uint64_t last_serial() const;
  // Called at each Append, under the journal's lock: for a wake-up, no more. nullptr: nobody.
  void SetListener(std::function<void()> listener);

  JournalCounters counters() const;
  // Changes counters that have no entry of their own.
  template <typename Change>
  void Count(const Change& change) {
    absl::MutexLock lock(&mutex_);
    change(&counters_);
  }

 private:
  mutable absl::Mutex mutex_;
  std::deque<JournalEntry> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  JournalCounters counters_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> listener_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_JOURNAL_H_
