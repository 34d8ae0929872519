// The plugin's own calls, one by one, as objects that give back what they hold.
//
// Each object keeps what it was made from alive. A mutex serialises the calls of one plugin, as
// NCCL's progress thread does; it is never held while anything waits.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_ENDPOINT_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_ENDPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cc/netperf/net_plugin.h"

namespace railhop::transport {

class Plugin {
 public:
  // Failure (kLoad).
  Plugin(const std::string& path, int version);
  // Ends the plugin; objects made from it fail with kClosed afterwards.
  void Close();
  ~Plugin() { Close(); }

  int version() const { return version_; }
  const std::string& name() const { return name_; }
  std::vector<netperf::NetDevice> Devices();

  // Runs `call` on the plugin under its lock. Failure (kClosed, kPlugin).
  template <typename Call>
  void Do(const std::string& what, Call call) {
    netperf::NetResult result = netperf::kNetSuccess;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      RequireOpen();
      result = call(*plugin_);
    }
    Check(what, result);
  }

 private:
  void RequireOpen() const;
  static void Check(const std::string& what, netperf::NetResult result);

  std::mutex mutex_;
  std::unique_ptr<netperf::NetPlugin> plugin_;
  int version_ = 0;
  std::string name_;
};

class Connection;

class Listener {
 public:
  Listener(std::shared_ptr<Plugin> plugin, int device);
  ~Listener() { Close(); }
  const std::string& handle() const { return handle_; }
  // Null: nobody within `seconds`.
  std::shared_ptr<Connection> Accept(double seconds);
  void Close();

 private:
  std::shared_ptr<Plugin> plugin_;
  std::string handle_;
  void* listener_ = nullptr;
};

// One direction: what connect or accept gave.
class Connection {
 public:
  Connection(std::shared_ptr<Plugin> plugin, void* comm, bool sends)
      : plugin_(std::move(plugin)), comm_(comm), sends_(sends) {}
  ~Connection() { Close(); }
  // Null: not within `seconds`.
  static std::shared_ptr<Connection> Connect(std::shared_ptr<Plugin> plugin, int device,
                                             const std::string& handle, double seconds);
  bool sends() const { return sends_; }
  bool open() const { return comm_ != nullptr; }
  Plugin& plugin() const { return *plugin_; }
  void* comm() const { return comm_; }
  // Failure (kClosed).
  void RequireOpen() const;
  void Close();

 private:
  std::shared_ptr<Plugin> plugin_;
  void* comm_;
  const bool sends_;
};

// Registered memory of a connection; the caller keeps the bytes alive.
class Memory {
 public:
  Memory(std::shared_ptr<Connection> connection, void* data, size_t size);
  ~Memory() { Close(); }
  Connection& connection() const { return *connection_; }
  const std::shared_ptr<Connection>& owner() const { return connection_; }
  size_t size() const { return size_; }
  uint8_t* data() const { return data_; }
  void* registered() const { return registered_; }
  void Close();

 private:
  std::shared_ptr<Connection> connection_;
  uint8_t* data_;
  size_t size_;
  void* registered_ = nullptr;
};

// What isend or irecv gave.
class Request {
 public:
  // Posts [offset, offset + size) of the memory. Failure (kTimeout): the plugin took it not within
  // `seconds`, as when the peer posts no receive.
  Request(std::shared_ptr<Memory> memory, size_t offset, size_t size, int tag, double seconds);
  // Whether it is done; then size() is what the plugin said.
  bool Test();
  // Test until done or `seconds` are over.
  bool Wait(double seconds);
  int size() const { return size_; }

 private:
  std::shared_ptr<Memory> memory_;
  void* request_ = nullptr;
  bool done_ = false;
  int size_ = 0;
};

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_ENDPOINT_H_
