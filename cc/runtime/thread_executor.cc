#include "cc/runtime/thread_executor.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cc/base/blocked_signals.h"
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
  struct Thread {
    bool busy = false;
    bool over = false;  // it touches nothing any more
    int64_t since = 0;  // busy since then
    std::thread thread;
  };
  // One thread, and more while all of them are stuck.
  struct Worker {
    std::deque<Task> tasks;
    std::list<Thread> threads;  // references stay
  };

  RealClock clock;
  mutable absl::Mutex mutex;
  std::map<WorkerId, Worker> workers ABSL_GUARDED_BY(mutex);  // never erased: references stay
  std::vector<Executor::Job> done ABSL_GUARDED_BY(mutex);
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool dropped ABSL_GUARDED_BY(mutex) = false;  // tasks, by Stop
  std::function<void()> wake ABSL_GUARDED_BY(mutex);

  static void Work(const std::shared_ptr<Shared>& self, Worker* worker, Thread* own, bool spare);
  // Starts threads if tasks wait and nobody is going to take them soon. Joins those that have
  // ended.
  static void Relieve(const std::shared_ptr<Shared>& self, const WorkerId& id, Worker* worker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex);
  // false: the system has no more threads; nothing has changed.
  static bool Start(const std::shared_ptr<Shared>& self, const WorkerId& id, Worker* worker,
                    bool spare) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex);
  static void RelieveAll(const std::shared_ptr<Shared>& self) ABSL_LOCKS_EXCLUDED(self->mutex);
  bool AllOver() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (const auto& [id, worker] : workers) {
      if (!worker.tasks.empty()) return false;  // there may be no thread for them yet
      for (const Thread& thread : worker.threads) {
        if (!thread.over) return false;
      }
    }
    return true;
  }
};

// A spare thread ends when there is nothing left to do.
void ThreadExecutor::Shared::Work(const std::shared_ptr<Shared>& self, Worker* worker, Thread* own,
                                  bool spare) {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&self->mutex);
      const auto ready = [&] {
        self->mutex.AssertHeld();
        return self->stopping || spare || !worker->tasks.empty();
      };
      self->mutex.Await(absl::Condition(&ready));
      if (worker->tasks.empty()) {
        own->over = true;
        return;
      }
      task = std::move(worker->tasks.front());
      worker->tasks.pop_front();
      own->busy = true;
      own->since = self->clock.NowNs();
    }
    task.job();
    // What the job owns may be the last of its kind: it ends here, not under the lock.
    task.job = nullptr;
    absl::MutexLock lock(&self->mutex);
    own->busy = false;
    if (task.done == nullptr || self->stopping) continue;
    self->done.push_back(std::move(task.done));
    self->wake();
  }
}

void ThreadExecutor::Shared::Relieve(const std::shared_ptr<Shared>& self, const WorkerId& id,
                                     Worker* worker) {
  // Their stacks stay until they are joined, whether or not anything waits.
  worker->threads.remove_if([](Thread& thread) {
    if (!thread.over) return false;
    if (thread.thread.joinable()) thread.thread.join();
    return true;
  });
  if (worker->tasks.empty()) return;
  const int64_t now = self->clock.NowNs();
  const bool all_stuck = std::all_of(
      worker->threads.begin(), worker->threads.end(),
      [&](const Thread& thread) { return thread.busy && now - thread.since >= kStuckNs; });
  if (!all_stuck) return;
  size_t live = worker->threads.size();
  // Where no thread is to be had they wait for the next time: whoever waits for them comes again.
  if (live == 0) {
    Start(self, id, worker, /*spare=*/false);
    return;
  }
  // Only what is prompt is worth it. One for each task: what waits is likely to hang as well, and
  // found out one after the other that adds up.
  if (id.second != Queue::kPrompt) return;
  for (size_t left = worker->tasks.size(); left > 0 && live < kThreadsMax; --left, ++live) {
    if (!Start(self, id, worker, /*spare=*/true)) return;
  }
}

bool ThreadExecutor::Shared::Start(const std::shared_ptr<Shared>& self, const WorkerId& id,
                                   Worker* worker, bool spare) {
  Thread& own = worker->threads.emplace_back();
  const BlockedSignals blocked;
  try {
    own.thread =
        std::thread([self, worker, own = &own, spare] { Shared::Work(self, worker, own, spare); });
  } catch (const std::system_error&) {
    worker->threads.pop_back();
    return false;
  }
  const char* const what = id.second == Queue::kPrompt       ? "dev"
                           : id.second == Queue::kBackground ? "reg"
                           : id.second == Queue::kReading    ? "port"
                           : id.second == Queue::kEnding     ? "end"
                                                             : "probe";
  const std::string name = absl::StrCat("railhop-", what, id.first);
  pthread_setname_np(own.thread.native_handle(), name.c_str());
  return true;
}

void ThreadExecutor::Shared::RelieveAll(const std::shared_ptr<Shared>& self) {
  absl::MutexLock lock(&self->mutex);
  for (auto& [id, worker] : self->workers) Relieve(self, id, &worker);
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
  Shared::Relieve(shared_, id, &worker);
}

std::vector<Executor::Job> ThreadExecutor::TakeDone() {
  // Whoever takes results comes by often enough to see that one is stuck.
  Shared::RelieveAll(shared_);
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
  const auto all_done = [&] {
    latch->mutex.AssertHeld();
    return latch->left == 0;
  };
  const int64_t end = shared_->clock.NowNs() + bound_ns;
  while (true) {
    const int64_t left = end - shared_->clock.NowNs();
    {
      absl::MutexLock lock(&latch->mutex);
      if (latch->mutex.AwaitWithTimeout(
              absl::Condition(&all_done),
              absl::Nanoseconds(std::clamp<int64_t>(left, 0, kStuckNs)))) {
        return true;
      }
    }
    if (left <= kStuckNs) return false;
    // Behind a call that hangs: another thread takes them.
    Shared::RelieveAll(shared_);
  }
}

bool ThreadExecutor::IsHeldUp() const {
  absl::MutexLock lock(&shared_->mutex);
  return std::any_of(shared_->workers.begin(), shared_->workers.end(), [](const auto& entry) {
    return entry.first.second == Queue::kPrompt && !entry.second.tasks.empty();
  });
}

size_t ThreadExecutor::ThreadsHeld() const {
  absl::MutexLock lock(&shared_->mutex);
  size_t held = 0;
  for (const auto& [id, worker] : shared_->workers) held += worker.threads.size();
  return held;
}

int64_t ThreadExecutor::StuckFor(int physical) const {
  absl::MutexLock lock(&shared_->mutex);
  const auto found = shared_->workers.find({physical, Queue::kPrompt});
  if (found == shared_->workers.end()) return 0;
  const int64_t now = shared_->clock.NowNs();
  int64_t longest = 0;
  for (const Shared::Thread& thread : found->second.threads) {
    if (thread.busy) longest = std::max(longest, now - thread.since);
  }
  return longest;
}

bool ThreadExecutor::Stop(int64_t bound_ns) {
  std::vector<std::thread> ended;
  bool clean;
  std::vector<Job> dropped_done;
  {
    absl::MutexLock lock(&shared_->mutex);
    if (shared_->stopping) return shared_->AllOver() && !shared_->dropped;
    shared_->stopping = true;
    dropped_done.swap(shared_->done);
    const auto all_over = [&] {
      shared_->mutex.AssertHeld();
      return shared_->AllOver();
    };
    const int64_t end = shared_->clock.NowNs() + bound_ns;
    while (true) {
      const int64_t left = end - shared_->clock.NowNs();
      clean = shared_->mutex.AwaitWithTimeout(
          absl::Condition(&all_over), absl::Nanoseconds(std::clamp<int64_t>(left, 0, kStuckNs)));
      if (clean || left <= kStuckNs) break;
      for (auto& [id, worker] : shared_->workers) Shared::Relieve(shared_, id, &worker);
    }
    for (auto& [id, worker] : shared_->workers) {
      for (Shared::Thread& thread : worker.threads) {
        if (thread.over) {
          ended.push_back(std::move(thread.thread));
          continue;
        }
        if (thread.thread.joinable()) thread.thread.detach();
        any_left_behind.store(true, std::memory_order_relaxed);
      }
      if (worker.tasks.empty()) continue;
      LeaveBehind(std::exchange(worker.tasks, {}));
      shared_->dropped = true;
      any_left_behind.store(true, std::memory_order_relaxed);
    }
    shared_->wake = [] {};
  }
  for (std::thread& thread : ended) thread.join();
  return clean;
}

bool ThreadExecutor::AnyLeftBehind() { return any_left_behind.load(std::memory_order_relaxed); }

}  // namespace railhop::runtime
