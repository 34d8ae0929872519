#include "cc/netperf/counted_calls.h"

#include <unistd.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cc/netperf/self_connection.h"

namespace railhop::netperf {
namespace {

constexpr int kWarmUpRounds = 40;
constexpr int kRounds = 64;
constexpr int kSettleUs = 3000;  // for messages to arrive: the network runs in other threads
constexpr int kTurnsMax = 20000;

class Rounds {
 public:
  Rounds(SelfConnection* connection, int outstanding)
      : connection_(*connection),
        outstanding_(outstanding),
        sends_(static_cast<size_t>(outstanding)),
        receives_(static_cast<size_t>(outstanding)) {}

  // False and *error if the plugin failed.
  bool Run(std::string* error) {
    bool good = true;
    for (int i = 0; i < kWarmUpRounds && good; ++i) good = Plain();
    CALLGRIND_ZERO_STATS;
    for (int i = 0; i < kRounds && good; ++i) good = Counted();
    for (int i = 0; i < kRounds && good; ++i) good = Odd();
    if (!good) *error = error_;
    return good;
  }

 private:
  bool Fail(const char* call, NetResult result) {
    error_ = std::string(call) + ": " + NetResultName(result);
    return false;
  }

  // Ends a phase.
  static void Dump(const char* phase, int calls, bool valid) {
    char name[64];
    snprintf(name, sizeof(name), "%s %d", valid ? phase : "discarded", valid ? calls : 0);
    CALLGRIND_DUMP_STATS_AT(name);
  }

  // Calls that count.
  NetResult Send(int i) {
    CALLGRIND_TOGGLE_COLLECT;
    const NetResult result = connection_.Send(i, &sends_[static_cast<size_t>(i)]);
    CALLGRIND_TOGGLE_COLLECT;
    return result;
  }
  NetResult Receive(int i) {
    CALLGRIND_TOGGLE_COLLECT;
    const NetResult result = connection_.Receive(i, &receives_[static_cast<size_t>(i)]);
    CALLGRIND_TOGGLE_COLLECT;
    return result;
  }
  NetResult Test(void* request, int* done) {
    int size = 0;
    *done = 0;
    CALLGRIND_TOGGLE_COLLECT;
    const NetResult result = connection_.plugin().Test(request, done, &size);
    CALLGRIND_TOGGLE_COLLECT;
    return result;
  }

  bool PostReceives(bool* valid) {
    for (int i = 0; i < outstanding_; ++i) {
      const NetResult result = Receive(i);
      if (result != kNetSuccess) return Fail("irecv", result);
      *valid &= receives_[static_cast<size_t>(i)] != nullptr;
    }
    return true;
  }

  bool PostSends(bool* valid) {
    for (int i = 0; i < outstanding_; ++i) {
      if (sends_[static_cast<size_t>(i)] != nullptr) continue;  // taken early
      const NetResult result = Send(i);
      if (result != kNetSuccess) return Fail("isend", result);
      *valid &= sends_[static_cast<size_t>(i)] != nullptr;
    }
    return true;
  }

  bool TestAll(std::vector<void*>* requests, bool* valid) {
    for (void*& request : *requests) {
      if (request == nullptr) continue;
      int done = 0;
      const NetResult result = Test(request, &done);
      if (result != kNetSuccess) return Fail("test", result);
      if (done != 0) {
        request = nullptr;
      } else {
        *valid = false;
      }
    }
    return true;
  }

  // Whatever is missing of a round.
  bool Complete() {
    for (int turn = 0; turn < kTurnsMax; ++turn) {
      bool valid = true;
      if (!TestAll(&receives_, &valid) || !TestAll(&sends_, &valid)) return false;
      if (valid) {
        CALLGRIND_ZERO_STATS;
        return true;
      }
      usleep(1000);
    }
    return Fail("test, of a message that does not come", kNetSuccess);
  }

  // Posts that find no room or no receive are made again.
  bool PostAll(bool sends, bool* valid) {
    std::vector<void*>& requests = sends ? sends_ : receives_;
    if (sends ? !PostSends(valid) : !PostReceives(valid)) return false;
    for (int turn = 0; turn < kTurnsMax; ++turn) {
      bool all = true;
      for (int i = 0; i < outstanding_; ++i) {
        void*& request = requests[static_cast<size_t>(i)];
        if (request != nullptr) continue;
        // In order: whatever is behind a refused one was posted in its place.
        const NetResult result =
            sends ? connection_.Send(i, &request) : connection_.Receive(i, &request);
        if (result != kNetSuccess) return Fail(sends ? "isend" : "irecv", result);
        all &= request != nullptr;
      }
      if (all) return true;
      usleep(1000);
    }
    return Fail("isend, of a message that nobody receives", kNetSuccess);
  }

  // A round without figures.
  bool Plain() {
    bool valid = true;
    if (!PostAll(false, &valid)) return false;
    usleep(kSettleUs);
    if (!PostAll(true, &valid)) return false;
    usleep(kSettleUs);
    return Complete();
  }

  bool Counted() {
    bool valid = true;
    if (!PostAll(false, &valid)) return false;
    Dump(kPhaseReceive, outstanding_, valid);
    usleep(kSettleUs);
    valid = true;
    if (!PostAll(true, &valid)) return false;
    Dump(kPhaseSend, outstanding_, valid);
    usleep(kSettleUs);
    valid = true;
    if (!TestAll(&receives_, &valid)) return false;
    Dump(kPhaseReceiveDone, outstanding_, valid);
    valid = true;
    if (!TestAll(&sends_, &valid)) return false;
    Dump(kPhaseSendDone, outstanding_, valid);
    return Complete();
  }

  // An isend that comes too early, and a test() of a receive whose message was not sent.
  bool Odd() {
    const NetResult result = Send(0);
    if (result != kNetSuccess) return Fail("isend", result);
    Dump(kPhaseEarlySend, 1, sends_.front() == nullptr);
    bool valid = true;
    if (!PostAll(false, &valid)) return false;
    usleep(kSettleUs);
    // The first tests see the clear-to-send's completion.
    for (int i = 0; i < 4; ++i) {
      if (!TestAll(&receives_, &valid)) return false;
    }
    CALLGRIND_ZERO_STATS;
    valid = true;
    if (!TestAll(&receives_, &valid)) return false;
    Dump(kPhasePending, outstanding_, !valid);
    if (!PostAll(true, &valid)) return false;
    usleep(kSettleUs);
    return Complete();
  }

  SelfConnection& connection_;
  const int outstanding_;
  std::vector<void*> sends_;
  std::vector<void*> receives_;
  std::string error_;
};

}  // namespace

int RunCountedCalls(const Options& options) {
  std::string error;
  const std::unique_ptr<SelfConnection> connection =
      SelfConnection::Open(options.sides.front().plugin, options.api, options.devices,
                           options.sizes.front(), options.in_flight, &error);
  if (connection != nullptr && Rounds(connection.get(), options.in_flight).Run(&error)) return 0;
  fprintf(stderr, "railhop-netperf: %s\n", error.c_str());
  return 1;
}

}  // namespace railhop::netperf
