// Conversions that several versions share. Each older table takes the function of the earliest
// version with its signature.
#ifndef RAILHOP_CC_PLUGIN_CONVERT_H_
#define RAILHOP_CC_PLUGIN_CONVERT_H_

#include <algorithm>
#include <span>

#include "cc/plugin/boundary.h"
#include "cc/plugin/nccl/net_v11.h"
#include "cc/plugin/nccl/types.h"

namespace railhop::plugin {

// Sizes are int up to API 8, and NCCL's shims cap messages at 1 GiB there.
// Source: NCCL v2.30.7-1 src/plugin/net/net_v{6,8}.cc.
inline constexpr uint64_t kIntSizeMax = uint64_t{1} << 30;

// The fields that every version's properties have.
template <typename Properties>
void FillCommon(const NamedProperties& from, Properties* to) {
  to->name = from.name;
  to->pci_path = from.pci_path;
  to->guid = from.values.guid;
  to->ptr_support = from.values.ptr_support;
  to->speed_mbps = from.values.speed_mbps;
  to->port = from.values.port;
  to->latency_us = from.values.latency_us;
  to->max_comms = from.values.max_comms;
  to->max_recvs = from.values.max_recvs;
}

// From API 8 on.
template <typename Properties>
void FillSinceV8(const NamedProperties& from, Properties* to) {
  FillCommon(from, to);
  to->reg_is_global = from.values.reg_is_global ? 1 : 0;
  to->net_device_type = nccl::kNetDeviceHost;
  to->net_device_version = nccl::kNetDeviceNoVersion;
}

// From API 9 on. Devices beyond the version's room are left out.
template <typename Properties>
void FillSinceV9(const NamedProperties& from, Properties* to) {
  FillSinceV8(from, to);
  to->force_flush = from.values.force_flush ? 1 : 0;
  to->max_p2p_bytes = from.values.max_p2p_bytes;
  to->max_coll_bytes = from.values.max_coll_bytes;
  to->fused = {};
  for (const int dev : from.values.fused) {
    if (to->fused.count == static_cast<int>(std::size(to->fused.devs))) break;
    to->fused.devs[to->fused.count++] = dev;
  }
}

// get_properties of any version.
template <typename Properties, void (*Fill)(const NamedProperties&, Properties*)>
Result GetPropertiesAs(int dev, Properties* properties) {
  if (properties == nullptr) return nccl::kInternalError;
  NamedProperties found;
  const Result result = GetProperties(dev, &found);
  if (result == nccl::kSuccess) Fill(found, properties);
  return result;
}

// make_v_device of any version.
template <typename Fused>
Result MakeVDeviceAs(int* dev, Fused* fused) {
  if (dev == nullptr || fused == nullptr) return nccl::kInternalError;
  if (fused->count < 0 || fused->count > static_cast<int>(std::size(fused->devs))) {
    return nccl::kInvalidUsage;
  }
  return MakeVirtualDevice(dev, {fused->devs, static_cast<size_t>(fused->count)});
}

// isend and irecv with sizes of int (API 6 and 8).
Result ISendInt(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
Result IRecvInt(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles,
                void** request);
// isend and irecv without the profiler (API 9).
Result ISendPlain(void* send_comm, void* data, size_t size, int tag, void* mhandle, void** request);
Result IRecvPlain(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
                  void** request);

// listen, connect and accept without a context (API 8 and 9; listen also 6 and 10).
Result ListenPlain(int dev, void* handle, void** listen_comm);
Result ConnectPlain(int dev, void* handle, void** send_comm, nccl::DeviceHandle** device_comm);
Result AcceptPlain(void* listen_comm, void** recv_comm, nccl::DeviceHandle** device_comm);

// What came with the context (API 11 and 12).
Result InitV11(void** context, uint64_t comm_id, nccl::CommConfig* config, nccl::Logger logger,
               nccl::ProfilerCallback profiler);
Result ConnectV11(void* context, int dev, void* handle, void** send_comm,
                  nccl::DeviceHandle** device_comm);
Result SetNetAttributesV11(void* context, nccl::NetAttributes* attributes);

}  // namespace railhop::plugin

#endif  // RAILHOP_CC_PLUGIN_CONVERT_H_
