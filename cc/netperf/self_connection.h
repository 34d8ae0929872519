// A connection of a process with itself: both ends in one thread, so that every call can be looked
// at alone.
#ifndef RAILHOP_CC_NETPERF_SELF_CONNECTION_H_
#define RAILHOP_CC_NETPERF_SELF_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/netperf/buffers.h"
#include "cc/netperf/net_plugin.h"

namespace railhop::netperf {

class SelfConnection {
 public:
  // Loads the plugin and connects over `devices`, fused if there are several. Null and *error on
  // failure.
  static std::unique_ptr<SelfConnection> Open(const std::string& plugin, int api,
                                              const std::vector<int>& devices, uint64_t size,
                                              int slots, std::string* error);
  ~SelfConnection();
  SelfConnection(const SelfConnection&) = delete;
  SelfConnection& operator=(const SelfConnection&) = delete;

  NetPlugin& plugin() { return *plugin_; }
  // Null request: not now.
  NetResult Send(int slot, void** request);
  NetResult Receive(int slot, void** request);

 private:
  SelfConnection(uint64_t size, int slots)
      : size_(size), out_(size, slots, 1), in_(size, slots, 1) {}
  bool Connect(int device, std::string* error);

  const uint64_t size_;
  std::unique_ptr<NetPlugin> plugin_;
  Buffers out_;
  Buffers in_;
  void* listener_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  void* out_memory_ = nullptr;
  void* in_memory_ = nullptr;
};

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_SELF_CONNECTION_H_
