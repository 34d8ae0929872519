// The verbs that the conformance suite calls, as a table of functions.
//
// Intuition: a case never calls libibverbs by name; it calls `v.post_send(...)`. So the same binary
// tests any library that it is given by path, and a simulator in the same process can supply a
// table of its own, with its own clock. Hard case: half of verbs is inline code in
// <infiniband/verbs.h> that jumps through the context's own table; LoadVerbsTable() wraps those, so
// that every entry here is a plain function.
#ifndef RAILHOP_INTEGRATION_VERBS_VERBS_TABLE_H_
#define RAILHOP_INTEGRATION_VERBS_VERBS_TABLE_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

// verbs.h makes these two names macros; here they are the exported functions.
#undef ibv_reg_mr
#undef ibv_query_port

// X(field, symbol, version, required). Source of names and versions: the dynamic symbol table of
// Debian 12's libibverbs.so.1 (rdma-core 44).
#define RAILHOP_VERBS_SYMBOLS(X)                                         \
  X(get_device_list, ibv_get_device_list, "IBVERBS_1.1", true)           \
  X(free_device_list, ibv_free_device_list, "IBVERBS_1.1", true)         \
  X(get_device_name, ibv_get_device_name, "IBVERBS_1.1", true)           \
  X(get_device_guid, ibv_get_device_guid, "IBVERBS_1.1", true)           \
  X(open_device, ibv_open_device, "IBVERBS_1.1", true)                   \
  X(close_device, ibv_close_device, "IBVERBS_1.1", true)                 \
  X(get_async_event, ibv_get_async_event, "IBVERBS_1.1", true)           \
  X(ack_async_event, ibv_ack_async_event, "IBVERBS_1.1", true)           \
  X(query_device, ibv_query_device, "IBVERBS_1.1", true)                 \
  X(query_port_old, ibv_query_port, "IBVERBS_1.1", true)                 \
  X(query_gid, ibv_query_gid, "IBVERBS_1.1", true)                       \
  X(query_pkey, ibv_query_pkey, "IBVERBS_1.1", true)                     \
  X(get_pkey_index, ibv_get_pkey_index, "IBVERBS_1.5", false)            \
  X(query_gid_ex, _ibv_query_gid_ex, "IBVERBS_1.11", false)              \
  X(query_gid_table, _ibv_query_gid_table, "IBVERBS_1.11", false)        \
  X(alloc_pd, ibv_alloc_pd, "IBVERBS_1.1", true)                         \
  X(dealloc_pd, ibv_dealloc_pd, "IBVERBS_1.1", true)                     \
  X(reg_mr, ibv_reg_mr, "IBVERBS_1.1", true)                             \
  X(reg_mr_iova2, ibv_reg_mr_iova2, "IBVERBS_1.8", false)                \
  X(rereg_mr, ibv_rereg_mr, "IBVERBS_1.1", false)                        \
  X(dereg_mr, ibv_dereg_mr, "IBVERBS_1.1", true)                         \
  X(create_comp_channel, ibv_create_comp_channel, "IBVERBS_1.0", true)   \
  X(destroy_comp_channel, ibv_destroy_comp_channel, "IBVERBS_1.0", true) \
  X(create_cq, ibv_create_cq, "IBVERBS_1.1", true)                       \
  X(resize_cq, ibv_resize_cq, "IBVERBS_1.1", true)                       \
  X(destroy_cq, ibv_destroy_cq, "IBVERBS_1.1", true)                     \
  X(get_cq_event, ibv_get_cq_event, "IBVERBS_1.1", true)                 \
  X(ack_cq_events, ibv_ack_cq_events, "IBVERBS_1.1", true)               \
  X(create_srq, ibv_create_srq, "IBVERBS_1.1", true)                     \
  X(destroy_srq, ibv_destroy_srq, "IBVERBS_1.1", true)                   \
  X(create_qp, ibv_create_qp, "IBVERBS_1.1", true)                       \
  X(modify_qp, ibv_modify_qp, "IBVERBS_1.1", true)                       \
  X(query_qp, ibv_query_qp, "IBVERBS_1.1", true)                         \
  X(destroy_qp, ibv_destroy_qp, "IBVERBS_1.1", true)                     \
  X(qp_to_qp_ex, ibv_qp_to_qp_ex, "IBVERBS_1.6", false)                  \
  X(create_ah, ibv_create_ah, "IBVERBS_1.1", true)                       \
  X(destroy_ah, ibv_destroy_ah, "IBVERBS_1.1", true)                     \
  X(query_ece, ibv_query_ece, "IBVERBS_1.10", false)                     \
  X(set_ece, ibv_set_ece, "IBVERBS_1.10", false)                         \
  X(fork_init, ibv_fork_init, "IBVERBS_1.1", true)                       \
  X(node_type_str, ibv_node_type_str, "IBVERBS_1.1", true)               \
  X(port_state_str, ibv_port_state_str, "IBVERBS_1.1", true)             \
  X(event_type_str, ibv_event_type_str, "IBVERBS_1.1", true)             \
  X(wc_status_str, ibv_wc_status_str, "IBVERBS_1.1", true)

namespace railhop::conformance {

struct VerbsTable {
#define RAILHOP_VERBS_FIELD(field, symbol, version, required) decltype(&::symbol) field = nullptr;
  RAILHOP_VERBS_SYMBOLS(RAILHOP_VERBS_FIELD)
#undef RAILHOP_VERBS_FIELD

  // Inline in verbs.h. The optional ones return NULL with errno, or the errno value, where the
  // context has no such operation, exactly as the inline code does.
  int (*poll_cq)(ibv_cq*, int, ibv_wc*) = nullptr;
  int (*req_notify_cq)(ibv_cq*, int solicited_only) = nullptr;
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr** bad) = nullptr;
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr** bad) = nullptr;
  int (*post_srq_recv)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr** bad) = nullptr;
  int (*query_port)(ibv_context*, uint8_t port, ibv_port_attr*) = nullptr;
  int (*query_device_ex)(ibv_context*, ibv_device_attr_ex*) = nullptr;
  ibv_qp* (*create_qp_ex)(ibv_context*, ibv_qp_init_attr_ex*) = nullptr;
  ibv_cq_ex* (*create_cq_ex)(ibv_context*, ibv_cq_init_attr_ex*) = nullptr;

  // The world that the library lives in. now_ns never goes back; idle is called once in each turn
  // of a waiting loop: it yields the processor, or moves a simulator's clock on.
  uint64_t (*now_ns)() = nullptr;
  void (*idle)() = nullptr;
  // Puts a fault into a world of this process, in the fault command's words; null: the fault
  // command does it. False: *error says why not.
  bool (*fault)(const std::string& device, const std::string& words, std::string* error) = nullptr;
};

// Fills the entries that are inline code in verbs.h, and a real clock.
void FillInlineVerbs(VerbsTable* table);

// Loads `path` ("libibverbs.so.1" searches as the dynamic linker does) and fills `table`. The
// library stays loaded. Errors: false with `error` naming the file, or the first required symbol
// that is missing.
bool LoadVerbsTable(const std::string& path, VerbsTable* table, std::string* error);

}  // namespace railhop::conformance

#endif  // RAILHOP_INTEGRATION_VERBS_VERBS_TABLE_H_
