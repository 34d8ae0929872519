#include "integration/plugin/net_api.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <type_traits>

#include "cc/plugin/nccl/net_v12.h"
#include "cc/plugin/nccl/net_v6.h"
#include "cc/plugin/nccl/net_v8.h"

namespace railhop::integration {
namespace {

using nccl::Result;

// As NCCL prints, to standard error.
void Log(int level, unsigned long /*subsystems*/, const char* /*file*/, int /*line*/,
         const char* format, ...) {
  if (level > nccl::kLogInfo) return;
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "NCCL %s %s\n", level == nccl::kLogWarn ? "WARN" : "INFO", text);
}

template <typename T>
std::string TextOrEmpty(const T* text) {
  return text == nullptr ? "" : text;
}

template <int kVersion, typename Net, typename Props>
class Versioned final : public NetApi {
 public:
  explicit Versioned(const Net* net) : net_(*net) {}

  std::string name() const override { return TextOrEmpty(net_.name); }

  std::vector<std::string> MissingSlots() const override {
    std::vector<std::string> missing;
    const auto need = [&](const char* slot, auto* function) {
      if (function == nullptr) missing.push_back(slot);
    };
    need("init", net_.init);
    need("devices", net_.devices);
    need("get_properties", net_.get_properties);
    need("listen", net_.listen);
    need("connect", net_.connect);
    need("accept", net_.accept);
    need("reg_mr", net_.reg_mr);
    need("reg_mr_dma_buf", net_.reg_mr_dma_buf);
    need("dereg_mr", net_.dereg_mr);
    need("isend", net_.isend);
    need("irecv", net_.irecv);
    need("iflush", net_.iflush);
    need("test", net_.test);
    need("close_send", net_.close_send);
    need("close_recv", net_.close_recv);
    need("close_listen", net_.close_listen);
    if constexpr (kVersion >= 11) need("finalize", net_.finalize);
    return missing;
  }

  Result Init(int traffic_class) override {
    config_.traffic_class = traffic_class;
    if constexpr (kVersion >= 11) {
      return net_.init(&context_, 0x1234, &config_, Log, nullptr);
    } else if constexpr (kVersion == 10) {
      return net_.init(Log, nullptr);
    } else {
      return net_.init(Log);
    }
  }
  Result Finalize() override {
    if constexpr (kVersion >= 11) {
      return net_.finalize(context_);
    } else {
      return nccl::kSuccess;
    }
  }
  Result Devices(int* count) override { return net_.devices(count); }
  Result GetProperties(int dev, Properties* out) override {
    Props p = {};
    const Result result = net_.get_properties(dev, &p);
    if (result != nccl::kSuccess) return result;
    out->name = TextOrEmpty(p.name);
    out->pci_path = TextOrEmpty(p.pci_path);
    out->guid = p.guid;
    out->ptr_support = p.ptr_support;
    out->speed_mbps = p.speed_mbps;
    out->port = p.port;
    out->max_comms = p.max_comms;
    out->max_recvs = p.max_recvs;
    if constexpr (kVersion >= 8) out->reg_is_global = p.reg_is_global;
    if constexpr (kVersion >= 9) {
      out->fused.assign(p.fused.devs, p.fused.devs + p.fused.count);
    }
    if constexpr (kVersion >= 12) {
      out->rail = p.rail_id;
      out->plane = p.plane_id;
    }
    return result;
  }
  Result Listen(int dev, void* handle, void** comm) override {
    if constexpr (kVersion >= 11) {
      return net_.listen(context_, dev, handle, comm);
    } else {
      return net_.listen(dev, handle, comm);
    }
  }
  Result Connect(int dev, void* handle, void** comm) override {
    if constexpr (kVersion >= 11) {
      return net_.connect(context_, dev, handle, comm, nullptr);
    } else if constexpr (kVersion == 10) {
      return net_.connect(dev, &config_, handle, comm, nullptr);
    } else if constexpr (kVersion >= 8) {
      return net_.connect(dev, handle, comm, nullptr);
    } else {
      return net_.connect(dev, handle, comm);
    }
  }
  Result Accept(void* listen, void** comm) override {
    if constexpr (kVersion >= 8) {
      return net_.accept(listen, comm, nullptr);
    } else {
      return net_.accept(listen, comm);
    }
  }
  Result RegMr(void* comm, void* data, size_t size, int type, void** memory) override {
    if constexpr (kVersion >= 8) {
      return net_.reg_mr(comm, data, size, type, memory);
    } else {
      return net_.reg_mr(comm, data, static_cast<int>(size), type, memory);
    }
  }
  Result RegMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                     void** memory) override {
    return net_.reg_mr_dma_buf(comm, data, size, type, offset, fd, memory);
  }
  Result DeregMr(void* comm, void* memory) override { return net_.dereg_mr(comm, memory); }
  Result ISend(void* comm, void* data, size_t size, int tag, void* memory,
               void** request) override {
    if constexpr (kVersion >= 10) {
      return net_.isend(comm, data, size, tag, memory, nullptr, request);
    } else if constexpr (kVersion == 9) {
      return net_.isend(comm, data, size, tag, memory, request);
    } else {
      return net_.isend(comm, data, static_cast<int>(size), tag, memory, request);
    }
  }
  Result IRecv(void* comm, int n, void** data, const size_t* sizes, int* tags, void** memories,
               void** request) override {
    using Size = std::conditional_t<(kVersion >= 9), size_t, int>;
    Size own[16] = {};
    for (int i = 0; i < std::clamp(n, 0, 16); ++i) own[i] = static_cast<Size>(sizes[i]);
    if constexpr (kVersion >= 10) {
      return net_.irecv(comm, n, data, own, tags, memories, nullptr, request);
    } else {
      return net_.irecv(comm, n, data, own, tags, memories, request);
    }
  }
  Result IFlush(void* comm, int n, void** data, int* sizes, void** memories,
                void** request) override {
    return net_.iflush(comm, n, data, sizes, memories, request);
  }
  Result Test(void* request, int* done, int* sizes) override {
    return net_.test(request, done, sizes);
  }
  Result CloseSend(void* comm) override { return net_.close_send(comm); }
  Result CloseRecv(void* comm) override { return net_.close_recv(comm); }
  Result CloseListen(void* comm) override { return net_.close_listen(comm); }
  bool HasVirtualDevices() const override {
    if constexpr (kVersion >= 9) {
      return net_.make_v_device != nullptr;
    } else {
      return false;
    }
  }
  Result MakeVDevice(int* dev, const std::vector<int>& devices) override {
    if constexpr (kVersion >= 9) {
      decltype(Props::fused) fused = {};
      fused.count = static_cast<int>(devices.size());
      for (size_t i = 0; i < devices.size() && i < std::size(fused.devs); ++i) {
        fused.devs[i] = devices[i];
      }
      return net_.make_v_device(dev, &fused);
    } else {
      return nccl::kInvalidUsage;
    }
  }

 private:
  const Net& net_;
  nccl::CommConfig config_ = {nccl::kUndefined};
  void* context_ = nullptr;
};

template <int kVersion, typename Net, typename Props>
std::unique_ptr<NetApi> Wrap(const void* table) {
  return std::make_unique<Versioned<kVersion, Net, Props>>(static_cast<const Net*>(table));
}

}  // namespace

std::unique_ptr<NetApi> NetApi::Load(const std::string& path, int version, std::string* error) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *error = dlerror();
    return nullptr;
  }
  const void* table = dlsym(library, ("ncclNetPlugin_v" + std::to_string(version)).c_str());
  if (table == nullptr) {
    *error = dlerror();
    return nullptr;
  }
  switch (version) {
    case 6:
      return Wrap<6, nccl::NetV6, nccl::PropertiesV6>(table);
    case 8:
      return Wrap<8, nccl::NetV8, nccl::PropertiesV8>(table);
    case 9:
      return Wrap<9, nccl::NetV9, nccl::PropertiesV9>(table);
    case 10:
      return Wrap<10, nccl::NetV10, nccl::PropertiesV10>(table);
    case 11:
      return Wrap<11, nccl::NetV11, nccl::PropertiesV11>(table);
    case 12:
      return Wrap<12, nccl::NetV12, nccl::PropertiesV12>(table);
    default:
      *error = "no layout of version " + std::to_string(version);
      return nullptr;
  }
}

}  // namespace railhop::integration
