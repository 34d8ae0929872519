// The settings of the sockets over which connections are agreed.
//
// Filled from the option table at the boundary (cc/runtime). Defaults are NCCL 2.30.7's.
#ifndef RAILHOP_CC_CONTROL_SOCKET_CONFIG_H_
#define RAILHOP_CC_CONTROL_SOCKET_CONFIG_H_

#include <string>

namespace railhop::control {

struct SocketConfig {
  // NCCL's grammar: optional '^' (exclude), optional '=' (exact), comma list, prefixes otherwise.
  // Empty = choose.
  std::string socket_ifname;
  // AF_INET, AF_INET6 or -1 (any).
  int socket_family = -1;
  // Prefer an interface in the subnet of this address ("host:port", NCCL_COMM_ID); may be empty.
  std::string comm_id;
  // A connect that is refused or times out is tried again this often, after a pause that grows by
  // this much each time.
  int socket_retry_cnt = 34;
  int socket_retry_sleep_msec = 100;
  // Bytes; -1 = the system's.
  int socket_rcvbuf = -1;
  int socket_sndbuf = -1;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_SOCKET_CONFIG_H_
