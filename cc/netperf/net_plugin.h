// Any NCCL net plugin, loaded by path and driven as NCCL drives it, whichever of the API versions 6
// to 12 it has.
//
// net_adapter.h converts each version to the calls below. Results are NCCL's numbers: 0 is success.
// As with NCCL, a call that gives success and no object (a null connection or request) is to be
// made again.
#ifndef RAILHOP_CC_NETPERF_NET_PLUGIN_H_
#define RAILHOP_CC_NETPERF_NET_PLUGIN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace railhop::netperf {

inline constexpr size_t kHandleBytes = 128;  // NCCL_NET_HANDLE_MAXSIZE
inline constexpr int kGroupMax = 8;          // receives in one irecv
inline constexpr int kInFlightMax = 32;      // NCCL_NET_MAX_REQUESTS
inline constexpr int kApiMin = 6;
inline constexpr int kApiMax = 12;

// ncclResult_t.
using NetResult = int;
inline constexpr NetResult kNetSuccess = 0;
inline constexpr NetResult kNetInternalError = 3;

// "ncclSystemError" and so on, for messages.
const char* NetResultName(NetResult result);

struct NetDevice {
  std::string name;
  std::string pci_path;
  uint64_t guid = 0;
  int speed_mbps = 0;
  int port = 0;
  int max_recvs = 1;
  int max_comms = 0;
  int ptr_support = 0;
};

// Thread: one at a time, as NCCL's progress thread. Every object pointer comes from the plugin.
class NetPlugin {
 public:
  virtual ~NetPlugin() = default;

  virtual int version() const = 0;
  virtual const char* name() const = 0;
  virtual NetResult Init() = 0;
  virtual NetResult Devices(int* count) = 0;
  virtual NetResult Properties(int device, NetDevice* properties) = 0;
  // Fuses devices into one; its number is returned. kNetInternalError where the version cannot.
  virtual NetResult Fuse(const std::vector<int>& devices, int* fused) = 0;
  virtual NetResult Listen(int device, void* handle, void** listener) = 0;
  virtual NetResult Connect(int device, void* handle, void** send_comm) = 0;
  virtual NetResult Accept(void* listener, void** recv_comm) = 0;
  virtual NetResult Register(void* comm, void* data, size_t size, void** memory) = 0;
  virtual NetResult Deregister(void* comm, void* memory) = 0;
  virtual NetResult Send(void* comm, void* data, size_t size, int tag, void* memory,
                         void** request) = 0;
  // n <= kGroupMax.
  virtual NetResult Receive(void* comm, int n, void** data, const size_t* sizes, const int* tags,
                            void** memories, void** request) = 0;
  virtual NetResult Test(void* request, int* done, int* sizes) = 0;
  virtual NetResult CloseSend(void* comm) = 0;
  virtual NetResult CloseRecv(void* comm) = 0;
  virtual NetResult CloseListen(void* comm) = 0;
  virtual NetResult Finalize() = 0;  // before version 11: nothing to call
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_NET_PLUGIN_H_
