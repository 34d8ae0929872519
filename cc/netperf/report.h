// Results on standard output: a table for people or JSON lines. Progress on a terminal's standard
// error.
#ifndef RAILHOP_CC_NETPERF_REPORT_H_
#define RAILHOP_CC_NETPERF_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/netperf/options.h"
#include "cc/netperf/plan.h"

namespace railhop::netperf {

// A flat JSON object on one line. Keys and unquoted values are not escaped.
class JsonLine {
 public:
  JsonLine& Text(const char* key, const std::string& value);
  JsonLine& Number(const char* key, double value);
  JsonLine& Count(const char* key, uint64_t value);
  JsonLine& Bool(const char* key, bool value);
  JsonLine& List(const char* key, const std::vector<int>& values);
  std::string text() const { return "{" + text_ + "}"; }

 private:
  JsonLine& Add(const char* key, const std::string& value);

  std::string text_;
};

// One figure.
struct Figure {
  std::string metric;
  std::string side;  // with two plugins: A, B or A/B
  uint64_t size = 0;
  double value = 0;
  std::string unit;
  Counts counts;  // of what it was measured with
  std::string path;
  PluginFacts facts;
  int in_flight = 0;
  int group = 0;
  std::vector<std::pair<const char*, double>> more;  // p99_us, low, high
};

// What is told at the end beside the counts.
struct Ending {
  double seconds = 0;  // of all legs
  Leftovers left;
  std::string after_death;
  int64_t after_death_ns = 0;
};

class Report {
 public:
  explicit Report(const Options& options) : options_(options) {}

  void Print(const Figure& figure);
  // The last line. `problem` empty: none.
  void PrintSummary(const Counts& counts, const std::string& problem, const Ending& ending);

  // Only on a terminal, over the line before.
  void Progress(const std::string& what, uint64_t received, uint64_t all);
  void EndProgress();

 private:
  void PrintHeading(const Figure& figure);

  const Options& options_;
  std::string heading_;  // printed last
  bool progress_shown_ = false;
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_REPORT_H_
