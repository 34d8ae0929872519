#include "cc/netperf/options.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "cc/base/strings.h"
#include "cc/netperf/net_plugin.h"
#include "cc/netperf/plan.h"

ABSL_FLAG(std::string, plugin, "", "the plugin's .so");
ABSL_FLAG(std::string, compare, "", "a second plugin: prints the ratio of the first to it");
ABSL_FLAG(int, api, 0, "version 6 to 12 of NCCL's net plugin API; 0: the newest that it has");
ABSL_FLAG(std::string, env, "", "NAME=VALUE,...: environment of the first plugin's processes");
ABSL_FLAG(std::string, compare_env, "", "the same for the second plugin");
ABSL_FLAG(std::string, second_env, "", "more of it for the second process alone");

ABSL_FLAG(std::string, devices, "0", "net devices by NCCL's number; connections take them in turn");
ABSL_FLAG(bool, fuse, false, "make one virtual device of them");
ABSL_FLAG(int, connections, 1, "connections from each process to the next");
ABSL_FLAG(int, processes, 2, "the first sends to the second; from three on in a ring");
ABSL_FLAG(bool, bidirectional, false, "with two processes: the second also sends to the first");
ABSL_FLAG(std::string, hosts, "", "hosts of the fabric's topology, one for each process in turn");

ABSL_FLAG(std::string, metric, "bandwidth,message_rate,latency",
          "what to measure; with --at-message bandwidth and message_rate");
ABSL_FLAG(std::string, size, "8,1K,64K,1M", "bytes of a message; A-B: the powers of two between");
ABSL_FLAG(uint64_t, count, 0, "messages for each size, over all connections; 0: by size");
ABSL_FLAG(int, in_flight, 8, "requests under way on a connection, 1 to 32");
ABSL_FLAG(int, group, 1, "receives in one irecv, 1 to 8");
ABSL_FLAG(
    std::string, check, "auto",
    "auto: a pass that compares every byte, then measured passes that compare guard zones and "
    "the last messages; all: every byte always; none: measured passes only");
ABSL_FLAG(double, timeout, 60, "seconds without a message, or for connecting, that are an error");

ABSL_FLAG(std::string, at_message, "",
          "run a command when so many messages have been received; a list: each time");
ABSL_FLAG(std::string, at_time, "", "run it so many seconds after the start; a list");
ABSL_FLAG(std::string, run, "",
          "the command, by /bin/sh, in the background; its variable AT is the number or time");
ABSL_FLAG(double, seconds, 0,
          "instead of --count: until so many seconds have passed, or SIGINT has come; all bytes "
          "are checked");
ABSL_FLAG(bool, mixed, false, "messages of all sizes from 0 to --size, most of them odd");
ABSL_FLAG(std::string, gaps, "", "append each connection's gaps to this file, as JSON lines");
ABSL_FLAG(double, gap_min, 1, "ms from which on a gap is written");
ABSL_FLAG(uint64_t, pause_every, 0, "a process computes for a while after so many messages");
ABSL_FLAG(double, pause_ms, 100, "for so long");
ABSL_FLAG(std::string, pause_side, "both", "sender, receiver or both");
ABSL_FLAG(bool, outlive, false,
          "a process that is killed does not end the others: they go on until they see an error");
ABSL_FLAG(int, children, 0, "children that each process forks once it is connected, 0 to 64");
ABSL_FLAG(std::string, after_close, "",
          "run this command when all is closed and the processes are still there");

ABSL_FLAG(int, pairs, 30, "with --compare: pairs of short interleaved runs for each size");

ABSL_FLAG(bool, memory, false, "memory of a connection instead: of 1, and of --connections");
ABSL_FLAG(bool, instructions, false, "instructions for each message inside the plugin instead");
ABSL_FLAG(bool, assert_budget, false, "with --instructions: fail if above NCCL 2.30.7's transport");
ABSL_FLAG(bool, instructions_inside, false, "internal: the part that runs under valgrind");

ABSL_FLAG(bool, json, false, "one JSON object a line instead of a table");

namespace railhop::netperf {
namespace {

struct Row {
  const absl::CommandLineFlag* flag;
  const char* argument;  // null: none
  const char* heading;   // printed above, if not null
};

#define RAILHOP_FLAG(name) &absl::GetFlagReflectionHandle(FLAGS_##name)
const std::vector<Row>& Rows() {
  static const auto* const rows = new std::vector<Row>{
      {RAILHOP_FLAG(plugin), "FILE", "Plugin"},
      {RAILHOP_FLAG(compare), "FILE", nullptr},
      {RAILHOP_FLAG(api), "N", nullptr},
      {RAILHOP_FLAG(env), "LIST", nullptr},
      {RAILHOP_FLAG(compare_env), "LIST", nullptr},
      {RAILHOP_FLAG(second_env), "LIST", nullptr},
      {RAILHOP_FLAG(devices), "LIST", "Connections"},
      {RAILHOP_FLAG(fuse), nullptr, nullptr},
      {RAILHOP_FLAG(connections), "N", nullptr},
      {RAILHOP_FLAG(processes), "N", nullptr},
      {RAILHOP_FLAG(bidirectional), nullptr, nullptr},
      {RAILHOP_FLAG(hosts), "LIST", nullptr},
      {RAILHOP_FLAG(metric), "LIST", "Traffic"},
      {RAILHOP_FLAG(size), "LIST", nullptr},
      {RAILHOP_FLAG(count), "N", nullptr},
      {RAILHOP_FLAG(in_flight), "N", nullptr},
      {RAILHOP_FLAG(group), "N", nullptr},
      {RAILHOP_FLAG(check), "WORD", nullptr},
      {RAILHOP_FLAG(timeout), "S", nullptr},
      {RAILHOP_FLAG(mixed), nullptr, nullptr},
      {RAILHOP_FLAG(pause_every), "N", nullptr},
      {RAILHOP_FLAG(pause_ms), "MS", nullptr},
      {RAILHOP_FLAG(pause_side), "WORD", nullptr},
      {RAILHOP_FLAG(at_message), "LIST", "Faults"},
      {RAILHOP_FLAG(at_time), "LIST", nullptr},
      {RAILHOP_FLAG(run), "CMD", nullptr},
      {RAILHOP_FLAG(seconds), "S", nullptr},
      {RAILHOP_FLAG(gaps), "FILE", nullptr},
      {RAILHOP_FLAG(gap_min), "MS", nullptr},
      {RAILHOP_FLAG(outlive), nullptr, nullptr},
      {RAILHOP_FLAG(children), "N", nullptr},
      {RAILHOP_FLAG(after_close), "CMD", nullptr},
      {RAILHOP_FLAG(pairs), "N", "Other measurements"},
      {RAILHOP_FLAG(memory), nullptr, nullptr},
      {RAILHOP_FLAG(instructions), nullptr, nullptr},
      {RAILHOP_FLAG(assert_budget), nullptr, nullptr},
      {RAILHOP_FLAG(json), nullptr, "Output"},
  };
  return *rows;
}
#undef RAILHOP_FLAG

constexpr size_t kHelpColumn = 23;
constexpr size_t kHelpWidth = 100;

// `left`, then the words of `text` in a column of their own.
std::string InColumn(std::string left, const std::string& text) {
  std::string all;
  left.resize(std::max(left.size() + 2, kHelpColumn), ' ');
  std::string line = left;
  for (const std::string_view word : SplitWords(text)) {
    if (line.size() + 1 + word.size() > kHelpWidth) {
      all += line + "\n";
      line.assign(kHelpColumn, ' ');
    }
    if (line.back() != ' ') line += ' ';
    line += word;
  }
  return all + line + "\n";
}

// As typed: with - for _.
std::string Shown(const absl::CommandLineFlag& flag) {
  std::string name = "--" + std::string(flag.Name());
  for (char& c : name) c = c == '_' ? '-' : c;
  return name;
}

const absl::CommandLineFlag* Find(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : c;
  if (name == "instructions_inside")
    return &absl::GetFlagReflectionHandle(FLAGS_instructions_inside);
  for (const Row& row : Rows()) {
    if (row.flag->Name() == name) return row.flag;
  }
  return nullptr;
}

std::string AllNames() {
  std::string names;
  for (const Row& row : Rows()) names += (names.empty() ? "" : ", ") + Shown(*row.flag);
  return names;
}

// One word of the command line, and the next one if it is its value.
Result<bool> ReadFlag(int argc, char** argv, int* i) {
  const std::string word = argv[(*i)++];
  if (word.rfind("--", 0) != 0) {
    return Error{"unexpected word " + Quote(word) + "; options: " + AllNames()};
  }
  const size_t equals = word.find('=');
  const std::string name =
      word.substr(2, equals == std::string::npos ? std::string::npos : equals - 2);
  const absl::CommandLineFlag* found = Find(name);
  if (found == nullptr) {
    return Error{"unknown option " + Quote(word) + "; options: " + AllNames()};
  }
  std::string value;
  if (equals != std::string::npos) {
    value = word.substr(equals + 1);
  } else if (found->IsOfType<bool>()) {
    value = "true";
  } else if (*i < argc) {
    value = argv[(*i)++];
  } else {
    return Error{Shown(*found) + " needs a value"};
  }
  std::string error;
  // Abseil gives out flags to read only; what it finds by name can be set.
  if (!absl::FindCommandLineFlag(found->Name())->ParseFrom(value, &error)) {
    return Error{Shown(*found) + ": " + Quote(value) + " is not a value for it"};
  }
  return true;
}

Result<bool> CheckRange(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return true;
  return Error{std::string(name) + ": " + std::to_string(value) + " is not from " +
               std::to_string(min) + " to " + std::to_string(max)};
}

Result<std::vector<Metric>> ParseMetrics(const std::string& text) {
  std::vector<Metric> metrics;
  for (const std::string_view word : Split(text, ',')) {
    if (word == "bandwidth") {
      metrics.push_back(Metric::kBandwidth);
    } else if (word == "latency") {
      metrics.push_back(Metric::kLatency);
    } else if (word == "message_rate") {
      metrics.push_back(Metric::kMessageRate);
    } else {
      return Error{"--metric: " + Quote(word) + " is not bandwidth, latency or message_rate"};
    }
  }
  return metrics;
}

Result<Check> ParseCheck(const std::string& text) {
  if (text == "auto") return Check::kAuto;
  if (text == "all") return Check::kAll;
  if (text == "none") return Check::kNone;
  return Error{"--check: " + Quote(text) + " is not auto, all or none"};
}

Result<std::vector<int>> ParseDevices(const std::string& text) {
  std::vector<int> devices;
  for (const std::string_view word : Split(text, ',')) {
    const Result<int64_t> device = ParseInt(word, 0, 1023);
    if (!device.ok()) return Error{"--devices: " + device.error()};
    devices.push_back(static_cast<int>(*device));
  }
  return devices;
}

Result<std::vector<std::pair<std::string, std::string>>> ParseEnvironment(const char* name,
                                                                          const std::string& text) {
  std::vector<std::pair<std::string, std::string>> environment;
  if (text.empty()) return environment;
  for (const std::string_view word : Split(text, ',')) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Error{std::string(name) + ": " + Quote(word) + " is not NAME=VALUE"};
    }
    environment.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return environment;
}

Result<uint64_t> ParseSize(std::string_view text) {
  uint64_t unit = 1;
  std::string_view digits = text;
  if (!text.empty()) {
    const char last = text.back();
    if (last == 'K') unit = uint64_t{1} << 10;
    if (last == 'M') unit = uint64_t{1} << 20;
    if (last == 'G') unit = uint64_t{1} << 30;
    if (unit > 1) digits.remove_suffix(1);
  }
  const Result<uint64_t> number = ParseUint(digits, 0, (uint64_t{1} << 30) / unit);
  if (!number.ok()) {
    return Error{"--size: " + Quote(text) + " is not a size up to 1G, such as 64K"};
  }
  return *number * unit;
}

Result<bool> CheckRanges(const Options& options) {
  const auto within = {
      CheckRange("--connections", options.connections, 1, 1 << 16),
      CheckRange("--processes", options.processes, 2, kProcessesMax),
      CheckRange("--in-flight", options.in_flight, 1, kInFlightMax),
      CheckRange("--group", options.group, 1, kGroupMax),
      CheckRange("--pairs", options.pairs, 1, 100000),
      CheckRange("--children", options.children, 0, 64),
      CheckRange("--count", static_cast<int64_t>(options.count), 0, int64_t{1} << 40),
  };
  for (const Result<bool>& one : within) {
    if (!one.ok()) return one;
  }
  if (options.api != 0) {
    const Result<bool> one = CheckRange("--api", options.api, kApiMin, kApiMax);
    if (!one.ok()) return one;
  }
  if (!(options.timeout_s > 0)) return Error{"--timeout: it must be above 0"};
  return true;
}

Result<bool> CheckTogether(const Options& options) {
  const bool two = options.sides.size() > 1;
  if (options.sides.front().plugin.empty()) return Error{"--plugin FILE is missing"};
  const bool at = !options.at_messages.empty() || !options.at_times.empty();
  if (options.command.empty() == at) {
    return Error{"--at-message and --run go together"};
  }
  if ((at || options.seconds > 0) && (options.sizes.size() > 1 || two)) {
    return Error{"--at-message, --at-time and --seconds go with one --size and one plugin"};
  }
  if (!options.at_messages.empty() && options.seconds == 0 &&
      options.at_messages.back() > options.count) {
    return Error{"--at-message: " + std::to_string(options.at_messages.back()) +
                 " is above --count " + std::to_string(options.count)};
  }
  if (!options.at_times.empty() && options.seconds == 0) {
    return Error{"--at-time goes with --seconds"};
  }
  if (options.assert_budget && options.kind == Options::Kind::kMeasure) {
    return Error{"--assert-budget goes with --instructions"};
  }
  for (const Metric metric : options.metrics) {
    if (metric == Metric::kLatency && options.processes != 2) {
      return Error{"--metric: latency goes with two processes"};
    }
  }
  return true;
}

void SetKind(Options* options) {
  if (absl::GetFlag(FLAGS_memory)) options->kind = Options::Kind::kMemory;
  if (absl::GetFlag(FLAGS_instructions)) options->kind = Options::Kind::kInstructions;
  if (absl::GetFlag(FLAGS_instructions_inside)) {
    options->kind = Options::Kind::kInstructionsInside;
  }
}

// What needs no parsing beyond Abseil's.
void CopyPlain(Options* options) {
  options->api = absl::GetFlag(FLAGS_api);
  options->fuse = absl::GetFlag(FLAGS_fuse);
  options->count = absl::GetFlag(FLAGS_count);
  options->in_flight = absl::GetFlag(FLAGS_in_flight);
  options->connections = absl::GetFlag(FLAGS_connections);
  options->group = absl::GetFlag(FLAGS_group);
  options->processes = absl::GetFlag(FLAGS_processes);
  options->bidirectional = absl::GetFlag(FLAGS_bidirectional);
  options->seconds = absl::GetFlag(FLAGS_seconds);
  options->mixed = absl::GetFlag(FLAGS_mixed);
  options->gaps = absl::GetFlag(FLAGS_gaps);
  options->gap_min_ms = absl::GetFlag(FLAGS_gap_min);
  options->pause_every = absl::GetFlag(FLAGS_pause_every);
  options->pause_ms = absl::GetFlag(FLAGS_pause_ms);
  options->pause_side = absl::GetFlag(FLAGS_pause_side);
  options->outlive = absl::GetFlag(FLAGS_outlive);
  options->children = absl::GetFlag(FLAGS_children);
  options->after_close = absl::GetFlag(FLAGS_after_close);
  options->command = absl::GetFlag(FLAGS_run);
  options->pairs = absl::GetFlag(FLAGS_pairs);
  options->timeout_s = absl::GetFlag(FLAGS_timeout);
  options->assert_budget = absl::GetFlag(FLAGS_assert_budget);
  options->json = absl::GetFlag(FLAGS_json);
  const std::string hosts = absl::GetFlag(FLAGS_hosts);
  if (hosts.empty()) return;
  for (const std::string_view host : Split(hosts, ',')) options->hosts.emplace_back(host);
}

Result<bool> AddSide(const char* name, const std::string& plugin, const std::string& environment,
                     Options* options) {
  Result<std::vector<std::pair<std::string, std::string>>> parsed =
      ParseEnvironment(name, environment);
  if (!parsed.ok()) return Error{parsed.error()};
  options->sides.push_back({plugin, *parsed});
  return true;
}

// --at-message, --at-time.
Result<bool> ParseMoments(Options* options) {
  const std::string messages = absl::GetFlag(FLAGS_at_message);
  for (const std::string_view word : Split(messages, ',')) {
    if (messages.empty()) break;
    const Result<uint64_t> number = ParseUint(word, 1, uint64_t{1} << 40);
    if (!number.ok()) return Error{"--at-message: " + number.error()};
    options->at_messages.push_back(*number);
  }
  const std::string times = absl::GetFlag(FLAGS_at_time);
  for (const std::string_view word : Split(times, ',')) {
    if (times.empty()) break;
    const std::string text(word);
    char* end = nullptr;
    const double time_s = strtod(text.c_str(), &end);
    if (text.empty() || *end != 0 || !(time_s >= 0)) {
      return Error{"--at-time: " + Quote(text) + " is no time in seconds"};
    }
    options->at_times.push_back(time_s);
  }
  if (options->at_messages.size() > kMarksMax) {
    return Error{"--at-message: more than " + std::to_string(kMarksMax) + " of them"};
  }
  std::sort(options->at_messages.begin(), options->at_messages.end());
  std::sort(options->at_times.begin(), options->at_times.end());
  const std::string& side = options->pause_side;
  if (side != "sender" && side != "receiver" && side != "both") {
    return Error{"--pause-side: " + Quote(side) + " is not sender, receiver or both"};
  }
  return true;
}

Result<bool> ParseLists(Options* options) {
  Result<bool> side =
      AddSide("--env", absl::GetFlag(FLAGS_plugin), absl::GetFlag(FLAGS_env), options);
  if (!side.ok()) return side;
  if (!absl::GetFlag(FLAGS_compare).empty()) {
    side = AddSide("--compare-env", absl::GetFlag(FLAGS_compare), absl::GetFlag(FLAGS_compare_env),
                   options);
    if (!side.ok()) return side;
  }
  Result<std::vector<std::pair<std::string, std::string>>> second =
      ParseEnvironment("--second-env", absl::GetFlag(FLAGS_second_env));
  if (!second.ok()) return Error{second.error()};
  options->second_environment = *second;
  const Result<bool> moments = ParseMoments(options);
  if (!moments.ok()) return moments;
  std::string metric_text = absl::GetFlag(FLAGS_metric);
  const bool chosen = absl::GetFlagReflectionHandle(FLAGS_metric).DefaultValue() != metric_text;
  const bool faults =
      !options->at_messages.empty() || !options->at_times.empty() || options->seconds > 0;
  if (!chosen && (faults || options->processes > 2)) {
    metric_text = "bandwidth,message_rate";
  }
  const Result<std::vector<Metric>> metrics = ParseMetrics(metric_text);
  if (!metrics.ok()) return Error{metrics.error()};
  options->metrics = *metrics;
  std::string size_text = absl::GetFlag(FLAGS_size);
  const bool sized = absl::GetFlagReflectionHandle(FLAGS_size).DefaultValue() != size_text;
  if (!sized && options->kind == Options::Kind::kInstructions) size_text = "64K";
  const Result<std::vector<uint64_t>> sizes = ParseSizes(size_text);
  if (!sizes.ok()) return Error{sizes.error()};
  options->sizes = *sizes;
  const Result<std::vector<int>> devices = ParseDevices(absl::GetFlag(FLAGS_devices));
  if (!devices.ok()) return Error{devices.error()};
  options->devices = *devices;
  const Result<Check> check = ParseCheck(absl::GetFlag(FLAGS_check));
  if (!check.ok()) return Error{check.error()};
  options->check = *check;
  return true;
}

}  // namespace

Result<std::vector<uint64_t>> ParseSizes(const std::string& text) {
  std::vector<uint64_t> sizes;
  for (const std::string_view word : Split(text, ',')) {
    const size_t dash = word.find('-');
    const Result<uint64_t> first = ParseSize(word.substr(0, dash));
    if (!first.ok()) return Error{first.error()};
    if (dash == std::string_view::npos) {
      sizes.push_back(*first);
      continue;
    }
    const Result<uint64_t> last = ParseSize(word.substr(dash + 1));
    if (!last.ok()) return Error{last.error()};
    if (*first == 0 || *last < *first) {
      return Error{"--size: " + Quote(word) + " is not a range from 1 upwards"};
    }
    for (uint64_t size = *first; size <= *last; size *= 2) sizes.push_back(size);
  }
  return sizes;
}

std::string SizeText(uint64_t size) {
  const char* const units[] = {"", "K", "M", "G"};
  int unit = 0;
  for (; size != 0 && size % 1024 == 0 && unit < 3; ++unit) size /= 1024;
  return std::to_string(size) + units[unit];
}

Result<Options> ParseOptions(int argc, char** argv) {
  for (int i = 1; i < argc;) {
    const Result<bool> read = ReadFlag(argc, argv, &i);
    if (!read.ok()) return Error{read.error()};
  }
  Options options;
  CopyPlain(&options);
  SetKind(&options);
  const Result<bool> lists = ParseLists(&options);
  if (!lists.ok()) return Error{lists.error()};
  const Result<bool> ranges = CheckRanges(options);
  if (!ranges.ok()) return Error{ranges.error()};
  const Result<bool> together = CheckTogether(options);
  if (!together.ok()) return Error{together.error()};
  return options;
}

bool WantsHelp(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
  }
  return false;
}

std::string HelpText() {
  std::string text =
      "railhop-netperf: drives a NCCL net plugin without a GPU, and measures it\n"
      "\n"
      "  railhop-netperf --plugin FILE [OPTIONS]\n"
      "  railhop-netperf --plugin FILE --compare FILE [OPTIONS]\n";
  for (const Row& row : Rows()) {
    if (row.heading != nullptr) text += std::string("\n") + row.heading + "\n";
    std::string left = "  " + Shown(*row.flag);
    if (row.argument != nullptr) left += std::string(" ") + row.argument;
    std::string right = row.flag->Help();
    const std::string value = row.flag->DefaultValue();
    if (!value.empty() && !row.flag->IsOfType<bool>()) right += " (default " + value + ")";
    text += InColumn(left, right);
  }
  text +=
      "\n"
      "JSON, one line for each size and metric: metric (bandwidth, latency, message_rate), size\n"
      "(bytes), value, unit (GB/s, us, messages/s), messages, connections, in_flight, group,\n"
      "devices, fused, plugin (its name), path (its file), api (its version), wrong_bytes,\n"
      "wrong_sizes (messages), errors, longest_gap_ms; with --compare also side (A, B, A/B), and\n"
      "metric bandwidth_ratio and so on with low and high (95 % interval of the median) and "
      "pairs.\n"
      "The last line: survived, messages, bytes, wrong_bytes, wrong_sizes, errors,\n"
      "longest_gap_ms, longest_gap_after (messages of that connection), problem, seconds,\n"
      "longest_turn_ms (in the calls for one connection in a row, message checks included); of\n"
      "what the plugin has not given back after closing threads_left and descriptors_left (how\n"
      "many) and leftover_names (which they are; empty if none); with --outlive after_death (what\n"
      "the others saw) and after_death_ms.\n"
      "\n"
      "Status: 0 all right; 1 an error, a wrong byte, above a budget; 2 a bad command line.\n";
  return text;
}

}  // namespace railhop::netperf
