// runtime::Executor in virtual time: jobs are events, and a job on a hanging device ends late.
//
// A job is carried out in one piece, since time cannot pass inside it. Where its calls hang, it is
// drawn whether all of it happens before the wait or behind it: nothing may lean on either.
#ifndef RAILHOP_CC_SIM_PLUGIN_EXECUTOR_H_
#define RAILHOP_CC_SIM_PLUGIN_EXECUTOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/prng.h"
#include "cc/runtime/executor.h"
#include "cc/sim/plugin_world.h"

namespace railhop::sim {

class SimExecutor final : public runtime::Executor {
 public:
  // `wake` is called when there is something to take. Both outlive it.
  SimExecutor(PluginHost* host, uint64_t seed, std::function<void()> wake);
  ~SimExecutor() override;

  void Run(int physical, Queue queue, Job job, Job done) override;
  using Executor::Run;
  std::vector<Job> TakeDone() override;
  bool RunAndWait(std::vector<std::pair<int, Job>> jobs, int64_t bound_ns) override;
  int64_t StuckFor(int physical) const override;

  // Jobs that have not ended.
  size_t open_jobs() const;
  // The process dies, or the run is over: what has not run never will.
  void Abandon();

 private:
  class Worker;
  // Who takes the next job: a thread that does not hang, or a new one.
  Worker* WorkerOf(int physical, Queue queue);
  // Of the prompt queue, one that has nothing to do.
  Worker* IdleOf(int physical);
  Worker* NewOf(int physical, Queue queue);

  PluginHost* const host_;
  Prng prng_;
  const std::function<void()> wake_;
  std::map<std::pair<int, Queue>, std::vector<std::unique_ptr<Worker>>> workers_;  // threads
  std::deque<Job> done_;
  bool abandoned_ = false;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_EXECUTOR_H_
