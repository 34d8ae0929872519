// The verbs library as a table of functions: loaded from libibverbs.so.1, the software fabric, or
// made by a test.
//
// Nothing links against libibverbs, so one binary also loads where there is none. The functions of
// the hot path (post_send, post_recv, poll_cq) are not here: they are reached through the ops of
// the context that open_device returned, as <infiniband/verbs.h> does it.
#ifndef RAILHOP_CC_VERBS_TABLE_H_
#define RAILHOP_CC_VERBS_TABLE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

// <infiniband/verbs.h> makes macros of these names.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace railhop::verbs {

// Signatures and errors are those of the functions' manual pages (rdma-core 44): ibv_NAME for each
// member. The second group may be null.
struct Table {
  ibv_device** (*get_device_list)(int* count) = nullptr;
  void (*free_device_list)(ibv_device** list) = nullptr;
  const char* (*get_device_name)(ibv_device* device) = nullptr;
  __be64 (*get_device_guid)(ibv_device* device) = nullptr;
  ibv_context* (*open_device)(ibv_device* device) = nullptr;
  int (*close_device)(ibv_context* context) = nullptr;
  int (*query_device)(ibv_context* context, ibv_device_attr* attr) = nullptr;
  // The exported function fills the 48 bytes of the oldest struct only; zero the rest first.
  int (*query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attr) = nullptr;
  int (*query_gid)(ibv_context* context, uint8_t port, int index, ibv_gid* gid) = nullptr;
  int (*query_pkey)(ibv_context* context, uint8_t port, int index, __be16* pkey) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context* context) = nullptr;
  int (*dealloc_pd)(ibv_pd* pd) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* addr, size_t length, int access) = nullptr;
  int (*dereg_mr)(ibv_mr* mr) = nullptr;
  ibv_cq* (*create_cq)(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                       int comp_vector) = nullptr;
  int (*destroy_cq)(ibv_cq* cq) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attr) = nullptr;
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask) = nullptr;
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) = nullptr;
  int (*destroy_qp)(ibv_qp* qp) = nullptr;
  int (*get_async_event)(ibv_context* context, ibv_async_event* event) = nullptr;
  void (*ack_async_event)(ibv_async_event* event) = nullptr;

  // Possibly absent, in drop-ins or since they are newer:
  int (*fork_init)() = nullptr;  // before any device is opened
  ibv_mr* (*reg_mr_iova2)(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                          unsigned int access) = nullptr;  // IBVERBS_1.8
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                           int access) = nullptr;        // IBVERBS_1.12
  int (*query_ece)(ibv_qp* qp, ibv_ece* ece) = nullptr;  // IBVERBS_1.10
  int (*set_ece)(ibv_qp* qp, ibv_ece* ece) = nullptr;    // IBVERBS_1.10
  int (*query_gid_ex)(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags,
                      size_t entry_size) = nullptr;  // IBVERBS_1.11; _ibv_query_gid_ex
  // Units of 100 Mb/s into *speed. Source: rdma-core 62, man page ibv_query_port_speed(3).
  int (*query_port_speed)(ibv_context* context, uint32_t port, uint64_t* speed) = nullptr;  // 1.16
};

// Where the kernel's verbs and every drop-in for them are found.
inline constexpr char kDefaultLibrary[] = "libibverbs.so.1";

// Opens the library (dlopen, never closed) and looks its functions up. `path` as for dlopen; empty
// means kDefaultLibrary.
// Errors: NotFound (no such library; the message has the loader's words), Unimplemented (a function
// of the first group is missing; the message names it). Any thread.
absl::StatusOr<std::shared_ptr<const Table>> LoadTable(const std::string& path);

}  // namespace railhop::verbs

#endif  // RAILHOP_CC_VERBS_TABLE_H_
