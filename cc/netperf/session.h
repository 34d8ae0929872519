// The processes of a session, seen from the one that started them.
//
// A worker that dies is noticed by the end of its socket, one that hangs inside the plugin by not
// answering; both end the session with a reason, and no worker outlives it.
#ifndef RAILHOP_CC_NETPERF_SESSION_H_
#define RAILHOP_CC_NETPERF_SESSION_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/netperf/board.h"
#include "cc/netperf/plan.h"
#include "cc/netperf/worker.h"

namespace railhop::netperf {

class Session {
 public:
  // What happens while a leg runs; each may be empty.
  struct Hooks {
    std::function<void(uint64_t number)> at_mark;        // a message of leg.marks has come
    std::function<void(uint64_t received)> on_progress;  // twice a second
    std::vector<double> times_s;                         // since the leg's start; ascending
    std::function<void(double time_s)> at_time;          // one of them has come
    double stop_after_s = 0;                             // Leg::endless: ends it; 0: never
    std::function<bool()> wants_stop;                    // Leg::endless: true ends it
  };

  // Forks and connects. Null and *error on failure. The caller must have one thread only.
  static std::unique_ptr<Session> Start(const SessionPlan& plan, std::string* error);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Runs one leg in all workers. After one that is not Good() by errors, no other may be run.
  Outcome Run(const Leg& leg, const Hooks& hooks);
  bool over() const { return over_; }

  // Closes everything and waits for the workers. False and *error if a call refused or a worker
  // died or did not come back. Afterwards the session is over. `closed` is called when all is
  // closed and the workers are still there.
  bool Close(std::string* error, const std::function<void()>& closed = {});
  // After Close: of all workers.
  const Leftovers& left() const { return left_; }

  const PluginFacts& facts() const { return facts_; }
  // Of each process: growth of resident memory since before connecting.
  struct Growth {
    int64_t anonymous = 0;
    int64_t all = 0;
  };
  std::vector<Growth> MemoryGrowth();

 private:
  struct Worker {
    pid_t pid = 0;
    int socket = -1;
    bool answered = false;  // this round
    bool gone = false;
    Note note;  // its last
  };

  struct Problem {
    std::string text;
    int weight = 0;  // the heaviest, and of these the first, is told
  };

  Session(const SessionPlan& plan, std::unique_ptr<Board> board);

  bool Fork(std::string* error);
  void Order(const netperf::Order& order);
  // Until every worker has answered with `kind`, or failed, or for limit_s no message has come. The
  // first thing that went wrong, or "".
  std::string Collect(Note::Kind kind, double limit_s, const Hooks& hooks);
  int KeepTime(const Hooks& hooks, int64_t start_ns, size_t* timed);
  // One packet of a worker, or its end.
  void Hear(size_t index, Note::Kind kind, const Hooks& hooks, Problem* problem);
  std::string Died(size_t index);
  void Kill();

  const SessionPlan plan_;
  const std::unique_ptr<Board> board_;
  std::vector<Worker> workers_;
  PluginFacts facts_;
  Leftovers left_;
  int64_t death_ns_ = 0;     // of the first worker that was killed; 0: none
  std::string after_death_;  // the first problem of one that was not killed
  int64_t said_ns_ = 0;      // when
  bool over_ = false;
  bool closed_ = false;
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_SESSION_H_
