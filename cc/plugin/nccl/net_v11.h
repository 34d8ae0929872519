// Net plugin ABI, version 11: from NCCL 2.28 on. New since 10: a context for each communicator,
// finalize, attributes.
//
// Source: NCCL v2.28.3-1 src/include/plugin/net/net_v11.h (unchanged to v2.30.7-1).
#ifndef RAILHOP_CC_PLUGIN_NCCL_NET_V11_H_
#define RAILHOP_CC_PLUGIN_NCCL_NET_V11_H_

#include <cstddef>

#include "cc/plugin/nccl/net_v10.h"
#include "cc/plugin/nccl/types.h"

namespace railhop::nccl {

using FusedV11 = FusedV10;

struct PropertiesV11 {
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
  FusedV11 fused;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request;
};

// How the core means to use the network: a hint. Each field is kUndefined if not known.
struct CommAttributes {
  int32_t max_concurrent_peers;
  int32_t min_concurrent_peers;
  int32_t max_flows_per_peer;
  int32_t min_flows_per_peer;
};

struct NetAttributes {
  CommAttributes send;
  CommAttributes recv;
  uint32_t op;
  uint32_t algo;
  uint32_t proto;
};

struct NetV11 {
  const char* name;
  // For every communicator; *context is handed back to listen, connect, set_net_attr and finalize.
  Result (*init)(void** context, uint64_t comm_id, CommConfig* config, Logger logger,
                 ProfilerCallback profiler);
  Result (*devices)(int* count);
  Result (*get_properties)(int dev, PropertiesV11* properties);
  Result (*listen)(void* context, int dev, void* handle, void** listen_comm);
  Result (*connect)(void* context, int dev, void* handle, void** send_comm,
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
  Result (*make_v_device)(int* dev, FusedV11* fused);
  // Called without a check for null.
  Result (*finalize)(void* context);
  // May be null.
  Result (*set_net_attr)(void* context, NetAttributes* attributes);
};

static_assert(offsetof(PropertiesV11, force_flush) == 32);
static_assert(offsetof(PropertiesV11, speed_mbps) == 36);
static_assert(offsetof(PropertiesV11, max_recvs) == 52);
static_assert(offsetof(PropertiesV11, net_device_version) == 60);
static_assert(offsetof(PropertiesV11, fused) == 64);
static_assert(offsetof(PropertiesV11, max_p2p_bytes) == 88);
static_assert(offsetof(PropertiesV11, max_coll_bytes) == 96);
static_assert(offsetof(PropertiesV11, max_multi_request) == 104);
static_assert(sizeof(PropertiesV11) == 112);
static_assert(sizeof(NetV11) == 22 * sizeof(void*));
static_assert(sizeof(NetAttributes) == 44);

}  // namespace railhop::nccl

#endif  // RAILHOP_CC_PLUGIN_NCCL_NET_V11_H_
