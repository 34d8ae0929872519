// Net plugin ABI, version 10: from NCCL 2.26 on. New since 9: the traffic class at connect, the
// profiler.
//
// Source: NCCL v2.26.2-1 src/include/plugin/net/net_v10.h (unchanged to v2.30.7-1).
#ifndef RAILHOP_CC_PLUGIN_NCCL_NET_V10_H_
#define RAILHOP_CC_PLUGIN_NCCL_NET_V10_H_

#include <cstddef>

#include "cc/plugin/nccl/net_v9.h"
#include "cc/plugin/nccl/types.h"

namespace railhop::nccl {

using FusedV10 = FusedV9;
using PropertiesV10 = PropertiesV9;

// What the communicator's configuration says of the network.
struct CommConfig {
  int traffic_class;  // kUndefined if not given
};

struct NetV10 {
  const char* name;
  Result (*init)(Logger logger, ProfilerCallback profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int dev, PropertiesV10* properties);
  Result (*listen)(int dev, void* handle, void** listen_comm);
  Result (*connect)(int dev, CommConfig* config, void* handle, void** send_comm,
                    DeviceHandle** device_comm);
  Result (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_comm);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle,
                  void* profiler_handle, void** request);
  Result (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
                  void** profiler_handles, void** request);
  Result (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles,
                   void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
  // May be null: only for networks on the GPU.
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int n, void* request);
  Result (*make_v_device)(int* dev, FusedV10* fused);
};

static_assert(sizeof(CommConfig) == 4);
static_assert(sizeof(NetV10) == 20 * sizeof(void*));

}  // namespace railhop::nccl

#endif  // RAILHOP_CC_PLUGIN_NCCL_NET_V10_H_
