#include "cc/netperf/callgrind_output.h"

#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace railhop::netperf {
namespace {

constexpr std::string_view kTrigger = "desc: Trigger: Client Request: ";

bool StartsWith(const std::string& line, std::string_view start) {
  return line.rfind(start, 0) == 0;
}

}  // namespace

CallgrindDump ParseCallgrind(const std::string& text) {
  CallgrindDump dump;
  std::istringstream lines(text);
  std::string object;
  std::string callee;      // its object; empty: the caller's
  bool of_callee = false;  // the cost line behind "calls=" is what the callee cost
  for (std::string line; std::getline(lines, line);) {
    if (StartsWith(line, kTrigger)) {
      dump.trigger = line.substr(kTrigger.size());
    } else if (StartsWith(line, "ob=")) {
      object = line.substr(3);
    } else if (StartsWith(line, "cob=")) {
      callee = line.substr(4);
    } else if (StartsWith(line, "calls=")) {
      of_callee = true;
    } else if (!line.empty() && isdigit(static_cast<unsigned char>(line[0])) != 0) {
      const size_t space = line.find(' ');
      const uint64_t cost =
          space == std::string::npos ? 0 : strtoull(line.c_str() + space, nullptr, 10);
      if (!of_callee) {
        dump.own[object] += cost;
      } else if (!callee.empty() && callee != object) {
        dump.calls[{object, callee}] += cost;
      }
      if (of_callee) callee.clear();
      of_callee = false;
    }
  }
  return dump;
}

}  // namespace railhop::netperf
