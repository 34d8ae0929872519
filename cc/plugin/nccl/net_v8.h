// Net plugin ABI, version 8: from NCCL 2.20 on. New since 6: hooks for networks on the GPU, global
// registrations, registrations of 2 GiB and more.
//
// Source: NCCL v2.20.3-1 src/include/nccl_net.h (unchanged to v2.30.7-1).
#ifndef RAILHOP_CC_PLUGIN_NCCL_NET_V8_H_
#define RAILHOP_CC_PLUGIN_NCCL_NET_V8_H_

#include <cstddef>

#include "cc/plugin/nccl/types.h"

namespace railhop::nccl {

struct PropertiesV8 {
  char* name;
  char* pci_path;  // may be null
  uint64_t guid;
  int ptr_support;
  int reg_is_global;  // a registration serves every comm of the device
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};

struct NetV8 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int dev, PropertiesV8* properties);
  Result (*listen)(int dev, void* handle, void** listen_comm);
  Result (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** device_comm);
  Result (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_comm);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles,
                  void** request);
  Result (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles,
                   void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
  // May be null: only for networks on the GPU.
  Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  Result (*irecv_consumed)(void* recv_comm, int n, void* request);
};

static_assert(offsetof(PropertiesV8, reg_is_global) == 28);
static_assert(offsetof(PropertiesV8, speed_mbps) == 32);
static_assert(offsetof(PropertiesV8, max_recvs) == 48);
static_assert(offsetof(PropertiesV8, net_device_version) == 56);
static_assert(sizeof(PropertiesV8) == 64);
static_assert(sizeof(NetV8) == 19 * sizeof(void*));

}  // namespace railhop::nccl

#endif  // RAILHOP_CC_PLUGIN_NCCL_NET_V8_H_
