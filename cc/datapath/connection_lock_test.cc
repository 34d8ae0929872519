#include "cc/datapath/connection_lock.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

TEST(ConnectionLock, ManyThreads_OneAtATime) {
  ConnectionLock lock;
  int count = 0;  // guarded by lock
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50000; ++i) {
        ConnectionGuard guard(&lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 200000);
}

TEST(ConnectionLock, HeldForLong_WaiterSleepsAndIsWoken) {
  ConnectionLock lock;
  bool taken = false;  // guarded by lock
  lock.Lock();
  std::thread waiter([&] {
    ConnectionGuard guard(&lock);
    taken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(taken);
  lock.Unlock();
  waiter.join();
  EXPECT_TRUE(taken);
}

}  // namespace
}  // namespace railhop::datapath
