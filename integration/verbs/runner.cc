#include "integration/verbs/runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>

#include "integration/verbs/capabilities.h"
#include "integration/verbs/report.h"

namespace railhop::conformance {
namespace {

// What a child process found: nothing, or why it failed.
struct Verdict {
  bool passed = false;
  std::string text;
  double seconds = 0;
};

double RealNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// In the child: runs and writes 'P', or 'F' and the reason.
[[noreturn]] void RunChild(int out, const std::function<void()>& body) {
  std::string answer = "P";
  try {
    body();
  } catch (const CaseFailure& failure) {
    answer = "F" + failure.text;
  } catch (const std::exception& error) {
    answer = std::string("Fexception: ") + error.what();
  }
  const bool written = write(out, answer.data(), answer.size()) > 0;
  _exit(written ? 0 : 1);
}

// Reads until the end or the deadline. False on the deadline.
bool ReadAll(int in, double end, std::string* text) {
  for (;;) {
    const double left = end - RealNow();
    if (left <= 0) return false;
    pollfd wait = {in, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(left * 1000) + 1) <= 0) continue;
    char chunk[4096];
    const ssize_t got = read(in, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text->append(chunk, static_cast<size_t>(got));
    return true;  // one write of the child, at most PIPE_BUF: whole
  }
}

Verdict RunIsolated(double deadline_s, const std::function<void()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return {false, "cannot make a pipe"};
  fflush(stdout);
  const double start = RealNow();
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    close(ends[0]);
    RunChild(ends[1], body);
  }
  setpgid(pid, pid);
  close(ends[1]);
  std::string answer;
  const bool in_time = ReadAll(ends[0], start + deadline_s, &answer);
  close(ends[0]);
  if (!in_time) kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  kill(-pid, SIGKILL);  // what the case may have started
  Verdict verdict;
  verdict.seconds = RealNow() - start;
  if (!in_time) {
    verdict.text = "no end after " + std::to_string(static_cast<int>(deadline_s)) + " s: killed";
  } else if (answer.empty()) {
    verdict.text = WIFSIGNALED(status)
                       ? std::string("died of signal ") + strsignal(WTERMSIG(status))
                       : "ended with status " + std::to_string(WEXITSTATUS(status));
  } else {
    verdict.passed = answer[0] == 'P' && status == 0;
    verdict.text = answer[0] == 'P' && status != 0
                       ? "passed, but ended with wait status " + std::to_string(status)
                       : answer.substr(1);
  }
  return verdict;
}

void Print(const Result& result) {
  printf("%-12s %s (%.2f s)%s%s\n", OutcomeName(result.outcome), result.name.c_str(),
         result.seconds, result.detail.empty() ? "" : ": ", result.detail.c_str());
  fflush(stdout);
}

Result Probe(const VerbsTable& verbs, const Options& options, const Unsupported& entry) {
  Result result{"Capability." + entry.capability, "declared", Outcome::kUnsupported, entry.reason};
  const Capability* capability = FindCapability(entry.capability);
  result.run = capability->probe != nullptr;
  if (!result.run) return result;
  const Verdict verdict = RunIsolated(options.deadline_s, [&] {
    World world(verbs, options);
    ExpectTrue(!capability->probe(world), "declared as unsupported, but it is there");
  });
  result.seconds = verdict.seconds;
  if (verdict.passed) return result;
  result.outcome = Outcome::kFailed;
  result.detail = verdict.text;
  return result;
}

Result RunCase(const VerbsTable& verbs, const Options& options, const Case& c,
               const Expectations& expectations) {
  Result result{c.name, c.clause};
  if (const Unsupported* entry = expectations.FindUnsupported(c)) {
    result.outcome = Outcome::kUnsupported;
    result.detail = entry->capability + ": " + entry->reason;
    result.run = false;
    return result;
  }
  const Verdict verdict = RunIsolated(options.deadline_s, [&] {
    World world(verbs, options);
    c.run(world);
    world.CheckGuards();
  });
  result.seconds = verdict.seconds;
  // A case that ended early may have left its fault behind.
  if (!verdict.passed && !options.fault_command.empty()) {
    RunIsolated(options.deadline_s, [&] { World(verbs, options).Heal(); });
  }
  const Difference* difference = expectations.FindDifference(c.name);
  if (difference == nullptr) {
    result.outcome = verdict.passed ? Outcome::kSupported : Outcome::kFailed;
    result.detail = verdict.text;
  } else if (verdict.passed) {
    result.detail = "declared as different, but it passes";
  } else if (verdict.text.find(difference->fragment) == std::string::npos) {
    result.detail = "differs in another way than declared: " + verdict.text;
  } else {
    result.outcome = Outcome::kDiffers;
    result.detail = difference->reason + " (" + difference->clause + ")";
  }
  return result;
}

bool Selected(const std::string& filter, const std::string& name) {
  if (filter.empty()) return true;
  size_t start = 0;
  for (;;) {
    const size_t colon = filter.find(':', start);
    if (MatchesGlob(filter.substr(start, colon - start), name)) return true;
    if (colon == std::string::npos) return false;
    start = colon + 1;
  }
}

}  // namespace

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kSupported:
      return "supported";
    case Outcome::kUnsupported:
      return "unsupported";
    case Outcome::kDiffers:
      return "differs";
    case Outcome::kFailed:
      return "failed";
  }
  return "?";
}

std::vector<Result> RunCases(const VerbsTable& verbs, const Options& options,
                             const std::vector<Case>& cases, const Expectations& expectations) {
  std::vector<Result> results;
  for (const Unsupported& entry : expectations.unsupported) {
    if (!Selected(options.filter, "Capability." + entry.capability)) continue;
    results.push_back(Probe(verbs, options, entry));
    Print(results.back());
  }
  for (const Case& c : cases) {
    if (!Selected(options.filter, c.name)) continue;
    results.push_back(RunCase(verbs, options, c, expectations));
    Print(results.back());
  }
  return results;
}

int RunConformance(const VerbsTable& verbs, const Options& options) {
  const std::vector<Case> cases = AllCases();
  Expectations expectations;
  std::string error;
  if (!LoadExpectations(options.expect, cases, &expectations, &error)) {
    fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  const std::vector<Result> results = RunCases(verbs, options, cases, expectations);
  if (results.empty()) {
    fprintf(stderr, "no case matches the filter \"%s\"\n", options.filter.c_str());
    return 2;
  }
  int counts[4] = {};
  for (const Result& result : results) ++counts[static_cast<int>(result.outcome)];
  printf("%s: %d supported, %d declared unsupported, %d different, %d failed\n",
         options.fabric.c_str(), counts[0], counts[1], counts[2], counts[3]);
  for (const Result& result : results) {
    if (result.outcome == Outcome::kFailed) {
      printf("FAILED %s: %s\n", result.name.c_str(), result.detail.c_str());
    }
  }
  if (!WriteReports(options, results, &error)) {
    fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  return counts[3] == 0 ? 0 : 1;
}

}  // namespace railhop::conformance
