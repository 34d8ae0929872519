#include "cc/netperf/background.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cc/base/clock.h"

namespace railhop::netperf {

Background::~Background() {
  if (pid_ == 0) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Background::Start(const std::string& at) {
  started_ = true;
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    setenv("AT", at.c_str(), 1);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", command_.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  if (pid > 0) {
    setpgid(pid, pid);  // whoever is first: the parent may have to kill it at once
    pid_ = pid;
  }
}

bool Background::Finish(double timeout_s, std::string* error) {
  if (!started_) {
    *error = "the command was not run: there were not so many messages";
    return false;
  }
  if (pid_ == 0) {
    *error = "the command could not be started";
    return false;
  }
  const RealClock clock;
  const int64_t deadline = clock.NowNs() + static_cast<int64_t>(timeout_s * 1e9);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(pid_, &status, WNOHANG)) == 0 && clock.NowNs() < deadline) usleep(2000);
  if (ended == 0) {
    *error = "the command did not end";
    return false;
  }
  pid_ = 0;
  if (ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  *error = WIFEXITED(status)
               ? "the command ended with status " + std::to_string(WEXITSTATUS(status))
               : "the command was killed by signal " + std::to_string(WTERMSIG(status));
  return false;
}

}  // namespace railhop::netperf
