#include "cc/netperf/session.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "cc/base/clock.h"

namespace railhop::netperf {
namespace {

constexpr int kProgressMs = 500;
// How long a worker may take to come back from the plugin once the session was given up.
constexpr double kGraceS = 5;

std::string Of(size_t process, const std::string& problem) {
  return "process " + std::to_string(process) + ": " + problem;
}

}  // namespace

std::unique_ptr<Session> Session::Start(const SessionPlan& plan, std::string* error) {
  std::unique_ptr<Board> board =
      Board::Make(plan.processes, plan.connections, plan.latencies_max, error);
  if (board == nullptr) return nullptr;
  std::unique_ptr<Session> session(new Session(plan, std::move(board)));
  if (!session->Fork(error)) return nullptr;
  // Twice the timeout: the workers know better what is missing, and speak first.
  *error = session->Collect(Note::Kind::kReady, 2 * plan.timeout_s, {});
  if (!error->empty()) return nullptr;
  session->facts_ = session->workers_.front().note.facts;
  return session;
}

Session::Session(const SessionPlan& plan, std::unique_ptr<Board> board)
    : plan_(plan), board_(std::move(board)) {}

Session::~Session() {
  std::string ignored;
  if (!closed_) Close(&ignored);
  Kill();
}

bool Session::Fork(std::string* error) {
  fflush(stdout);
  fflush(stderr);
  for (int process = 0; process < plan_.processes; ++process) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      *error = std::string("no socket for a worker: ") + strerror(errno);
      return false;
    }
    const pid_t pid = fork();
    if (pid < 0) {
      *error = std::string("no worker: ") + strerror(errno);
      close(ends[0]);
      close(ends[1]);
      return false;
    }
    if (pid == 0) {
      // Ends of other workers that stay open would hide their death from the parent.
      for (const Worker& worker : workers_) close(worker.socket);
      close(ends[0]);
      RunWorker(plan_, process, board_.get(), ends[1]);
    }
    close(ends[1]);
    Worker worker;
    worker.pid = pid;
    worker.socket = ends[0];
    workers_.push_back(worker);
  }
  return true;
}

void Session::Order(const netperf::Order& order) {
  for (Worker& worker : workers_) {
    worker.answered = false;
    if (!worker.gone) send(worker.socket, &order, sizeof(order), MSG_NOSIGNAL);
  }
}

std::string Session::Died(size_t index) {
  Worker& worker = workers_[index];
  int status = 0;
  waitpid(worker.pid, &status, 0);
  worker.gone = true;
  worker.pid = 0;
  return Of(index, WIFSIGNALED(status)
                       ? "killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
                             strsignal(WTERMSIG(status)) + ")"
                       : "ended with status " + std::to_string(WEXITSTATUS(status)));
}

void Session::Hear(size_t index, Note::Kind kind, const Hooks& hooks, Problem* problem) {
  Worker& worker = workers_[index];
  Note note;
  std::string said;
  if (recv(worker.socket, &note, sizeof(note), 0) != sizeof(note)) {
    said = Died(index);
    worker.note = Note();
    worker.note.counts.errors = 1;
    worker.answered = true;
  } else if (note.kind == Note::Kind::kAtMessage) {
    if (hooks.at_mark) hooks.at_mark(note.counts.messages);
    return;
  } else {
    worker.note = note;
    worker.answered = note.kind == kind || note.kind == Note::Kind::kFailed;
    if (note.problem[0] != 0) said = Of(index, note.problem);
  }
  if (said.empty()) return;
  const int64_t now_ns = RealClock().NowNs();
  if (worker.gone && death_ns_ == 0) death_ns_ = now_ns;
  if (!worker.gone && after_death_.empty()) {
    after_death_ = said;
    said_ns_ = now_ns;
  }
  // A death is the reason of what others say, and what one says that was stopped is never one.
  const int weight = worker.gone ? 3 : strncmp(note.problem, "given up", 8) == 0 ? 1 : 2;
  if (weight > problem->weight) *problem = {said, weight};
  if (plan_.outlive && worker.gone && kind == Note::Kind::kResult) return;
  if (kind != Note::Kind::kClosed) over_ = true;
  board_->GiveUp();
}

// What is due at this time; the ms until something is again.
int Session::KeepTime(const Hooks& hooks, int64_t start_ns, size_t* timed) {
  const double now_s = static_cast<double>(RealClock().NowNs() - start_ns) / 1e9;
  for (; *timed < hooks.times_s.size() && hooks.times_s[*timed] <= now_s; ++*timed) {
    hooks.at_time(hooks.times_s[*timed]);
  }
  double next_s = now_s + kProgressMs / 1e3;
  if (*timed < hooks.times_s.size()) next_s = std::min(next_s, hooks.times_s[*timed]);
  if (hooks.stop_after_s > 0) {
    if (now_s >= hooks.stop_after_s) {
      board_->Stop();
    } else {
      next_s = std::min(next_s, hooks.stop_after_s);
    }
  }
  if (hooks.wants_stop && hooks.wants_stop()) board_->Stop();
  return static_cast<int>((next_s - now_s) * 1e3) + 1;
}

std::string Session::Collect(Note::Kind kind, double limit_s, const Hooks& hooks) {
  const RealClock clock;
  Problem problem;
  const auto limit_ns = static_cast<int64_t>(limit_s * 1e9);
  const int64_t start_ns = clock.NowNs();
  int64_t deadline = start_ns + limit_ns;
  size_t timed = 0;
  uint64_t received = 0;
  bool was_over = over_;
  while (true) {
    std::vector<pollfd> polled;
    std::vector<size_t> indices;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].answered || workers_[i].gone) continue;
      polled.push_back({.fd = workers_[i].socket, .events = POLLIN, .revents = 0});
      indices.push_back(i);
    }
    if (polled.empty()) return problem.text;
    const int wait_ms = std::clamp<int>(KeepTime(hooks, start_ns, &timed), 0, kProgressMs);
    const int ready = poll(polled.data(), polled.size(), wait_ms);
    if (ready == 0 && wait_ms == kProgressMs && hooks.on_progress) {
      hooks.on_progress(board_->received());
    }
    if (ready < 0) continue;  // a signal: `polled` says nothing
    if (board_->received() != received && !over_) {
      received = board_->received();
      deadline = clock.NowNs() + limit_ns;
    }
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) Hear(indices[i], kind, hooks, &problem);
    }
    if (over_ && !was_over) {
      was_over = true;
      deadline = std::min(deadline, clock.NowNs() + static_cast<int64_t>(kGraceS * 1e9));
    }
    if (clock.NowNs() > deadline) {
      if (problem.text.empty()) {
        problem.text = Of(indices.front(), "does not come back from the plugin");
      }
      over_ = true;
      Kill();
      return problem.text;
    }
  }
}

Outcome Session::Run(const Leg& leg, const Hooks& hooks) {
  Outcome outcome;
  if (over_) {
    outcome.problem = "the session is over";
    outcome.counts.errors = 1;
    return outcome;
  }
  board_->Reset();
  netperf::Order order;
  order.kind = netperf::Order::Kind::kRun;
  order.leg = leg;
  Order(order);
  outcome.problem = Collect(Note::Kind::kResult, 2 * plan_.timeout_s, hooks);
  for (const Worker& worker : workers_) outcome.counts.Add(worker.note.counts);
  if (death_ns_ != 0) {
    outcome.after_death = after_death_;
    // Its end may be heard of last.
    outcome.after_death_ns = std::max<int64_t>(said_ns_ - death_ns_, 0);
  }
  if (death_ns_ != 0) over_ = true;
  if (!outcome.problem.empty() && outcome.counts.errors == 0) outcome.counts.errors = 1;
  if (leg.mode == Mode::kPingPong && outcome.problem.empty()) {
    for (uint64_t i = 0; i < leg.count; ++i) {
      outcome.round_trips_us.push_back(board_->latencies()[i] / 1e3);
    }
    std::sort(outcome.round_trips_us.begin(), outcome.round_trips_us.end());
  }
  return outcome;
}

std::vector<Session::Growth> Session::MemoryGrowth() {
  std::vector<Growth> growths;
  const auto difference = [](uint64_t a, uint64_t b) {
    return static_cast<int64_t>(a) - static_cast<int64_t>(b);
  };
  netperf::Order order;
  order.kind = netperf::Order::Kind::kMemory;
  Order(order);
  if (!Collect(Note::Kind::kMemory, kGraceS, {}).empty()) return growths;
  for (const Worker& worker : workers_) {
    growths.push_back({difference(worker.note.resident.anonymous, worker.note.before.anonymous),
                       difference(worker.note.resident.all(), worker.note.before.all())});
  }
  return growths;
}

bool Session::Close(std::string* error, const std::function<void()>& closed) {
  closed_ = true;
  netperf::Order order;
  order.kind = netperf::Order::Kind::kClose;
  Order(order);
  *error = Collect(Note::Kind::kClosed, kGraceS, {});
  over_ = true;
  std::string names;
  for (const Worker& worker : workers_) {
    left_.threads += worker.note.left.threads;
    left_.descriptors += worker.note.left.descriptors;
    if (worker.note.left.names[0] != 0)
      names += (names.empty() ? "" : ", ") + std::string(worker.note.left.names);
  }
  snprintf(left_.names, sizeof(left_.names), "%s", names.c_str());
  if (closed) closed();
  Order({});
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (worker.pid == 0) continue;
    int status = 0;
    waitpid(worker.pid, &status, 0);
    worker.pid = 0;
    worker.gone = true;
    if (error->empty() && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
      *error = Of(i, "did not end well");
    }
  }
  return error->empty();
}

void Session::Kill() {
  for (Worker& worker : workers_) {
    if (worker.pid != 0) {
      kill(worker.pid, SIGKILL);
      waitpid(worker.pid, nullptr, 0);
      worker.pid = 0;
    }
    worker.gone = true;
    if (worker.socket >= 0) close(worker.socket);
    worker.socket = -1;
  }
}

}  // namespace railhop::netperf
