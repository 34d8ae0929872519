#include "cc/sim/plugin_runner.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/log.h"
#include "cc/rdma_model/fault_grammar.h"
#include "cc/runtime/async_watch.h"
#include "cc/sim/plugin_channel.h"
#include "cc/sim/plugin_process.h"
#include "cc/sim/plugin_traffic.h"
#include "cc/sim/plugin_world.h"

namespace railhop::sim {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
// More events than any plan needs: a run that gets here goes in circles.
constexpr uint64_t kEventsMax = 5'000'000;
// From the end of all faults to the end of all traffic, virtual.
// For what is cleared away after the last close, and where a call hangs.
constexpr uint64_t kSettleNs = kSecond / 20;
constexpr uint64_t kHungNs = 200 * kSecond;
constexpr uint64_t kRecoverNs = 200 * kSecond;

// Sets the plan's faults when their time comes, and ends them.
class FaultPlayer final : public Actor {
 public:
  FaultPlayer(PluginWorld* world, const PluginPlan& plan) : world_(world), plan_(plan) {
    for (size_t i = 0; i < plan.faults.size(); ++i) {
      world->loop().At(kStartNs + plan.faults[i].at_ns, this, i);
    }
    if (plan.heal_ns != 0) world->loop().At(kStartNs + plan.heal_ns, this, plan.faults.size());
  }

  void OnEvent(uint64_t arg) override {
    if (arg == plan_.faults.size()) return Heal();
    Set(plan_.faults[arg].text);
  }

 private:
  void Set(const std::string& text) {
    std::string error;
    if (!world_->world().Fault(text, &error)) {
      world_->violations().Add("fault '" + text + "': " + error);
    }
  }
  void Heal() {
    World& world = world_->world();
    world.faults().ClearAll();
    for (const auto& nic : world.nics()) {
      nic->set_quirks(0);
      for (uint32_t number = 1; number <= nic->port_count(); ++number) {
        Mend(nic->config().ports[number - 1], nic->port(number));
      }
    }
    ++world.shared().address_generation;
    rdma::FaultSpec up;
    up.kind = rdma::FaultKind::kUp;
    for (Port* port : world.ports()) world.faults().Apply(port, up);
  }

  // Every address that has gone is there again; one that has moved stays where it is.
  static void Mend(const rdma::TopologyPort& before, Port* port) {
    port->hidden_gids = 0;
    port->now.active_mtu = before.active_mtu;
    for (size_t i = 0; i < before.gids.size(); ++i) {
      auto& gids = port->now.gids;
      if (std::find(gids.begin(), gids.end(), before.gids[i]) != gids.end()) continue;
      gids[i] = before.gids[i];
    }
  }

  PluginWorld* const world_;
  const PluginPlan& plan_;
};

using Processes = std::vector<std::unique_ptr<PluginProcess>>;

// Reads the devices' events, as AsyncWatch does in every process.
class EventReader final : public Actor {
 public:
  EventReader(PluginWorld* world, Processes* processes) : world_(world), processes_(processes) {
    world->set_async_actor(this);
  }
  void OnEvent(uint64_t) override {
    while (!world_->async_events().empty()) {
      ibv_context* raw = world_->async_events().front();
      world_->async_events().pop_front();
      Read(raw);
    }
  }

 private:
  void Read(ibv_context* raw) {
    PluginProcess* process = (*processes_)[NicOf(raw)->host()->index].get();
    ibv_async_event read;
    if (SimVerbs().get_async_event(raw, &read) != 0) return;
    runtime::AsyncEvent event;
    event.type = read.event_type;
    switch (read.event_type) {
      case IBV_EVENT_CQ_ERR:
        event.cq = read.element.cq;
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST:
      case IBV_EVENT_SQ_DRAINED:
      case IBV_EVENT_PATH_MIG:
      case IBV_EVENT_PATH_MIG_ERR:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        event.qp = read.element.qp;
        break;
      default:
        event.port = static_cast<uint8_t>(read.element.port_num);
    }
    SimVerbs().ack_async_event(&read);
    for (const auto& context : process->host()->devices().contexts()) {
      if (context->raw() == raw) event.context = context.get();
    }
    if (process->host()->alive() && event.context != nullptr) process->Take(event);
  }

  PluginWorld* const world_;
  Processes* const processes_;
};

// Plays what goes wrong on the control channel, and what people ask for.
class Director final : public Actor {
 public:
  Director(PluginWorld* world, ControlNet* net, Processes* processes, const PluginPlan& plan)
      : net_(net), processes_(processes), plan_(plan) {
    size_t turn = 0;
    for (const ChannelFault& fault : plan.channel) {
      world->loop().At(kStartNs + fault.at_ns, this, turn++);
    }
    for (const PlannedCommand& command : plan.commands) {
      world->loop().At(kStartNs + command.at_ns, this, turn++);
    }
    if (plan.heal_ns != 0) world->loop().At(kStartNs + plan.heal_ns, this, turn);
  }
  void OnEvent(uint64_t turn) override {
    const size_t faults = plan_.channel.size();
    if (turn < faults) return net_->Start(plan_.channel[turn]);
    if (turn - faults < plan_.commands.size()) return Command(plan_.commands[turn - faults]);
    net_->Heal();
  }

 private:
  // Refusing is an answer, too.
  void Command(const PlannedCommand& command) {
    PluginProcess& process = *(*processes_)[command.host];
    if (!process.host()->alive()) return;
    CallerScope scope(process.host()->world(), Caller::kNccl);
    runtime::Driver& driver = process.driver();
    switch (command.kind) {
      case PlannedCommand::Kind::kDrain:
        return driver.Drain(command.physical).IgnoreError();
      case PlannedCommand::Kind::kForce:
        return driver.ForceFailover(command.physical).IgnoreError();
      case PlannedCommand::Kind::kRelease:
        return driver.Release(command.physical).IgnoreError();
      case PlannedCommand::Kind::kFailBack:
        return driver.FailBack().IgnoreError();
    }
  }

  ControlNet* const net_;
  Processes* const processes_;
  const PluginPlan& plan_;
};

class PluginRun {
 public:
  PluginRun(const PluginPlan& plan, Memory* memory, bool keep_record)
      : plan_(plan),
        world_(plan.topology, plan.options, plan.datapath, plan.failover.confirm, &violations_),
        chance_(plan.options.seed ^ 5),
        net_(&world_, {.delay_ns = plan.channel_delay_ns}, chance_.Next()) {
    keep_record_ = keep_record;
    if (keep_record) world_.world().recorder().Keep();
    SetLogThreshold(keep_record ? LogSeverity::kTrace : LogSeverity::kWarning);
    SetLogSink({.write = &PluginRun::TakeLine, .context = this});
    for (const auto& host : world_.hosts()) {
      processes_.push_back(
          std::make_unique<PluginProcess>(host.get(), &net_, plan.failover, chance_.Next()));
    }
    reader_ = std::make_unique<EventReader>(&world_, &processes_);
    player_ = std::make_unique<FaultPlayer>(&world_, plan);
    director_ = std::make_unique<Director>(&world_, &net_, &processes_, plan);
    for (size_t i = 0; i < plan.traffic.size(); ++i) {
      traffic_.push_back(std::make_unique<PluginTraffic>(&world_, memory, plan.traffic[i], i));
      traffic_.back()->Start();
    }
  }

  ~PluginRun() { SetLogSink({}); }

  void Play() {
    const uint64_t limit = kStartNs + plan_.heal_ns + kRecoverNs + IdleTime();
    EventLoop& loop = world_.loop();
    while (!AllClosed() && loop.events() < kEventsMax && loop.next_ns() <= limit) {
      if (!loop.Step()) break;
      if (world_.world().faults().killed.size() != buried_) Bury();
    }
    if (loop.events() >= kEventsMax) violations_.Add("goes in circles: events without end");
    for (const auto& traffic : traffic_) JudgeEnd(*traffic);
    // What is still under way lands, or nowhere.
    const uint64_t settle = loop.now_ns() + kSettleNs;
    const uint64_t last = loop.now_ns() + kHungNs;
    while (AllClosed() && loop.events() < kEventsMax &&
           loop.next_ns() <= (HasOpenJobs() ? last : settle)) {
      loop.Step();
    }
    for (const auto& traffic : traffic_) traffic->CheckBuffers();
    JudgeLeaks();
    JudgeJournals();
    if (keep_record_) PrintJournals();
  }

  void Fill(SeedResult* result) {
    result->seed = plan_.seed;
    result->faults = plan_.faults.size() + plan_.channel.size();
    result->conversations = traffic_.size();
    for (const auto& traffic : traffic_) {
      for (const TrafficEnd* end : {traffic->send(), traffic->recv()}) {
        if (end == nullptr) continue;
        result->transfers += end->requests();
        if (end->outcome() != datapath::Outcome::kOk) ++result->failed;
      }
      result->bytes += traffic->bytes();
    }
    result->events = world_.loop().events();
    result->virtual_ns = world_.now_ns() - kStartNs;
    result->record_hash = world_.world().recorder().hash();
    result->violations = violations_.count();
    result->texts = violations_.texts();
    if (world_.world().recorder().records().empty()) return;
    result->record = world_.world().RecordText();
  }

  Violations& violations() { return violations_; }

 private:
  static void TakeLine(void* context, LogSeverity severity, const char*, int, const char* line) {
    auto* self = static_cast<PluginRun*>(context);
    if (severity >= LogSeverity::kWarning) ++self->warnings_;
    if (!self->keep_record_) return;
    const uint64_t us = (self->world_.now_ns() - kStartNs) / 1000;
    std::fprintf(stderr, "%10" PRIu64 " us  %s %s\n", us, LogSeverityName(severity), line);
  }

  void PrintJournals() const {
    for (const auto& process : processes_) {
      uint64_t gone = 0;
      for (const runtime::JournalEntry& e : process->journal().Since(0, 10'000, &gone)) {
        std::fprintf(stderr,
                     "journal %s %10" PRIu64 " us %s local %d remote %d end %d of %016" PRIx64
                     " epoch %u %s value %" PRIu64 " bytes %" PRIu64 " %s\n",
                     process->host()->host()->name.c_str(),
                     (static_cast<uint64_t>(e.time_ns) - kStartNs) / 1000,
                     runtime::JournalKindText(e.kind), e.local, e.remote,
                     static_cast<int>(e.end.end), e.end.connection, e.epoch,
                     runtime::CauseText(e.cause), e.value, e.bytes, e.text.c_str());
      }
      const runtime::Driver::Summary s = process->driver().Summarize();
      std::fprintf(stderr,
                   "state %s links %d hindered %d lanes %d backup %d episodes %d peers %d paths %d "
                   "good %d, %zu open jobs\n",
                   process->host()->host()->name.c_str(), s.links, s.hindered, s.lanes,
                   s.backup_lanes, s.open_episodes, s.peers, s.paths, s.good_paths,
                   process->executor().open_jobs());
    }
  }

  // Who is to blame, as far as the plan says whom nobody may blame; and silence where all is well.
  void JudgeJournals() {
    for (const auto& process : processes_) {
      if (!process->host()->alive()) continue;
      const std::string& name = process->host()->host()->name;
      if (plan_.trouble != Trouble::kFaults) JudgeSilence(name, process->journal().counters());
      uint64_t gone = 0;
      for (const runtime::JournalEntry& e : process->journal().Since(0, 10'000, &gone)) {
        JudgeBlame(name, e);
      }
    }
    if (plan_.trouble != Trouble::kFaults && warnings_ != 0) {
      violations_.Add(absl::StrCat(warnings_, " warnings though nothing is wrong"));
    }
  }

  void JudgeSilence(const std::string& name, const runtime::JournalCounters& counters) {
    using Kind = runtime::JournalEntry::Kind;
    for (const Kind kind : {Kind::kEpisode, Kind::kSuspect, Kind::kResumed, Kind::kMoved,
                            Kind::kRetired, Kind::kNoPath, Kind::kGaveUp}) {
      if (counters.Count(kind) == 0) continue;
      violations_.Add(absl::StrCat(name, ": ", counters.Count(kind), " entries '",
                                   runtime::JournalKindText(kind), "' though nothing is wrong"));
    }
  }

  void JudgeBlame(const std::string& name, const runtime::JournalEntry& e) {
    using Kind = runtime::JournalEntry::Kind;
    using engine::Blame;
    if (e.kind != Kind::kEpisode && e.kind != Kind::kRecovered) return;
    const bool killed =
        std::find(plan_.killed.begin(), plan_.killed.end(), true) != plan_.killed.end();
    const bool of_peer = e.blame == Blame::kPeerProcess || e.blame == Blame::kPeerHost;
    const bool closed_early =
        plan_.refuses_memory || std::any_of(plan_.traffic.begin(), plan_.traffic.end(),
                                            [](const TrafficPlan& t) { return t.close_alone; });
    // A peer that has closed what it had is gone, too.
    const bool somebody_is_through =
        std::any_of(traffic_.begin(), traffic_.end(), [&e](const auto& traffic) {
          const auto through = [&e](const TrafficEnd* end) {
            return end != nullptr && end->ended_ns() != 0 &&
                   end->ended_ns() < static_cast<uint64_t>(e.time_ns);
          };
          return through(traffic->send()) || through(traffic->recv());
        });
    if (of_peer && !killed && !closed_early && !somebody_is_through && plan_.channel.empty()) {
      violations_.Add(absl::StrCat(name, " blames its peer (", engine::BlameText(e.blame),
                                   "), and nobody has died"));
    }
    const int rails = static_cast<int>(plan_.topology.devices.size() / plan_.topology.hosts.size());
    const bool of_local = e.blame == Blame::kLocalPort || e.blame == Blame::kLocalNic;
    if (e.local < 0 || e.local >= rails) return;
    const std::string nic = name + "/nic" + std::to_string(e.local);
    if (of_local && FaultsOn(nic) == 0) {
      violations_.Add(absl::StrCat(name, " blames ", nic, " (", engine::BlameText(e.blame),
                                   "), which has no fault"));
    }
    if (plan_.faults.size() != 1 || e.kind != Kind::kEpisode || !plan_.commands.empty()) return;
    const std::string& fault = plan_.faults[0].text;
    const auto is = [&](const char* word) { return fault.starts_with(nic + " " + word); };
    const bool has_event = fault.find("event") == std::string::npos;
    // A fault with a trigger may never have come.
    const auto time = static_cast<uint64_t>(e.time_ns);
    bool down = false, removed = false;
    // An end that hears of it from the other one, over a channel with faults of its own, cannot
    // tell it from what was long before.
    const bool hearsay = e.cause == engine::Cause::kPeer && !plan_.channel.empty();
    const auto late = static_cast<uint64_t>(4 * plan_.failover.health.stall);
    for (const Port* port : world_.world().ports()) {
      if (port->nic->Name() != nic) continue;
      down = port->first_down_ns != 0 && port->first_down_ns <= time &&
             !(hearsay && port->first_down_ns + late < time);
      removed = port->nic->removed();
    }
    if (is("down") && down && has_event && e.blame != Blame::kLocalPort) {
      violations_.Add(absl::StrCat(name, " blames ", engine::BlameText(e.blame), " for: ", fault));
    }
    if (is("remove") && removed && e.blame != Blame::kLocalNic) {
      violations_.Add(absl::StrCat(name, " blames ", engine::BlameText(e.blame), " for: ", fault));
    }
  }
  size_t FaultsOn(const std::string& nic) const {
    return static_cast<size_t>(
        std::count_if(plan_.faults.begin(), plan_.faults.end(),
                      [&nic](const PlannedFault& f) { return f.text.starts_with(nic + " "); }));
  }

  // What the death of a process means for its peers.
  void Bury() {
    const std::vector<Host*>& killed = world_.world().faults().killed;
    for (; buried_ < killed.size(); ++buried_) {
      PluginProcess& process = *processes_[killed[buried_]->index];
      process.Stop();
      process.executor().Abandon();
      net_.Kill(process.host(), chance_.Chance(0.3));
    }
  }

  bool AllClosed() const {
    return std::all_of(traffic_.begin(), traffic_.end(),
                       [](const auto& traffic) { return traffic->Closed(); });
  }

  bool HasOpenJobs() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const auto& process) {
      return process->host()->alive() && process->executor().open_jobs() != 0;
    });
  }

  // What NCCL spends computing at most.
  uint64_t IdleTime() const {
    uint64_t most = 0;
    for (const TrafficPlan& t : plan_.traffic) {
      const auto of = [&t](const PacePlan& pace) {
        return pace.idle > 0 ? pace.idle_ns * t.groups.size() : 0;
      };
      most = std::max(most, of(t.send_pace) + of(t.recv_pace));
    }
    return most;
  }

  bool MayFail(const PluginTraffic& traffic, bool sends) const {
    if (plan_.may_fail || plan_.unwritten) return true;
    // Who closes alone leaves the other without what is missing; of a send that had arrived nothing
    // is.
    const bool arrived = traffic.recv()->requests() == traffic.plan().groups.size();
    if (traffic.plan().close_alone && !(sends && arrived)) return true;
    // NCCL ends the job when it cannot register memory.
    if (plan_.refuses_memory && (traffic.send()->refused() || traffic.recv()->refused()))
      return true;
    return !world_.FindHost(traffic.plan().sender)->alive() ||
           !world_.FindHost(traffic.plan().receiver)->alive();
  }

  // A host that dies without a word before there was a session: whoever waits for it, waits.
  bool IsUnheardOf(const PluginTraffic& traffic) {
    const PluginHost* a = world_.FindHost(traffic.plan().sender);
    const PluginHost* b = world_.FindHost(traffic.plan().receiver);
    return !(a->alive() && b->alive()) && !net_.EverUp(a->host()->index, b->host()->index);
  }

  void JudgeEnd(const PluginTraffic& traffic) {
    const uint64_t now = world_.now_ns();
    if (!traffic.refused().empty()) {
      if (plan_.faults.empty()) {
        violations_.Add(traffic.Name() + " cannot be made: " + traffic.refused());
      }
      return;
    }
    for (const bool sends : {true, false}) {
      const TrafficEnd* end = sends ? traffic.send() : traffic.recv();
      const std::string name = traffic.Name() + (sends ? ": sender" : ": receiver");
      if (end == nullptr) {
        violations_.Add(name + " never came to be");
      } else if (end->state() == EndState::kRunning && IsUnheardOf(traffic)) {
        continue;
      } else if (end->state() == EndState::kRunning) {
        violations_.Add(absl::StrCat(name, " is not through ", (now - kStartNs) / 1'000'000,
                                     " ms after the start, ", end->requests(),
                                     " requests done, the last at ",
                                     (end->progress_ns() - kStartNs) / 1'000, " us"));
      } else if (end->outcome() != datapath::Outcome::kOk && !MayFail(traffic, sends)) {
        violations_.Add(absl::StrCat(name, " got error ", static_cast<int>(end->outcome()), " at ",
                                     (end->ended_ns() - kStartNs) / 1'000, " us from ",
                                     end->what()));
      } else if (!end->closed()) {
        violations_.Add(name + " cannot be closed");
      }
    }
  }

  void JudgeLeaks() {
    if (!AllClosed()) return;
    for (const auto& host : world_.hosts()) {
      if (!host->alive()) continue;
      for (const auto& context : host->devices().contexts()) {
        // As at the end of the process: what was refused before, and is kept to be tried again.
        for (int turn = 0; turn < 16; ++turn) context->EndKept();
        const Context& core = *CoreOf(context->raw());
        // Of a device that says it has failed nothing is asked any more.
        if (core.gone() || plan_.false_alarm) continue;
        const size_t qps = core.qp_count(), cqs = core.cq_count(), regions = core.region_count();
        if (qps + cqs + regions == 0) continue;
        violations_.Add(absl::StrCat(core.nic()->Name(), " is left with ", qps, " queue pairs, ",
                                     cqs, " completion queues and ", regions, " registrations"));
      }
    }
  }

  const PluginPlan& plan_;
  Violations violations_;
  PluginWorld world_;
  Prng chance_;
  ControlNet net_;
  std::unique_ptr<FaultPlayer> player_;
  std::vector<std::unique_ptr<PluginTraffic>> traffic_;
  Processes processes_;
  std::unique_ptr<EventReader> reader_;
  std::unique_ptr<Director> director_;
  size_t buried_ = 0;
  bool keep_record_ = false;
  uint64_t warnings_ = 0;
};

}  // namespace

SeedResult PluginRunner::Run(const PluginPlan& plan, bool keep_record) {
  memory_.Reset();
  SeedResult result;
  PluginRun run(plan, &memory_, keep_record);
  run.Play();
  for (const Buffer& buffer : memory_.Damaged()) {
    run.violations().Add("bytes were written outside a buffer of " + std::to_string(buffer.size()));
  }
  run.Fill(&result);
  return result;
}

}  // namespace railhop::sim
