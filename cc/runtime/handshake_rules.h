// What both ends of the handshake go by: deadlines, and the process's own particulars.
#ifndef RAILHOP_CC_RUNTIME_HANDSHAKE_RULES_H_
#define RAILHOP_CC_RUNTIME_HANDSHAKE_RULES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/units.h"
#include "cc/control/handshake.h"
#include "cc/control/socket_config.h"
#include "cc/datapath/datapath_config.h"

namespace railhop::runtime {

// One attempt to reach the listener's port.
inline constexpr int64_t kTcpConnectNs = 10 * kNsPerSecond;
// From a TCP connection to its whole HELLO, which the sender writes at once.
inline constexpr int64_t kHelloNs = 10 * kNsPerSecond;
// From REPLY to READY: the sender only brings its queue pairs up, but NCCL may let it wait.
inline constexpr int64_t kReadyNs = 120 * kNsPerSecond;
// Connections of one listener that have not said HELLO; beyond, the oldest is dropped.
inline constexpr size_t kStrangersMax = 256;

// The same for all connections of the process.
struct Identity {
  uint64_t instance_id = 0;
  std::string host;
  control::SocketConfig sockets;
  datapath::DatapathConfig datapath;
  std::string plugin_version = control::kPluginVersion;
  uint16_t protocol_version = control::kProtocolVersion;  // tests set another
  // RAILHOP_FAILOVER, and where this process can be called on the control channel, best first.
  // Both are said in HELLO and REPLY; nothing is said of addresses without failover.
  bool failover = false;
  bool confirm = false;  // RAILHOP_CONFIRM_RECEIVES
  std::vector<control::SocketAddress> control_addresses;
};

// The part of an end's description that is the process's.
void DescribeProcess(const Identity& identity, control::EndDescription* end);

// "plugin 1.0 (protocol 2) and plugin 0.9 (protocol 1) do not understand each other: ..."
std::string VersionMismatch(const std::string& ours, uint16_t our_protocol,
                            const std::string& theirs, uint16_t their_protocol);

// One line on a new connection: devices, GIDs, queue pair numbers, peer.
std::string DescribeConnection(const char* direction, const control::EndDescription& local,
                               const control::EndDescription& peer);

// "fe80::1" or "10.0.0.1" for a mapped IPv4 address.
std::string FormatGid(const std::array<uint8_t, 16>& gid);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_HANDSHAKE_RULES_H_
