// railhop-fabric: starts a fabric with a command in it, puts faults in, shows what is going on.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/strings.h"
#include "cc/fabric/control.h"
#include "cc/fabric/ctl/launcher.h"
#include "cc/fabric/ctl/topology_file.h"
#include "cc/fabric/event_log.h"
#include "cc/fabric/json_writer.h"
#include "cc/fabric/snapshot.h"
#include "cc/fabric/sysfs.h"
#include "cc/rdma_model/topology_text.h"

namespace railhop::fabric {
namespace {

constexpr int kUsage = 2;

constexpr char kHelp[] =
    R"(railhop-fabric: a software RDMA fabric for the programs of one user on one machine

  railhop-fabric run [OPTIONS] -- CMD...   runs CMD over a fresh fabric; its exit status is CMD's
      --topology FILE|NAME   devices and nets (default: 4 RoCE devices soft0..soft3, all in one net)
      --name NAME            to reach it from outside with --fabric NAME
      --seed N               of faults that hit by chance (default 0)
      --time-scale X         stretches ACK timeouts and RNR timers (default 1)
      --library-dir DIR      with libibverbs.so.1 (default: where this program is)
      --no-sysfs             leave /sys as it is
  railhop-fabric on HOST -- CMD...         runs CMD on another host of the topology (inside run)
  railhop-fabric fault DEVICE WORDS...     puts a fault in: soft0 down, soft0 loss 1% for 2s
  railhop-fabric show [--json]             ports, counters, faults and processes
  railhop-fabric log [--json]              what faults did, event by event
  railhop-fabric list                      this user's fabrics
  railhop-fabric topology [FILE|NAME]      checks a topology and prints it in full

fault, show and log are about the fabric that they are started in, or --fabric NAME.
RAILHOP_FABRIC_HOST=NAME puts a process on one host of a topology with several; without it, the first. So does
'on', which also shows CMD that host's devices in /sys (root only).
)";

int Fail(const std::string& text) {
  std::fprintf(stderr, "railhop-fabric: %s\n", text.c_str());
  return kUsage;
}

// The words of a command line, taken from the front.
class Arguments {
 public:
  Arguments(int argc, char** argv) : words_(argv, argv + argc) {}
  bool empty() const { return next_ >= words_.size(); }
  const std::string& Peek() const { return words_[next_]; }
  std::string Take() { return empty() ? "" : words_[next_++]; }
  std::vector<std::string> TakeRest() {
    std::vector<std::string> rest(words_.begin() + static_cast<long>(next_), words_.end());
    next_ = words_.size();
    return rest;
  }
  // "--name VALUE" or "--name=VALUE" at the front. Sets *failed when the value is missing.
  bool TakeOption(const std::string& name, std::string* value, bool* failed) {
    if (empty()) return false;
    if (Peek().rfind(name + "=", 0) == 0) {
      *value = Take().substr(name.size() + 1);
      return true;
    }
    if (Peek() != name) return false;
    Take();
    *failed = empty();
    if (!*failed) *value = Take();
    return true;
  }
  bool TakeFlag(const std::string& name) {
    if (empty() || Peek() != name) return false;
    Take();
    return true;
  }

 private:
  const std::vector<std::string> words_;
  size_t next_ = 0;
};

// The fabric that --fabric names, or that this process is in.
std::unique_ptr<Control> Join(const std::string& name, std::string* error) {
  const char* const reference = std::getenv(kFabricVariable);
  std::unique_ptr<Control> control;
  if (!name.empty()) {
    control = Control::AttachByName(name, error);
  } else if (reference != nullptr && *reference != '\0') {
    control = Control::Attach(reference, error);
  } else {
    std::string known;
    for (const FoundFabric& fabric : DirectoryHandle::FindFabrics()) {
      known += (known.empty() ? "" : ", ") + fabric.name;
    }
    *error = "not in a fabric; allowed: --fabric NAME, with one of " +
             (known.empty() ? "(none is running)" : known);
  }
  if (control != nullptr) {
    const char* const host = std::getenv(kHostVariable);
    if (host != nullptr) control->set_default_host(host);
  }
  return control;
}

// The host that this process and so its command is on.
bool FindHost(const rdma::Topology& topology, uint32_t* host, std::string* error) {
  const char* const word = std::getenv(kHostVariable);
  if (word == nullptr || *word == '\0') return true;
  std::string known;
  for (uint32_t i = 0; i < topology.hosts.size(); ++i) {
    if (word == topology.hosts[i] || word == std::to_string(i)) {
      *host = i;
      return true;
    }
    known += (known.empty() ? "" : ", ") + topology.hosts[i];
  }
  *error = std::string(kHostVariable) + "=" + word + ": no such host; allowed: " + known +
           ", or an index";
  return false;
}

int Run(Arguments& args) {
  LaunchOptions options;
  std::string topology;
  while (!args.empty()) {
    const std::string word = args.Peek();
    std::string value;
    bool failed = false;
    if (args.TakeFlag("--")) break;
    if (args.TakeOption("--topology", &topology, &failed)) {
    } else if (args.TakeOption("--name", &options.fabric.name, &failed)) {
    } else if (args.TakeOption("--library-dir", &options.library_dir, &failed)) {
    } else if (args.TakeFlag("--no-sysfs")) {
      options.sysfs = false;
    } else if (args.TakeOption("--seed", &value, &failed)) {
      const Result<uint64_t> seed = ParseUint(value, 0, UINT64_MAX);
      if (!failed && !seed.ok()) return Fail("--seed " + seed.error());
      if (!failed) options.fabric.seed = *seed;
    } else if (args.TakeOption("--time-scale", &value, &failed)) {
      char* end = nullptr;
      options.fabric.time_scale = std::strtod(value.c_str(), &end);
      const double scale = options.fabric.time_scale;
      if (!failed && (end == value.c_str() || *end != '\0' || !(scale >= 1e-6 && scale <= 1e6))) {
        return Fail("--time-scale '" + value + "' is no scale; allowed: 0.000001 to 1000000");
      }
    } else if (word[0] == '-') {
      return Fail(word +
                  ": no such option of run; allowed: --topology, --name, --seed, --time-scale, "
                  "--library-dir, --no-sysfs, --");
    } else {
      break;
    }
    if (failed) return Fail(word + ": its value is missing");
  }
  options.command = args.TakeRest();
  if (options.command.empty())
    return Fail("run: no command; usage: railhop-fabric run [OPTIONS] -- CMD...");
  std::string error;
  const std::optional<rdma::Topology> loaded = LoadTopology(topology, &error);
  if (!loaded) return Fail(error);
  options.fabric.topology = *loaded;
  if (!FindHost(*loaded, &options.host, &error)) return Fail(error);
  return Launch(options);
}

int On(Arguments& args) {
  const std::string word = args.Take();
  args.TakeFlag("--");
  const std::vector<std::string> command = args.TakeRest();
  if (command.empty()) return Fail("usage: railhop-fabric on HOST -- CMD...");
  std::string error;
  const std::unique_ptr<Control> control = Join("", &error);
  if (control == nullptr) return Fail(error);
  const std::optional<uint32_t> host = control->directory().FindHost(word, &error);
  if (!host) return Fail(error);
  const std::string name = control->directory().dir().host_names[*host];
  setenv(kHostVariable, name.c_str(), 1);
  if (!Sysfs::ShowHost(name, &error)) {
    std::fprintf(stderr, "railhop-fabric: /sys shows the devices of the first host: %s\n",
                 error.c_str());
  }
  return Execute(command);
}

int Fault(Arguments& args) {
  std::string name;
  bool failed = false;
  args.TakeOption("--fabric", &name, &failed);
  std::string words;
  for (const std::string& word : args.TakeRest()) words += (words.empty() ? "" : " ") + word;
  if (words.empty() || failed) {
    return Fail("usage: railhop-fabric fault [--fabric NAME] DEVICE WORDS...");
  }
  std::string error;
  std::string output;
  const std::unique_ptr<Control> control = Join(name, &error);
  if (control == nullptr || !control->Fault(words, &error, &output)) return Fail(error);
  std::fputs(output.c_str(), stdout);
  return 0;
}

// Options of `show` and `log`; false after an error message.
bool TakeShowOptions(const char* command, Arguments& args, std::string* name, bool* json) {
  while (!args.empty()) {
    bool failed = false;
    if (args.TakeFlag("--json")) {
      *json = true;
    } else if (!args.TakeOption("--fabric", name, &failed) || failed) {
      Fail(args.Take() + ": no such option of " + command + "; allowed: --json, --fabric NAME");
      return false;
    }
  }
  return true;
}

int Show(Arguments& args) {
  std::string name;
  bool json = false;
  if (!TakeShowOptions("show", args, &name, &json)) return kUsage;
  std::string error;
  const std::unique_ptr<Control> control = Join(name, &error);
  if (control == nullptr) return Fail(error);
  const FabricSnapshot snapshot = TakeSnapshot(control->directory());
  std::fputs((json ? SnapshotJson(snapshot) + "\n" : SnapshotText(snapshot)).c_str(), stdout);
  return 0;
}

int Log(Arguments& args) {
  std::string name;
  bool json = false;
  if (!TakeShowOptions("log", args, &name, &json)) return kUsage;
  std::string error;
  const std::unique_ptr<Control> control = Join(name, &error);
  if (control == nullptr) return Fail(error);
  uint64_t cursor = 0;
  std::string all;
  while (const std::optional<LogRecord> record = control->directory().ReadLog(&cursor)) {
    if (json) {
      all += (all.empty() ? "" : ",") + LogJson(control->directory(), *record);
    } else {
      all += LogText(control->directory(), *record) + "\n";
    }
  }
  std::fputs((json ? "[" + all + "]\n" : all).c_str(), stdout);
  return 0;
}

int List() {
  std::printf("%-24s %s\n", "fabric", "process");
  for (const FoundFabric& fabric : DirectoryHandle::FindFabrics()) {
    std::printf("%-24s %u\n", fabric.name.c_str(), fabric.owner_pid);
  }
  return 0;
}

int PrintTopology(Arguments& args) {
  const std::string file = args.Take();
  std::string error;
  const std::optional<rdma::Topology> topology = LoadTopology(file, &error);
  if (!topology) return Fail(error);
  std::fputs(rdma::FormatTopology(*topology).c_str(), stdout);
  return 0;
}

int Main(int argc, char** argv) {
  Arguments args(argc - 1, argv + 1);
  const std::string command = args.Take();
  if (command == "run") return Run(args);
  if (command == "on") return On(args);
  if (command == "fault") return Fault(args);
  if (command == "show") return Show(args);
  if (command == "log") return Log(args);
  if (command == "list") return List();
  if (command == "topology") return PrintTopology(args);
  if (command == "help" || command == "--help" || command == "-h") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (command.empty()) {
    std::fputs(kHelp, stderr);
    return kUsage;
  }
  return Fail(command +
              ": no such command; allowed: run, on, fault, show, log, list, topology, help");
}

}  // namespace
}  // namespace railhop::fabric

int main(int argc, char** argv) { return railhop::fabric::Main(argc, argv); }
