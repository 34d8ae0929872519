// Net plugin ABI, version 9: from NCCL 2.24 on. New since 8: sizes of 2 GiB and more, fused
// devices.
//
// Source: NCCL v2.24.3-1 src/include/nccl_net.h (unchanged to v2.30.7-1).
#ifndef RAILHOP_CC_PLUGIN_NCCL_NET_V9_H_
#define RAILHOP_CC_PLUGIN_NCCL_NET_V9_H_

#include <cstddef>

#include "cc/plugin/nccl/types.h"

namespace railhop::nccl {

// Net devices that one is made of.
struct FusedV9 {
  int count;
  int devs[4];
};

struct PropertiesV9 {
  char* name;
  char* pci_path;  // may be null
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;  // flush after every receive
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  FusedV9 fused;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
};

struct NetV9 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int dev, PropertiesV9* properties);
  Result (*listen)(int dev, void* handle, void** listen_comm);
  Result (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** device_comm);
  Result (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_comm);
  Result (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  Result (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void** request);
  // *request may come in as kOptionalReceiveCompletion.
  Result (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
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
  // A device made of others; its index into *dev. May be null.
  Result (*make_v_device)(int* dev, FusedV9* fused);
};

static_assert(offsetof(PropertiesV9, force_flush) == 32);
static_assert(offsetof(PropertiesV9, speed_mbps) == 36);
static_assert(offsetof(PropertiesV9, max_recvs) == 52);
static_assert(offsetof(PropertiesV9, net_device_version) == 60);
static_assert(offsetof(PropertiesV9, fused) == 64);
static_assert(offsetof(PropertiesV9, max_p2p_bytes) == 88);
static_assert(offsetof(PropertiesV9, max_coll_bytes) == 96);
static_assert(sizeof(PropertiesV9) == 104);
static_assert(sizeof(NetV9) == 20 * sizeof(void*));

}  // namespace railhop::nccl

#endif  // RAILHOP_CC_PLUGIN_NCCL_NET_V9_H_
