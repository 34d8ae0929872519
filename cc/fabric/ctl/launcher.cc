#include "cc/fabric/ctl/launcher.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cc/fabric/sysfs.h"

namespace railhop::fabric {
namespace {

constexpr int kNoFabric = 125;  // as other programs that run a command, env(1) among them
constexpr int kNotRunnable = 126;
constexpr int kNotFound = 127;
constexpr int64_t kCounterPeriodNs = 500'000'000;  // how old a counter in sysfs may be

void Say(const std::string& text) { std::fprintf(stderr, "railhop-fabric: %s\n", text.c_str()); }

std::string OwnFolder() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n <= 0) return ".";
  const std::string whole(path, static_cast<size_t>(n));
  return whole.substr(0, whole.rfind('/'));
}

std::string LibraryDir(const LaunchOptions& options) {
  const std::string folder = options.library_dir.empty() ? OwnFolder() : options.library_dir;
  struct stat st;
  if (stat((folder + "/libibverbs.so.1").c_str(), &st) != 0) {
    Say("no libibverbs.so.1 in " + folder + ": programs will find the system's own");
    return "";
  }
  return folder;
}

void SetEnvironment(const std::string& library_dir, const std::string& reference) {
  setenv(kFabricVariable, reference.c_str(), 1);
  if (library_dir.empty()) return;
  const char* const before = getenv("LD_LIBRARY_PATH");
  const std::string path =
      library_dir + (before == nullptr || *before == '\0' ? "" : std::string(":") + before);
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
}

// Signals that are passed on. What the terminal sends goes to the whole group, so only those are
// passed on that somebody sent to this process.
sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal :
       {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGWINCH}) {
    sigaddset(&set, signal);
  }
  return set;
}

// Does what is due until told to stop: faults with a time, files of sysfs.
class Keeper {
 public:
  Keeper(Control& control, Sysfs* sysfs)
      : control_(control), sysfs_(sysfs), thread_([this] { Run(); }) {}
  ~Keeper() {
    stop_.store(true);
    control_.directory().NotifyChange();
    thread_.join();
  }

 private:
  void Run() {
    uint64_t counters_due = 0;
    while (!stop_.load()) {
      const uint32_t seen = control_.directory().ChangeCount();
      const uint64_t next = control_.RunDue();
      const uint64_t now = MonotonicNs();
      if (sysfs_ != nullptr) {
        sysfs_->UpdateState(control_.directory());
        if (now >= counters_due) {
          sysfs_->UpdateCounters(control_.directory());
          counters_due = now + kCounterPeriodNs;
        }
      }
      int64_t wait = sysfs_ != nullptr ? kCounterPeriodNs : -1;
      if (next != UINT64_MAX) {
        // At least a millisecond: a deadline that does not pass must not eat a core.
        const int64_t left =
            next <= now ? 0 : static_cast<int64_t>(std::min<uint64_t>(next - now, INT64_MAX));
        wait = wait < 0 ? left : std::min(wait, left);
        wait = std::max<int64_t>(wait, next <= now ? 1'000'000 : 1);
      }
      if (!stop_.load()) control_.directory().WaitForChange(seen, wait);
    }
  }

  Control& control_;
  Sysfs* const sysfs_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

int Wait(pid_t child, const sigset_t& signals) {
  while (true) {
    siginfo_t info;
    if (sigwaitinfo(&signals, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      if (info.si_code != SI_KERNEL) kill(child, info.si_signo);
      continue;
    }
    int status = 0;
    if (waitpid(child, &status, WNOHANG) != child) continue;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  }
}

}  // namespace

int Execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int why = errno;
  Say(command[0] + ": " + std::strerror(why));
  return why == ENOENT ? kNotFound : kNotRunnable;
}

int Launch(const LaunchOptions& options) {
  std::string error;
  const std::string library_dir = LibraryDir(options);
  // First the namespaces, then the fabric: its owner must be where the command will be.
  std::unique_ptr<Sysfs> sysfs;
  if (options.sysfs) {
    sysfs = Sysfs::Enter(options.fabric.topology, options.host, &error);
    if (sysfs == nullptr) Say("no /sys/class/infiniband for the command: " + error);
  }
  const auto control = Control::Create(options.fabric, &error);
  if (control == nullptr) {
    Say(error);
    return kNoFabric;
  }
  SetEnvironment(library_dir, control->directory().Reference());
  if (sysfs != nullptr) {
    // All files are there before the command looks.
    sysfs->UpdateState(control->directory());
    sysfs->UpdateCounters(control->directory());
  }

  const sigset_t signals = WatchedSignals();
  sigset_t old_signals;
  sigprocmask(SIG_BLOCK, &signals, &old_signals);
  const pid_t launcher = getpid();
  const pid_t child = fork();
  if (child < 0) {
    Say(std::string("cannot start a process: ") + std::strerror(errno));
    return kNoFabric;
  }
  if (child == 0) {
    // Without its fabric the command is of no use to anybody.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != launcher) _exit(kNoFabric);
    sigprocmask(SIG_SETMASK, &old_signals, nullptr);
    _exit(Execute(options.command));
  }
  const Keeper keeper(*control, sysfs.get());
  return Wait(child, signals);
}

}  // namespace railhop::fabric
