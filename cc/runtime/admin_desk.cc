#include "cc/runtime/admin_desk.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "cc/base/clock.h"
#include "cc/base/log.h"
#include "cc/base/units.h"
#include "cc/config/option_table.h"
#include "cc/config/settings.h"
#include "cc/control/handshake.h"
#include "cc/runtime/failover_service.h"
#include "cc/runtime/log_threshold.h"
#include "cc/runtime/port_facts.h"
#include "cc/runtime/transport.h"
#include "cc/runtime/transport_options.h"

namespace railhop::runtime {
namespace {

using admin::ErrorCode;
using admin::Failure;

constexpr int64_t kFreshNs = 10 * kNsPerMs;
constexpr size_t kProgramBytesMax = 200;
// Names that a message lists at most.
constexpr size_t kNamesMax = 16;

int64_t UnixNow() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

int64_t NowNs() { return RealClock().NowNs(); }

std::string ProgramName() {
  std::string text = config::ReadWholeFile("/proc/self/cmdline").value_or("");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text.substr(0, kProgramBytesMax);
}

Failure NotStarted() {
  return {.code = ErrorCode::kNotLoaded,
          .message =
              "Railhop is not started in this process: NCCL starts it with the first "
              "communicator and ends it with the last"};
}

Failure FailureOf(const absl::Status& status) {
  const ErrorCode code = absl::IsNotFound(status)             ? ErrorCode::kNotFound
                         : absl::IsFailedPrecondition(status) ? ErrorCode::kRefused
                         : absl::IsInvalidArgument(status)    ? ErrorCode::kInvalid
                                                              : ErrorCode::kInternal;
  return {.code = code, .message = std::string(status.message())};
}

// "a, b, c and 5 more".
std::string Listed(std::vector<std::string> names) {
  const size_t left_out = names.size() > kNamesMax ? names.size() - kNamesMax : 0;
  names.resize(names.size() - left_out);
  std::string text = absl::StrJoin(names, ", ");
  if (left_out > 0) absl::StrAppend(&text, " and ", left_out, " more");
  return text;
}

// "1 connection", "2 connections".
std::string Connections(size_t count) {
  return absl::StrCat(count, count == 1 ? " connection" : " connections");
}

constexpr absl::string_view kConnectionPrefix = "connection:";

// Which ports or which connection a person means. Errors: NotFound (lists what there is),
// InvalidArgument.
absl::StatusOr<Driver::Target> FindTarget(const std::string& text, const HealthInput& input) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, kConnectionPrefix)) {
    absl::ConsumePrefix(&rest, "0x");
    std::vector<std::string> there;
    for (const DriverSnapshot::Link& link : input.driver->links) {
      const std::string id = HexId(link.id.connection);
      // Leading zeros may be left out.
      if (rest == id ||
          (!rest.empty() &&
           std::string(16 - std::min<size_t>(rest.size(), 16), '0') + std::string(rest) == id)) {
        return Driver::Target{.connection = link.id.connection};
      }
      there.push_back(absl::StrCat(kConnectionPrefix, id));
    }
    return absl::NotFoundError(absl::StrCat(
        "there is no connection ", rest,
        there.empty() ? "; there is none with failover" : "; there are ", Listed(there)));
  }
  if (text.empty()) {
    return absl::InvalidArgumentError("no target: name a port, a device or a connection");
  }
  Driver::Target target;
  std::vector<std::string> there;
  std::set<int> replaced;
  for (const PhysicalDevice* port : input.transport.ports) replaced.insert(port->replaces);
  for (const PhysicalDevice* port : input.transport.ports) {
    if (replaced.contains(port->id)) continue;
    there.push_back(PortName(*port));
    if (text == PortName(*port) || text == port->name) target.ports.push_back(port->id);
  }
  if (!target.ports.empty()) return target;
  return absl::NotFoundError(
      absl::StrCat("there is no port or device ", text, "; there are ", Listed(there)));
}

// Whether a command keeps one of these ports out of service.
bool AnyHeld(const std::vector<int>& ports, const DriverSnapshot& driver) {
  return std::any_of(driver.ports.begin(), driver.ports.end(),
                     [&ports](const DriverSnapshot::Port& port) {
                       return port.command != engine::PortState::kActive &&
                              std::find(ports.begin(), ports.end(), port.device->id) != ports.end();
                     });
}

// With failover off nobody else reads the ports. A device that hangs holds up the one who asks.
std::map<int, PortFacts> ReadPorts(const std::vector<const PhysicalDevice*>& ports) {
  std::map<int, PortFacts> facts;
  for (const PhysicalDevice* port : ports) {
    const absl::StatusOr<PortFacts> read = ReadPort(*port, PortRules{});
    facts[port->id] = read.ok() ? *read : PortFacts{};
  }
  return facts;
}

admin::Option MakeOption(const config::EffectiveOption& known) {
  admin::Option option;
  option.name = known.row->name;
  option.value = known.value;
  option.default_value = known.row->default_value;
  option.source = known.source;
  option.unit = known.row->unit;
  option.range = known.row->range;
  option.doc = known.row->doc;
  option.changeable = config::IsChangeable(known.row->name);
  return option;
}

}  // namespace

AdminDesk& AdminDesk::OfThisProcess() {
  static AdminDesk* const desk = new AdminDesk;
  return *desk;
}

bool AdminDesk::IsForkedCopy() const {
  const pid_t owner = owner_;
  return owner != 0 && owner != getpid();
}

void AdminDesk::Open(Setting setting) {
  owner_ = getpid();
  {
    absl::MutexLock lock(&open_mutex_);
    open_ = true;
    job_ = std::move(setting.job);
    program_ = ProgramName();
    start_unix_ns_ = UnixNow();
    unix_offset_ = start_unix_ns_ - NowNs();
    absl::MutexLock options_lock(&options_mutex_);
    loaded_ = std::move(setting.loaded);
  }
  Forget();
  if (FailoverService* const failover = Transport::Failover()) {
    failover->journal().SetListener([this] { News(); });
  }
}

void AdminDesk::Close() {
  if (IsForkedCopy()) return;
  {
    absl::MutexLock lock(&open_mutex_);
    open_ = false;
    if (FailoverService* const failover = Transport::Failover()) {
      failover->journal().SetListener(nullptr);
    }
  }
  Forget();
  News();
}

void AdminDesk::SetWaker(std::function<void()> wake) {
  absl::MutexLock lock(&news_mutex_);
  wake_ = std::move(wake);
}

void AdminDesk::News() {
  if (waiting_.load(std::memory_order_acquire) == 0) return;
  absl::MutexLock lock(&news_mutex_);
  ++news_count_;
  news_.SignalAll();
  if (wake_) wake_();
}

void AdminDesk::Forget() {
  absl::MutexLock lock(&input_mutex_);
  input_ = nullptr;
}

admin::Process AdminDesk::MakeProcess() const {
  admin::Process process;
  process.pid = getpid();
  process.job = job_;
  process.program = program_;
  process.version = control::kPluginVersion;
  process.api_version = admin::kApiVersion;
  process.start_unix_ns = start_unix_ns_;
  process.now_unix_ns = UnixNow();
  return process;
}

std::shared_ptr<const HealthInput> AdminDesk::Input() {
  absl::MutexLock lock(&input_mutex_);
  const int64_t now = NowNs();
  if (input_ != nullptr && now - input_at_ < kFreshNs) return input_;
  auto input = std::make_shared<HealthInput>();
  input->process = MakeProcess();
  input->transport = Transport::View();
  if (FailoverService* const failover = Transport::Failover()) {
    input->driver = failover->driver().Snapshot();
    input->counters = failover->journal().counters();
  } else {
    if (facts_at_ == 0 || now - facts_at_ > kNsPerSecond) {
      facts_ = ReadPorts(input->transport.ports);
      facts_at_ = now;
    }
    input->facts = facts_;
  }
  input->process.host = input->transport.host;
  input->process.instance = HexId(input->transport.instance);
  input->process.running = input->transport.running;
  input->process.failover = input->transport.failover;
  input->now = now;
  input->unix_offset = unix_offset_;
  input_ = input;
  input_at_ = now;
  return input;
}

admin::Response AdminDesk::Answer(const admin::Request& request) {
  if (IsForkedCopy()) return NotStarted();
  absl::ReaderMutexLock lock(&open_mutex_);
  if (!open_) return NotStarted();
  return std::visit(
      [this](const auto& asked) ABSL_NO_THREAD_SAFETY_ANALYSIS -> admin::Response {
        using T = std::decay_t<decltype(asked)>;
        using Target = Driver::Target;
        if constexpr (std::is_same_v<T, admin::GetProcess>) {
          return Input()->process;
        } else if constexpr (std::is_same_v<T, admin::GetHealth>) {
          return MakeHealth(*Input());
        } else if constexpr (std::is_same_v<T, admin::GetStats>) {
          return MakeStats(*Input());
        } else if constexpr (std::is_same_v<T, admin::GetEvents>) {
          return Events(asked);
        } else if constexpr (std::is_same_v<T, admin::GetConfig>) {
          return Config();
        } else if constexpr (std::is_same_v<T, admin::SetOption>) {
          return Set(asked);
        } else if constexpr (std::is_same_v<T, admin::ForceFailover>) {
          if (asked.mode == admin::FailoverMode::kUnknown) {
            return Failure{.code = ErrorCode::kInvalid,
                           .message = "no mode of failover: drain and now are known"};
          }
          const bool drains = asked.mode == admin::FailoverMode::kDrain;
          return Command(asked.target, false, drains ? "drained" : "failed over",
                         [drains](Driver* driver, const Target& target) {
                           return drains ? driver->Drain(target) : driver->ForceFailover(target);
                         });
        } else if constexpr (std::is_same_v<T, admin::FailBack>) {
          return Command(
              asked.target, true, "failed back",
              [](Driver* driver, const Target& target) { return driver->FailBack(target); });
        } else if constexpr (std::is_same_v<T, admin::Hold>) {
          return Command(asked.target, false, "held",
                         [](Driver* driver, const Target& target) { return driver->Hold(target); });
        } else {
          static_assert(std::is_same_v<T, admin::Release>);
          return Release(asked);
        }
      },
      request);
}

admin::Response AdminDesk::AnswerWaiting(const admin::Request& request) {
  const auto* const events = std::get_if<admin::GetEvents>(&request);
  if (events == nullptr || events->wait_ns <= 0 || IsForkedCopy()) return Answer(request);
  const absl::Time deadline =
      absl::Now() + absl::Nanoseconds(std::min(events->wait_ns, admin::kWaitNsMax));
  BeginWaiting();
  for (;;) {
    uint64_t seen;
    {
      absl::MutexLock lock(&news_mutex_);
      seen = news_count_;
    }
    admin::Response response = Answer(request);
    const auto* const list = std::get_if<admin::EventList>(&response);
    bool timed_out = false;
    if (list != nullptr && list->events.empty()) {
      absl::MutexLock lock(&news_mutex_);
      while (news_count_ == seen && !timed_out) {
        timed_out = news_.WaitWithDeadline(&news_mutex_, deadline);
      }
      if (news_count_ != seen) continue;
    }
    EndWaiting();
    return response;
  }
}

admin::Response AdminDesk::Events(const admin::GetEvents& request) {
  admin::EventList list;
  FailoverService* const failover = Transport::Failover();
  if (failover == nullptr) return list;
  const size_t limit = request.limit == 0 ? admin::kEventsDefault
                                          : std::min<size_t>(request.limit, admin::kEventsMax);
  list.last_serial = failover->journal().last_serial();
  const std::vector<JournalEntry> entries =
      failover->journal().Since(request.after, limit, &list.gone);
  if (entries.empty()) return list;
  list.last_serial = std::max(list.last_serial, entries.back().serial);
  std::shared_ptr<const HealthInput> input = Input();
  EventNames names = NamesOf(*input);
  const bool unnamed = std::any_of(entries.begin(), entries.end(), [&names](const auto& entry) {
    return entry.peer != 0 && !names.peers.contains(entry.peer);
  });
  if (unnamed) {
    // Newer than what was collected.
    Forget();
    input = Input();
    names = NamesOf(*input);
  }
  for (const JournalEntry& entry : entries) {
    list.events.push_back(MakeEvent(entry, names, input->unix_offset));
  }
  return list;
}

admin::Response AdminDesk::Config() {
  admin::Config config;
  absl::MutexLock lock(&options_mutex_);
  for (const config::EffectiveOption& option : loaded_.effective) {
    config.options.push_back(MakeOption(option));
  }
  return config;
}

admin::Response AdminDesk::Set(const admin::SetOption& request) {
  const config::OptionRow* const row = config::FindOption(request.name);
  if (row == nullptr) {
    const std::string nearest = config::NearestOption(request.name);
    return Failure{
        .code = ErrorCode::kNotFound,
        .message = absl::StrCat(
            "there is no option ", request.name, nearest.empty() ? "" : "; did you mean ", nearest,
            nearest.empty() ? "; these" : "? These",
            " can change while the job runs: ", absl::StrJoin(config::ChangeableOptions(), ", "))};
  }
  if (!config::IsChangeable(row->name)) {
    return Failure{
        .code = ErrorCode::kRefused,
        .message = absl::StrCat(row->name, " cannot change while the job runs; these can: ",
                                absl::StrJoin(config::ChangeableOptions(), ", "))};
  }
  FailoverService* const failover = Transport::Failover();
  const bool of_log = row->name == absl::string_view("RAILHOP_LOG");
  if (failover == nullptr && !of_log) {
    return Failure{.code = ErrorCode::kRefused,
                   .message = absl::StrCat(row->name, " has no effect: RAILHOP_FAILOVER=0")};
  }
  absl::MutexLock lock(&options_mutex_);
  const std::string error = config::ChangeOption(*row, request.value, "command", &loaded_);
  if (!error.empty()) {
    return Failure{.code = ErrorCode::kInvalid,
                   .message = absl::StrCat(row->name, "=", request.value, ": ", error)};
  }
  std::vector<std::string> notes;
  if (of_log) {
    SetLogThresholdByWord(loaded_.options.log);
  } else {
    const FailoverConfig config = MakeFailoverConfig(loaded_.options, &notes);
    failover->driver().SetTimes({.health = config.health,
                                 .give_up = config.give_up_ns,
                                 .port_poll_interval = config.port_poll_interval_ns});
  }
  // Other options' notes were told when the job began.
  std::erase_if(notes,
                [row](const std::string& note) { return !absl::StrContains(note, row->name); });
  const std::string note = absl::StrJoin(notes, "; ");
  const std::string text =
      absl::StrCat(row->name, "=", request.value, note.empty() ? "" : "; ", note);
  RAILHOP_LOG(kInfo, "option %s (command)", text.c_str());
  if (failover != nullptr) {
    failover->journal().Append(
        {.time_ns = NowNs(), .kind = JournalEntry::Kind::kOption, .text = text});
  }
  for (const config::EffectiveOption& option : loaded_.effective) {
    if (option.row != row) continue;
    admin::Option changed = MakeOption(option);
    changed.note = note;
    return changed;
  }
  return Failure{.code = ErrorCode::kInternal, .message = "the option has no value"};
}

admin::Response AdminDesk::Release(const admin::Release& request) {
  Forget();
  const std::shared_ptr<const HealthInput> input = Input();
  if (input->driver.has_value()) {
    const absl::StatusOr<Driver::Target> found = FindTarget(request.target, *input);
    if (found.ok() && !found->connection.has_value() && !AnyHeld(found->ports, *input->driver)) {
      admin::Outcome outcome;
      outcome.text = absl::StrCat(request.target, ": no command holds it; nothing has changed");
      return outcome;
    }
  }
  return Command(
      request.target, false, "released",
      [](Driver* driver, const Driver::Target& target) { return driver->Release(target); });
}

admin::Response AdminDesk::Command(const std::string& target, bool may_be_all, const char* done,
                                   const Act& act) {
  FailoverService* const failover = Transport::Failover();
  if (failover == nullptr) {
    return Failure{.code = ErrorCode::kRefused,
                   .message =
                       "failover is off in this process (RAILHOP_FAILOVER=0): its "
                       "connections stay where they are"};
  }
  Forget();
  const std::shared_ptr<const HealthInput> input = Input();
  absl::StatusOr<Driver::Target> found = Driver::Target{};
  if (!target.empty() || !may_be_all) found = FindTarget(target, *input);
  if (!found.ok()) return FailureOf(found.status());
  const absl::StatusOr<Driver::Touched> touched = act(&failover->driver(), *found);
  Forget();
  if (!touched.ok()) return FailureOf(touched.status());
  admin::Outcome outcome;
  const EventNames names = NamesOf(*input);
  for (const int physical : touched->ports) {
    const auto name = names.ports.find(physical);
    if (name != names.ports.end()) outcome.ports.push_back(name->second);
  }
  outcome.connections = static_cast<uint32_t>(touched->connections);
  outcome.text = absl::StrCat(target.empty() ? "all" : target, ": ", done, ", ",
                              Connections(outcome.connections));
  if (!touched->note.empty()) absl::StrAppend(&outcome.text, "; ", touched->note);
  RAILHOP_LOG(kInfo, "command: %s", outcome.text.c_str());
  return outcome;
}

}  // namespace railhop::runtime
