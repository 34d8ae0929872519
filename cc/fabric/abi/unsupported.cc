// Everything of the verbs ABI that this NIC does not have: it fails with EOPNOTSUPP and touches
// nothing.
//
// Three kinds: operations that inline functions of the header call through a context, mostly
// without asking whether they are there; public functions; and functions that rdma-core's provider
// libraries import and never reach, as no device is theirs (private_symbols.inc).
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cc/fabric/abi/objects.h"

namespace railhop::fabric::abi {
namespace {

// A function of any signature that fails the way its result type fails.
template <typename Function>
struct Refusal;
template <typename Result, typename... Arguments>
struct Refusal<Result (*)(Arguments...)> {
  static Result Call(Arguments...) {
    errno = EOPNOTSUPP;
    if constexpr (std::is_pointer_v<Result>) return nullptr;
    if constexpr (std::is_integral_v<Result>) return static_cast<Result>(EOPNOTSUPP);
  }
};

template <typename Function>
void Refuse(Function& operation) {
  operation = Refusal<Function>::Call;
}

}  // namespace

void FillUnsupported(verbs_context* context) {
  ibv_context_ops& ops = context->context.ops;
  Refuse(ops._compat_query_device);
  Refuse(ops._compat_query_port);
  Refuse(ops._compat_alloc_pd);
  Refuse(ops._compat_dealloc_pd);
  Refuse(ops._compat_reg_mr);
  Refuse(ops._compat_rereg_mr);
  Refuse(ops._compat_dereg_mr);
  Refuse(ops.alloc_mw);
  Refuse(ops.bind_mw);
  Refuse(ops.dealloc_mw);
  Refuse(ops._compat_create_cq);
  Refuse(ops.poll_cq);
  Refuse(ops.req_notify_cq);
  Refuse(ops._compat_cq_event);
  Refuse(ops._compat_resize_cq);
  Refuse(ops._compat_destroy_cq);
  Refuse(ops._compat_create_srq);
  Refuse(ops._compat_modify_srq);
  Refuse(ops._compat_query_srq);
  Refuse(ops._compat_destroy_srq);
  Refuse(ops.post_srq_recv);
  Refuse(ops._compat_create_qp);
  Refuse(ops._compat_query_qp);
  Refuse(ops._compat_modify_qp);
  Refuse(ops._compat_destroy_qp);
  Refuse(ops.post_send);
  Refuse(ops.post_recv);
  Refuse(ops._compat_create_ah);
  Refuse(ops._compat_destroy_ah);
  Refuse(ops._compat_attach_mcast);
  Refuse(ops._compat_detach_mcast);
  Refuse(ops._compat_async_event);

  Refuse(context->query_port);
  Refuse(context->advise_mr);
  Refuse(context->alloc_null_mr);
  Refuse(context->read_counters);
  Refuse(context->attach_counters_point_flow);
  Refuse(context->create_counters);
  Refuse(context->destroy_counters);
  Refuse(context->reg_dm_mr);
  Refuse(context->alloc_dm);
  Refuse(context->free_dm);
  Refuse(context->modify_flow_action_esp);
  Refuse(context->destroy_flow_action);
  Refuse(context->create_flow_action_esp);
  Refuse(context->modify_qp_rate_limit);
  Refuse(context->alloc_parent_domain);
  Refuse(context->dealloc_td);
  Refuse(context->alloc_td);
  Refuse(context->modify_cq);
  Refuse(context->post_srq_ops);
  Refuse(context->destroy_rwq_ind_table);
  Refuse(context->create_rwq_ind_table);
  Refuse(context->destroy_wq);
  Refuse(context->modify_wq);
  Refuse(context->create_wq);
  Refuse(context->query_rt_values);
  Refuse(context->create_cq_ex);
  Refuse(context->query_device_ex);
  Refuse(context->ibv_destroy_flow);
  Refuse(context->ibv_create_flow);
  Refuse(context->open_qp);
  Refuse(context->create_qp_ex);
  Refuse(context->get_srq_num);
  Refuse(context->create_srq_ex);
  Refuse(context->open_xrcd);
  Refuse(context->close_xrcd);
}

}  // namespace railhop::fabric::abi

// ---- Public functions ----

RAILHOP_EXPORT ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
RAILHOP_EXPORT int ibv_fork_init(void) {
  return 0;
}  // nothing is pinned, so nothing must be kept from a child

RAILHOP_EXPORT int ibv_dontfork_range(void*, size_t) { return 0; }
RAILHOP_EXPORT int ibv_dofork_range(void*, size_t) { return 0; }

// The header declares these with their arguments, which do not matter here; hence a name of our own
// in C++ and the public one only for the linker.
#define RAILHOP_REFUSE(type, name, value)                         \
  RAILHOP_EXPORT type railhop_refuse_##name(void) __asm__(#name); \
  type railhop_refuse_##name(void) {                              \
    errno = EOPNOTSUPP;                                           \
    return value;                                                 \
  }
#define RAILHOP_REFUSE_POINTER(name) RAILHOP_REFUSE(void*, name, nullptr)
#define RAILHOP_REFUSE_INT(name) RAILHOP_REFUSE(int, name, EOPNOTSUPP)
#define RAILHOP_REFUSE_MINUS_ONE(name) RAILHOP_REFUSE(int, name, -1)

RAILHOP_REFUSE_INT(ibv_copy_path_rec_from_kern)
RAILHOP_REFUSE_INT(ibv_copy_path_rec_to_kern)
RAILHOP_REFUSE_INT(ibv_copy_qp_attr_from_kern)
RAILHOP_REFUSE_INT(ibv_copy_ah_attr_from_kern)
RAILHOP_REFUSE_INT(ibv_register_driver)
RAILHOP_REFUSE_POINTER(ibv_create_srq)
RAILHOP_REFUSE_INT(ibv_modify_srq)
RAILHOP_REFUSE_INT(ibv_query_srq)
RAILHOP_REFUSE_INT(ibv_destroy_srq)
RAILHOP_REFUSE_POINTER(ibv_create_ah)
RAILHOP_REFUSE_POINTER(ibv_create_ah_from_wc)
RAILHOP_REFUSE_INT(ibv_init_ah_from_wc)
RAILHOP_REFUSE_INT(ibv_destroy_ah)
RAILHOP_REFUSE_INT(ibv_attach_mcast)
RAILHOP_REFUSE_INT(ibv_detach_mcast)
RAILHOP_REFUSE_MINUS_ONE(ibv_resolve_eth_l2_from_gid)
RAILHOP_REFUSE_POINTER(ibv_import_device)
RAILHOP_REFUSE_POINTER(ibv_import_mr)
RAILHOP_REFUSE_POINTER(ibv_import_pd)
RAILHOP_REFUSE_INT(ibv_unimport_mr)
RAILHOP_REFUSE_INT(ibv_unimport_pd)
RAILHOP_REFUSE_POINTER(ibv_import_dm)
RAILHOP_REFUSE_INT(ibv_unimport_dm)
RAILHOP_REFUSE_POINTER(ibv_alloc_dmah)
RAILHOP_REFUSE_INT(ibv_dealloc_dmah)
RAILHOP_REFUSE_POINTER(ibv_reg_mr_ex)
RAILHOP_REFUSE_MINUS_ONE(ibv_dm_export_dmabuf_fd)
RAILHOP_REFUSE_POINTER(ibv_alloc_buf)
RAILHOP_REFUSE_INT(ibv_free_buf)
RAILHOP_REFUSE_POINTER(ibv_reg_buf_mr)
