// The exported tables, one for each version of NCCL's net plugin ABI.
//
// NCCL looks the symbols up by name and takes the newest that it knows; the version script lets
// these out and nothing else. Not const, since `name` can be changed by RAILHOP_NET_NAME.
#ifndef RAILHOP_CC_PLUGIN_TABLES_H_
#define RAILHOP_CC_PLUGIN_TABLES_H_

#include "cc/plugin/nccl/net_v10.h"
#include "cc/plugin/nccl/net_v11.h"
#include "cc/plugin/nccl/net_v12.h"
#include "cc/plugin/nccl/net_v6.h"
#include "cc/plugin/nccl/net_v8.h"
#include "cc/plugin/nccl/net_v9.h"

namespace railhop::plugin {

// Until RAILHOP_NET_NAME is read, which is when the library is loaded: NCCL compares the name with
// NCCL_NET before it calls init.
inline constexpr char kDefaultNetName[] = "Railhop";

// One C symbol each: the namespace is for us only.
extern "C" {
__attribute__((visibility("default"))) extern nccl::NetV6 ncclNetPlugin_v6;
__attribute__((visibility("default"))) extern nccl::NetV8 ncclNetPlugin_v8;
__attribute__((visibility("default"))) extern nccl::NetV9 ncclNetPlugin_v9;
__attribute__((visibility("default"))) extern nccl::NetV10 ncclNetPlugin_v10;
__attribute__((visibility("default"))) extern nccl::NetV11 ncclNetPlugin_v11;
__attribute__((visibility("default"))) extern nccl::NetV12 ncclNetPlugin_v12;
}  // extern "C"

}  // namespace railhop::plugin

// Before a definition of one of them.
#define RAILHOP_NCCL_TABLE __attribute__((visibility("default"))) constinit

#endif  // RAILHOP_CC_PLUGIN_TABLES_H_
