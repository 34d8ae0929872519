// A net plugin, loaded and started, and how its calls fail.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_PLUGIN_HANDLE_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_PLUGIN_HANDLE_H_

#include <memory>
#include <string>

#include "cc/netperf/net_plugin.h"

namespace railhop::transport {

// Loads the plugin in `path` and starts it. `version`: of its ABI, 0 for the newest that it has.
// Failure (kLoad): no such file, no such version, init fails, or no device.
std::unique_ptr<netperf::NetPlugin> StartPlugin(const std::string& path, int version);

// "isend to rank 1: ncclRemoteError (6); the plugin said: ...".
std::string CallProblem(const std::string& call, netperf::NetResult result);

// Failure (kPlugin) unless `result` is success.
void CheckCall(const std::string& call, netperf::NetResult result);

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_PLUGIN_HANDLE_H_
