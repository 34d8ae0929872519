#include "cc/sim/plugin_executor.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace railhop::sim {
namespace {

constexpr uint64_t kHungNs = 60'000'000'000;  // as Context has it for quirk hang_verbs
constexpr uint64_t kRelieve = UINT64_MAX;     // an event's argument, that is no turn

}  // namespace

// One thread of a queue of a device, with what waits for it.
class SimExecutor::Worker final : public Actor {
 public:
  Worker(SimExecutor* executor, int physical, Queue queue)
      : executor_(executor), physical_(physical), queue_(queue) {}

  void Add(Job job, Job done) {
    jobs_.push_back({std::move(job), std::move(done)});
    if (state_ == State::kIdle) Start();
  }

  // Runs all that wait; for how long whoever waits for it does so, or nothing if that is longer
  // than `bound`.
  std::optional<uint64_t> Catch(uint64_t bound) {
    const uint64_t now = loop().now_ns();
    uint64_t wait = state_ == State::kBusy && end_ns_ > now ? end_ns_ - now : 0;
    if (state_ == State::kLate) wait = begin_ns_ + kHungNs - now;
    if (wait > bound) return std::nullopt;
    if (state_ == State::kLate) {
      Carry(late_.job);
      Ended(std::move(late_.done), wait);
      late_ = {};
    }
    while (!jobs_.empty()) {
      Task task = std::move(jobs_.front());
      jobs_.pop_front();
      const uint64_t took = Carry(task.job);
      wait += took;
      Ended(std::move(task.done), wait);
      if (wait > bound) break;
    }
    if (wait > 0) {
      state_ = State::kBusy;
      if (begin_ns_ == 0) begin_ns_ = now;
      end_ns_ = now + wait;
      loop().At(end_ns_, this, ++turn_);
    } else if (state_ == State::kStarting) {
      state_ = State::kIdle;
      ++turn_;
    }
    return wait > bound ? std::nullopt : std::optional<uint64_t>(wait);
  }

  // Whether its job is going to take so long that others take what waits.
  bool IsStuck() const {
    const uint64_t now = loop().now_ns();
    return state_ == State::kLate || (state_ == State::kBusy && end_ns_ > now + kStuckNs) ||
           (state_ == State::kBusy && begin_ns_ != 0 && now - begin_ns_ >= kStuckNs);
  }
  int64_t StuckFor() const {
    if (state_ != State::kBusy || begin_ns_ == 0) return 0;
    return static_cast<int64_t>(loop().now_ns() - begin_ns_);
  }
  void Clear() {
    late_ = {};
    jobs_.clear();
    ended_.clear();
  }
  bool IsIdle() const { return state_ == State::kIdle; }
  size_t size() const { return jobs_.size() + ended_.size() + (state_ == State::kLate ? 1U : 0U); }

  void OnEvent(uint64_t turn) override {
    if (executor_->abandoned_) return;
    const uint64_t now = loop().now_ns();
    if (!executor_->host_->alive()) return executor_->Abandon();
    if (turn == kRelieve) return Relieve();
    // `done`s whose time has come, whatever else this is about.
    bool took = false;
    while (!ended_.empty() && ended_.front().first <= now) {
      if (ended_.front().second) executor_->done_.push_back(std::move(ended_.front().second));
      ended_.pop_front();
      took = true;
    }
    if (took) executor_->wake_();
    if (turn != turn_) return;
    switch (state_) {
      case State::kIdle:
        return;
      case State::kStarting:
        return Begin();
      case State::kLate:
        return Perform(/*late=*/true);
      case State::kBusy:
        state_ = State::kIdle;
        begin_ns_ = 0;
        if (!jobs_.empty()) Start();
        return;
    }
  }

 private:
  enum class State : uint8_t {
    kIdle,
    kStarting,  // the thread wakes up
    kLate,      // a call hangs that takes effect at its end
    kBusy,      // carried out, its calls have not returned
  };
  struct Task {
    Job job = nullptr;
    Job done = nullptr;
  };

  EventLoop& loop() const { return executor_->host_->world()->loop(); }

  void Start() {
    state_ = State::kStarting;
    Prng& prng = executor_->prng_;
    // Threads wake up in microseconds; on a loaded host in milliseconds.
    const uint64_t delay = prng.Chance(0.05) ? prng.Below(3'000'000) : 500 + prng.Below(20'000);
    loop().At(loop().now_ns() + delay, this, ++turn_);
  }

  void Begin() {
    begin_ns_ = loop().now_ns();
    if (Hangs() && executor_->prng_.Chance(0.5)) {
      state_ = State::kLate;
      late_ = TakeFirst();
      loop().At(begin_ns_ + kHungNs, this, ++turn_);
      loop().At(begin_ns_ + kStuckNs, this, kRelieve);
      return;
    }
    Perform(/*late=*/false);
  }

  Task TakeFirst() {
    Task task = std::move(jobs_.front());
    jobs_.pop_front();
    return task;
  }

  void Perform(bool late) {
    Task task = late ? std::exchange(late_, {}) : TakeFirst();
    state_ = State::kBusy;
    uint64_t took = Carry(task.job);
    if (late) took = 0;  // has been waited for
    if (executor_->abandoned_) return;
    took += 1'000 + executor_->prng_.Below(30'000);
    end_ns_ = loop().now_ns() + took;
    if (took > kStuckNs) loop().At(loop().now_ns() + kStuckNs, this, kRelieve);
    Ended(std::move(task.done), took);
    loop().At(end_ns_, this, ++turn_);
  }

  // Other threads take what waits behind a call that hangs, as many as there are jobs.
  void Relieve() {
    if (queue_ != Queue::kPrompt || !IsStuck()) return;
    std::deque<Task> waiting;
    waiting.swap(jobs_);
    for (Task& task : waiting) {
      executor_->IdleOf(physical_)->Add(std::move(task.job), std::move(task.done));
    }
  }

  void Ended(Job done, uint64_t after_ns) {
    const uint64_t when = loop().now_ns() + after_ns;
    ended_.emplace_back(when, std::move(done));
    loop().At(when, this, 0);
  }

  // Carries a job out; for how long its calls hang.
  uint64_t Carry(const Job& job) {
    PluginWorld* world = executor_->host_->world();
    const uint64_t before = world->TakeHeldUp();
    CallerScope scope(world, Caller::kWorker);
    if (job) job();
    // All calls were made at once: had they been made one after the other, the later ones would
    // rarely have met the same fault.
    const uint64_t took = std::min(world->TakeHeldUp(), kHungNs);
    world->AddHeldUp(before);
    return took;
  }

  bool Hangs() const {
    if (physical_ < 0) return false;
    const auto devices = executor_->host_->devices().Physical();
    if (physical_ >= static_cast<int>(devices.size())) return false;
    const Nic* nic = NicOf(devices[static_cast<size_t>(physical_)]->context->raw());
    return nic->Has(rdma::kQuirkHangVerbs);
  }

  SimExecutor* const executor_;
  const int physical_;
  const Queue queue_;
  State state_ = State::kIdle;
  Task late_;  // in state kLate
  std::deque<Task> jobs_;
  std::deque<std::pair<uint64_t, Job>> ended_;  // with the time at which it is known
  uint64_t begin_ns_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t turn_ = 0;
};

SimExecutor::SimExecutor(PluginHost* host, uint64_t seed, std::function<void()> wake)
    : host_(host), prng_(seed), wake_(std::move(wake)) {}

SimExecutor::~SimExecutor() { Abandon(); }

SimExecutor::Worker* SimExecutor::WorkerOf(int physical, Queue queue) {
  std::vector<std::unique_ptr<Worker>>& pool = workers_[{physical, queue}];
  for (const std::unique_ptr<Worker>& worker : pool) {
    if (queue != Queue::kPrompt || !worker->IsStuck()) return worker.get();
  }
  return NewOf(physical, queue);
}

SimExecutor::Worker* SimExecutor::IdleOf(int physical) {
  std::vector<std::unique_ptr<Worker>>& pool = workers_[{physical, Queue::kPrompt}];
  for (const std::unique_ptr<Worker>& worker : pool) {
    if (worker->IsIdle()) return worker.get();
  }
  return NewOf(physical, Queue::kPrompt);
}

SimExecutor::Worker* SimExecutor::NewOf(int physical, Queue queue) {
  std::vector<std::unique_ptr<Worker>>& pool = workers_[{physical, queue}];
  if (pool.size() == kThreadsMax) {
    return std::min_element(pool.begin(), pool.end(),
                            [](const auto& a, const auto& b) { return a->size() < b->size(); })
        ->get();
  }
  pool.push_back(std::make_unique<Worker>(this, physical, queue));
  return pool.back().get();
}

void SimExecutor::Run(int physical, Queue queue, Job job, Job done) {
  if (abandoned_) return;
  WorkerOf(physical, queue)->Add(std::move(job), std::move(done));
}

std::vector<runtime::Executor::Job> SimExecutor::TakeDone() {
  std::vector<Job> taken(std::make_move_iterator(done_.begin()),
                         std::make_move_iterator(done_.end()));
  done_.clear();
  return taken;
}

bool SimExecutor::RunAndWait(std::vector<std::pair<int, Job>> jobs, int64_t bound_ns) {
  if (abandoned_) return false;
  const auto bound = static_cast<uint64_t>(std::max<int64_t>(bound_ns, 0));
  uint64_t longest = 0;
  bool all = true;
  for (auto& [physical, job] : jobs) {
    Worker* worker = WorkerOf(physical, Queue::kPrompt);
    worker->Add(std::move(job), nullptr);
    const std::optional<uint64_t> wait = worker->Catch(bound);
    all = all && wait.has_value();
    longest = std::max(longest, wait.value_or(bound));
  }
  host_->world()->AddHeldUp(longest);
  return all;
}

int64_t SimExecutor::StuckFor(int physical) const {
  const auto found = workers_.find({physical, Queue::kPrompt});
  int64_t longest = 0;
  if (found == workers_.end()) return longest;
  for (const auto& worker : found->second) longest = std::max(longest, worker->StuckFor());
  return longest;
}

size_t SimExecutor::open_jobs() const {
  size_t open = 0;
  for (const auto& [key, pool] : workers_) {
    for (const auto& worker : pool) open += worker->size();
  }
  return open;
}

void SimExecutor::Abandon() {
  abandoned_ = true;
  done_.clear();
  // The workers stay for events that name them; what they hold goes.
  for (auto& [key, pool] : workers_) {
    for (auto& worker : pool) worker->Clear();
  }
}

}  // namespace railhop::sim
