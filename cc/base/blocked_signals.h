// Starts threads that take none of the process's signals.
//
// A thread inherits the mask of the one that starts it, so that one blocks all signals meanwhile.
// Hard case: std::thread throws when the process may have no more threads; the mask is given back
// then too, or Ctrl-C would be lost with the thread.
#ifndef RAILHOP_CC_BASE_BLOCKED_SIGNALS_H_
#define RAILHOP_CC_BASE_BLOCKED_SIGNALS_H_

#include <pthread.h>
#include <signal.h>

namespace railhop {

// Blocks every signal in this thread while it lives.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace railhop

#endif  // RAILHOP_CC_BASE_BLOCKED_SIGNALS_H_
