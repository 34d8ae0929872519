// <infiniband/verbs.h> for those who define its functions instead of calling them.
//
// The header replaces some functions by macros; a definition needs the plain names. Sizes and
// values that the rest of this folder relies on are asserted in layout_asserts.h.
#ifndef RAILHOP_CC_FABRIC_ABI_VERBS_HEADER_H_
#define RAILHOP_CC_FABRIC_ABI_VERBS_HEADER_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// Puts a function of the verbs ABI into the library's dynamic symbol table; libibverbs.lds gives it
// its version.
#define RAILHOP_EXPORT extern "C" __attribute__((visibility("default")))

namespace railhop::fabric::abi {

// The value of an enum that a program set, which may be any: C++ has no such values of an enum
// type.
template <typename Enum>
uint32_t Raw(const Enum& value) {
  static_assert(sizeof(value) == sizeof(uint32_t));
  uint32_t raw;
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

}  // namespace railhop::fabric::abi

#endif  // RAILHOP_CC_FABRIC_ABI_VERBS_HEADER_H_
