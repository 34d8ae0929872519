// `railhop-fabric run`: a command and a fabric that lives as long as it.
//
// The launcher owns the fabric. While the command runs it passes signals on, carries out timed
// faults and keeps the sysfs files true. The hard case is a signal that reaches the whole
// terminal's group: the command has it already and must not get it twice.
#ifndef RAILHOP_CC_FABRIC_CTL_LAUNCHER_H_
#define RAILHOP_CC_FABRIC_CTL_LAUNCHER_H_

#include <string>
#include <vector>

#include "cc/fabric/control.h"

namespace railhop::fabric {

struct LaunchOptions {
  FabricOptions fabric;
  bool sysfs = true;        // show devices in /sys/class/infiniband, in a mount namespace
  uint32_t host = 0;        // whose devices
  std::string library_dir;  // with libibverbs.so.1; empty: the folder of this program
  std::vector<std::string> command;
};

// Runs the command and returns its exit status: 128 + n when signal n ended it, 127 when it was not
// found, 126 when it could not be run, 125 when there is no fabric.
int Launch(const LaunchOptions& options);

// Becomes the command. Returns an exit status if that fails, having said why.
int Execute(const std::vector<std::string>& command);

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_CTL_LAUNCHER_H_
