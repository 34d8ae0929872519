// The network of loopback.h as a NCCL net plugin: tables of versions 6 to 12 over one set of calls.
#include <cstddef>
#include <cstdint>

#include "cc/netperf/net_adapter.h"
#include "cc/netperf/testdata/loopback.h"

namespace railhop::netperf {
namespace {

using nccl::Result;

template <typename T>
T* Of(void* object) {
  return static_cast<T*>(object);
}
template <typename T>
T** Out(void** object) {
  return reinterpret_cast<T**>(object);
}
Result Give(int result) { return static_cast<Result>(result); }

char g_name[] = "loop0";

template <typename Properties>
Result GetProperties(int dev, Properties* properties) {
  if (dev < 0 || dev > loopback::kDevices) return nccl::kInvalidArgument;
  *properties = {};
  properties->name = g_name;
  properties->ptr_support = nccl::kPtrHost;
  properties->speed_mbps = 10000;
  properties->max_comms = 1024;
  properties->max_recvs = loopback::kGroupMax;
  return nccl::kSuccess;
}

template <typename Bytes>
Result ReceiveAny(void* comm, int n, void** data, Bytes* sizes, int* tags, void** request) {
  size_t own[loopback::kGroupMax] = {};
  for (int i = 0; i < n; ++i) own[i] = static_cast<size_t>(sizes[i]);
  return Give(loopback::Receive(Of<loopback::Connection>(comm), n, data, own, tags,
                                Out<loopback::Request>(request)));
}

Result Dereg(void*, void*) { return nccl::kSuccess; }

// What no version changed.
template <int kVersion>
typename NetAbi<kVersion>::Table Common() {
  using Properties = typename NetAbi<kVersion>::Properties;
  using Bytes = std::conditional_t<(kVersion >= 8), size_t, int>;
  typename NetAbi<kVersion>::Table table = {};
  table.name = "Loopback";
  table.devices = [](int* count) { return Give(loopback::Devices(count)); };
  table.get_properties = &GetProperties<Properties>;
  table.reg_mr = [](void*, void* data, Bytes, int, void** mhandle) {
    *mhandle = data;
    return nccl::kSuccess;
  };
  table.dereg_mr = &Dereg;
  table.test = [](void* request, int* done, int* sizes) {
    return Give(loopback::Test(Of<loopback::Request>(request), done, sizes));
  };
  table.close_send = [](void* comm) {
    return Give(loopback::Close(Of<loopback::Connection>(comm), false));
  };
  table.close_recv = [](void* comm) {
    return Give(loopback::Close(Of<loopback::Connection>(comm), true));
  };
  table.close_listen = [](void* comm) {
    return Give(loopback::CloseListener(Of<loopback::Listener>(comm)));
  };
  return table;
}

Result Listen(int, void* handle, void** comm) {
  return Give(loopback::Listen(handle, Out<loopback::Listener>(comm)));
}
Result Connect(void* handle, void** comm) {
  return Give(loopback::Connect(handle, Out<loopback::Connection>(comm)));
}
Result Accept(void* listener, void** comm) {
  return Give(loopback::Accept(Of<loopback::Listener>(listener), Out<loopback::Connection>(comm)));
}
Result Accept7(void* listener, void** comm, nccl::DeviceHandle**) { return Accept(listener, comm); }
Result Connect7(int, void* handle, void** comm, nccl::DeviceHandle**) {
  return Connect(handle, comm);
}

template <typename Bytes>
Result Send(void* comm, void* data, Bytes size, int tag, void*, void** request) {
  return Give(loopback::Send(Of<loopback::Connection>(comm), data, static_cast<size_t>(size), tag,
                             Out<loopback::Request>(request)));
}
Result Send10(void* comm, void* data, size_t size, int tag, void* mhandle, void*, void** request) {
  return Send<size_t>(comm, data, size, tag, mhandle, request);
}
template <typename Bytes>
Result Receive(void* comm, int n, void** data, Bytes* sizes, int* tags, void**, void** request) {
  return ReceiveAny(comm, n, data, sizes, tags, request);
}
Result Receive10(void* comm, int n, void** data, size_t* sizes, int* tags, void**, void**,
                 void** request) {
  return ReceiveAny(comm, n, data, sizes, tags, request);
}

template <typename Fused>
Result Fuse(int* dev, Fused*) {
  *dev = loopback::kDevices;
  return nccl::kSuccess;
}

template <int kVersion>
typename NetAbi<kVersion>::Table Early() {
  auto table = Common<kVersion>();
  table.init = [](nccl::Logger) { return Give(loopback::Init()); };
  table.listen = &Listen;
  if constexpr (kVersion == 6) {
    table.connect = [](int, void* handle, void** comm) { return Connect(handle, comm); };
    table.accept = &Accept;
  } else {
    table.connect = &Connect7;
    table.accept = &Accept7;
  }
  using Bytes = std::conditional_t<(kVersion >= 9), size_t, int>;
  table.isend = &Send<Bytes>;
  table.irecv = &Receive<Bytes>;
  if constexpr (kVersion == 9) table.make_v_device = &Fuse<nccl::FusedV9>;
  return table;
}

nccl::NetV10 Table10() {
  auto table = Common<10>();
  table.init = [](nccl::Logger, nccl::ProfilerCallback) { return Give(loopback::Init()); };
  table.listen = &Listen;
  table.connect = [](int, nccl::CommConfig*, void* handle, void** comm, nccl::DeviceHandle**) {
    return Connect(handle, comm);
  };
  table.accept = &Accept7;
  table.isend = &Send10;
  table.irecv = &Receive10;
  table.make_v_device = &Fuse<nccl::FusedV10>;
  return table;
}

int g_context;

template <int kVersion>
typename NetAbi<kVersion>::Table Late() {
  auto table = Common<kVersion>();
  table.init = [](void** context, uint64_t, nccl::CommConfig*, nccl::Logger,
                  nccl::ProfilerCallback) {
    *context = &g_context;
    return Give(loopback::Init());
  };
  table.listen = [](void* context, int dev, void* handle, void** comm) {
    return context == &g_context ? Listen(dev, handle, comm) : nccl::kInvalidArgument;
  };
  table.connect = [](void* context, int, void* handle, void** comm, nccl::DeviceHandle**) {
    return context == &g_context ? Connect(handle, comm) : nccl::kInvalidArgument;
  };
  table.accept = &Accept7;
  table.isend = &Send10;
  table.irecv = &Receive10;
  table.make_v_device = &Fuse<typename NetAbi<kVersion>::Fused>;
  table.finalize = [](void* context) {
    return context == &g_context ? nccl::kSuccess : nccl::kInvalidArgument;
  };
  return table;
}

}  // namespace
}  // namespace railhop::netperf

#define RAILHOP_EXPORT extern "C" __attribute__((visibility("default")))
RAILHOP_EXPORT railhop::nccl::NetV6 ncclNetPlugin_v6;
RAILHOP_EXPORT railhop::netperf::NetV7 ncclNetPlugin_v7;
RAILHOP_EXPORT railhop::nccl::NetV8 ncclNetPlugin_v8;
RAILHOP_EXPORT railhop::nccl::NetV9 ncclNetPlugin_v9;
RAILHOP_EXPORT railhop::nccl::NetV10 ncclNetPlugin_v10;
RAILHOP_EXPORT railhop::nccl::NetV11 ncclNetPlugin_v11;
RAILHOP_EXPORT railhop::nccl::NetV12 ncclNetPlugin_v12;

railhop::nccl::NetV6 ncclNetPlugin_v6 = railhop::netperf::Early<6>();
railhop::netperf::NetV7 ncclNetPlugin_v7 = railhop::netperf::Early<7>();
railhop::nccl::NetV8 ncclNetPlugin_v8 = railhop::netperf::Early<8>();
railhop::nccl::NetV9 ncclNetPlugin_v9 = railhop::netperf::Early<9>();
railhop::nccl::NetV10 ncclNetPlugin_v10 = railhop::netperf::Table10();
railhop::nccl::NetV11 ncclNetPlugin_v11 = railhop::netperf::Late<11>();
railhop::nccl::NetV12 ncclNetPlugin_v12 = railhop::netperf::Late<12>();
