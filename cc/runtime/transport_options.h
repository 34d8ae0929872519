// The options as the data path and the sockets take them.
#ifndef RAILHOP_CC_RUNTIME_TRANSPORT_OPTIONS_H_
#define RAILHOP_CC_RUNTIME_TRANSPORT_OPTIONS_H_

#include <string>
#include <vector>

#include "cc/config/options.h"
#include "cc/control/socket_config.h"
#include "cc/datapath/datapath_config.h"
#include "cc/runtime/failover_config.h"

namespace railhop::runtime {

// A value that does not fit its field is cut to the nearest that does. *notes gets a sentence for
// each value that is not used as written.
datapath::DatapathConfig MakeDatapathConfig(const config::Options& options,
                                            std::vector<std::string>* notes);
control::SocketConfig MakeSocketConfig(const config::Options& options,
                                       std::vector<std::string>* notes);
FailoverConfig MakeFailoverConfig(const config::Options& options, std::vector<std::string>* notes);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_TRANSPORT_OPTIONS_H_
