#include "cc/runtime/thread_executor.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/clock.h"

namespace railhop::runtime {
namespace {

struct Task {
  Executor::Job job;
  Executor::Job done;
};

using WorkerId = std::pair<int, Executor::Queue>;

std::atomic<bool> any_left_behind{false};

// Jobs that never run, since the one before them hangs, are not destroyed either: that may be a
// verbs call too.
void LeaveBehind(std::deque<Task> tasks) {
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const all = new std::vector<std::deque<Task>>();
  absl::MutexLock lock(&mutex);
  all->push_back(std::move(tasks));
}

}  // namespace

struct ThreadExecutor::Shared {
  struct Worker {
    std::deque<Task> tasks;
    bool busy = false;
    bool over = false;  // its thread touches nothing any more
    int64_t since = 0;  // busy since then
    std::thread thread;
  };

  RealClock clock;
  mutable absl::Mutex mutex;
  std::map<WorkerId, Worker> workers ABSL_GUARDED_BY(mutex);  // never erased: references stay
  std::vector<Executor::Job> done ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::function<void()> wake ABSL_GUARDED_BY(mutex);

  static void Work(const std::shared_ptr<Shared>& self, WorkerId id);
  bool AllOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (const auto& [id, worker] : workers) {
      if (!worker.over) return false;
    }
    return true;
  }
};

void ThreadExecutor::Shared::Work(const std::shared_ptr<Shared>& self, WorkerId id) {
  Worker* worker;
  {
    absl::MutexLock lock(&self->mutex);
    worker = &self->workers[id];
  }
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&self->mutex);
      const auto ready = [&] {
        self->mutex.AssertHeld();
        return self->stopping || !worker->tasks.empty();
      };
      self->mutex.Await(absl::Condition(&ready));
      if (worker->tasks.empty()) {
        worker->over = true;
        return;
      }
      task = std::move(worker->tasks.front());
      worker->tasks.pop_front();
      worker->busy = true;
      worker->since = self->clock.NowNs();
    }
    task.job();
    // What the job owns may be the last of its kind: it ends here, not under the lock.
    task.job = nullptr;
    absl::MutexLock lock(&self->mutex);
    worker->busy = false;
    if (task.done == nullptr || self->stopping) continue;
    self->done.push_back(std::move(task.done));
    self->wake();
  }
}

ThreadExecutor::ThreadExecutor(std::function<void()> wake) : shared_(std::make_shared<Shared>()) {
  absl::MutexLock lock(&shared_->mutex);
  shared_->wake = std::move(wake);
}

ThreadExecutor::~ThreadExecutor() { Stop(kStopNs); }

void ThreadExecutor::Run(int physical, Queue queue, Job job, Job done) {
  const WorkerId id = {physical, queue};
  absl::MutexLock lock(&shared_->mutex);
  if (shared_->stopping) return;
  Shared::Worker& worker = shared_->workers[id];
  worker.tasks.push_back({std::move(job), std::move(done)});
  if (worker.thread.joinable()) return;
  // The process's signals are not this thread's business.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  worker.thread = std::thread([shared = shared_, id] { Shared::Work(shared, id); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const char* const what = queue == Queue::kPrompt       ? "dev"
                           : queue == Queue::kBackground ? "reg"
                           : queue == Queue::kReading    ? "port"
                           : queue == Queue::kEnding     ? "end"
                                                         : "probe";
  const std::string name = absl::StrCat("railhop-", what, physical);
  pthread_setname_np(worker.thread.native_handle(), name.c_str());
}

std::vector<Executor::Job> ThreadExecutor::TakeDone() {
  absl::MutexLock lock(&shared_->mutex);
  return std::exchange(shared_->done, {});
}

bool ThreadExecutor::RunAndWait(std::vector<std::pair<int, Job>> jobs, int64_t bound_ns) {
  struct Latch {
    absl::Mutex mutex;
    size_t left ABSL_GUARDED_BY(mutex) = 0;
  };
  const auto latch = std::make_shared<Latch>();
  {
    absl::MutexLock lock(&latch->mutex);
    latch->left = jobs.size();
  }
  for (auto& [physical, job] : jobs) {
    Run(
        physical, Queue::kPrompt,
        [latch, job = std::move(job)] {
          job();
          absl::MutexLock lock(&latch->mutex);
          --latch->left;
        },
        nullptr);
  }
  absl::MutexLock lock(&latch->mutex);
  const auto all_done = [&] {
    latch->mutex.AssertHeld();
    return latch->left == 0;
  };
  return latch->mutex.AwaitWithTimeout(absl::Condition(&all_done), absl::Nanoseconds(bound_ns));
}

int64_t ThreadExecutor::StuckFor(int physical) const {
  absl::MutexLock lock(&shared_->mutex);
  const auto found = shared_->workers.find({physical, Queue::kPrompt});
  if (found == shared_->workers.end() || !found->second.busy) return 0;
  return shared_->clock.NowNs() - found->second.since;
}

bool ThreadExecutor::Stop(int64_t bound_ns) {
  std::map<WorkerId, std::thread> ended;
  bool clean;
  std::vector<Job> dropped_done;
  {
    absl::MutexLock lock(&shared_->mutex);
    if (shared_->stopping) return shared_->AllOver();
    shared_->stopping = true;
    dropped_done.swap(shared_->done);
    const auto all_over = [&] {
      shared_->mutex.AssertHeld();
      return shared_->AllOver();
    };
    clean =
        shared_->mutex.AwaitWithTimeout(absl::Condition(&all_over), absl::Nanoseconds(bound_ns));
    for (auto& [id, worker] : shared_->workers) {
      if (!worker.thread.joinable()) continue;
      if (worker.over) {
        ended[id] = std::move(worker.thread);
      } else {
        worker.thread.detach();
        any_left_behind.store(true, std::memory_order_relaxed);
        LeaveBehind(std::exchange(worker.tasks, {}));
      }
    }
    shared_->wake = [] {};
  }
  for (auto& [id, thread] : ended) thread.join();
  return clean;
}

bool ThreadExecutor::AnyLeftBehind() { return any_left_behind.load(std::memory_order_relaxed); }

}  // namespace railhop::runtime
