#include "cc/control/socket_address.h"

#include <arpa/inet.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace railhop::control {
namespace {

Interface V4(const std::string& name, const char* address, const char* mask = "255.255.255.0") {
  Interface i = {.name = name, .address = {}, .netmask = {}};
  i.address.ipv4.sin_family = AF_INET;
  i.netmask.ipv4.sin_family = AF_INET;
  inet_pton(AF_INET, address, &i.address.ipv4.sin_addr);
  inet_pton(AF_INET, mask, &i.netmask.ipv4.sin_addr);
  return i;
}

std::string Choose(const std::vector<Interface>& all, const std::string& filter,
                   const std::string& comm_id = "") {
  SocketConfig config;
  config.socket_ifname = filter;
  config.comm_id = comm_id;
  const absl::StatusOr<Interface> chosen = ChooseInterface(all, config);
  return chosen.ok() ? chosen->name : std::string(chosen.status().message());
}

TEST(InterfaceFilter, NcclsGrammar_Matches) {
  EXPECT_TRUE(MatchesInterfaceFilter("eth0", "eth"));
  EXPECT_FALSE(MatchesInterfaceFilter("eth0", "=eth"));
  EXPECT_TRUE(MatchesInterfaceFilter("eth0", "=eth1,eth0"));
  EXPECT_FALSE(MatchesInterfaceFilter("eth0", "^eth"));
  EXPECT_TRUE(MatchesInterfaceFilter("eth10", "^=eth1"));
  EXPECT_FALSE(MatchesInterfaceFilter("eth1", "^=eth1"));
  EXPECT_TRUE(MatchesInterfaceFilter("bond0", "ens,bond"));
  // Too short to be a filter.
  EXPECT_TRUE(MatchesInterfaceFilter("eth0", "x"));
}

TEST(ChooseInterface, NoFilter_NcclsOrder) {
  const Interface lo = V4("lo", "127.0.0.1");
  const Interface docker = V4("docker0", "172.17.0.1");
  const Interface virbr = V4("virbr0", "192.168.122.1");
  const Interface eth0 = V4("eth0", "10.0.0.1");
  const Interface eth1 = V4("eth1", "10.0.1.1");
  const Interface ib0 = V4("ib0", "10.9.0.1");
  EXPECT_EQ(Choose({lo, docker, eth0, eth1, ib0}, ""), "ib0");
  EXPECT_EQ(Choose({lo, docker, eth0, eth1}, ""), "eth0");
  EXPECT_EQ(Choose({lo, docker, eth0, eth1}, "", "10.0.1.77:5000"), "eth1");
  EXPECT_EQ(Choose({virbr, lo, docker}, ""), "docker0");
  EXPECT_EQ(Choose({virbr, lo}, ""), "lo");
  EXPECT_EQ(Choose({virbr}, ""), "virbr0");
}

TEST(ChooseInterface, Filter_FirstMatchOnly) {
  const std::vector<Interface> all = {V4("lo", "127.0.0.1"), V4("eth0", "10.0.0.1"),
                                      V4("eth1", "10.0.1.1")};
  EXPECT_EQ(Choose(all, "eth"), "eth0");
  EXPECT_EQ(Choose(all, "=eth1"), "eth1");
  EXPECT_EQ(Choose(all, "^lo,eth0"), "eth1");
}

TEST(ChooseInterface, NoMatch_NamesVariableAndInterfaces) {
  const std::string why = Choose({V4("eth0", "10.0.0.1"), V4("lo", "127.0.0.1")}, "bond");
  EXPECT_NE(why.find("NCCL_SOCKET_IFNAME=\"bond\""), std::string::npos) << why;
  EXPECT_NE(why.find("eth0, lo"), std::string::npos) << why;
}

TEST(FormatAddress, EachFamily_Readable) {
  Interface i = V4("x", "10.0.0.1");
  i.address.ipv4.sin_port = htons(4711);
  EXPECT_EQ(FormatAddress(i.address), "10.0.0.1:4711");
  SocketAddress six = {};
  six.ipv6.sin6_family = AF_INET6;
  six.ipv6.sin6_port = htons(1);
  inet_pton(AF_INET6, "fe80::1", &six.ipv6.sin6_addr);
  EXPECT_EQ(FormatAddress(six), "[fe80::1]:1");
  EXPECT_EQ(FormatAddress({}), "(family 0)");
}

}  // namespace
}  // namespace railhop::control
