#include "cc/control/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace railhop::control {
namespace {

// NCCL's IB transport keeps names of up to 15 characters; a filter is a list of at most 32.
constexpr size_t kFilterLengthMin = 2;

bool IsOneOf(const std::string& name, absl::string_view list, bool exact) {
  for (absl::string_view item : absl::StrSplit(list, ',')) {
    // "name:port" is allowed for devices, and harmless here.
    item = item.substr(0, item.find(':'));
    if (exact ? name == item : !item.empty() && absl::StartsWith(name, item)) return true;
  }
  return false;
}

// "host:port", "[v6]:port" -> address; false if it is none (a name is not looked up).
bool ParseHost(const std::string& text, SocketAddress* address) {
  *address = {};
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return false;
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    address->ipv6.sin6_family = AF_INET6;
    return inet_pton(AF_INET6, host.c_str(), &address->ipv6.sin6_addr) == 1;
  }
  address->ipv4.sin_family = AF_INET;
  return inet_pton(AF_INET, host.c_str(), &address->ipv4.sin_addr) == 1;
}

bool InSameSubnet(const Interface& interface, const SocketAddress& other) {
  if (interface.address.generic.sa_family != other.generic.sa_family) return false;
  if (other.generic.sa_family == AF_INET) {
    const uint32_t difference = interface.address.ipv4.sin_addr.s_addr ^ other.ipv4.sin_addr.s_addr;
    return (difference & interface.netmask.ipv4.sin_addr.s_addr) == 0;
  }
  for (int i = 0; i < 16; ++i) {
    const int difference =
        interface.address.ipv6.sin6_addr.s6_addr[i] ^ other.ipv6.sin6_addr.s6_addr[i];
    if ((difference & interface.netmask.ipv6.sin6_addr.s6_addr[i]) != 0) return false;
  }
  return true;
}

}  // namespace

socklen_t AddressLength(const SocketAddress& address) {
  switch (address.generic.sa_family) {
    case AF_INET:
      return sizeof(sockaddr_in);
    case AF_INET6:
      return sizeof(sockaddr_in6);
    default:
      return 0;
  }
}

bool operator==(const SocketAddress& a, const SocketAddress& b) {
  if (a.generic.sa_family != b.generic.sa_family) return false;
  switch (a.generic.sa_family) {
    case AF_INET:
      return a.ipv4.sin_port == b.ipv4.sin_port && a.ipv4.sin_addr.s_addr == b.ipv4.sin_addr.s_addr;
    case AF_INET6:
      return a.ipv6.sin6_port == b.ipv6.sin6_port && a.ipv6.sin6_scope_id == b.ipv6.sin6_scope_id &&
             memcmp(&a.ipv6.sin6_addr, &b.ipv6.sin6_addr, sizeof(in6_addr)) == 0;
    default:
      return true;
  }
}

bool SameHost(const SocketAddress& a, const SocketAddress& b) {
  const auto ipv6_of = [](const SocketAddress& address) {
    in6_addr bytes = {};
    if (address.generic.sa_family == AF_INET6) {
      bytes = address.ipv6.sin6_addr;
    } else if (address.generic.sa_family == AF_INET) {
      bytes.s6_addr[10] = bytes.s6_addr[11] = 0xff;
      memcpy(bytes.s6_addr + 12, &address.ipv4.sin_addr, sizeof(in_addr));
    }
    return bytes;
  };
  const in6_addr one = ipv6_of(a);
  const in6_addr other = ipv6_of(b);
  return AddressLength(a) != 0 && AddressLength(b) != 0 && memcmp(&one, &other, sizeof(one)) == 0;
}

std::string FormatAddress(const SocketAddress& address) {
  char host[INET6_ADDRSTRLEN] = "";
  switch (address.generic.sa_family) {
    case AF_INET:
      inet_ntop(AF_INET, &address.ipv4.sin_addr, host, sizeof(host));
      return absl::StrCat(host, ":", ntohs(address.ipv4.sin_port));
    case AF_INET6:
      if (IN6_IS_ADDR_V4MAPPED(&address.ipv6.sin6_addr)) {
        inet_ntop(AF_INET, address.ipv6.sin6_addr.s6_addr + 12, host, sizeof(host));
        return absl::StrCat(host, ":", ntohs(address.ipv6.sin6_port));
      }
      inet_ntop(AF_INET6, &address.ipv6.sin6_addr, host, sizeof(host));
      return absl::StrCat("[", host, "]:", ntohs(address.ipv6.sin6_port));
    default:
      return absl::StrCat("(family ", address.generic.sa_family, ")");
  }
}

std::vector<Interface> ListInterfaces(int family) {
  std::vector<Interface> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int its = i->ifa_addr->sa_family;
    if (its != AF_INET && its != AF_INET6) continue;
    if (family != -1 && its != family) continue;
    Interface interface = {.name = i->ifa_name, .address = {}, .netmask = {}};
    const size_t length = its == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    memcpy(&interface.address, i->ifa_addr, length);
    if (i->ifa_netmask != nullptr) memcpy(&interface.netmask, i->ifa_netmask, length);
    if (its == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&interface.address.ipv6.sin6_addr)) continue;
    found.push_back(std::move(interface));
  }
  freeifaddrs(list);
  return found;
}

bool MatchesInterfaceFilter(const std::string& name, const std::string& filter) {
  if (filter.size() < kFilterLengthMin) return true;
  absl::string_view list = filter;
  const bool exclude = absl::ConsumePrefix(&list, "^");
  const bool exact = absl::ConsumePrefix(&list, "=");
  return IsOneOf(name, list, exact) != exclude;
}

absl::StatusOr<Interface> ChooseInterface(const std::vector<Interface>& interfaces,
                                          const SocketConfig& config) {
  if (config.socket_ifname.size() >= kFilterLengthMin) {
    for (const Interface& i : interfaces) {
      if (MatchesInterfaceFilter(i.name, config.socket_ifname)) return i;
    }
  } else {
    SocketAddress root;
    const bool has_root = ParseHost(config.comm_id, &root);
    const auto is = [](const Interface& i, const char* list) {
      return IsOneOf(i.name, list, false);
    };
    for (const Interface& i : interfaces) {
      if (is(i, "ib")) return i;
    }
    for (const Interface& i : interfaces) {
      if (has_root && InSameSubnet(i, root)) return i;
    }
    for (const Interface& i : interfaces) {
      if (!is(i, "docker,lo,virbr")) return i;
    }
    for (const char* last : {"docker", "lo", "virbr"}) {
      for (const Interface& i : interfaces) {
        if (is(i, last)) return i;
      }
    }
  }
  std::vector<std::string> names;
  for (const Interface& i : interfaces) names.push_back(i.name);
  return absl::FailedPreconditionError(absl::StrCat(
      "no network interface for NCCL_SOCKET_IFNAME=\"", config.socket_ifname,
      "\"; interfaces that are up: ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

}  // namespace railhop::control
