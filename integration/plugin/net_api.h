// Any NCCL net plugin behind one interface, whatever its version: dlopen, look the table up, call
// by its layout. Built from cc/plugin/nccl alone, as a program that knows nothing else of the
// plugin.
#ifndef RAILHOP_INTEGRATION_PLUGIN_NET_API_H_
#define RAILHOP_INTEGRATION_PLUGIN_NET_API_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/plugin/nccl/types.h"

namespace railhop::integration {

// The versions that have a NetApi.
inline constexpr int kVersions[] = {6, 8, 9, 10, 11, 12};

struct Properties {
  std::string name;
  std::string pci_path;  // "" if null
  uint64_t guid = 0;
  int ptr_support = 0;
  int speed_mbps = 0;
  int port = 0;
  int max_comms = 0;
  int max_recvs = 0;
  // What a version does not have keeps these.
  int reg_is_global = -1;
  std::vector<int> fused;
  int rail = -1;
  int plane = -1;
};

// The table's functions with the newest signatures. Results are the plugin's own.
class NetApi {
 public:
  // Null if the library or the symbol is not there; *error says which.
  static std::unique_ptr<NetApi> Load(const std::string& path, int version, std::string* error);
  virtual ~NetApi() = default;

  virtual std::string name() const = 0;
  // Slots that must not be null and are.
  virtual std::vector<std::string> MissingSlots() const = 0;
  virtual nccl::Result Init(int traffic_class) = 0;
  // Success at once where the version has none.
  virtual nccl::Result Finalize() = 0;
  virtual nccl::Result Devices(int* count) = 0;
  virtual nccl::Result GetProperties(int dev, Properties* properties) = 0;
  virtual nccl::Result Listen(int dev, void* handle, void** comm) = 0;
  virtual nccl::Result Connect(int dev, void* handle, void** comm) = 0;
  virtual nccl::Result Accept(void* listen, void** comm) = 0;
  virtual nccl::Result RegMr(void* comm, void* data, size_t size, int type, void** memory) = 0;
  virtual nccl::Result RegMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset,
                                   int fd, void** memory) = 0;
  virtual nccl::Result DeregMr(void* comm, void* memory) = 0;
  virtual nccl::Result ISend(void* comm, void* data, size_t size, int tag, void* memory,
                             void** request) = 0;
  // n at most 16.
  virtual nccl::Result IRecv(void* comm, int n, void** data, const size_t* sizes, int* tags,
                             void** memories, void** request) = 0;
  virtual nccl::Result IFlush(void* comm, int n, void** data, int* sizes, void** memories,
                              void** request) = 0;
  virtual nccl::Result Test(void* request, int* done, int* sizes) = 0;
  virtual nccl::Result CloseSend(void* comm) = 0;
  virtual nccl::Result CloseRecv(void* comm) = 0;
  virtual nccl::Result CloseListen(void* comm) = 0;
  virtual bool HasVirtualDevices() const = 0;
  virtual nccl::Result MakeVDevice(int* dev, const std::vector<int>& devices) = 0;
};

}  // namespace railhop::integration

#endif  // RAILHOP_INTEGRATION_PLUGIN_NET_API_H_
