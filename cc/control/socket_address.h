// An IPv4 or IPv6 address and port, and the choice of the interface to listen on.
#ifndef RAILHOP_CC_CONTROL_SOCKET_ADDRESS_H_
#define RAILHOP_CC_CONTROL_SOCKET_ADDRESS_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/control/socket_config.h"

namespace railhop::control {

// As NCCL lays it out: 28 bytes, so that a handle begins alike.
union SocketAddress {
  sockaddr generic;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;
};
static_assert(sizeof(SocketAddress) == 28);
// Family, address, port and, for IPv6, scope; what else a union holds does not count.
bool operator==(const SocketAddress& a, const SocketAddress& b);

// 0 if the family is neither AF_INET nor AF_INET6.
socklen_t AddressLength(const SocketAddress& address);
// The same but for the port; an IPv4 address is the same when it is written as IPv6.
bool SameHost(const SocketAddress& a, const SocketAddress& b);
// "10.0.0.1:4711", "[fe80::1]:4711"; "(family 3)" for others.
std::string FormatAddress(const SocketAddress& address);

struct Interface {
  std::string name;
  SocketAddress address;
  SocketAddress netmask;
};

// Interfaces that are up and have an address of the family (-1 = either), in the system's order.
// Not the IPv6 loopback address.
std::vector<Interface> ListInterfaces(int family);

// NCCL_SOCKET_IFNAME: '^' excludes, '=' means exact names, else prefixes; a comma list. A text of
// fewer than two characters is no filter.
bool MatchesInterfaceFilter(const std::string& name, const std::string& filter);

// The interface to listen on: the first that the filter lets through; without a filter ib*, then
// one in the subnet of config.comm_id, then any but docker*, lo and virbr*, then docker*, lo,
// virbr*. Errors: FailedPrecondition (none: the message names the variable and the interfaces there
// are).
absl::StatusOr<Interface> ChooseInterface(const std::vector<Interface>& interfaces,
                                          const SocketConfig& config);

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_SOCKET_ADDRESS_H_
