// An executor without threads: jobs wait until a test runs them.
#ifndef RAILHOP_CC_RUNTIME_TESTING_MANUAL_EXECUTOR_H_
#define RAILHOP_CC_RUNTIME_TESTING_MANUAL_EXECUTOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cc/runtime/executor.h"

namespace railhop::runtime {

// One thread.
class ManualExecutor final : public Executor {
 public:
  using Executor::Run;
  void Run(int physical, Queue, Job job, Job done) override {
    tasks_.push_back({physical, std::move(job), std::move(done)});
  }
  std::vector<Job> TakeDone() override { return std::exchange(done_, {}); }
  bool RunAndWait(std::vector<std::pair<int, Job>> jobs, int64_t bound_ns) override {
    bool all = true;
    for (auto& [physical, job] : jobs) {
      bounds[physical] = bound_ns;
      if (hanging.count(physical) == 0) {
        job();
      } else {
        tasks_.push_back({physical, std::move(job), nullptr});
        all = false;
      }
    }
    return all;
  }
  int64_t StuckFor(int physical) const override {
    return hanging.count(physical) != 0 ? stuck_ns : 0;
  }

  // Runs what is queued, and what that queues, but for devices that hang. Then the `done`s.
  void RunAll() {
    for (bool any = true; any;) {
      any = false;
      std::deque<Task> tasks = std::exchange(tasks_, {});
      for (Task& task : tasks) {
        if (hanging.count(task.physical) != 0) {
          tasks_.push_back(std::move(task));
          continue;
        }
        any = true;
        task.job();
        if (task.done != nullptr) done_.push_back(std::move(task.done));
      }
      for (const Job& done : TakeDone()) done();
    }
  }
  size_t queued() const { return tasks_.size(); }

  std::set<int> hanging;
  int64_t stuck_ns = 1;           // of those
  std::map<int, int64_t> bounds;  // that RunAndWait was given last, by device

 private:
  struct Task {
    int physical;
    Job job;
    Job done;
  };
  std::deque<Task> tasks_;
  std::vector<Job> done_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_TESTING_MANUAL_EXECUTOR_H_
