// Options that somebody set and that have no effect on the devices that were found.
#ifndef RAILHOP_CC_RUNTIME_IDLE_KNOBS_H_
#define RAILHOP_CC_RUNTIME_IDLE_KNOBS_H_

#include <string>
#include <vector>

#include "cc/config/options.h"

namespace railhop::runtime {

// What the devices are; at least one is true.
struct FoundLinks {
  bool roce = false;
  bool infiniband = false;
};

// One sentence for each such option.
std::vector<std::string> IdleKnobs(const config::LoadedOptions& loaded, FoundLinks found);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_IDLE_KNOBS_H_
