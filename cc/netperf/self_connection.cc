#include "cc/netperf/self_connection.h"

#include <unistd.h>

#include "cc/netperf/plugin_loader.h"

namespace railhop::netperf {
namespace {

constexpr int kConnectTurns = 60'000;  // of a millisecond

bool Good(const char* call, NetResult result, std::string* error) {
  if (result == kNetSuccess) return true;
  *error = std::string(call) + ": " + NetResultName(result) + " (" + std::to_string(result) + ")";
  return false;
}

}  // namespace

std::unique_ptr<SelfConnection> SelfConnection::Open(const std::string& plugin, int api,
                                                     const std::vector<int>& devices, uint64_t size,
                                                     int slots, std::string* error) {
  std::unique_ptr<NetPlugin> loaded = LoadNetPlugin(plugin, api, error);
  if (loaded == nullptr || !Good("init", loaded->Init(), error)) return nullptr;
  int count = 0;
  if (!Good("devices", loaded->Devices(&count), error)) return nullptr;
  for (const int device : devices) {
    if (device < count) continue;
    *error = "no device " + std::to_string(device) + ": the plugin has " + std::to_string(count);
    return nullptr;
  }
  int device = devices.front();
  if (devices.size() > 1 && !Good("makeVDevice", loaded->Fuse(devices, &device), error)) {
    return nullptr;
  }
  std::unique_ptr<SelfConnection> connection(new SelfConnection(size, slots));
  connection->plugin_ = std::move(loaded);
  if (!connection->Connect(device, error)) return nullptr;
  return connection;
}

bool SelfConnection::Connect(int device, std::string* error) {
  alignas(8) uint8_t handle[kHandleBytes] = {};
  if (!Good("listen", plugin_->Listen(device, handle, &listener_), error)) return false;
  for (int turn = 0; send_ == nullptr || recv_ == nullptr; ++turn) {
    if (turn == kConnectTurns) {
      *error = "no connection of the process with itself";
      return false;
    }
    if (send_ == nullptr && !Good("connect", plugin_->Connect(device, handle, &send_), error)) {
      return false;
    }
    if (recv_ == nullptr && !Good("accept", plugin_->Accept(listener_, &recv_), error)) {
      return false;
    }
    usleep(1000);
  }
  return Good("regMr", plugin_->Register(send_, out_.memory(), out_.bytes(), &out_memory_),
              error) &&
         Good("regMr", plugin_->Register(recv_, in_.memory(), in_.bytes(), &in_memory_), error);
}

NetResult SelfConnection::Send(int slot, void** request) {
  return plugin_->Send(send_, out_.Data(static_cast<uint64_t>(slot), 0), size_, 0, out_memory_,
                       request);
}

NetResult SelfConnection::Receive(int slot, void** request) {
  void* data = in_.Data(static_cast<uint64_t>(slot), 0);
  const int tag = 0;
  return plugin_->Receive(recv_, 1, &data, &size_, &tag, &in_memory_, request);
}

SelfConnection::~SelfConnection() {
  if (out_memory_ != nullptr) plugin_->Deregister(send_, out_memory_);
  if (in_memory_ != nullptr) plugin_->Deregister(recv_, in_memory_);
  if (send_ != nullptr) plugin_->CloseSend(send_);
  if (recv_ != nullptr) plugin_->CloseRecv(recv_);
  if (listener_ != nullptr) plugin_->CloseListen(listener_);
  plugin_->Finalize();
}

}  // namespace railhop::netperf
