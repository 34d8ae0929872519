#include "python/railhop/_transport/endpoint.h"

#include <sched.h>
#include <time.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "python/railhop/_transport/failure.h"
#include "python/railhop/_transport/plugin_handle.h"

namespace railhop::transport {
namespace {

using netperf::kHandleBytes;
using netperf::NetPlugin;

// Calls `step` until it gives true, or false after `seconds`.
template <typename Step>
bool Until(double seconds, Step step) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  for (int round = 0;; ++round) {
    if (step()) return true;
    if (Clock::now() >= deadline) return false;
    if (round < 200) {
      sched_yield();
    } else {
      const timespec pause = {0, 100'000};
      nanosleep(&pause, nullptr);
    }
  }
}

}  // namespace

Plugin::Plugin(const std::string& path, int version)
    : plugin_(StartPlugin(path, version)), version_(plugin_->version()), name_(plugin_->name()) {}

void Plugin::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (plugin_ == nullptr) return;
  plugin_->Finalize();
  plugin_.reset();
}

void Plugin::RequireOpen() const {
  if (plugin_ == nullptr) throw Failure(FailureKind::kClosed, "the plugin is closed");
}

void Plugin::Check(const std::string& what, netperf::NetResult result) { CheckCall(what, result); }

std::vector<netperf::NetDevice> Plugin::Devices() {
  int count = 0;
  Do("devices", [&](NetPlugin& plugin) { return plugin.Devices(&count); });
  std::vector<netperf::NetDevice> devices(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Do("getProperties",
       [&](NetPlugin& plugin) { return plugin.Properties(i, &devices[static_cast<size_t>(i)]); });
  }
  return devices;
}

Listener::Listener(std::shared_ptr<Plugin> plugin, int device) : plugin_(std::move(plugin)) {
  alignas(8) char handle[kHandleBytes] = {};
  plugin_->Do("listen", [&](NetPlugin& calls) { return calls.Listen(device, handle, &listener_); });
  handle_.assign(handle, sizeof(handle));
}

std::shared_ptr<Connection> Listener::Accept(double seconds) {
  void* comm = nullptr;
  Until(seconds, [&] {
    if (listener_ == nullptr) throw Failure(FailureKind::kClosed, "the listener is closed");
    plugin_->Do("accept", [&](NetPlugin& calls) { return calls.Accept(listener_, &comm); });
    return comm != nullptr;
  });
  return comm == nullptr ? nullptr : std::make_shared<Connection>(plugin_, comm, false);
}

void Listener::Close() {
  if (listener_ == nullptr) return;
  void* listener = std::exchange(listener_, nullptr);
  try {
    plugin_->Do("closeListen", [&](NetPlugin& calls) { return calls.CloseListen(listener); });
  } catch (const Failure&) {
    // Gone with the plugin.
  }
}

std::shared_ptr<Connection> Connection::Connect(std::shared_ptr<Plugin> plugin, int device,
                                                const std::string& handle, double seconds) {
  if (handle.size() != kHandleBytes) {
    throw Failure(FailureKind::kMismatch, "a handle has " + std::to_string(kHandleBytes) +
                                              " bytes, not " + std::to_string(handle.size()));
  }
  // The plugin may keep its state in the handle.
  alignas(8) char own[kHandleBytes];
  memcpy(own, handle.data(), sizeof(own));
  void* comm = nullptr;
  Until(seconds, [&] {
    plugin->Do("connect", [&](NetPlugin& calls) { return calls.Connect(device, own, &comm); });
    return comm != nullptr;
  });
  return comm == nullptr ? nullptr : std::make_shared<Connection>(std::move(plugin), comm, true);
}

void Connection::RequireOpen() const {
  if (comm_ == nullptr) throw Failure(FailureKind::kClosed, "the connection is closed");
}

void Connection::Close() {
  if (comm_ == nullptr) return;
  void* comm = std::exchange(comm_, nullptr);
  try {
    plugin_->Do(sends_ ? "closeSend" : "closeRecv", [&](NetPlugin& calls) {
      return sends_ ? calls.CloseSend(comm) : calls.CloseRecv(comm);
    });
  } catch (const Failure&) {
    // Gone with the plugin.
  }
}

Memory::Memory(std::shared_ptr<Connection> connection, void* data, size_t size)
    : connection_(std::move(connection)), data_(static_cast<uint8_t*>(data)), size_(size) {
  connection_->RequireOpen();
  connection_->plugin().Do("regMr", [&](NetPlugin& calls) {
    return calls.Register(connection_->comm(), data_, size_, &registered_);
  });
}

void Memory::Close() {
  if (registered_ == nullptr) return;
  void* registered = std::exchange(registered_, nullptr);
  if (!connection_->open()) return;
  try {
    connection_->plugin().Do("deregMr", [&](NetPlugin& calls) {
      return calls.Deregister(connection_->comm(), registered);
    });
  } catch (const Failure&) {
    // Gone with the plugin.
  }
}

Request::Request(std::shared_ptr<Memory> memory, size_t offset, size_t size, int tag,
                 double seconds)
    : memory_(std::move(memory)) {
  if (offset > memory_->size() || size > memory_->size() - offset) {
    throw Failure(FailureKind::kMismatch, "bytes " + std::to_string(offset) + " to " +
                                              std::to_string(offset + size) + " of a memory of " +
                                              std::to_string(memory_->size()));
  }
  if (memory_->registered() == nullptr) {
    throw Failure(FailureKind::kClosed, "the memory is closed");
  }
  const Connection& connection = memory_->connection();
  void* data = memory_->data() + offset;
  void* registered = memory_->registered();
  const bool sends = connection.sends();
  const bool taken = Until(seconds, [&] {
    connection.RequireOpen();
    connection.plugin().Do(sends ? "isend" : "irecv", [&](NetPlugin& calls) {
      return sends
                 ? calls.Send(connection.comm(), data, size, tag, registered, &request_)
                 : calls.Receive(connection.comm(), 1, &data, &size, &tag, &registered, &request_);
    });
    return request_ != nullptr;
  });
  if (!taken) {
    throw Failure(FailureKind::kTimeout, std::string("the plugin took no ") +
                                             (sends ? "send" : "receive") + " within " +
                                             std::to_string(seconds) + " s");
  }
}

bool Request::Test() {
  if (done_) return true;
  memory_->connection().RequireOpen();
  int done = 0;
  memory_->connection().plugin().Do(
      "test", [&](NetPlugin& calls) { return calls.Test(request_, &done, &size_); });
  done_ = done != 0;
  return done_;
}

bool Request::Wait(double seconds) {
  return Until(seconds, [this] { return Test(); });
}

}  // namespace railhop::transport
