#include "cc/sim/sim_program.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string_view>

#include "cc/base/strings.h"

namespace railhop::sim {
namespace {

constexpr uint64_t kRepeatEvery = 50;  // every 50th seed runs twice: same seed, same record
constexpr unsigned kHangSeconds = 60;  // of real time, for one seed

struct Arguments {
  uint64_t seeds = 1000;
  uint64_t first = 1;
  uint64_t jobs = 0;  // 0: as many as there are processors
  std::string file;
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

// Of one process, in memory that it shares with its parent.
struct Progress {
  uint64_t next = 0;  // index of the seed at hand
  Totals totals;
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

void Report(const SimProgram& program, uint64_t seed, const std::vector<std::string>& texts) {
  std::string text = "VIOLATION in " + program.describe(seed);
  for (const std::string& line : texts) text += "  !! " + line + "\n";
  text +=
      "  repeat: " + program.command + " --seeds 1 --first " + std::to_string(seed) + " --record\n";
  std::fputs(text.c_str(), stderr);
}

void RunSeed(const SimProgram& program, const Arguments& a, uint64_t seed, bool twice,
             Totals* totals) {
  if (a.plans || a.record) std::fputs(program.describe(seed).c_str(), stderr);
  const auto start = std::chrono::steady_clock::now();
  SeedResult result = program.run(seed, a.record);
  const auto us = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                            std::chrono::steady_clock::now() - start)
                                            .count());
  if (twice) {
    ++totals->repeated;
    if (program.run(seed, false).record_hash != result.record_hash) {
      ++result.violations;
      result.texts.push_back("two runs of this seed differ");
    }
  }
  if (a.record) std::fputs(result.record.c_str(), stderr);
  if (result.violations != 0) Report(program, seed, result.texts);
  if (a.plans || a.record) {
    std::fprintf(stderr,
                 "  %" PRIu64 " transfers, %" PRIu64 " failed, %" PRIu64 " bytes, %" PRIu64
                 " events, %.3f ms of virtual time, %.1f ms, record %016" PRIx64 "\n",
                 result.transfers, result.failed, result.bytes, result.events,
                 static_cast<double>(result.virtual_ns) / 1e6, static_cast<double>(us) / 1e3,
                 result.record_hash);
  }
  totals->Add({1, result.faults, result.violations, result.transfers, result.failed, result.bytes,
               result.events, 0, us, seed});
}

// Every parts-th seed from progress->next on.
void RunPart(const SimProgram& program, const Arguments& a, const std::vector<uint64_t>& seeds,
             size_t parts, Progress* progress) {
  for (; progress->next < seeds.size(); progress->next += parts) {
    alarm(a.record ? 0 : kHangSeconds);
    RunSeed(program, a, seeds[progress->next], progress->next % kRepeatEvery == 0,
            &progress->totals);
  }
  alarm(0);
}

pid_t StartPart(const SimProgram& program, const Arguments& a, const std::vector<uint64_t>& seeds,
                size_t parts, Progress* progress) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) std::abort();
  if (pid != 0) return pid;
  RunPart(program, a, seeds, parts, progress);
  _exit(0);
}

// One process for each processor: a run needs one thread, and shares nothing.
Totals RunAll(const SimProgram& program, const Arguments& a, const std::vector<uint64_t>& seeds) {
  const size_t online = static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  const size_t wanted = a.jobs == 0 ? online : a.jobs;
  const size_t parts = std::max<size_t>(1, std::min(wanted, seeds.size()));
  void* shared = mmap(nullptr, parts * sizeof(Progress), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) std::abort();
  auto* progress = static_cast<Progress*>(shared);
  std::vector<pid_t> pids(parts);
  for (size_t part = 0; part < parts; ++part) {
    new (&progress[part]) Progress();
    progress[part].next = part;
    pids[part] = StartPart(program, a, seeds, parts, &progress[part]);
  }
  size_t running = parts;
  while (running > 0) {
    int status = 0;
    const pid_t ended = wait(&status);
    const auto at = std::find(pids.begin(), pids.end(), ended);
    if (at == pids.end()) continue;
    Progress& mine = progress[at - pids.begin()];
    if (status == 0) {
      --running;
      *at = -1;
      continue;
    }
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    Report(program, seeds[mine.next],
           {signal == SIGALRM ? "hangs for a minute of real time"
                              : "crashes: signal " + std::to_string(signal)});
    ++mine.totals.schedules;
    ++mine.totals.violations;
    mine.next += parts;
    *at = StartPart(program, a, seeds, parts, &mine);
  }
  Totals sum;
  for (size_t part = 0; part < parts; ++part) sum.Add(progress[part].totals);
  munmap(shared, parts * sizeof(Progress));
  return sum;
}

void Figure(const char* metric, double value, const char* unit) {
  std::printf(
      "{\"bench\": \"sim\", \"metric\": \"%s\", \"value\": %.10g, \"unit\": \"%s\", \"baseline\": "
      "null, \"ratio\": null, \"runs\": 1}\n",
      metric, value, unit);
}

}  // namespace

int RunSimPrograms(int argc, char** argv, const std::vector<SimProgram>& programs) {
  Arguments a = Parse(argc, argv);
  if (a.record || a.plans) a.jobs = 1;
  const std::vector<uint64_t> seeds = SeedsOf(a);
  const auto start = std::chrono::steady_clock::now();
  Totals t;
  for (const SimProgram& program : programs) t.Add(RunAll(program, a, seeds));
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
  return t.violations == 0 && t.schedules == seeds.size() * programs.size() ? 0 : 1;
}

}  // namespace railhop::sim
