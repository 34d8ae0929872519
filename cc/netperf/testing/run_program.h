// Runs the built program with the loopback plugin, for tests.
#ifndef RAILHOP_CC_NETPERF_TESTING_RUN_PROGRAM_H_
#define RAILHOP_CC_NETPERF_TESTING_RUN_PROGRAM_H_

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace railhop::netperf {

inline constexpr char kProgram[] = "cc/netperf/railhop-netperf";
inline constexpr char kPlugin[] = "cc/netperf/testdata/libnccl-net-loopback.so";

struct Ran {
  int status = -1;
  std::string out;  // and standard error
  std::vector<std::string> lines;
};

inline Ran Shell(const std::string& command) {
  Ran ran;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) ran.out.append(buffer, n);
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::istringstream stream(ran.out);
  for (std::string line; std::getline(stream, line);) ran.lines.push_back(line);
  return ran;
}

inline Ran RunNetperf(const std::string& arguments, const std::string& environment = "") {
  return Shell(environment + " " + kProgram + " --plugin " + kPlugin + " " + arguments);
}

// The number behind "key": in a JSON line; -1 if there is none.
inline double Number(const std::string& line, const std::string& key) {
  const size_t at = line.find("\"" + key + "\":");
  return at == std::string::npos ? -1 : strtod(line.c_str() + at + key.size() + 3, nullptr);
}

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_TESTING_RUN_PROGRAM_H_
