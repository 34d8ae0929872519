// Answers the admin API's requests, wherever they come from: the unix socket (admin_service.h) or a
// call in the process (cc/admin/railhop_admin.h).
//
// Any thread may ask at any time, also before the transport starts and after it has ended. What is
// told may be up to 10 ms old, so that a thousand readings in a second cost the data path no more
// than a hundred; after a command it is fresh.
#ifndef RAILHOP_CC_RUNTIME_ADMIN_DESK_H_
#define RAILHOP_CC_RUNTIME_ADMIN_DESK_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cc/admin/requests.h"
#include "cc/config/options.h"
#include "cc/runtime/driver.h"
#include "cc/runtime/health.h"

namespace railhop::runtime {

class FailoverService;

class AdminDesk {
 public:
  struct Setting {
    config::LoadedOptions loaded;
    std::string job;
  };

  // The one of the process; never destroyed.
  static AdminDesk& OfThisProcess();

  // The transport runs from now on.
  void Open(Setting setting) ABSL_LOCKS_EXCLUDED(open_mutex_);
  // It is about to end. No request is being answered any more when this returns; those that wait
  // for events are told so.
  void Close() ABSL_LOCKS_EXCLUDED(open_mutex_);

  // At once: GetEvents gives what there is. In a child that was forked: kNotLoaded, without a lock;
  // Close does nothing there.
  admin::Response Answer(const admin::Request& request) ABSL_LOCKS_EXCLUDED(open_mutex_);
  // The same, but GetEvents waits for its first event in this thread.
  admin::Response AnswerWaiting(const admin::Request& request) ABSL_LOCKS_EXCLUDED(open_mutex_);

  // Whoever waits for events without a thread: `wake` is called, by any thread, when there may be
  // new ones, while somebody says that he waits. It must not block or call back.
  void SetWaker(std::function<void()> wake) ABSL_LOCKS_EXCLUDED(news_mutex_);
  void BeginWaiting() { waiting_.fetch_add(1, std::memory_order_acq_rel); }
  void EndWaiting() { waiting_.fetch_sub(1, std::memory_order_acq_rel); }

 private:
  AdminDesk() = default;

  admin::Process MakeProcess() const ABSL_SHARED_LOCKS_REQUIRED(open_mutex_);
  std::shared_ptr<const HealthInput> Input() ABSL_SHARED_LOCKS_REQUIRED(open_mutex_)
      ABSL_LOCKS_EXCLUDED(input_mutex_);
  void Forget() ABSL_LOCKS_EXCLUDED(input_mutex_);

  admin::Response Events(const admin::GetEvents& request) ABSL_SHARED_LOCKS_REQUIRED(open_mutex_);
  admin::Response Config() ABSL_SHARED_LOCKS_REQUIRED(open_mutex_)
      ABSL_LOCKS_EXCLUDED(options_mutex_);
  admin::Response Set(const admin::SetOption& request) ABSL_SHARED_LOCKS_REQUIRED(open_mutex_)
      ABSL_LOCKS_EXCLUDED(options_mutex_);
  // Says so if nothing holds the target.
  admin::Response Release(const admin::Release& request) ABSL_SHARED_LOCKS_REQUIRED(open_mutex_);
  // A command: finds its target, has the driver do it, says what was done.
  using Act = std::function<absl::StatusOr<Driver::Touched>(Driver*, const Driver::Target&)>;
  admin::Response Command(const std::string& target, bool may_be_all, const char* done,
                          const Act& act) ABSL_SHARED_LOCKS_REQUIRED(open_mutex_);

  // Called by the journal.
  void News();

  // A copy of the desk in a child: its locks may be held by threads that it does not have.
  bool IsForkedCopy() const;

  std::atomic<pid_t> owner_ = 0;  // that opened it last
  // Held for reading while a request is answered.
  absl::Mutex open_mutex_;
  bool open_ ABSL_GUARDED_BY(open_mutex_) = false;
  std::string job_ ABSL_GUARDED_BY(open_mutex_);
  std::string program_ ABSL_GUARDED_BY(open_mutex_);
  int64_t start_unix_ns_ ABSL_GUARDED_BY(open_mutex_) = 0;
  int64_t unix_offset_ ABSL_GUARDED_BY(open_mutex_) = 0;

  absl::Mutex input_mutex_ ABSL_ACQUIRED_AFTER(open_mutex_);
  std::shared_ptr<const HealthInput> input_ ABSL_GUARDED_BY(input_mutex_);
  int64_t input_at_ ABSL_GUARDED_BY(input_mutex_) = 0;
  // With failover off.
  std::map<int, PortFacts> facts_ ABSL_GUARDED_BY(input_mutex_);
  int64_t facts_at_ ABSL_GUARDED_BY(input_mutex_) = 0;

  absl::Mutex options_mutex_ ABSL_ACQUIRED_AFTER(open_mutex_);
  config::LoadedOptions loaded_ ABSL_GUARDED_BY(options_mutex_);

  std::atomic<int> waiting_ = 0;  // who waits for events
  absl::Mutex news_mutex_;
  absl::CondVar news_;
  uint64_t news_count_ ABSL_GUARDED_BY(news_mutex_) = 0;
  std::function<void()> wake_ ABSL_GUARDED_BY(news_mutex_);
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_ADMIN_DESK_H_
