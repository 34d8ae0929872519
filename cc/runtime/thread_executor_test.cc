#include "cc/runtime/thread_executor.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

constexpr int64_t kMinuteNs = 60'000'000'000;
constexpr int64_t kShortNs = 20'000'000;

// While it lives the process gets no thread, as where a container's bound is reached: each would
// need a stack larger than the address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t defaults;
    pthread_getattr_default_np(&defaults);
    pthread_attr_getstacksize(&defaults, &stack_);
    SetStack(size_t{1} << 47);
  }
  ~NoThreads() { SetStack(stack_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  static void SetStack(size_t bytes) {
    pthread_attr_t defaults;
    pthread_getattr_default_np(&defaults);
    pthread_attr_setstacksize(&defaults, bytes);
    EXPECT_EQ(pthread_setattr_default_np(&defaults), 0);
    pthread_attr_destroy(&defaults);
  }

  size_t stack_ = 0;
};

TEST(ThreadExecutor, JobsOfOneDevice_InOrderOnOneThread) {
  ThreadExecutor executor([] {});
  std::vector<int> order;
  std::set<std::thread::id> threads;
  absl::Notification last;
  for (int i = 0; i < 100; ++i) {
    executor.Run(
        3,
        [&, i] {
          order.push_back(i);
          threads.insert(std::this_thread::get_id());
          if (i == 99) last.Notify();
        },
        nullptr);
  }
  last.WaitForNotification();
  EXPECT_TRUE(executor.Stop(kMinuteNs));
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
}

TEST(ThreadExecutor, Done_WakesAndIsForTheCaller) {
  absl::Notification woken;
  ThreadExecutor executor([&] { woken.Notify(); });
  std::thread::id job_thread;
  std::thread::id done_thread;
  executor.Run(
      0, [&] { job_thread = std::this_thread::get_id(); },
      [&] { done_thread = std::this_thread::get_id(); });
  woken.WaitForNotification();
  std::vector<Executor::Job> done = executor.TakeDone();
  ASSERT_EQ(done.size(), 1u);
  done[0]();
  EXPECT_EQ(done_thread, std::this_thread::get_id());
  EXPECT_NE(job_thread, done_thread);
  EXPECT_TRUE(executor.TakeDone().empty());
}

// What hangs on one device holds up neither another device, nor the wait for it, nor the end.
TEST(ThreadExecutor, JobHangs_OthersGoOnAndWaitsHaveABound) {
  struct Hang {
    absl::Notification begun;
    absl::Notification release;
    std::atomic<bool> ended{false};
  };
  const auto hang = std::make_shared<Hang>();
  const auto unwanted = std::make_shared<std::atomic<bool>>(false);
  {
    ThreadExecutor executor([] {});
    executor.Run(
        1,
        [hang] {
          hang->begun.Notify();
          hang->release.WaitForNotification();
          hang->ended = true;
        },
        nullptr);
    hang->begun.WaitForNotification();
    EXPECT_GT(executor.StuckFor(1), 0);
    EXPECT_EQ(executor.StuckFor(2), 0);
    bool other = false;
    EXPECT_TRUE(executor.RunAndWait({{2, [&] { other = true; }}}, kMinuteNs));
    EXPECT_TRUE(other);
    bool background = false;
    absl::Notification background_over;
    executor.Run(
        1, Executor::Queue::kBackground,
        [&] {
          background = true;
          background_over.Notify();
        },
        nullptr);
    background_over.WaitForNotification();
    EXPECT_TRUE(background);
    EXPECT_FALSE(executor.RunAndWait(
        {{1, [hang] { hang->release.WaitForNotification(); }}, {2, [] {}}}, kShortNs));
    // Only what is prompt is taken by others.
    executor.Run(
        2, Executor::Queue::kBackground, [hang] { hang->release.WaitForNotification(); }, nullptr);
    executor.Run(
        2, Executor::Queue::kBackground, [unwanted] { *unwanted = true; }, nullptr);
    EXPECT_FALSE(ThreadExecutor::AnyLeftBehind());
    EXPECT_FALSE(executor.Stop(kShortNs));
    EXPECT_TRUE(ThreadExecutor::AnyLeftBehind());
  }
  EXPECT_FALSE(hang->ended);
  hang->release.Notify();
  while (!hang->ended) std::this_thread::yield();
  EXPECT_FALSE(*unwanted);
}

// So many jobs on device 1 that hang until they are released.
void RunHanging(ThreadExecutor* executor, int count, absl::Notification* release,
                std::atomic<int>* begun) {
  for (int i = 0; i < count; ++i) {
    executor->Run(
        1,
        [release, begun] {
          ++*begun;
          release->WaitForNotification();
        },
        nullptr);
  }
}

// Calls of many connections on one dying device hang side by side.
TEST(ThreadExecutor, JobHangs_ThoseBehindItGoOn) {
  absl::Notification release;
  std::atomic<int> begun = 0;
  ThreadExecutor executor([] {});
  constexpr int kHung = 5;
  RunHanging(&executor, kHung, &release, &begun);
  bool ran = false;
  EXPECT_TRUE(executor.RunAndWait({{1, [&] { ran = true; }}}, kMinuteNs));
  EXPECT_TRUE(ran);
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (begun < kHung && std::chrono::steady_clock::now() < until) {
    executor.TakeDone();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(begun, kHung);
  release.Notify();
  EXPECT_TRUE(executor.Stop(kMinuteNs));
}

TEST(ThreadExecutor, HangOver_ThreadsThatWereMoreAreJoined) {
  absl::Notification release;
  std::atomic<int> begun = 0;
  ThreadExecutor executor([] {});
  constexpr int kHung = 20;
  RunHanging(&executor, kHung, &release, &begun);
  while (begun < kHung) {
    executor.TakeDone();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(executor.ThreadsHeld(), size_t{kHung});
  release.Notify();
  // Nothing waits any more, and the first thread is idle.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (executor.ThreadsHeld() > 1 && std::chrono::steady_clock::now() < until) {
    executor.TakeDone();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(executor.ThreadsHeld(), 1u);
  EXPECT_TRUE(executor.Stop(kMinuteNs));
}

TEST(ThreadExecutor, NoThreadToBeHad_JobsWaitForOne) {
  ThreadExecutor executor([] {});
  int ran = 0;
  {
    const NoThreads none;
    executor.Run(
        1, [&] { ++ran; }, nullptr);
    EXPECT_FALSE(executor.RunAndWait({{1, [&] { ++ran; }}}, kShortNs));
    EXPECT_TRUE(executor.TakeDone().empty());
    EXPECT_TRUE(executor.IsHeldUp());
    EXPECT_EQ(ran, 0);
  }
  EXPECT_TRUE(executor.RunAndWait({{1, [&] { ++ran; }}}, kMinuteNs));
  EXPECT_EQ(ran, 3);
  EXPECT_TRUE(executor.Stop(kMinuteNs));
}

TEST(ThreadExecutor, NoThreadForThoseBehindAHang_TheyWaitForOne) {
  absl::Notification begun;
  absl::Notification release;
  ThreadExecutor executor([] {});
  executor.Run(
      1,
      [&] {
        begun.Notify();
        release.WaitForNotification();
      },
      nullptr);
  begun.WaitForNotification();
  const auto ran = std::make_shared<std::atomic<bool>>(false);
  {
    const NoThreads none;
    EXPECT_FALSE(executor.RunAndWait({{1, [ran] { *ran = true; }}}, 3 * Executor::kStuckNs));
  }
  EXPECT_FALSE(*ran);
  EXPECT_TRUE(executor.RunAndWait({{1, [] {}}}, kMinuteNs));
  release.Notify();
  EXPECT_TRUE(executor.Stop(kMinuteNs));
  EXPECT_TRUE(*ran);
}

// The call began to hang just before Stop: nobody has looked since.
TEST(ThreadExecutor, StopWithJobsBehindAHang_TheyAreRun) {
  struct Hang {
    absl::Notification begun;
    absl::Notification release;
    absl::Notification ended;
    absl::Notification behind;
  };
  const auto hang = std::make_shared<Hang>();
  ThreadExecutor executor([] {});
  executor.Run(
      1,
      [hang] {
        hang->begun.Notify();
        hang->release.WaitForNotification();
        hang->ended.Notify();
      },
      nullptr);
  hang->begun.WaitForNotification();
  executor.Run(
      1, [hang] { hang->behind.Notify(); }, nullptr);
  std::thread stopping([&] { EXPECT_TRUE(executor.Stop(kMinuteNs)); });
  EXPECT_TRUE(hang->behind.WaitForNotificationWithTimeout(absl::Minutes(1)));
  EXPECT_FALSE(hang->ended.HasBeenNotified());
  hang->release.Notify();
  stopping.join();
}

// What was never run may be a queue pair that still writes.
TEST(ThreadExecutor, NoThreadUntilStop_SaysThatJobsAreLeft) {
  ThreadExecutor executor([] {});
  const auto ran = std::make_shared<std::atomic<bool>>(false);
  const NoThreads none;
  executor.Run(
      1, [ran] { *ran = true; }, nullptr);
  EXPECT_FALSE(executor.Stop(kShortNs));
  EXPECT_FALSE(executor.Stop(kShortNs));
  EXPECT_TRUE(ThreadExecutor::AnyLeftBehind());
  EXPECT_FALSE(*ran);
}

TEST(ThreadExecutor, AfterStop_NothingRuns) {
  ThreadExecutor executor([] {});
  EXPECT_TRUE(executor.Stop(kMinuteNs));
  bool ran = false;
  executor.Run(
      0, [&] { ran = true; }, nullptr);
  EXPECT_FALSE(executor.RunAndWait({{0, [&] { ran = true; }}}, kShortNs));
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace railhop::runtime
