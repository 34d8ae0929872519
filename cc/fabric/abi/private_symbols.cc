// What rdma-core's provider libraries and programs import from libibverbs besides the public
// functions.
//
// They must find every one of them to load, and reach almost none, as no device is a provider's.
// Only ibv_devinfo and its like call the two that work. Linked into the shared library alone: an
// executable has no version nodes.
#include <cerrno>
#include <cstddef>
#include <iterator>

#include "cc/fabric/abi/objects.h"

// Exports railhop_private_<name> as <name> in every node of private symbols: rdma-core renames the
// node when any of them changes, and a provider library of any age must load. N by rdma-core: 25
// (v28), 34 (v34 to v56), 57, 59 (v60 to v63), 64.
#define RAILHOP_PRIVATE_VERSIONS(name)                                        \
  __asm__(".symver railhop_private_" #name "," #name "@@IBVERBS_PRIVATE_34"); \
  __asm__(".symver railhop_private_" #name "," #name "@IBVERBS_PRIVATE_25");  \
  __asm__(".symver railhop_private_" #name "," #name "@IBVERBS_PRIVATE_57");  \
  __asm__(".symver railhop_private_" #name "," #name "@IBVERBS_PRIVATE_59");  \
  __asm__(".symver railhop_private_" #name "," #name "@IBVERBS_PRIVATE_64");

#define PRIVATE(kind, name) RAILHOP_PRIVATE_##kind(name)
#define RAILHOP_PRIVATE_INT(name)                  \
  RAILHOP_EXPORT int railhop_private_##name(void); \
  int railhop_private_##name(void) {               \
    errno = EOPNOTSUPP;                            \
    return EOPNOTSUPP;                             \
  }                                                \
  RAILHOP_PRIVATE_VERSIONS(name)
#define RAILHOP_PRIVATE_POINTER(name)                \
  RAILHOP_EXPORT void* railhop_private_##name(void); \
  void* railhop_private_##name(void) {               \
    errno = EOPNOTSUPP;                              \
    return nullptr;                                  \
  }                                                  \
  RAILHOP_PRIVATE_VERSIONS(name)
// Called by the constructors of provider libraries, and by those that log: succeeds without a word.
#define RAILHOP_PRIVATE_NOTHING(name)               \
  RAILHOP_EXPORT void railhop_private_##name(void); \
  void railhop_private_##name(void) {}              \
  RAILHOP_PRIVATE_VERSIONS(name)
// A variable.
#define RAILHOP_PRIVATE_FLAG(name)            \
  RAILHOP_EXPORT bool railhop_private_##name; \
  bool railhop_private_##name = false;        \
  RAILHOP_PRIVATE_VERSIONS(name)

#include "cc/fabric/abi/private_symbols.inc"

namespace {

constexpr const char* kOpcodeNames[] = {
    "write",
    "write with immediate",
    "send",
    "send with immediate",
    "read",
    "compare and swap",
    "fetch and add",
    "local invalidate",
    "bind memory window",
    "send with invalidate",
    "TSO",
    "driver",
};

}  // namespace

RAILHOP_EXPORT int railhop_private_ibv_query_gid_type(ibv_context* context, uint8_t port,
                                                      unsigned int index, int* type) {
  return railhop::fabric::abi::QueryGidType(context, port, index, type);
}
RAILHOP_PRIVATE_VERSIONS(ibv_query_gid_type)

RAILHOP_EXPORT const char* railhop_private_ibv_wr_opcode_str(int opcode) {
  const bool known = opcode >= 0 && static_cast<size_t>(opcode) < std::size(kOpcodeNames);
  return known ? kOpcodeNames[opcode] : "unknown";
}
RAILHOP_PRIVATE_VERSIONS(ibv_wr_opcode_str)
