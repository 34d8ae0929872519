// Reads what callgrind writes: the cost of one object file.
#ifndef RAILHOP_CC_NETPERF_CALLGRIND_OUTPUT_H_
#define RAILHOP_CC_NETPERF_CALLGRIND_OUTPUT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace railhop::netperf {

struct CallgrindDump {
  std::string trigger;                  // the name that the program gave
  std::map<std::string, uint64_t> own;  // object file -> instructions executed in it itself
  // (object file, another one) -> instructions of the calls from the first into the second, with
  // all that these called.
  std::map<std::pair<std::string, std::string>, uint64_t> calls;
};

// Of the text of a dump without compressed names and positions. Source: the callgrind format,
// https://valgrind.org/docs/manual/cl-format.html.
CallgrindDump ParseCallgrind(const std::string& text);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_CALLGRIND_OUTPUT_H_
