// Gives the tables the name that RAILHOP_NET_NAME asks for, when the library is loaded.
#include <algorithm>
#include <cstring>
#include <string>

#include "cc/config/options.h"
#include "cc/config/settings.h"
#include "cc/plugin/tables.h"

namespace railhop::plugin {
namespace {

char net_name[32];  // as long as RAILHOP_NET_NAME may be

// NCCL has copied its configuration files into the environment by now.
__attribute__((constructor)) void NameTables() {
  try {
    const config::Options options = config::LoadOptions(config::Settings::LoadForProcess()).options;
    const size_t bytes = std::min(options.net_name.size(), sizeof net_name - 1);
    std::memcpy(net_name, options.net_name.data(), bytes);
  } catch (...) {
    return;  // the tables keep their default
  }
  ncclNetPlugin_v6.name = net_name;
  ncclNetPlugin_v8.name = net_name;
  ncclNetPlugin_v9.name = net_name;
  ncclNetPlugin_v10.name = net_name;
  ncclNetPlugin_v11.name = net_name;
  ncclNetPlugin_v12.name = net_name;
}

}  // namespace
}  // namespace railhop::plugin
