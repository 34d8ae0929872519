// What all versions of NCCL's net plugin ABI share: result codes, the logger, kinds of memory.
//
// Facts of the binary interface, in words of our own; each number has its source. Names follow this
// project, since nothing here is compiled together with NCCL.
#ifndef RAILHOP_CC_PLUGIN_NCCL_TYPES_H_
#define RAILHOP_CC_PLUGIN_NCCL_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace railhop::nccl {

static_assert(sizeof(void*) == 8 && sizeof(int) == 4 && sizeof(float) == 4,
              "the layouts are those of x86-64 Linux");

// What every function returns. Source: NCCL v2.30.7-1 src/nccl.h.in; 0 to 5 since v2.13,
// kRemoteError since v2.13, later codes are not returned by plugins.
enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
};

// Levels and subsystems of the logger. Source: NCCL v2.30.7-1 src/include/nccl_common.h.
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr int kLogTrace = 5;
inline constexpr unsigned long kSubsystemInit = 0x1;
inline constexpr unsigned long kSubsystemNet = 0x10;

// printf-like; thread-safe.
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);

// Not called by this plugin. Source: as above; since v10.
using ProfilerCallback = Result (*)(void** event, int type, void* parent, int64_t plugin_id,
                                    void* extra);

// Bits of ptr_support and values of regMr's `type`. Source: NCCL v2.30.7-1
// src/include/plugin/nccl_net.h.
inline constexpr int kPtrHost = 0x1;
inline constexpr int kPtrCuda = 0x2;
inline constexpr int kPtrDmaBuf = 0x4;

// Room for what listen hands to the peer's connect. Source: same file.
inline constexpr int kHandleBytes = 128;
// Requests outstanding on one comm. Source: same file.
inline constexpr int kRequestsMax = 32;
// What *request may hold when irecv of v9 or later is called: completion is wanted only if it is
// cheap. Source: same file.
inline constexpr uintptr_t kOptionalReceiveCompletion = 0x1;
// Not given: traffic class, attribute, rail or plane. Source: net_v10.h, net_v12.h of v2.30.7-1.
inline constexpr int kUndefined = -1;

// netDeviceType of a network that does not run on the GPU. Source: NCCL v2.30.7-1
// src/include/nccl_device/net_device.h.
inline constexpr int kNetDeviceHost = 0;
inline constexpr int kNetDeviceNoVersion = 0;

// For networks that run on the GPU; this one leaves it alone. Source: same file, since v7.
struct DeviceHandle;

}  // namespace railhop::nccl

#endif  // RAILHOP_CC_PLUGIN_NCCL_TYPES_H_
