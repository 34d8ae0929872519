// Where verbs calls that may hang are made: not on NCCL's threads, and not on the driver's.
//
// A dying NIC can keep a call for a minute. So each device has a worker of its own: what hangs
// there holds up nobody else. Each has several queues, since registering a large buffer takes long
// on a healthy device too, and must not hold up a fence; nor must a port that cannot be read.
//
// Jobs own what they use (shared_ptr) or use what outlives the executor: a job that hangs outlives
// everything else.
#ifndef RAILHOP_CC_RUNTIME_EXECUTOR_H_
#define RAILHOP_CC_RUNTIME_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace railhop::runtime {

class Executor {
 public:
  using Job = std::function<void()>;
  // The worker of what belongs to no device.
  static constexpr int kNoDevice = -1;
  // A call that has not returned by then holds up nobody else on its device.
  static constexpr int64_t kStuckNs = 100'000'000;
  // Threads of one device whose calls hang, at most: containers bound how many a job may have, and
  // eight ranks on one NIC have eight times as many. What is more than that waits for one of them.
  static constexpr size_t kThreadsMax = 64;

  enum class Queue : uint8_t {
    kPrompt,      // fences, new lanes
    kBackground,  // registrations ahead of need
    kReading,     // reading a port
    kEnding,      // of what nobody waits for
    kProbing,     // queue pairs of probes: to ports that may be out of reach, a second for each
  };

  virtual ~Executor() = default;

  // Runs `job` on the worker of `physical` (PhysicalDevice::id, or kNoDevice). Then `done`, which
  // may be null, is kept for TakeDone. In order for each device and queue; but what is prompt is
  // not held up by a job that hangs: other threads take what waits behind it, side by side and in
  // any order, so that many connections on a dying device do not wait for each other. Whoever needs
  // an order waits for `done`. Any thread.
  virtual void Run(int physical, Queue queue, Job job, Job done) = 0;
  void Run(int physical, Job job, Job done) {
    Run(physical, Queue::kPrompt, std::move(job), std::move(done));
  }

  // The `done` of jobs that have ended, for the driver's thread to call in this order.
  virtual std::vector<Job> TakeDone() = 0;

  // For NCCL's threads: runs all of them, each on its device, and waits until they have ended, for
  // bound_ns at most. false: some have not; they go on, or will be run yet. Never from a job.
  virtual bool RunAndWait(std::vector<std::pair<int, Job>> jobs, int64_t bound_ns) = 0;

  // For so long the longest job of the prompt queue of this device has been running; 0 = none.
  virtual int64_t StuckFor(int physical) const = 0;

  // How long whoever closes a connection of this device, or deregisters memory on it, waits for
  // RunAndWait: where calls hang already, the next one may well do so too, and waits must not add
  // up.
  int64_t CloseBoundNs(int physical) const {
    constexpr int64_t kBoundNs = 5'000'000'000;
    constexpr int64_t kBoundStuckNs = 50'000'000;
    return StuckFor(physical) < kBoundNs ? kBoundNs : kBoundStuckNs;
  }
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_EXECUTOR_H_
