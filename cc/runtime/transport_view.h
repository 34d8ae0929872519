// What the transport knows of itself, for whoever shows it.
#ifndef RAILHOP_CC_RUNTIME_TRANSPORT_VIEW_H_
#define RAILHOP_CC_RUNTIME_TRANSPORT_VIEW_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/datapath/record.h"
#include "cc/runtime/net_device.h"

namespace railhop::runtime {

class ConnectionComm;

struct TransportView {
  // A connection of either kind, with failover or without.
  struct Comm {
    const ConnectionComm* comm = nullptr;  // for comparison
    bool is_send = false;
    std::string label;
    std::vector<int> home;  // its device's ports, by PhysicalDevice::id
    datapath::Traffic traffic;
  };
  // Of connections that were closed.
  struct PortTotal {
    uint64_t sent_bytes = 0;
    uint64_t received_bytes = 0;
    uint64_t sent_messages = 0;
    uint64_t received_messages = 0;
  };
  bool running = false;
  std::string host;
  uint64_t instance = 0;
  bool failover = false;
  std::vector<const PhysicalDevice*> ports;  // they outlive the transport
  std::vector<Comm> comms;
  std::map<int, PortTotal> closed;  // by PhysicalDevice::id
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_TRANSPORT_VIEW_H_
