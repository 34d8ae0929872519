#include "cc/plugin/boundary.h"

#include <string>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "cc/base/invariant.h"
#include "cc/base/log.h"
#include "cc/runtime/start.h"
#include "cc/runtime/transport.h"

namespace railhop::plugin {
namespace {

using runtime::Transport;

// Calls; an exception (of an allocation, say) becomes a code.
template <typename F>
Result Guard(F&& call) {
  try {
    return call();
  } catch (...) {
    return nccl::kSystemError;
  }
}

void Warn(const char* what, const absl::Status& status) {
  RAILHOP_LOG(kWarning, "%s: %s", what, std::string(status.message()).c_str());
}

// Says why a call failed, and turns it into a code.
Result Failed(const char* what, const absl::Status& status) {
  Warn(what, status);
  return ToResult(status);
}

// ---- The log.

// `context` is NCCL's logger itself.
void WriteToNccl(void* context, LogSeverity severity, const char* file, int line,
                 const char* text) {
  const auto logger = reinterpret_cast<nccl::Logger>(context);
  const int level = severity == LogSeverity::kWarning ? nccl::kLogWarn
                    : severity == LogSeverity::kInfo  ? nccl::kLogInfo
                                                      : nccl::kLogTrace;
  logger(level, nccl::kSubsystemInit | nccl::kSubsystemNet, file, line, "NET/Railhop : %s", text);
}

void UseLogger(nccl::Logger logger) {
  if (logger == nullptr) return;
  SetLogSink({WriteToNccl, reinterpret_cast<void*>(logger)});
  SetInvariantHandler(LogBrokenInvariant);
}

// ---- What one communicator is to a table with contexts.

struct CommunicatorContext {
  int traffic_class;
};

// The state of this folder. A comm of a table without contexts keeps the transport up, since such
// tables are never told to stop.
class Border {
 public:
  Result InitOnce() {
    absl::MutexLock lock(&mutex_);
    legacy_ = true;
    return HoldForLegacy() ? nccl::kSuccess : nccl::kSystemError;
  }

  // Makes sure that the transport runs for a table without contexts.
  bool Ready() {
    absl::MutexLock lock(&mutex_);
    return !legacy_ || HoldForLegacy();
  }

  void Opened() {
    absl::MutexLock lock(&mutex_);
    ++open_comms_;
  }

  void Closed() {
    if (runtime::IsForkedCopy()) return;
    absl::MutexLock lock(&mutex_);
    if (open_comms_ > 0 && --open_comms_ == 0 && legacy_held_) {
      legacy_held_ = false;
      runtime::StopTransport(runtime::Devices::kKeep);
    }
  }

  Result InitCommunicator(void** context, int traffic_class) {
    absl::MutexLock lock(&mutex_);
    if (!StartOrExplain()) return nccl::kSystemError;
    auto* made = new CommunicatorContext{traffic_class};
    contexts_.insert(made);
    *context = made;
    return nccl::kSuccess;
  }

  Result Finalize(void* context) {
    // What it would end is the parent's.
    if (runtime::IsForkedCopy()) return nccl::kSuccess;
    absl::MutexLock lock(&mutex_);
    auto* known = static_cast<CommunicatorContext*>(context);
    if (contexts_.erase(known) == 0) return nccl::kInternalError;
    delete known;
    runtime::StopTransport(runtime::Devices::kClose);
    return nccl::kSuccess;
  }

  // For the life of the process. Null for "".
  char* Keep(const std::string& text) {
    if (text.empty()) return nullptr;
    absl::MutexLock lock(&mutex_);
    return const_cast<char*>(kept_.insert(text).first->c_str());
  }

 private:
  bool HoldForLegacy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!legacy_held_) legacy_held_ = StartOrExplain();
    return legacy_held_;
  }

  // NCCL goes on to the next transport without a word that a person would see, so this is the one
  // place that says what it means for the job; once.
  bool StartOrExplain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Status status = runtime::StartTransport();
    if (status.ok()) return true;
    if (!explained_) {
      RAILHOP_LOG(kWarning,
                  "cannot serve: %s. If NCCL goes on, this job runs on another "
                  "transport, UNPROTECTED against link failures (NCCL_NET=Railhop makes it stop "
                  "instead)",
                  std::string(status.message()).c_str());
    }
    explained_ = true;
    return false;
  }

  absl::Mutex mutex_;
  bool legacy_ ABSL_GUARDED_BY(mutex_) = false;
  bool legacy_held_ ABSL_GUARDED_BY(mutex_) = false;
  bool explained_ ABSL_GUARDED_BY(mutex_) = false;
  int open_comms_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_set<CommunicatorContext*> contexts_ ABSL_GUARDED_BY(mutex_);
  std::unordered_set<std::string> kept_ ABSL_GUARDED_BY(mutex_);
};

// Never destroyed: NCCL may call until the process ends.
Border& TheBorder() {
  static Border* const border = new Border;
  return *border;
}

// Hands out what a StatusOr holds, or says why there is nothing.
template <typename T, typename Convert>
Result Give(const char* what, absl::StatusOr<T> made, void** out, Convert&& convert) {
  if (!made.ok()) return Failed(what, made.status());
  if (*made == nullptr) return nccl::kSuccess;  // not yet
  TheBorder().Opened();
  *out = convert(*made);
  return nccl::kSuccess;
}

template <typename Comm>
Result Close(const char* what, Comm* comm, absl::Status (*close)(Comm*)) {
  if (comm == nullptr) return nccl::kInternalError;
  const absl::Status status = close(comm);
  if (!status.ok()) return Failed(what, status);
  TheBorder().Closed();
  return nccl::kSuccess;
}

runtime::ConnectionComm* AsConnection(void* comm) {
  return static_cast<runtime::ConnectionComm*>(comm);
}

}  // namespace

Result ToResult(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return nccl::kSuccess;
    case absl::StatusCode::kInvalidArgument:  // NCCL broke a rule of the interface
      return nccl::kInternalError;
    case absl::StatusCode::kFailedPrecondition:  // a user's setting forbids it
      return nccl::kInvalidUsage;
    case absl::StatusCode::kUnavailable:  // the peer was given up
      return nccl::kRemoteError;
    default:  // the operating system or the local device
      return nccl::kSystemError;
  }
}

Result InitOnce(nccl::Logger logger) {
  return Guard([&] {
    UseLogger(logger);
    return TheBorder().InitOnce();
  });
}

Result InitCommunicator(void** context, int traffic_class, nccl::Logger logger) {
  if (context == nullptr) return nccl::kInternalError;
  *context = nullptr;
  return Guard([&] {
    UseLogger(logger);
    return TheBorder().InitCommunicator(context, traffic_class);
  });
}

Result Finalize(void* context) {
  return Guard([&] { return TheBorder().Finalize(context); });
}

int TrafficClassOf(void* context) {
  return context == nullptr ? nccl::kUndefined
                            : static_cast<CommunicatorContext*>(context)->traffic_class;
}

Result Devices(int* count) {
  if (count == nullptr) return nccl::kInternalError;
  *count = 0;
  return Guard([&] {
    if (!TheBorder().Ready() || !Transport::IsRunning()) return nccl::kSystemError;
    *count = Transport::DeviceCount();
    return nccl::kSuccess;
  });
}

Result GetProperties(int dev, NamedProperties* properties) {
  return Guard([&] {
    if (!TheBorder().Ready() || !Transport::IsRunning()) return nccl::kSystemError;
    absl::StatusOr<runtime::DeviceProperties> found = Transport::Properties(dev);
    if (!found.ok()) return Failed("getProperties", found.status());
    properties->values = *std::move(found);
    properties->name = TheBorder().Keep(properties->values.name);
    properties->pci_path = TheBorder().Keep(properties->values.pci_path);
    return nccl::kSuccess;
  });
}

Result MakeVirtualDevice(int* dev, std::span<const int> devices) {
  return Guard([&] {
    if (!TheBorder().Ready() || !Transport::IsRunning()) return nccl::kSystemError;
    const absl::StatusOr<int> made =
        Transport::MakeVirtualDevice(absl::MakeConstSpan(devices.data(), devices.size()));
    if (!made.ok()) {
      // NCCL tries this on its own, so it is no cause for alarm. NCCL's own transport answers every
      // refusal with this code. Source: NCCL v2.30.7-1 src/transport/net_ib/init.cc.
      RAILHOP_LOG(kInfo, "devices are not fused: %s", std::string(made.status().message()).c_str());
      return nccl::kInvalidUsage;
    }
    *dev = *made;
    return nccl::kSuccess;
  });
}

Result Listen(void* /*context*/, int dev, void* handle, void** listen_comm) {
  if (handle == nullptr || listen_comm == nullptr) return nccl::kInternalError;
  *listen_comm = nullptr;
  return Guard([&] {
    if (!TheBorder().Ready() || !Transport::IsRunning()) return nccl::kSystemError;
    return Give("listen", Transport::Listen(dev, handle), listen_comm, [](auto* c) { return c; });
  });
}

Result Connect(void* context, int traffic_class, int dev, void* handle, void** send_comm) {
  if (handle == nullptr || send_comm == nullptr) return nccl::kInternalError;
  *send_comm = nullptr;
  return Guard([&] {
    if (!TheBorder().Ready() || !Transport::IsRunning()) return nccl::kSystemError;
    const int wanted = context == nullptr ? traffic_class : TrafficClassOf(context);
    return Give("connect", Transport::Connect({.traffic_class = wanted}, dev, handle), send_comm,
                [](runtime::SendComm* c) { return runtime::AsConnection(c); });
  });
}

Result Accept(void* listen_comm, void** recv_comm) {
  if (listen_comm == nullptr || recv_comm == nullptr) return nccl::kInternalError;
  *recv_comm = nullptr;
  return Guard([&] {
    if (!Transport::IsRunning()) return nccl::kSystemError;
    return Give("accept", Transport::Accept(static_cast<runtime::ListenComm*>(listen_comm)),
                recv_comm, [](runtime::RecvComm* c) { return runtime::AsConnection(c); });
  });
}

Result CloseSend(void* send_comm) {
  if (send_comm == nullptr) return nccl::kSuccess;
  return Guard([&] {
    return Close("closeSend", runtime::AsSend(AsConnection(send_comm)), &Transport::CloseSend);
  });
}

Result CloseRecv(void* recv_comm) {
  if (recv_comm == nullptr) return nccl::kSuccess;
  return Guard([&] {
    return Close("closeRecv", runtime::AsRecv(AsConnection(recv_comm)), &Transport::CloseRecv);
  });
}

Result CloseListen(void* listen_comm) {
  if (listen_comm == nullptr) return nccl::kSuccess;
  return Guard([&] {
    return Close("closeListen", static_cast<runtime::ListenComm*>(listen_comm),
                 &Transport::CloseListen);
  });
}

Result RegMr(void* comm, void* data, size_t size, int type, void** mhandle) {
  if (mhandle == nullptr) return nccl::kInternalError;
  *mhandle = nullptr;
  if (comm == nullptr || data == nullptr || size == 0) return nccl::kInternalError;
  return Guard([&] {
    absl::StatusOr<runtime::Memory*> memory =
        Transport::RegisterMemory(AsConnection(comm), data, size, type);
    if (!memory.ok()) return Failed("regMr", memory.status());
    *mhandle = *memory;
    return nccl::kSuccess;
  });
}

Result RegMrDmaBuf(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                   void** mhandle) {
  if (mhandle == nullptr) return nccl::kInternalError;
  *mhandle = nullptr;
  if (comm == nullptr || size == 0 || fd < 0) return nccl::kInternalError;
  return Guard([&] {
    absl::StatusOr<runtime::Memory*> memory =
        Transport::RegisterDmaBuf(AsConnection(comm), data, size, type, offset, fd);
    if (!memory.ok()) return Failed("regMrDmaBuf", memory.status());
    *mhandle = *memory;
    return nccl::kSuccess;
  });
}

Result DeregMr(void* comm, void* mhandle) {
  if (mhandle == nullptr) return nccl::kSuccess;
  if (comm == nullptr) return nccl::kInternalError;
  return Guard([&] {
    const absl::Status status =
        Transport::Deregister(AsConnection(comm), static_cast<runtime::Memory*>(mhandle));
    return status.ok() ? nccl::kSuccess : Failed("deregMr", status);
  });
}

Result ISend(void* send_comm, void* data, size_t size, int tag, void* mhandle,
             void* /*profiler_handle*/, void** request) {
  if (request == nullptr) return nccl::kInternalError;
  *request = nullptr;
  if (send_comm == nullptr) return nccl::kInternalError;
  return Guard([&] {
    // One address for both: see AsConnection in transport.h.
    return ToResult(Transport::ISend(static_cast<runtime::SendComm*>(send_comm), data, size, tag,
                                     static_cast<runtime::Memory*>(mhandle),
                                     reinterpret_cast<runtime::Request**>(request)));
  });
}

Result IRecv(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
             void** /*profiler_handles*/, void** request) {
  if (request == nullptr) return nccl::kInternalError;
  *request = nullptr;
  if (recv_comm == nullptr || n < 1 || n > runtime::kGroupedReceivesMax) {
    return nccl::kInternalError;
  }
  if (data == nullptr || sizes == nullptr || tags == nullptr || mhandles == nullptr) {
    return nccl::kInternalError;
  }
  return Guard([&] {
    return ToResult(Transport::IRecv(static_cast<runtime::RecvComm*>(recv_comm), n, data, sizes,
                                     tags, reinterpret_cast<runtime::Memory**>(mhandles),
                                     reinterpret_cast<runtime::Request**>(request)));
  });
}

Result IFlush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request) {
  if (request == nullptr) return nccl::kInternalError;
  *request = nullptr;
  if (recv_comm == nullptr || n < 1 || n > runtime::kGroupedReceivesMax) {
    return nccl::kInternalError;
  }
  if (data == nullptr || sizes == nullptr || mhandles == nullptr) return nccl::kInternalError;
  return Guard([&] {
    return ToResult(Transport::IFlush(static_cast<runtime::RecvComm*>(recv_comm), n, data, sizes,
                                      reinterpret_cast<runtime::Memory**>(mhandles),
                                      reinterpret_cast<runtime::Request**>(request)));
  });
}

Result Test(void* request, int* done, int* sizes) {
  if (done == nullptr) return nccl::kInternalError;
  *done = 0;
  if (request == nullptr) return nccl::kInternalError;
  return Guard([&] {
    return ToResult(Transport::Test(static_cast<runtime::Request*>(request), done, sizes));
  });
}

}  // namespace railhop::plugin
