#include "cc/netperf/instructions.h"

#include <dirent.h>
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cc/netperf/callgrind_output.h"
#include "cc/netperf/counted_calls.h"

namespace railhop::netperf {
namespace {

// What NCCL's own IB transport costs, measured in the same way. Source: NCCL 2.30.7 over the
// software fabric, its failover switched off.
struct Budget {
  const char* what;
  size_t devices;
  int outstanding;
  int send, send_done, receive, receive_done;
  int sum;  // of figures that are rounded above
  int pending, early;
};
constexpr Budget kBudgets[] = {
    {"one device, 1 outstanding", 1, 1, 408, 243, 326, 245, 1221, 95, 66},
    {"one device, 8 outstanding", 1, 8, 429, 163, 346, 165, 1103, 95, 66},
    {"two fused devices, 1 outstanding", 2, 1, 532, 357, 382, 360, 1631, 116, 66},
    {"two fused devices, 8 outstanding", 2, 8, 553, 232, 403, 236, 1424, 116, 66},
};

// A folder that is gone afterwards.
class Folder {
 public:
  Folder() {
    const char* base = getenv("TMPDIR");
    path_ = std::string(base == nullptr ? "/tmp" : base) + "/railhop-netperf-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Folder() {
    for (const std::string& file : Files()) unlink(file.c_str());
    if (!path_.empty()) rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    DIR* dir = path_.empty() ? nullptr : opendir(path_.c_str());
    if (dir == nullptr) return files;
    while (const dirent* entry = readdir(dir)) {
      if (entry->d_name[0] != '.') files.push_back(path_ + "/" + entry->d_name);
    }
    closedir(dir);
    return files;
  }

 private:
  std::string path_;
};

std::string RealPath(const std::string& path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) == nullptr ? path : real;
}

std::string Join(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

// This program under callgrind. False and *error if that failed.
bool RunValgrind(const Options& options, const std::vector<int>& devices, int outstanding,
                 const std::string& folder, std::string* error) {
  std::vector<std::string> words = {
      "valgrind",
      "--tool=callgrind",
      "--quiet",
      "--collect-atstart=no",
      "--compress-strings=no",
      "--compress-pos=no",
      "--callgrind-out-file=" + folder + "/out",
      "--log-file=" + folder + "/log",
      RealPath("/proc/self/exe"),
      "--instructions-inside",
      "--plugin=" + options.sides.front().plugin,
      "--api=" + std::to_string(options.api),
      "--devices=" + Join(devices),
      "--in-flight=" + std::to_string(outstanding),
      "--size=" + std::to_string(options.sizes.front()),
  };
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    for (const auto& [name, value] : options.sides.front().environment) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    execvp("valgrind", arguments.data());
    _exit(127);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) < 0) {
    *error = "valgrind cannot be started";
    return false;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  *error = WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "valgrind is not installed"
                                                           : "the run under valgrind failed";
  return false;
}

struct Cost {
  double plugin = 0;  // for each call
  double others = 0;  // in what it calls itself, but libibverbs
};

// Phase -> cost.
std::map<std::string, Cost> ReadCosts(const Folder& folder, const std::string& plugin) {
  struct Sum {
    uint64_t calls = 0, plugin = 0, others = 0;
  };
  std::map<std::string, Sum> sums;
  for (const std::string& path : folder.Files()) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const CallgrindDump dump = ParseCallgrind(text.str());
    std::istringstream trigger(dump.trigger);
    std::string phase;
    uint64_t calls = 0;
    if (!(trigger >> phase >> calls) || calls == 0) continue;
    Sum& sum = sums[phase];
    sum.calls += calls;
    if (const auto own = dump.own.find(plugin); own != dump.own.end()) sum.plugin += own->second;
    for (const auto& [objects, instructions] : dump.calls) {
      const auto& [caller, callee] = objects;
      if (caller == plugin && callee.find("libibverbs") == std::string::npos) {
        sum.others += instructions;
      }
    }
  }
  std::map<std::string, Cost> costs;
  for (const auto& [phase, sum] : sums) {
    const auto calls = static_cast<double>(sum.calls);
    costs[phase] = {static_cast<double>(sum.plugin) / calls,
                    static_cast<double>(sum.others) / calls};
  }
  return costs;
}

// One line of the table, ours and NCCL's.
class Line {
 public:
  Line(const Budget& budget, std::map<std::string, Cost> costs)
      : budget_(budget), costs_(std::move(costs)) {}

  double Of(const char* phase) { return costs_[phase].plugin; }
  double Sum() {
    return Of(kPhaseSend) + Of(kPhaseSendDone) + Of(kPhaseReceive) + Of(kPhaseReceiveDone);
  }
  double Others() {
    return costs_[kPhaseSend].others + costs_[kPhaseSendDone].others +
           costs_[kPhaseReceive].others + costs_[kPhaseReceiveDone].others;
  }
  bool Complete() const { return costs_.size() >= 6; }
  // Half an instruction of room: averages have fractions.
  bool Within() {
    return Sum() < budget_.sum + 0.5 && Of(kPhasePending) < budget_.pending + 0.5 &&
           Of(kPhaseEarlySend) < budget_.early + 0.5;
  }

  void Print() {
    printf("%-34s %7.0f %9.0f %7.0f %9.0f %8.0f %9.0f %8.0f %10.0f\n", budget_.what, Of(kPhaseSend),
           Of(kPhaseSendDone), Of(kPhaseReceive), Of(kPhaseReceiveDone), Sum(), Of(kPhasePending),
           Of(kPhaseEarlySend), Others());
    printf("%-34s %7d %9d %7d %9d %8d %9d %8d%s\n", "  NCCL 2.30.7", budget_.send,
           budget_.send_done, budget_.receive, budget_.receive_done, budget_.sum, budget_.pending,
           budget_.early, Within() ? "" : "             ABOVE");
  }

  void PrintJson(const Options& options) {
    JsonLine line;
    line.Text("metric", "instructions").Count("size", options.sizes.front());
    line.Count("devices", budget_.devices);
    line.Count("outstanding", static_cast<uint64_t>(budget_.outstanding));
    for (const char* phase : {kPhaseSend, kPhaseSendDone, kPhaseReceive, kPhaseReceiveDone,
                              kPhasePending, kPhaseEarlySend}) {
      line.Number(phase, Of(phase));
    }
    line.Number("sum", Sum()).Number("in_libraries", Others());
    line.Count("budget", static_cast<uint64_t>(budget_.sum)).Bool("within", Within());
    line.Text("path", options.sides.front().plugin);
    printf("%s\n", line.text().c_str());
  }

 private:
  const Budget& budget_;
  std::map<std::string, Cost> costs_;
};

bool Fail(const Budget& budget, const std::string& error, const Folder& folder) {
  fprintf(stderr, "railhop-netperf: --instructions, %s: %s\n", budget.what, error.c_str());
  std::ifstream log(folder.path() + "/log");
  for (std::string line; std::getline(log, line);) fprintf(stderr, "  %s\n", line.c_str());
  return false;
}

// False: no figures. Clears *within when above.
bool MeasureOne(const Options& options, const Budget& budget, bool* within) {
  std::vector<int> devices = options.devices;
  if (devices.size() < 2) devices.push_back(devices.front() + 1);
  devices.resize(budget.devices);
  const Folder folder;
  std::string error;
  if (!RunValgrind(options, devices, budget.outstanding, folder.path(), &error)) {
    return Fail(budget, error, folder);
  }
  Line line(budget, ReadCosts(folder, RealPath(options.sides.front().plugin)));
  if (!line.Complete()) return Fail(budget, "no figures for some calls", folder);
  options.json ? line.PrintJson(options) : line.Print();
  fflush(stdout);
  *within &= line.Within();
  return true;
}

}  // namespace

int MeasureInstructions(const Options& options, Report*) {
  if (!options.json) {
    printf(
        "# instructions inside %s for each message of %s bytes\n%-34s %7s %9s %7s %9s %8s %9s "
        "%8s %10s\n",
        options.sides.front().plugin.c_str(), SizeText(options.sizes.front()).c_str(), "", "isend",
        "send done", "irecv", "recv done", "sum", "pending", "early", "libraries");
  }
  bool within = true;
  for (const Budget& budget : kBudgets) {
    if (!MeasureOne(options, budget, &within)) return 1;
  }
  return within || !options.assert_budget ? 0 : 1;
}

}  // namespace railhop::netperf
