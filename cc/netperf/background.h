// A shell command beside the traffic: `--run`.
#ifndef RAILHOP_CC_NETPERF_BACKGROUND_H_
#define RAILHOP_CC_NETPERF_BACKGROUND_H_

#include <sys/types.h>

#include <string>

namespace railhop::netperf {

class Background {
 public:
  explicit Background(std::string command) : command_(std::move(command)) {}
  // Kills what still runs, with all that it started.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // By /bin/sh, in a process group of its own; its output goes to standard error. `at` is its
  // variable AT.
  void Start(const std::string& at);
  bool started() const { return started_; }
  const std::string& command() const { return command_; }
  // Waits until it has ended. False and *error if it failed or has not ended by then.
  bool Finish(double timeout_s, std::string* error);

 private:
  const std::string command_;
  pid_t pid_ = 0;
  bool started_ = false;
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_BACKGROUND_H_
