// Runs simulated schedules of faults and checks every byte.
//
//   sim --seeds 20000            seeds 1 .. 20000, over the processors there are
//   sim --seeds 1 --first 4711   one seed, with its plan; add --record for every packet
//   sim --file seeds.txt         the seeds in a file: one a line, '#' starts a comment
//
// Prints one JSON object for each figure (`schedules`, `faults`, `violations`, ...) on standard
// output, everything else on standard error. Status 1 if there was a violation.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "cc/base/strings.h"
#include "cc/sim/seed_plan.h"
#include "cc/sim/seed_runner.h"

namespace railhop::sim {
namespace {

constexpr uint64_t kRepeatEvery = 50;  // every 50th seed runs twice: same seed, same record

struct Arguments {
  uint64_t seeds = 1000;
  uint64_t first = 1;
  uint64_t jobs = 0;  // 0: as many as there are processors
  std::string file;
  std::string command = "bazel run -c opt //cc/sim:sim --";
  bool record = false;
  bool plans = false;
};

struct Totals {
  uint64_t schedules = 0, faults = 0, violations = 0, transfers = 0, failed = 0, bytes = 0,
           events = 0, repeated = 0, longest_us = 0, longest_seed = 0;

  void Add(const Totals& o) {
    schedules += o.schedules;
    faults += o.faults;
    violations += o.violations;
    transfers += o.transfers;
    failed += o.failed;
    bytes += o.bytes;
    events += o.events;
    repeated += o.repeated;
    if (o.longest_us > longest_us) {
      longest_us = o.longest_us;
      longest_seed = o.longest_seed;
    }
  }
};

[[noreturn]] void Usage(const std::string& problem) {
  std::fprintf(stderr,
               "sim: %s\nusage: sim [--seeds N] [--first S] [--jobs N] [--file PATH] [--plans] "
               "[--record]\n",
               problem.c_str());
  std::exit(2);
}

uint64_t Number(const std::string& flag, const char* text, uint64_t max) {
  const Result<uint64_t> value = ParseUint(text, 0, max);
  if (!value.ok()) Usage(flag + ": " + value.error());
  return *value;
}

Arguments Parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--record" || flag == "--plans") {
      (flag == "--record" ? a.record : a.plans) = true;
      continue;
    }
    const bool known =
        flag == "--seeds" || flag == "--first" || flag == "--jobs" || flag == "--file";
    if (!known) {
      Usage("unknown word '" + flag +
            "' (allowed: --seeds, --first, --jobs, --file, --plans, --record)");
    }
    if (++i == argc) Usage(flag + " wants a value");
    if (flag == "--seeds") a.seeds = Number(flag, argv[i], 1'000'000'000);
    if (flag == "--first") a.first = Number(flag, argv[i], UINT64_MAX / 2);
    if (flag == "--jobs") a.jobs = Number(flag, argv[i], 256);
    if (flag == "--file") a.file = argv[i];
  }
  return a;
}

std::vector<uint64_t> SeedsOf(const Arguments& a) {
  std::vector<uint64_t> seeds;
  if (a.file.empty()) {
    for (uint64_t i = 0; i < a.seeds; ++i) seeds.push_back(a.first + i);
    return seeds;
  }
  std::ifstream file(a.file);
  if (!file) Usage("cannot read '" + a.file + "'");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view text = Trim(std::string_view(line).substr(0, line.find('#')));
    if (text.empty()) continue;
    const Result<uint64_t> seed = ParseUint(text, 0, UINT64_MAX);
    if (!seed.ok()) Usage(a.file + ":" + std::to_string(number) + ": " + seed.error());
    seeds.push_back(*seed);
  }
  return seeds;
}

void Report(const Arguments& a, const SeedPlan& plan, const SeedResult& result) {
  std::string text = "VIOLATION in " + Describe(plan);
  for (const std::string& line : result.texts) text += "  !! " + line + "\n";
  text +=
      "  repeat: " + a.command + " --seeds 1 --first " + std::to_string(plan.seed) + " --record\n";
  std::fputs(text.c_str(), stderr);
}

Totals RunAll(const Arguments& a, const std::vector<uint64_t>& seeds, size_t part, size_t parts) {
  Totals totals;
  SeedRunner runner;
  for (size_t i = part; i < seeds.size(); i += parts) {
    const SeedPlan plan = DrawPlan(seeds[i]);
    if (a.plans || a.record) std::fputs(Describe(plan).c_str(), stderr);
    const auto start = std::chrono::steady_clock::now();
    SeedResult result = runner.Run(plan, a.record);
    const auto us = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                              std::chrono::steady_clock::now() - start)
                                              .count());
    if (i % kRepeatEvery == 0) {
      ++totals.repeated;
      if (runner.Run(plan).record_hash != result.record_hash) {
        ++result.violations;
        result.texts.push_back("two runs of this seed differ");
      }
    }
    if (a.record) std::fputs(result.record.c_str(), stderr);
    if (result.violations != 0) Report(a, plan, result);
    if (a.plans || a.record) {
      std::fprintf(stderr,
                   "  %" PRIu64 " transfers, %" PRIu64 " failed, %" PRIu64 " bytes, %" PRIu64
                   " events, %.3f ms of virtual time, record %016" PRIx64 "\n",
                   result.transfers, result.failed, result.bytes, result.events,
                   static_cast<double>(result.virtual_ns) / 1e6, result.record_hash);
    }
    totals.Add({1, result.faults, result.violations, result.transfers, result.failed, result.bytes,
                result.events, 0, us, seeds[i]});
  }
  return totals;
}

// One process for each processor: a run needs one thread, and shares nothing.
Totals RunInProcesses(const Arguments& a, const std::vector<uint64_t>& seeds, bool* crashed) {
  const size_t online = static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  const size_t wanted = a.jobs == 0 ? online : a.jobs;
  const size_t parts = std::max<size_t>(1, std::min(wanted, seeds.size()));
  if (parts == 1) return RunAll(a, seeds, 0, 1);
  struct Child {
    pid_t pid;
    int pipe;
  };
  std::vector<Child> children;
  for (size_t part = 0; part < parts; ++part) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      const Totals totals = RunAll(a, seeds, part, parts);
      const bool wrote = write(ends[1], &totals, sizeof(totals)) == sizeof(totals);
      _exit(wrote ? 0 : 1);
    }
    if (pid < 0) std::abort();
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  Totals sum;
  for (const Child& child : children) {
    Totals totals;
    const bool got = read(child.pipe, &totals, sizeof(totals)) == sizeof(totals);
    close(child.pipe);
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (!got || status != 0) {
      std::fprintf(stderr, "sim: a process ended with status %d\n", status);
      *crashed = true;
    } else {
      sum.Add(totals);
    }
  }
  return sum;
}

void Figure(const char* metric, double value, const char* unit) {
  std::printf(
      "{\"bench\": \"sim\", \"metric\": \"%s\", \"value\": %.10g, \"unit\": \"%s\", \"baseline\": "
      "null, \"ratio\": null, \"runs\": 1}\n",
      metric, value, unit);
}

int Main(int argc, char** argv) {
  Arguments a = Parse(argc, argv);
  if (a.record || a.plans) a.jobs = 1;
  const std::vector<uint64_t> seeds = SeedsOf(a);
  const auto start = std::chrono::steady_clock::now();
  bool crashed = false;
  const Totals t = RunInProcesses(a, seeds, &crashed);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Figure("schedules", static_cast<double>(t.schedules), "count");
  Figure("faults", static_cast<double>(t.faults), "count");
  Figure("violations", static_cast<double>(t.violations), "count");
  Figure("transfers", static_cast<double>(t.transfers), "count");
  Figure("failed_transfers", static_cast<double>(t.failed), "count");
  Figure("bytes_checked", static_cast<double>(t.bytes), "B");
  Figure("events", static_cast<double>(t.events), "count");
  Figure("repeated", static_cast<double>(t.repeated), "count");
  Figure("time", seconds, "s");
  Figure("time_per_schedule",
         t.schedules == 0 ? 0 : seconds * 1e3 / static_cast<double>(t.schedules), "ms");
  Figure("longest_schedule", static_cast<double>(t.longest_us) / 1e3, "ms");
  std::fprintf(stderr,
               "sim: %" PRIu64 " schedules, %" PRIu64 " faults, %" PRIu64
               " violations in %.1f s; longest: seed %" PRIu64 "\n",
               t.schedules, t.faults, t.violations, seconds, t.longest_seed);
  return t.violations == 0 && !crashed && t.schedules == seeds.size() ? 0 : 1;
}

}  // namespace
}  // namespace railhop::sim

int main(int argc, char** argv) { return railhop::sim::Main(argc, argv); }
