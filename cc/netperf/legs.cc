#include "cc/netperf/legs.h"

#include <algorithm>

#include "cc/netperf/statistics.h"

namespace railhop::netperf {
namespace {

// Messages that give each connection one group.
uint64_t OneEach(const Options& options) {
  return static_cast<uint64_t>(options.connections) * static_cast<uint64_t>(options.group);
}

// As many as take about a tenth of a second, at about 2 GB/s and 3 us a message.
uint64_t StreamCount(const Options& options, uint64_t size) {
  if (options.count != 0) return options.count;
  const uint64_t each = OneEach(options);
  const uint64_t bytes = uint64_t{256} << 20;
  return std::max(std::clamp(bytes / std::max<uint64_t>(size, 1), uint64_t{32}, uint64_t{30000}),
                  4 * each);
}

uint64_t PingPongCount(const Options& options, uint64_t size) {
  if (options.count != 0) return std::min<uint64_t>(options.count, 10000);
  const uint64_t bytes = uint64_t{64} << 20;
  return std::clamp(bytes / std::max<uint64_t>(size, 1), uint64_t{16}, uint64_t{3000});
}

uint64_t Share(uint64_t count, double share, uint64_t min) {
  return std::max(static_cast<uint64_t>(static_cast<double>(count) * share), min);
}

bool Everything(const Options& options) {
  return options.check == Check::kAll || (options.check == Check::kAuto && HasFaults(options));
}

// Of an endless leg: more than any run sends.
constexpr uint64_t kEndless = uint64_t{1} << 48;

}  // namespace

bool HasFaults(const Options& options) {
  return !options.at_messages.empty() || !options.at_times.empty() || options.seconds > 0;
}

bool Wants(const Options& options, Metric metric) {
  return std::find(options.metrics.begin(), options.metrics.end(), metric) != options.metrics.end();
}

SessionPlan PlanOf(const Options& options, const Side& side) {
  SessionPlan plan;
  plan.plugin = side.plugin;
  plan.environment = side.environment;
  plan.second_environment = options.second_environment;
  plan.api = options.api;
  plan.devices = options.devices;
  plan.fuse = options.fuse;
  plan.processes = options.processes;
  plan.connections = options.connections;
  plan.backwards =
      options.processes == 2 && (options.bidirectional || Wants(options, Metric::kLatency));
  plan.size_max = *std::max_element(options.sizes.begin(), options.sizes.end());
  plan.in_flight_max = std::max(options.in_flight, 2);
  plan.group_max = options.group;
  for (const uint64_t size : options.sizes) {
    plan.latencies_max = std::max(plan.latencies_max, PingPongCount(options, size));
  }
  plan.timeout_s = options.timeout_s;
  plan.hosts = options.hosts;
  plan.gaps = options.gaps;
  plan.outlive = options.outlive;
  plan.children = options.children;
  return plan;
}

Leg StreamLeg(const Options& options, uint64_t size, double share) {
  Leg leg;
  leg.mode = Mode::kStream;
  leg.size = size;
  leg.count = Share(StreamCount(options, size), share, OneEach(options));
  leg.in_flight = options.in_flight;
  leg.group = options.group;
  leg.backwards = options.bidirectional;
  leg.check_all = Everything(options);
  for (size_t i = 0; i < options.at_messages.size(); ++i) leg.marks[i] = options.at_messages[i];
  leg.mixed = options.mixed;
  if (options.seconds > 0) {
    leg.endless = true;
    leg.count = kEndless;
  }
  if (!options.gaps.empty()) leg.gap_min_ns = static_cast<int64_t>(options.gap_min_ms * 1e6);
  leg.pause_every = options.pause_every;
  leg.pause_ns = static_cast<int64_t>(options.pause_ms * 1e6);
  leg.pause_sender = options.pause_side != "receiver";
  leg.pause_receiver = options.pause_side != "sender";
  return leg;
}

Leg PingPongLeg(const Options& options, uint64_t size, double share) {
  Leg leg;
  leg.mode = Mode::kPingPong;
  leg.size = size;
  leg.count = Share(PingPongCount(options, size), share, 8);
  leg.in_flight = 2;  // the next receive is posted before the answer to the last
  leg.check_all = Everything(options);
  return leg;
}

Leg CheckLeg(const Options& options, uint64_t size) {
  Leg leg = StreamLeg(options, size, 1);
  const auto least = OneEach(options) * 2 * static_cast<uint64_t>(options.in_flight);
  const uint64_t bytes = uint64_t{64} << 20;
  const uint64_t wanted =
      std::clamp(bytes / std::max<uint64_t>(size, 1), uint64_t{16}, uint64_t{1000});
  leg.count = std::min(leg.count, std::max(least, wanted));
  leg.check_all = true;
  leg.ragged = true;
  leg.endless = false;
  leg.pause_every = 0;
  std::fill(std::begin(leg.marks), std::end(leg.marks), 0);
  return leg;
}

double GigabytesPerSecond(const Outcome& outcome) {
  const double seconds = outcome.Seconds();
  return seconds > 0 ? static_cast<double>(outcome.counts.bytes) / seconds / 1e9 : 0;
}

double MessagesPerSecond(const Outcome& outcome) {
  const double seconds = outcome.Seconds();
  return seconds > 0 ? static_cast<double>(outcome.counts.messages) / seconds : 0;
}

double LatencyUs(const Outcome& outcome) { return Quantile(outcome.round_trips_us, 0.5) / 2; }

}  // namespace railhop::netperf
