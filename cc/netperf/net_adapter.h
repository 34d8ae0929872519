// One class for each version of NCCL's net plugin ABI, over the interface of net_plugin.h.
//
// A class is made from the version's number: what changed from version to version is stated once,
// as a condition on the number, next to the call that changed.
#ifndef RAILHOP_CC_NETPERF_NET_ADAPTER_H_
#define RAILHOP_CC_NETPERF_NET_ADAPTER_H_

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <vector>

#include "cc/netperf/net_plugin.h"
#include "cc/netperf/net_v7.h"
#include "cc/plugin/nccl/net_v10.h"
#include "cc/plugin/nccl/net_v11.h"
#include "cc/plugin/nccl/net_v12.h"
#include "cc/plugin/nccl/net_v6.h"
#include "cc/plugin/nccl/net_v8.h"
#include "cc/plugin/nccl/net_v9.h"

namespace railhop::netperf {

// What the plugin exports as ncclNetPlugin_v<N>, and what its getProperties fills.
template <int kVersion>
struct NetAbi;
template <>
struct NetAbi<6> {
  using Table = nccl::NetV6;
  using Properties = nccl::PropertiesV6;
};
template <>
struct NetAbi<7> {
  using Table = NetV7;
  using Properties = PropertiesV7;
};
template <>
struct NetAbi<8> {
  using Table = nccl::NetV8;
  using Properties = nccl::PropertiesV8;
};
template <>
struct NetAbi<9> {
  using Table = nccl::NetV9;
  using Properties = nccl::PropertiesV9;
  using Fused = nccl::FusedV9;
};
template <>
struct NetAbi<10> {
  using Table = nccl::NetV10;
  using Properties = nccl::PropertiesV10;
  using Fused = nccl::FusedV10;
};
template <>
struct NetAbi<11> {
  using Table = nccl::NetV11;
  using Properties = nccl::PropertiesV11;
  using Fused = nccl::FusedV11;
};
template <>
struct NetAbi<12> {
  using Table = nccl::NetV12;
  using Properties = nccl::PropertiesV12;
  using Fused = nccl::FusedV12;
};

// Owns the library that `table` lies in (dlclose at the end).
template <int kVersion>
class NetAdapter : public NetPlugin {
 public:
  using Table = typename NetAbi<kVersion>::Table;

  NetAdapter(void* library, const void* table, nccl::Logger logger)
      : library_(library), table_(*static_cast<const Table*>(table)), logger_(logger) {}
  ~NetAdapter() override { dlclose(library_); }

  int version() const override { return kVersion; }
  const char* name() const override { return table_.name; }

  NetResult Init() override {
    if constexpr (kVersion >= 11) {
      return table_.init(&context_, kCommunicator, &config_, logger_, &NoProfiler);
    } else if constexpr (kVersion == 10) {
      return table_.init(logger_, &NoProfiler);
    } else {
      return table_.init(logger_);
    }
  }

  NetResult Devices(int* count) override { return table_.devices(count); }

  NetResult Properties(int device, NetDevice* out) override {
    typename NetAbi<kVersion>::Properties properties = {};
    const NetResult result = table_.get_properties(device, &properties);
    if (result != kNetSuccess) return result;
    out->name = properties.name == nullptr ? "" : properties.name;
    out->pci_path = properties.pci_path == nullptr ? "" : properties.pci_path;
    out->guid = properties.guid;
    out->speed_mbps = properties.speed_mbps;
    out->port = properties.port;
    out->max_recvs = properties.max_recvs;
    out->max_comms = properties.max_comms;
    out->ptr_support = properties.ptr_support;
    return result;
  }

  NetResult Fuse(const std::vector<int>& devices, int* fused) override {
    if constexpr (kVersion >= 9) {
      typename NetAbi<kVersion>::Fused parts = {};
      if (table_.make_v_device == nullptr || devices.size() > std::size(parts.devs)) {
        return kNetInternalError;
      }
      for (const int device : devices) parts.devs[parts.count++] = device;
      return table_.make_v_device(fused, &parts);
    } else {
      return kNetInternalError;
    }
  }

  NetResult Listen(int device, void* handle, void** listener) override {
    if constexpr (kVersion >= 11) {
      return table_.listen(context_, device, handle, listener);
    } else {
      return table_.listen(device, handle, listener);
    }
  }

  NetResult Connect(int device, void* handle, void** send_comm) override {
    [[maybe_unused]] nccl::DeviceHandle* on_gpu = nullptr;
    if constexpr (kVersion >= 11) {
      return table_.connect(context_, device, handle, send_comm, &on_gpu);
    } else if constexpr (kVersion == 10) {
      return table_.connect(device, &config_, handle, send_comm, &on_gpu);
    } else if constexpr (kVersion >= 7) {
      return table_.connect(device, handle, send_comm, &on_gpu);
    } else {
      return table_.connect(device, handle, send_comm);
    }
  }

  NetResult Accept(void* listener, void** recv_comm) override {
    [[maybe_unused]] nccl::DeviceHandle* on_gpu = nullptr;
    if constexpr (kVersion >= 7) {
      return table_.accept(listener, recv_comm, &on_gpu);
    } else {
      return table_.accept(listener, recv_comm);
    }
  }

  NetResult Register(void* comm, void* data, size_t size, void** memory) override {
    using Size = std::conditional_t<(kVersion >= 8), size_t, int>;
    return table_.reg_mr(comm, data, static_cast<Size>(size), nccl::kPtrHost, memory);
  }

  NetResult Deregister(void* comm, void* memory) override { return table_.dereg_mr(comm, memory); }

  NetResult Send(void* comm, void* data, size_t size, int tag, void* memory,
                 void** request) override {
    if constexpr (kVersion >= 10) {
      return table_.isend(comm, data, size, tag, memory, nullptr, request);
    } else {
      return table_.isend(comm, data, static_cast<Bytes>(size), tag, memory, request);
    }
  }

  NetResult Receive(void* comm, int n, void** data, const size_t* sizes, const int* tags,
                    void** memories, void** request) override {
    // Copies: a plugin may write to what it is given.
    Bytes own_sizes[kGroupMax];
    int own_tags[kGroupMax];
    for (int i = 0; i < n; ++i) {
      own_sizes[i] = static_cast<Bytes>(sizes[i]);
      own_tags[i] = tags[i];
    }
    if constexpr (kVersion >= 10) {
      void* profiler_handles[kGroupMax] = {};
      return table_.irecv(comm, n, data, own_sizes, own_tags, memories, profiler_handles, request);
    } else {
      return table_.irecv(comm, n, data, own_sizes, own_tags, memories, request);
    }
  }

  NetResult Test(void* request, int* done, int* sizes) override {
    return table_.test(request, done, sizes);
  }
  NetResult CloseSend(void* comm) override { return table_.close_send(comm); }
  NetResult CloseRecv(void* comm) override { return table_.close_recv(comm); }
  NetResult CloseListen(void* comm) override { return table_.close_listen(comm); }

  NetResult Finalize() override {
    if constexpr (kVersion >= 11) return table_.finalize(context_);
    return kNetSuccess;
  }

 private:
  using Bytes = std::conditional_t<(kVersion >= 9), size_t, int>;  // of isend and irecv
  static constexpr uint64_t kCommunicator = 0x6e65747065726600;

  static nccl::Result NoProfiler(void**, int, void*, int64_t, void*) { return nccl::kSuccess; }

  void* const library_;
  const Table& table_;
  const nccl::Logger logger_;
  void* context_ = nullptr;
  nccl::CommConfig config_ = {.traffic_class = nccl::kUndefined};
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_NET_ADAPTER_H_
