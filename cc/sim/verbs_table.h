// ibv_* functions over simulated NICs, for programs that know nothing of the simulator.
//
// One thread and virtual time: polling an empty completion queue lets a microsecond pass, waiting
// for an event (ibv_get_cq_event, ibv_get_async_event) lets as much pass as it takes, and a loop
// that waits for something else calls VerbsIdle(). Channels and contexts have real descriptors, so
// poll(2) works between those calls. Sources: the manual pages of rdma-core 44.
#ifndef RAILHOP_CC_SIM_VERBS_TABLE_H_
#define RAILHOP_CC_SIM_VERBS_TABLE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "cc/sim/world.h"

// <infiniband/verbs.h> makes macros of these names.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace railhop::sim {

// Signatures and errors are those of ibv_NAME. What simulated NICs do not have fails with
// EOPNOTSUPP.
struct VerbsFunctions {
  ibv_device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(ibv_device** list) = nullptr;
  const char* (*get_device_name)(ibv_device* device) = nullptr;
  __be64 (*get_device_guid)(ibv_device* device) = nullptr;
  ibv_context* (*open_device)(ibv_device* device) = nullptr;
  int (*close_device)(ibv_context* context) = nullptr;
  int (*query_device)(ibv_context* context, ibv_device_attr* attr) = nullptr;
  int (*query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attr) = nullptr;
  // For callers of the oldest struct: writes its 48 bytes alone.
  int (*query_port_old)(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) = nullptr;
  int (*query_gid)(ibv_context* context, uint8_t port, int index, ibv_gid* gid) = nullptr;
  int (*query_gid_ex)(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t entry_size) = nullptr;
  ssize_t (*query_gid_table)(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                             uint32_t flags, size_t entry_size) = nullptr;
  int (*query_pkey)(ibv_context* context, uint8_t port, int index, __be16* pkey) = nullptr;
  int (*get_pkey_index)(ibv_context* context, uint8_t port, __be16 pkey) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context* context) = nullptr;
  int (*dealloc_pd)(ibv_pd* pd) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* addr, size_t length, int access) = nullptr;
  ibv_mr* (*reg_mr_iova2)(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                          unsigned int access) = nullptr;
  int (*dereg_mr)(ibv_mr* mr) = nullptr;
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context) = nullptr;
  int (*destroy_comp_channel)(ibv_comp_channel* channel) = nullptr;
  ibv_cq* (*create_cq)(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                       int comp_vector) = nullptr;
  int (*resize_cq)(ibv_cq* cq, int cqe) = nullptr;
  // EBUSY, where others wait, while events of it that the program got are not acknowledged; the
  // same for destroy_qp.
  int (*destroy_cq)(ibv_cq* cq) = nullptr;
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) = nullptr;
  void (*ack_cq_events)(ibv_cq* cq, unsigned int count) = nullptr;
  int (*poll_cq)(ibv_cq* cq, int count, ibv_wc* wc) = nullptr;
  int (*req_notify_cq)(ibv_cq* cq, int solicited_only) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attr) = nullptr;
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask) = nullptr;
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) = nullptr;
  int (*destroy_qp)(ibv_qp* qp) = nullptr;
  int (*post_send)(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) = nullptr;
  int (*post_recv)(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) = nullptr;
  int (*get_async_event)(ibv_context* context, ibv_async_event* event) = nullptr;
  void (*ack_async_event)(ibv_async_event* event) = nullptr;
  const char* (*node_type_str)(ibv_node_type type) = nullptr;
  const char* (*port_state_str)(ibv_port_state state) = nullptr;
  const char* (*event_type_str)(ibv_event_type event) = nullptr;
  const char* (*wc_status_str)(ibv_wc_status status) = nullptr;
};

const VerbsFunctions& SimVerbs();

// The world that the functions act in, and the host whose devices they list (null: all hosts', by
// their device names). The world outlives all objects made; null: no devices.
void SetVerbsWorld(World* world, Host* host = nullptr);

// For programs that are actors of the event loop themselves: no time passes inside their calls.
class VerbsActors {
 public:
  virtual ~VerbsActors() = default;
  // `context` has an event to read. Called from inside the NIC: remember it or schedule something.
  virtual void OnAsyncEvent(ibv_context* context) = 0;
};
// Polling an empty queue returns at once, and contexts have no descriptors. Null: as before. With
// Shared::hangs set as well, no call lets time pass.
void SetVerbsActors(VerbsActors* actors);

// What is behind an open context.
Nic* NicOf(ibv_context* context);
Context* CoreOf(ibv_context* context);

// Lets virtual time pass: to the next event, but a millisecond at most.
void VerbsIdle();
// ns; never 0.
uint64_t VerbsNowNs();

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_VERBS_TABLE_H_
