// Net plugin ABI, version 6: NCCL 2.13 to 2.18 take it first, and all to 2.30 know it.
//
// Source: NCCL v2.13.4-1 src/include/nccl_net.h (unchanged to v2.30.7-1).
#ifndef RAILHOP_CC_PLUGIN_NCCL_NET_V6_H_
#define RAILHOP_CC_PLUGIN_NCCL_NET_V6_H_

#include <cstddef>

#include "cc/plugin/nccl/types.h"

namespace railhop::nccl {

struct PropertiesV6 {
  char* name;
  char* pci_path;  // may be null
  uint64_t guid;
  int ptr_support;  // kPtr* bits
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
};

struct NetV6 {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* count);
  Result (*get_properties)(int dev, PropertiesV6* properties);
  Result (*listen)(int dev, void* handle, void** listen_comm);
  // Null comm with success: not yet, call again. So for accept.
  Result (*connect)(int dev, void* handle, void** send_comm);
  Result (*accept)(void* listen_comm, void** recv_comm);
  Result (*reg_mr)(void* comm, void* data, int size, int type, void** mhandle);
  Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                           void** mhandle);
  Result (*dereg_mr)(void* comm, void* mhandle);
  // Null request with success: not now, call again. So for irecv.
  Result (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles,
                  void** request);
  // Null request with success: nothing to flush.
  Result (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles,
                   void** request);
  // sizes may be null.
  Result (*test)(void* request, int* done, int* sizes);
  Result (*close_send)(void* send_comm);
  Result (*close_recv)(void* recv_comm);
  Result (*close_listen)(void* listen_comm);
};

static_assert(offsetof(PropertiesV6, guid) == 16);
static_assert(offsetof(PropertiesV6, ptr_support) == 24);
static_assert(offsetof(PropertiesV6, latency_us) == 36);
static_assert(offsetof(PropertiesV6, max_recvs) == 44);
static_assert(sizeof(PropertiesV6) == 48);
static_assert(sizeof(NetV6) == 17 * sizeof(void*));

}  // namespace railhop::nccl

#endif  // RAILHOP_CC_PLUGIN_NCCL_NET_V6_H_
