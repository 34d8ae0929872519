#include "cc/netperf/worker.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cc/netperf/belongings.h"
#include "cc/netperf/links.h"
#include "cc/netperf/traffic.h"

namespace railhop::netperf {
namespace {

void Tell(int socket, const Note& note) {
  if (send(socket, &note, sizeof(note), MSG_NOSIGNAL) != sizeof(note)) _exit(1);
}

void SetProblem(const std::string& problem, Note* note) {
  snprintf(note->problem, sizeof(note->problem), "%s", problem.c_str());
}

void RunOne(const SessionPlan& plan, const Leg& leg, int process, Links* links, Board* board,
            int socket) {
  const TrafficResult result = RunLeg(plan, leg, process, links, board, [socket](uint64_t number) {
    Note note;
    note.kind = Note::Kind::kAtMessage;
    note.counts.messages = number;
    Tell(socket, note);
  });
  Note note;
  note.kind = Note::Kind::kResult;
  note.counts = result.counts;
  SetProblem(result.problem, &note);
  Tell(socket, note);
}

// Processes that a program may start while its connections are used: half of them run something.
std::vector<pid_t> ForkChildren(int count) {
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      usleep(static_cast<useconds_t>(10000 * i));
      if (i % 2 == 0) execl("/bin/true", "true", static_cast<char*>(nullptr));
      _exit(i % 2 == 0 ? 127 : 0);
    }
    children.push_back(pid);
  }
  return children;
}

// False and *problem if one did not end well.
bool JoinChildren(const std::vector<pid_t>& children, std::string* problem) {
  for (const pid_t pid : children) {
    int status = -1;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0) continue;
    *problem = "a child ended with status " + std::to_string(status);
    return false;
  }
  return true;
}

}  // namespace

void RunWorker(const SessionPlan& plan, int process, Board* board, int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN);  // the parent's to take
  const Belongings before;
  for (const auto& [name, value] : plan.environment) setenv(name.c_str(), value.c_str(), 1);
  if (process == 1) {
    for (const auto& [name, value] : plan.second_environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  if (!plan.hosts.empty()) {
    const std::string& host = plan.hosts[static_cast<size_t>(process) % plan.hosts.size()];
    setenv("RAILHOP_FABRIC_HOST", host.c_str(), 1);
  }

  Links links(plan, process, board);
  std::string problem;
  Note note;
  if (!links.Open(&problem)) {
    board->GiveUp();
    SetProblem(problem, &note);
    Tell(socket, note);
    std::string ignored;
    links.Close(&ignored);
    _exit(1);
  }
  const std::vector<pid_t> children = ForkChildren(plan.children);
  note.kind = Note::Kind::kReady;
  note.facts = links.facts();
  note.before = links.resident_before();
  note.resident = ReadResident();
  Tell(socket, note);

  Order order;
  while (recv(socket, &order, sizeof(order), 0) == sizeof(order)) {
    if (order.kind == Order::Kind::kQuit || order.kind == Order::Kind::kClose) break;
    if (order.kind == Order::Kind::kRun) {
      RunOne(plan, order.leg, process, &links, board, socket);
    } else {
      note.kind = Note::Kind::kMemory;
      note.resident = ReadResident();
      Tell(socket, note);
    }
  }
  Note closed;
  closed.kind = Note::Kind::kClosed;
  bool good = JoinChildren(children, &problem);
  good = links.Close(&problem) && good;
  if (!good) SetProblem(problem, &closed);
  closed.left = before.Left();
  Tell(socket, closed);
  // All is closed, but the process stays until others have looked at what it left.
  while (order.kind != Order::Kind::kQuit &&
         recv(socket, &order, sizeof(order), 0) == sizeof(order)) {
  }
  _exit(0);
}

}  // namespace railhop::netperf
