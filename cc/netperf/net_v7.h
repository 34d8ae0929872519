// Net plugin ABI, version 7: NCCL 2.19 alone takes it first. Railhop does not export it; plugins of
// others do.
//
// It is version 8 without global registrations: no reg_is_global, and regMr takes an int.
// Source: NCCL v2.19.1-1 src/include/nccl_net.h (unchanged to v2.30.7-1).
#ifndef RAILHOP_CC_NETPERF_NET_V7_H_
#define RAILHOP_CC_NETPERF_NET_V7_H_

#include <cstddef>

#include "cc/plugin/nccl/types.h"

namespace railhop::netperf {

struct PropertiesV7 {
  char* name;
  char* pci_path;  // may be null
  uint64_t guid;
  int ptr_support;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};

struct NetV7 {
  const char* name;
  nccl::Result (*init)(nccl::Logger logger);
  nccl::Result (*devices)(int* count);
  nccl::Result (*get_properties)(int dev, PropertiesV7* properties);
  nccl::Result (*listen)(int dev, void* handle, void** listen_comm);
  nccl::Result (*connect)(int dev, void* handle, void** send_comm,
                          nccl::DeviceHandle** device_comm);
  nccl::Result (*accept)(void* listen_comm, void** recv_comm, nccl::DeviceHandle** device_comm);
  nccl::Result (*reg_mr)(void* comm, void* data, int size, int type, void** mhandle);
  nccl::Result (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset,
                                 int fd, void** mhandle);
  nccl::Result (*dereg_mr)(void* comm, void* mhandle);
  nccl::Result (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle,
                        void** request);
  nccl::Result (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles,
                        void** request);
  nccl::Result (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles,
                         void** request);
  nccl::Result (*test)(void* request, int* done, int* sizes);
  nccl::Result (*close_send)(void* send_comm);
  nccl::Result (*close_recv)(void* recv_comm);
  nccl::Result (*close_listen)(void* listen_comm);
  nccl::Result (*get_device_mr)(void* comm, void* mhandle, void** device_mhandle);
  nccl::Result (*irecv_consumed)(void* recv_comm, int n, void* request);
};

static_assert(offsetof(PropertiesV7, ptr_support) == 24);
static_assert(offsetof(PropertiesV7, max_recvs) == 44);
static_assert(sizeof(PropertiesV7) == 56);
static_assert(sizeof(NetV7) == 19 * sizeof(void*));

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_NET_V7_H_
