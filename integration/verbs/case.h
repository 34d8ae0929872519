// A conformance case and what it says about a library.
//
// A case is a function with a name, the clause it follows and the capabilities it needs. It passes
// by returning and fails by throwing CaseFailure; the Expect... functions below throw it with the
// place and the values.
#ifndef RAILHOP_INTEGRATION_VERBS_CASE_H_
#define RAILHOP_INTEGRATION_VERBS_CASE_H_

#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace railhop::conformance {

class World;

struct Case {
  std::string name;                // Subject.Situation_Result
  std::string clause;              // of the InfiniBand specification (volume 1), or a man page
  std::vector<std::string> needs;  // capability words, see capabilities.h
  std::function<void(World&)> run;
};

// Why a case failed, in one line.
struct CaseFailure {
  std::string text;
};

[[noreturn]] inline void Fail(const std::string& text, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  std::string name = file;
  const size_t slash = name.rfind('/');
  if (slash != std::string::npos) name = name.substr(slash + 1);
  throw CaseFailure{name + ":" + std::to_string(line) + ": " + text};
}

inline void ExpectTrue(bool condition, const std::string& what, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  if (!condition) Fail(what, file, line);
}

// Fails with "what: got X, expected Y". Character types are shown as numbers.
template <typename A, typename E>
void ExpectEq(const A& actual, const E& expected, const std::string& what,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (actual == static_cast<A>(expected)) return;
  std::ostringstream text;
  text << what << ": got " << +actual << ", expected " << +static_cast<A>(expected);
  Fail(text.str(), file, line);
}

// Fails unless `actual` is in `allowed`.
template <typename A>
void ExpectOneOf(const A& actual, const std::vector<A>& allowed, const std::string& what,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  for (const A& value : allowed) {
    if (actual == value) return;
  }
  std::ostringstream text;
  text << what << ": got " << +actual << ", expected one of";
  for (const A& value : allowed) text << ' ' << +value;
  Fail(text.str(), file, line);
}

// All cases, group by group in the order in which they are run and listed.
std::vector<Case> AllCases();

// The groups, one file each.
std::vector<Case> DeviceCases();
std::vector<Case> LifecycleCases();
std::vector<Case> QpStateCases();
std::vector<Case> QpAttributeCases();
std::vector<Case> TransferCases();
std::vector<Case> ScatterGatherCases();
std::vector<Case> CompletionCases();
std::vector<Case> ChannelCases();
std::vector<Case> OrderingCases();
std::vector<Case> MemoryKeyCases();
std::vector<Case> LocalErrorCases();
std::vector<Case> RnrCases();
std::vector<Case> RetryCases();
std::vector<Case> ErrorStateCases();
std::vector<Case> ResetCases();
std::vector<Case> UnreliableCases();
std::vector<Case> WrApiCases();
std::vector<Case> EventCases();
std::vector<Case> LossyCases();
std::vector<Case> ThreadCases();
std::vector<Case> ProcessCases();
std::vector<Case> ScaleCases();

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_CASE_H_
