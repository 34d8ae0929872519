// Executor with threads: one for each device and queue, from the first job on. While calls on a
// device hang, there are more for its prompt queue, each for one of them; they end with the hang.
// Where the system has no more threads, jobs wait: each call here tries again.
#ifndef RAILHOP_CC_RUNTIME_THREAD_EXECUTOR_H_
#define RAILHOP_CC_RUNTIME_THREAD_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cc/runtime/executor.h"

namespace railhop::runtime {

// Thread-safe.
class ThreadExecutor final : public Executor {
 public:
  // `wake` is called on a worker whenever TakeDone has something new; it must not block.
  explicit ThreadExecutor(std::function<void()> wake);
  // As Stop with a bound of kStopNs.
  ~ThreadExecutor() override;
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  // A fence or a deregistration on a healthy device is over long before; rxe takes 2.5 s to destroy
  // a queue pair whose peer's link is gone.
  static constexpr int64_t kStopNs = 5'000'000'000;

  using Executor::Run;
  // After Stop: dropped.
  void Run(int physical, Queue queue, Job job, Job done) override;
  std::vector<Job> TakeDone() override;
  bool RunAndWait(std::vector<std::pair<int, Job>> jobs, int64_t bound_ns) override;
  int64_t StuckFor(int physical) const override;
  // Whether prompt jobs wait: TakeDone has to be called again within kStuckNs, in case what they
  // wait behind hangs, or no thread was to be had for them.
  bool IsHeldUp() const;
  // Threads that are not joined yet, those that have ended among them.
  size_t ThreadsHeld() const;

  // Takes no more jobs, and waits until those that are queued have ended, beside calls that hang
  // where they are prompt; no `done` is kept. false: some hang. Their threads are left behind on
  // purpose, since nothing can end them, and so must be all that their jobs use: the devices'
  // contexts are not closed then. What is queued behind them, or has got no thread, never runs. The
  // library itself stays loaded (it is linked with -z nodelete).
  bool Stop(int64_t bound_ns);
  // Whether that was ever so in this process: devices must stay open then.
  static bool AnyLeftBehind();

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // with the threads
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_THREAD_EXECUTOR_H_
