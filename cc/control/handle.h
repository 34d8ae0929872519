// The 128 bytes that a listener gives NCCL and that reach the peer's connect: where to call, and
// the secret that proves who was meant.
//
// The first 72 bytes are what NCCL's own IB transport would have there (address, its 64-bit number,
// zeros where it keeps its state), so that a peer which runs that transport calls us, says the
// number and can be told apart from a port scanner; it then gets an orderly end instead of a hang.
#ifndef RAILHOP_CC_CONTROL_HANDLE_H_
#define RAILHOP_CC_CONTROL_HANDLE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "cc/control/socket_address.h"

namespace railhop::control {

inline constexpr size_t kSecretBytes = 24;
using Secret = std::array<uint8_t, kSecretBytes>;

inline constexpr uint64_t kHandleMark = 0x31504f484c494152;  // "RAILHOP1"

struct Handle {
  SocketAddress address;
  uint16_t protocol_version;  // of the listener
  uint16_t reserved;
  uint64_t foreign_number;  // what NCCL's own transport would say first; random
  // The connecting end's own: 0 as it comes from the listener.
  uint64_t attempt;
  uint8_t zeros[24];
  uint64_t mark;  // kHandleMark
  uint64_t listener_id;
  Secret secret;
  uint8_t devices;         // of the listener's net device, 1..8
  uint8_t qps_per_device;  // that the listener wants, 1..128
  uint8_t padding[14];
};
static_assert(sizeof(Handle) == 128);
static_assert(offsetof(Handle, foreign_number) == 32);
static_assert(offsetof(Handle, attempt) == 40);
static_assert(offsetof(Handle, mark) == 72);
static_assert(offsetof(Handle, secret) == 88);
static_assert(offsetof(Handle, devices) == 112);

enum class HandleKind : uint8_t {
  kOurs,
  kNcclIb,   // NCCL's own IB transport, as far as one can tell
  kUnknown,  // neither
};

HandleKind ClassifyHandle(const Handle& handle);

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_HANDLE_H_
