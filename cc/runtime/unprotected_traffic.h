// Traffic of NCCL that does not pass through a net plugin.
#ifndef RAILHOP_CC_RUNTIME_UNPROTECTED_TRAFFIC_H_
#define RAILHOP_CC_RUNTIME_UNPROTECTED_TRAFFIC_H_

#include <string>
#include <vector>

#include "cc/config/settings.h"

namespace railhop::runtime {

// What of NCCL's device-initiated communication (GIN, RMA) this process seems to use, as a
// sentence; empty if nothing does. Looks at variables and loaded libraries, since NCCL does not
// tell a net plugin. Source: NCCL v2.30.7-1 src/plugin/{gin,rma}.cc.
std::string UnprotectedTraffic(const config::Settings& settings,
                               const std::vector<std::string>& loaded_libraries);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_UNPROTECTED_TRAFFIC_H_
