#include "cc/netperf/measure.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include "cc/netperf/background.h"
#include "cc/netperf/legs.h"
#include "cc/netperf/session.h"
#include "cc/netperf/statistics.h"

namespace railhop::netperf {
namespace {

constexpr double kCommandTimeoutS = 30;

volatile sig_atomic_t interrupted = 0;

// One plugin's session, what came of it so far, and how its figures are printed.
class Bench {
 public:
  Bench(const Options& options, const Side& side, Report* report)
      : options_(options), side_(side), report_(report) {}

  bool Start() {
    session_ = Session::Start(PlanOf(options_, side_), &problem_);
    if (session_ != nullptr) return true;
    counts_.errors = 1;
    return false;
  }

  // False: no more legs.
  bool Run(const char* what, const Leg& leg, Outcome* outcome) {
    Session::Hooks hooks;
    if (leg.marks[0] != 0) hooks.at_mark = [this](uint64_t number) { Command(number); };
    if (leg.endless) {
      hooks.times_s = options_.at_times;
      hooks.at_time = [this](double time_s) { Command(time_s); };
      hooks.stop_after_s = options_.seconds;
      hooks.wants_stop = [] { return interrupted != 0; };
    }
    hooks.on_progress = [&](uint64_t received) {
      report_->Progress(std::string(what) + ", " + SizeText(leg.size) + " bytes", received,
                        leg.mode == Mode::kPingPong ? 2 * leg.count : leg.count);
    };
    *outcome = session_->Run(leg, hooks);
    counts_.Add(outcome->counts);
    seconds_ += outcome->Seconds();
    after_death_ = outcome->after_death;
    after_death_ns_ = outcome->after_death_ns;
    if (problem_.empty()) problem_ = outcome->problem;
    return !session_->over();
  }

  // After the legs.
  void Close() {
    std::string error;
    if (session_ != nullptr) {
      const auto closed = [this] {
        if (options_.after_close.empty()) return;
        commands_.push_back(std::make_unique<Background>(options_.after_close));
        commands_.back()->Start("close");
        std::string failed;
        if (!commands_.back()->Finish(kCommandTimeoutS, &failed)) Refused(failed);
        commands_.pop_back();
      };
      if (!session_->Close(&error, closed)) Refused(error);
    }
    const size_t wanted = options_.at_messages.size() + options_.at_times.size();
    if (commands_.size() < wanted && problem_.empty()) {
      Refused("the command was not run: there were not so many messages");
    }
    for (const std::unique_ptr<Background>& command : commands_) {
      if (!command->Finish(kCommandTimeoutS, &error)) Refused(error);
    }
  }

  Ending MakeEnding() const {
    Ending ending;
    ending.seconds = seconds_;
    if (session_ != nullptr) ending.left = session_->left();
    ending.after_death = after_death_;
    ending.after_death_ns = after_death_ns_;
    return ending;
  }

  Figure MakeFigure(const char* metric, const Leg& leg, double value, const char* unit,
                    const Counts& counts) const {
    Figure figure;
    figure.metric = metric;
    figure.size = leg.size;
    figure.value = value;
    figure.unit = unit;
    figure.counts = counts;
    figure.path = side_.plugin;
    figure.facts = session_->facts();
    figure.in_flight = leg.mode == Mode::kPingPong ? 1 : leg.in_flight;
    figure.group = leg.group;
    return figure;
  }

  Session& session() { return *session_; }
  const Counts& counts() const { return counts_; }
  const std::string& problem() const { return problem_; }

 private:
  template <typename Number>
  void Command(Number at) {
    char text[32];
    snprintf(text, sizeof(text), "%.10g", static_cast<double>(at));
    commands_.push_back(std::make_unique<Background>(options_.command));
    commands_.back()->Start(text);
  }

  void Refused(const std::string& error) {
    if (problem_.empty()) problem_ = error;
    ++counts_.errors;
  }

  const Options& options_;
  const Side& side_;
  Report* const report_;
  std::vector<std::unique_ptr<Background>> commands_;
  std::unique_ptr<Session> session_;
  Counts counts_;
  double seconds_ = 0;
  std::string after_death_;
  int64_t after_death_ns_ = 0;
  std::string problem_;
};

bool WantsStream(const Options& options) {
  return Wants(options, Metric::kBandwidth) || Wants(options, Metric::kMessageRate);
}

bool CheckFirst(const Options& options) {
  return options.check == Check::kAuto && !HasFaults(options);
}

bool MeasureSize(const Options& options, uint64_t size, Bench* bench, Report* report) {
  Outcome outcome;
  if (CheckFirst(options) && !bench->Run("check", CheckLeg(options, size), &outcome)) return false;
  if (WantsStream(options)) {
    const Leg leg = StreamLeg(options, size, 1);
    const bool more = bench->Run("bandwidth", leg, &outcome);
    if (Wants(options, Metric::kBandwidth)) {
      report->Print(
          bench->MakeFigure("bandwidth", leg, GigabytesPerSecond(outcome), "GB/s", outcome.counts));
    }
    if (Wants(options, Metric::kMessageRate)) {
      report->Print(bench->MakeFigure("message_rate", leg, MessagesPerSecond(outcome), "messages/s",
                                      outcome.counts));
    }
    if (!more) return false;
  }
  if (Wants(options, Metric::kLatency)) {
    const Leg leg = PingPongLeg(options, size, 1);
    const bool more = bench->Run("latency", leg, &outcome);
    Figure figure = bench->MakeFigure("latency", leg, LatencyUs(outcome), "us", outcome.counts);
    figure.more.emplace_back("p99_us", Quantile(outcome.round_trips_us, 0.99) / 2);
    report->Print(figure);
    if (!more) return false;
  }
  return true;
}

int Summarize(const Counts& counts, const std::string& problem, Report* report,
              const Ending& ending = {}) {
  report->PrintSummary(counts, problem, ending);
  return counts.Good() && problem.empty() ? 0 : 1;
}

// Ratios of A to B of one metric and size.
struct Ratios {
  const char* metric;
  const char* unit;
  double (*value_of)(const Outcome& outcome);
  std::vector<double> a, b, ratios;
};

class Comparison {
 public:
  Comparison(const Options& options, Report* report)
      : options_(options),
        report_(report),
        a_(options, options.sides[0], report),
        b_(options, options.sides[1], report) {}

  int Run() {
    if (a_.Start() && b_.Start()) {
      for (const uint64_t size : options_.sizes) {
        if (!CompareSize(size)) break;
      }
    }
    a_.Close();
    b_.Close();
    Counts counts = a_.counts();
    counts.Add(b_.counts());
    std::string problem = a_.problem();
    if (!problem.empty()) problem = options_.sides[0].plugin + ": " + problem;
    if (problem.empty() && !b_.problem().empty()) {
      problem = options_.sides[1].plugin + ": " + b_.problem();
    }
    return Summarize(counts, problem, report_);
  }

 private:
  bool CompareSize(uint64_t size) {
    Outcome outcome;
    if (options_.check == Check::kAuto) {
      const Leg leg = CheckLeg(options_, size);
      if (!a_.Run("check", leg, &outcome) || !b_.Run("check", leg, &outcome)) return false;
    }
    // One pair of short runs gives all that a run tells.
    const double share = 0.1;
    if (WantsStream(options_)) {
      std::vector<Ratios> wanted;
      if (Wants(options_, Metric::kBandwidth)) {
        wanted.push_back({"bandwidth", "GB/s", &GigabytesPerSecond, {}, {}, {}});
      }
      if (Wants(options_, Metric::kMessageRate)) {
        wanted.push_back({"message_rate", "messages/s", &MessagesPerSecond, {}, {}, {}});
      }
      if (!ComparePairs(StreamLeg(options_, size, share), std::move(wanted))) return false;
    }
    if (!Wants(options_, Metric::kLatency)) return true;
    return ComparePairs(PingPongLeg(options_, size, share),
                        {{"latency", "us", &LatencyUs, {}, {}, {}}});
  }

  bool ComparePairs(const Leg& leg, std::vector<Ratios> wanted) {
    Counts counts_a;
    Counts counts_b;
    for (int pair = 0; pair < options_.pairs; ++pair) {
      Outcome a;
      Outcome b;
      // Whoever is first in one pair is second in the next.
      const bool a_first = pair % 2 == 0;
      if (!(a_first ? RunBoth(&a_, &a, &b_, &b, leg) : RunBoth(&b_, &b, &a_, &a, leg))) {
        return false;
      }
      counts_a.Add(a.counts);
      counts_b.Add(b.counts);
      for (Ratios& one : wanted) {
        one.a.push_back(one.value_of(a));
        one.b.push_back(one.value_of(b));
        one.ratios.push_back(one.a.back() / std::max(one.b.back(), 1e-12));
      }
    }
    for (const Ratios& one : wanted) PrintRatios(leg, one, counts_a, counts_b);
    return true;
  }

  bool RunBoth(Bench* first, Outcome* first_outcome, Bench* second, Outcome* second_outcome,
               const Leg& leg) {
    return first->Run("pair", leg, first_outcome) && second->Run("pair", leg, second_outcome);
  }

  void PrintRatios(const Leg& leg, const Ratios& one, const Counts& counts_a,
                   const Counts& counts_b) {
    PrintSide("A",
              a_.MakeFigure(one.metric, leg, MedianInterval(one.a).median, one.unit, counts_a));
    PrintSide("B",
              b_.MakeFigure(one.metric, leg, MedianInterval(one.b).median, one.unit, counts_b));
    const Interval ratio = MedianInterval(one.ratios);
    const std::string metric = std::string(one.metric) + "_ratio";
    Figure figure = a_.MakeFigure(metric.c_str(), leg, ratio.median, "A/B", counts_a);
    figure.path = options_.sides[0].plugin + " / " + options_.sides[1].plugin;
    figure.more = {
        {"low", ratio.low}, {"high", ratio.high}, {"pairs", static_cast<double>(options_.pairs)}};
    PrintSide("A/B", figure);
  }

  void PrintSide(const char* side, Figure figure) {
    figure.side = side;
    report_->Print(figure);
  }

  const Options& options_;
  Report* const report_;
  Bench a_;
  Bench b_;
};

// Growth of the processes' memory with so many connections; empty and *problem on failure.
std::vector<Session::Growth> GrowthWith(const Options& options, const Side& side, int connections,
                                        PluginFacts* facts, std::string* problem) {
  Options own = options;
  own.connections = connections;
  own.metrics = {Metric::kBandwidth};
  own.sizes = {1024};
  SessionPlan plan = PlanOf(own, side);
  plan.touch_buffers = true;
  const std::unique_ptr<Session> session = Session::Start(plan, problem);
  if (session == nullptr) return {};
  *facts = session->facts();
  // Each connection carries something: memory that is taken at the first message counts.
  own.count = static_cast<uint64_t>(connections) * static_cast<uint64_t>(own.group) *
              static_cast<uint64_t>(own.in_flight) * 2;
  const Outcome outcome = session->Run(StreamLeg(own, 1024, 1), {});
  *problem = outcome.problem;
  if (!outcome.Good()) return {};
  std::vector<Session::Growth> growth = session->MemoryGrowth();
  session->Close(problem);
  return growth;
}

void PrintGrowth(const Options& options, const Side& side, int connections,
                 const PluginFacts& facts, const std::vector<Session::Growth>& growth) {
  for (size_t process = 0; process < growth.size(); ++process) {
    const double anonymous = static_cast<double>(growth[process].anonymous) / connections / 1024;
    const double all = static_cast<double>(growth[process].all) / connections / 1024;
    if (options.json) {
      JsonLine line;
      line.Text("metric", "memory").Number("value", all).Text("unit", "KiB/connection");
      line.Number("anonymous", anonymous).Count("connections", static_cast<uint64_t>(connections));
      line.Count("process", process).List("devices", options.devices).Bool("fused", options.fuse);
      line.Text("plugin", facts.name).Text("path", side.plugin);
      line.Count("api", static_cast<uint64_t>(facts.api));
      printf("%s\n", line.text().c_str());
    } else {
      printf("%-24s process %zu  %6d connections  %10.1f KiB each, of it %10.1f anonymous\n",
             facts.name, process, connections, all, anonymous);
    }
  }
}

}  // namespace

int Measure(const Options& options, Report* report) {
  if (HasFaults(options)) {
    signal(SIGINT, [](int) { interrupted = 1; });
  }
  Bench bench(options, options.sides.front(), report);
  if (bench.Start()) {
    for (const uint64_t size : options.sizes) {
      if (!MeasureSize(options, size, &bench, report)) break;
    }
  }
  bench.Close();
  return Summarize(bench.counts(), bench.problem(), report, bench.MakeEnding());
}

int Compare(const Options& options, Report* report) { return Comparison(options, report).Run(); }

int MeasureMemory(const Options& options, Report* report) {
  for (const Side& side : options.sides) {
    std::vector<int> numbers = {1};
    if (options.connections > 1) numbers.push_back(options.connections);
    for (const int connections : numbers) {
      PluginFacts facts;
      std::string problem;
      const std::vector<Session::Growth> growth =
          GrowthWith(options, side, connections, &facts, &problem);
      if (growth.empty() || !problem.empty()) {
        Counts counts;
        counts.errors = 1;
        return Summarize(counts, problem.empty() ? "no figures" : problem, report);
      }
      PrintGrowth(options, side, connections, facts, growth);
    }
  }
  return 0;
}

}  // namespace railhop::netperf
