// <infiniband/verbs.h> for those who define its functions instead of calling them.
//
// The header replaces some functions by macros; a definition needs the plain names. Sizes and
// values that the rest of this folder relies on are asserted in layout_asserts.h.
#ifndef RAILHOP_CC_FABRIC_ABI_VERBS_HEADER_H_
#define RAILHOP_CC_FABRIC_ABI_VERBS_HEADER_H_

#include <infiniband/verbs.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// Puts a function of the verbs ABI into the library's dynamic symbol table; libibverbs.lds gives it
// its version.
#define RAILHOP_EXPORT extern "C" __attribute__((visibility("default")))

// Exports railhop_private_<name> as <name> in every node of private symbols: rdma-core renames the
// node when any of them changes, and a provider library of any age must load. N by rdma-core: 25
// (v28), 34 (v34 to v56), 57, 59 (v60 to v63), 64.
#define RAILHOP_PRIVATE_VERSIONS(name)                                        \
  __asm__(".symver railhop_private_" #name "," #name "@@IBVERBS_PRIVATE_34"); \
  __asm__(".symver railhop_private_" #name "," #name "@IBVERBS_PRIVATE_25");  \
  __asm__(".symver railhop_private_" #name "," #name "@IBVERBS_PRIVATE_57");  \
  __asm__(".symver railhop_private_" #name "," #name "@IBVERBS_PRIVATE_59");  \
  __asm__(".symver railhop_private_" #name "," #name "@IBVERBS_PRIVATE_64");

#endif  // RAILHOP_CC_FABRIC_ABI_VERBS_HEADER_H_
