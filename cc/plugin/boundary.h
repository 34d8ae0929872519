// The border between NCCL and the rest: casts, calls the transport, turns its answer into NCCL's
// code.
//
// The functions here are the slots of the newest tables; older versions convert their arguments and
// land on them. Nothing else in the tree knows NCCL's result codes. Rules that hold for every call:
// what comes out is written also on failure (a comm or request is null then), a null that NCCL may
// pass is no error, and no exception leaves.
//
// Any error of isend, irecv, iflush or test ends NCCL's progress thread for good, so these return
// one only when the connection has been given up. Source: NCCL v2.30.7-1 src/proxy.cc.
#ifndef RAILHOP_CC_PLUGIN_BOUNDARY_H_
#define RAILHOP_CC_PLUGIN_BOUNDARY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "cc/datapath/outcome.h"
#include "cc/plugin/nccl/types.h"
#include "cc/runtime/net_device.h"

namespace railhop::plugin {

using nccl::Result;

// The switch of the project. What NCCL broke is an internal error, what a user set an invalid
// usage, what this host refused a system error, and a peer that was given up a remote error.
Result ToResult(const absl::Status& status);
constexpr Result ToResult(datapath::Outcome outcome) {
  switch (outcome) {
    case datapath::Outcome::kOk:
    case datapath::Outcome::kFault:  // the transport has taken it on
      return nccl::kSuccess;
    case datapath::Outcome::kMisuse:
      return nccl::kInternalError;
    case datapath::Outcome::kSystem:
      return nccl::kSystemError;
    case datapath::Outcome::kRemote:
      return nccl::kRemoteError;
    case datapath::Outcome::kBadSetting:
      return nccl::kInvalidUsage;
  }
  return nccl::kInternalError;
}

// ---- Start and stop.

// For tables that are started once in a process and never stopped (API 6 to 10): the transport runs
// while a comm is open, and once more when one is asked for.
Result InitOnce(nccl::Logger logger);
// For tables with a context for each communicator (from API 11 on). traffic_class: or kUndefined.
Result InitCommunicator(void** context, int traffic_class, nccl::Logger logger);
Result Finalize(void* context);

// ---- Devices.

Result Devices(int* count);
// Strings that NCCL keeps pointers to; they live as long as the process.
struct NamedProperties {
  runtime::DeviceProperties values;
  char* name = nullptr;
  char* pci_path = nullptr;  // null if not known
};
Result GetProperties(int dev, NamedProperties* properties);
Result MakeVirtualDevice(int* dev, std::span<const int> devices);

// ---- Connections. context: null for tables without one.

Result Listen(void* context, int dev, void* handle, void** listen_comm);
Result Connect(void* context, int traffic_class, int dev, void* handle, void** send_comm);
Result Accept(void* listen_comm, void** recv_comm);
Result CloseSend(void* send_comm);
Result CloseRecv(void* recv_comm);
Result CloseListen(void* listen_comm);

// The traffic class that a context was made with.
int TrafficClassOf(void* context);

// ---- Memory.

Result RegMr(void* comm, void* data, size_t size, int type, void** mhandle);
Result RegMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                   void** mhandle);
Result DeregMr(void* comm, void* mhandle);

// ---- The hot path.

Result ISend(void* send_comm, void* data, size_t size, int tag, void* mhandle,
             void* profiler_handle, void** request);
// The hint that *request may bring is not used: every receive is tracked to its end.
Result IRecv(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
             void** profiler_handles, void** request);
Result IFlush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
Result Test(void* request, int* done, int* sizes);

}  // namespace railhop::plugin

#endif  // RAILHOP_CC_PLUGIN_BOUNDARY_H_
