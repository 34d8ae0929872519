// The command line of railhop-netperf.
#ifndef RAILHOP_CC_NETPERF_OPTIONS_H_
#define RAILHOP_CC_NETPERF_OPTIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/result.h"

namespace railhop::netperf {

enum class Metric { kBandwidth, kLatency, kMessageRate };
enum class Check {
  kAuto,  // a pass that checks every byte, then measured passes that check the last ones
  kAll,   // every byte of every message
  kNone   // measured passes only
};

struct Side {
  std::string plugin;
  std::vector<std::pair<std::string, std::string>> environment;
};

struct Options {
  enum class Kind { kMeasure, kMemory, kInstructions, kInstructionsInside };

  Kind kind = Kind::kMeasure;
  std::vector<Side> sides;  // one plugin, or two to compare
  std::vector<std::pair<std::string, std::string>> second_environment;  // of the second process
  int api = 0;
  std::vector<int> devices;
  bool fuse = false;
  std::vector<Metric> metrics;
  std::vector<uint64_t> sizes;
  uint64_t count = 0;  // 0: by size
  int in_flight = 8;
  int connections = 1;
  int group = 1;
  int processes = 2;
  bool bidirectional = false;
  Check check = Check::kAuto;
  std::vector<uint64_t> at_messages;  // ascending
  std::vector<double> at_times;       // ascending
  std::string command;
  double seconds = 0;  // 0: by count
  bool mixed = false;
  std::string gaps;
  double gap_min_ms = 1;
  std::string after_close;
  bool outlive = false;
  int children = 0;
  uint64_t pause_every = 0;
  double pause_ms = 100;
  std::string pause_side = "both";
  int pairs = 30;
  double timeout_s = 60;
  bool assert_budget = false;
  bool json = false;
  std::vector<std::string> hosts;
};

// Reads argv. The error names the word and what is allowed.
Result<Options> ParseOptions(int argc, char** argv);
// Whether argv asks for it.
bool WantsHelp(int argc, char** argv);
std::string HelpText();

// Sizes "8,64K,1M-4M" (the last: every power of two in between), each up to 1 GiB.
Result<std::vector<uint64_t>> ParseSizes(const std::string& text);
// "64K"
std::string SizeText(uint64_t size);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_OPTIONS_H_
