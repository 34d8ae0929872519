// Finds the newest version in a plugin's file, as NCCL does.
#ifndef RAILHOP_CC_NETPERF_PLUGIN_LOADER_H_
#define RAILHOP_CC_NETPERF_PLUGIN_LOADER_H_

#include <memory>
#include <string>

#include "cc/netperf/net_plugin.h"

namespace railhop::netperf {

// Loads `path`. `version` 0 takes the newest that it has, as NCCL does. Null and *error on failure.
// The library is unloaded with the object.
std::unique_ptr<NetPlugin> LoadNetPlugin(const std::string& path, int version, std::string* error);

// The newest WARN that a plugin loaded so has logged in this process, printed or not; empty if
// none. Thread: any.
std::string LastPluginWarning();

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_PLUGIN_LOADER_H_
