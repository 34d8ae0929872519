#include "cc/netperf/net_plugin.h"

#include "cc/plugin/nccl/types.h"

namespace railhop::netperf {

const char* NetResultName(NetResult result) {
  switch (result) {
    case nccl::kSuccess:
      return "ncclSuccess";
    case nccl::kUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case nccl::kSystemError:
      return "ncclSystemError";
    case nccl::kInternalError:
      return "ncclInternalError";
    case nccl::kInvalidArgument:
      return "ncclInvalidArgument";
    case nccl::kInvalidUsage:
      return "ncclInvalidUsage";
    case nccl::kRemoteError:
      return "ncclRemoteError";
    default:
      return "a result that NCCL does not know";
  }
}

}  // namespace railhop::netperf
