#include "cc/base/blocked_signals.h"

#include <stdexcept>
#include <thread>

#include "gtest/gtest.h"

namespace railhop {
namespace {

bool IsBlocked(int signal) {
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  return sigismember(&now, signal) == 1;
}

// SIGUSR1 was blocked before; SIGINT was not.
class BlockedSignalsTest : public ::testing::Test {
 protected:
  BlockedSignalsTest() {
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &some, &before_);
  }
  ~BlockedSignalsTest() override { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  sigset_t before_;
};

TEST_F(BlockedSignalsTest, ThreadStartedMeanwhile_TakesNone) {
  bool interrupt = false;
  bool terminate = false;
  {
    const BlockedSignals blocked;
    std::thread([&] {
      interrupt = IsBlocked(SIGINT);
      terminate = IsBlocked(SIGTERM);
    }).join();
  }
  EXPECT_TRUE(interrupt);
  EXPECT_TRUE(terminate);
  EXPECT_FALSE(IsBlocked(SIGINT));
  EXPECT_TRUE(IsBlocked(SIGUSR1));
}

TEST_F(BlockedSignalsTest, StartThatThrows_MaskIsGivenBack) {
  const auto start = [] {
    const BlockedSignals blocked;
    throw std::runtime_error("no more threads");
  };
  EXPECT_THROW(start(), std::runtime_error);
  EXPECT_FALSE(IsBlocked(SIGINT));
  EXPECT_TRUE(IsBlocked(SIGUSR1));
}

}  // namespace
}  // namespace railhop
