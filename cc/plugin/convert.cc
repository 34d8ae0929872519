#include "cc/plugin/convert.h"

namespace railhop::plugin {

Result ISendInt(void* send_comm, void* data, int size, int tag, void* mhandle, void** request) {
  if (size < 0) {
    if (request != nullptr) *request = nullptr;
    return nccl::kInternalError;
  }
  return ISend(send_comm, data, static_cast<size_t>(size), tag, mhandle, nullptr, request);
}

Result IRecvInt(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles,
                void** request) {
  size_t wide[runtime::kGroupedReceivesMax] = {};
  if (n >= 1 && n <= runtime::kGroupedReceivesMax && sizes != nullptr) {
    for (int i = 0; i < n; ++i) {
      if (sizes[i] < 0) {
        if (request != nullptr) *request = nullptr;
        return nccl::kInternalError;
      }
      wide[i] = static_cast<size_t>(sizes[i]);
    }
  }
  return IRecv(recv_comm, n, data, sizes == nullptr ? nullptr : wide, tags, mhandles, nullptr,
               request);
}

Result ISendPlain(void* send_comm, void* data, size_t size, int tag, void* mhandle,
                  void** request) {
  return ISend(send_comm, data, size, tag, mhandle, nullptr, request);
}

Result IRecvPlain(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
                  void** request) {
  return IRecv(recv_comm, n, data, sizes, tags, mhandles, nullptr, request);
}

Result ListenPlain(int dev, void* handle, void** listen_comm) {
  return Listen(nullptr, dev, handle, listen_comm);
}

Result ConnectPlain(int dev, void* handle, void** send_comm, nccl::DeviceHandle** /*device_comm*/) {
  return Connect(nullptr, nccl::kUndefined, dev, handle, send_comm);
}

Result AcceptPlain(void* listen_comm, void** recv_comm, nccl::DeviceHandle** /*device_comm*/) {
  return Accept(listen_comm, recv_comm);
}

Result InitV11(void** context, uint64_t /*comm_id*/, nccl::CommConfig* config, nccl::Logger logger,
               nccl::ProfilerCallback /*profiler*/) {
  const int traffic_class = config == nullptr ? nccl::kUndefined : config->traffic_class;
  return InitCommunicator(context, traffic_class, logger);
}

Result ConnectV11(void* context, int dev, void* handle, void** send_comm,
                  nccl::DeviceHandle** /*device_comm*/) {
  return Connect(context, nccl::kUndefined, dev, handle, send_comm);
}

// A hint of how the network will be used; every connection is ready for all uses.
Result SetNetAttributesV11(void* /*context*/, nccl::NetAttributes* /*attributes*/) {
  return nccl::kSuccess;
}

}  // namespace railhop::plugin
