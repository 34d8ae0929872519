#include "cc/rdma_model/topology_text.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace railhop::rdma {
namespace {

Topology Parse(const std::string& text) {
  std::string error;
  const std::optional<Topology> topology = ParseTopology(text, "t", &error);
  EXPECT_TRUE(topology) << error;
  return topology.value_or(Topology{});
}

std::string ErrorOf(const std::string& text) {
  std::string error;
  EXPECT_FALSE(ParseTopology(text, "t", &error)) << text;
  return error;
}

TEST(ParseTopology, OneLine_GetsDefaults) {
  const Topology topology = Parse("device nic0 port 1 address 10.0.0.1");
  ASSERT_EQ(topology.devices.size(), 1u);
  EXPECT_EQ(topology.hosts, std::vector<std::string>{"host0"});
  EXPECT_EQ(topology.nets, std::vector<std::string>{"lan"});
  const TopologyPort& port = topology.devices[0].ports.at(0);
  EXPECT_EQ(port.pkeys, std::vector<uint16_t>{0xffff});
  ASSERT_EQ(port.gids.size(), 4u);
  EXPECT_TRUE(IsLinkLocal(port.gids[0].gid));
  EXPECT_TRUE(port.up);
}

TEST(ParseTopology, EveryWord_IsKept) {
  const Topology topology = Parse(R"(
nets a b
route_one_way a b
host h   # a comment
  device d pci 0000:15:00.0/0000:18:00.1 numa -1 guid 0002:c903:00a1:b2c3 vendor 0x15b3 part 4129
    hw_ver 3 firmware 22.1 cap max_qp 100 cap max_mr_size 0x100000000 quirk no_uc open ENOENT
    system_guid 0x0002c90300a1b2c0
    port 1 link infiniband net b speed 400 mtu 4096 active_mtu 2048 lid 17 sm_lid 3
      subnet_prefix fec0:0000:0000:0001 netdev ib0 state down pkey 0x8001 pkey 0xffff guid 0002:c903:00a1:b2c4
)");
  const TopologyDevice& device = topology.devices.at(0);
  EXPECT_EQ(device.numa_node, -1);
  EXPECT_EQ(device.sys_image_guid, 0x0002c90300a1b2c0u);
  EXPECT_EQ(device.caps.max_qp, 100u);
  EXPECT_EQ(device.caps.max_mr_size, 0x100000000u);
  EXPECT_EQ(device.quirks, std::vector<std::string>{"no_uc"});
  EXPECT_EQ(device.open_errno, ENOENT);
  const TopologyPort& port = device.ports.at(0);
  EXPECT_EQ(port.link_layer, LinkLayer::kInfiniBand);
  EXPECT_EQ(port.net, 1);
  EXPECT_EQ(port.active_mtu, 4u);
  EXPECT_EQ(port.lid, 17u);
  EXPECT_FALSE(port.up);
  EXPECT_EQ(port.pkeys, (std::vector<uint16_t>{0x8001, 0xffff}));
  ASSERT_EQ(port.gids.size(), 1u);
  EXPECT_EQ(FormatGidFull(port.gids[0].gid), "fec0:0000:0000:0001:0002:c903:00a1:b2c4");
  EXPECT_EQ(topology.routes, (std::vector<TopologyRoute>{{0, 1}}));
}

TEST(ParseTopology, GidByHand_LeavesGaps) {
  const Topology topology =
      Parse("device d port 1 link_local none gid 3 10.0.0.9 v2 gid 1 fd00::9 v1");
  const std::vector<TopologyGid>& gids = topology.devices.at(0).ports.at(0).gids;
  ASSERT_EQ(gids.size(), 4u);
  EXPECT_TRUE(IsEmpty(gids[0].gid));
  EXPECT_EQ(FormatAddress(gids[1].gid), "fd00::9");
  EXPECT_TRUE(IsEmpty(gids[2].gid));
  EXPECT_EQ(gids[3].type, GidType::kRoceV2);
}

TEST(ParseTopology, GidEmpty_TakesOneOut) {
  const Topology topology = Parse("device d port 1 address 10.0.0.1 gid 0 empty");
  const std::vector<TopologyGid>& gids = topology.devices.at(0).ports.at(0).gids;
  ASSERT_EQ(gids.size(), 4u);
  EXPECT_TRUE(IsEmpty(gids[0].gid));
}

TEST(ParseTopology, InfiniBandWithoutLids_GetsDifferentOnes) {
  const Topology topology = Parse(
      "device a port 1 link infiniband lid 1\ndevice b port 1 link infiniband\n"
      "device c port 1 link infiniband");
  EXPECT_EQ(topology.devices.at(1).ports[0].lid, 2u);
  EXPECT_EQ(topology.devices.at(2).ports[0].lid, 3u);
}

// An error names the file, the line and the word, and says what is allowed there.
TEST(ParseTopology, BadInput_NamesLineWordAndWhatIsAllowed) {
  struct Case {
    const char* text;
    const char* error;
  };
  const Case cases[] = {
      {"devise d", "t:1: devise: unknown word; allowed: nets, route, route_one_way, host, device"},
      {"host h\nspeed 100",
       "t:2: speed: belongs to a port; allowed: nets, route, route_one_way, host, device"},
      {"device d port 1 speed 123",
       "t:1: 123: not a speed in Gb/s that a link has; allowed: 10, 25, 40, 50, 56, 100, 200, 400, "
       "800"},
      {"device d port 1 speed", "t:1: speed: a value is missing; allowed: Gb/s"},
      {"device d port 2", "t:1: 2: ports come in order, each once; allowed: 1"},
      {"device d port 1 port 3", "t:1: 3: not a value of port; allowed: a number from 1 to 2"},
      {"device d", "t:1: d: this device has no port; allowed: port 1"},
      {"device d numa x", "t:1: x: not a value of numa; allowed: -1 or a number from 0 to 1023"},
      {"", "t:0: device: there is none; a fabric has at least one device"},
      {"device d port 1 mtu 1500", "t:1: 1500: not an MTU; allowed: 256, 512, 1024, 2048, 4096"},
      {"device d port 1 address 10.0.0.300",
       "t:1: 10.0.0.300: not an address; allowed: an IPv4 address as 10.0.0.1 or an IPv6 address "
       "as "
       "fd00::1"},
      {"nets a b\ndevice d port 1 net c", "t:2: c: no such net; allowed: a, b"},
      {"nets a b\ndevice d\n port 1", "t:3: d:1: this port has no net; allowed: net a, b"},
      {"device d pci 17:00.0 port 1",
       "t:1: 17:00.0: not a PCI address; allowed: DDDD:BB:SS.F in hexadecimal, or several joined "
       "by "
       "'/', from the root"},
      {"device d port 1 lid 5",
       "t:1: lid: this port is Ethernet and has none; allowed: say 'link infiniband' first"},
      {"device d port 1 gid 1 10.0.0.1 v3",
       "t:1: v3: not a GID type of this port; allowed: v1, v2"},
      {"device d port 1 address 10.0.0.1\ndevice e port 1 address 10.0.0.1",
       "t:2: e:1: 10.0.0.1 is also an address of d:1 in net lan"},
      {"host a device d port 1 address 10.0.0.1\nhost b device d port 1 address 10.0.0.1",
       "t:2: b/d:1: 10.0.0.1 is also an address of a/d:1 in net lan"},
      {"device d port 1 link infiniband\ndevice e port 1",
       "t:2: e:1: net lan is of the other link layer"},
      {"device d port 1\ndevice d port 1", "t:2: d: this host has a device of that name already"},
      {"device d guid 12 port 1",
       "t:1: 12: not a GUID; allowed: 16 hexadecimal digits, as 0002:c903:00a1:b2c3"},
      {"device d cap max_fun 1 port 1",
       "t:1: max_fun: no such cap; allowed: max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, "
       "max_pd, "
       "max_rd_atomic, max_mr_size"},
      {"device d open EWHAT port 1",
       "t:1: EWHAT: not a result of opening a device; allowed: ok, EACCES, EBUSY, EIO, ENODEV, "
       "ENOENT, "
       "ENOMEM, EPERM"},
      {"host 3", "t:1: 3: a host's name may not be a number, since hosts are also named by index"},
      {"device d port 1 pci 0000:17:00.0",
       "t:1: pci: belongs to a device, before its first port; allowed: nets, route, route_one_way, "
       "host, "
       "device, port, link, net, speed, mtu, active_mtu, address, link_local, gid, guid, lid, "
       "sm_lid, "
       "subnet_prefix, netdev, state, pkey"},
      {"device d port 1 mtu 1024 active_mtu 4096",
       "t:1: d:1: active_mtu is above mtu; allowed: up to 1024"},
      {"device d quirk no_such port 1", "t:1: no_such: no such quirk; allowed: "},
  };
  for (const Case& test : cases) {
    EXPECT_EQ(ErrorOf(test.text).substr(0, std::string(test.error).size()), test.error);
  }
}

TEST(ParseTopology, LinkBehindWhatBelongsToTheOther_IsRefused) {
  for (const char* const words :
       {"gid 0 10.0.0.1 v2 link infiniband", "address 10.0.0.1 link infiniband",
        "link_local none link infiniband", "link infiniband lid 5 link ethernet",
        "link infiniband sm_lid 5 link ethernet"}) {
    const std::string error = ErrorOf(std::string("device d port 1 ") + words);
    EXPECT_NE(error.find("comes before the port's addresses"), std::string::npos) << error;
  }
  Parse("device d port 1 link infiniband lid 5 link infiniband");
}

TEST(ParseTopology, PciAddress_HasNoSignsAndNo0x) {
  for (const char* const path : {"-001:00:00.0", "0x01:00:00.0", "0000:00:-1.0", "0000:00:00.8",
                                 "0000:00:00.0/", "/0000:00:00.0"}) {
    const std::string error = ErrorOf(std::string("device d pci ") + path + " port 1");
    EXPECT_NE(error.find("not a PCI address"), std::string::npos) << error;
  }
}

TEST(ParseTopology, ZeroInAWord_IsRefused) {
  using namespace std::string_literals;  // NOLINT(google-build-using-namespace)
  ErrorOf("device d port 1 speed 100\0x"s);
  ErrorOf("device d port 1 address 10.0.0.1\0x"s);
  ErrorOf("device d port 1 address fd00::1\0x"s);
}

TEST(ParseTopology, WordThatCannotBePrinted_IsShownAllTheSame) {
  EXPECT_TRUE(ErrorOf("\x1b[1m").starts_with("t:1: ?[1m: unknown word")) << ErrorOf("\x1b[1m");
  EXPECT_LT(ErrorOf("nets " + std::string(100'000, 'x')).size(), 300u);
}

TEST(FormatTopology, InfiniBandPortWithoutGids_IsTheSameAgain) {
  const Topology topology = Parse("device d port 1 link infiniband gid 0 empty");
  EXPECT_TRUE(topology.devices.at(0).ports.at(0).gids.empty());
  EXPECT_EQ(Parse(FormatTopology(topology)), topology);
}

TEST(ParseTopology, TooMuch_IsRefused) {
  std::string hosts;
  for (int i = 0; i <= kTopologyMaxHosts; ++i) hosts += "host h" + std::to_string(i) + "\n";
  EXPECT_NE(ErrorOf(hosts).find("too many hosts; allowed: up to 64"), std::string::npos);
  std::string devices;
  for (int i = 0; i <= kTopologyMaxDevices; ++i) {
    devices += "device d" + std::to_string(i) + " port 1\n";
  }
  EXPECT_NE(ErrorOf(devices).find("too many devices; allowed: up to 64"), std::string::npos);
  std::string addresses = "device d port 1";
  for (int i = 1; i <= 8; ++i) addresses += " address 10.0.0." + std::to_string(i);
  EXPECT_NE(ErrorOf(addresses).find("its GID table is too long"), std::string::npos);
}

// Any prefix of a good file, and any file with a byte changed, is read or refused with an error,
// and nothing else.
TEST(ParseTopology, DamagedText_NeverCrashes) {
  const std::string good = FormatTopology(DefaultTopology());
  for (size_t i = 0; i < good.size(); i += 3) {
    std::string error;
    std::string bad = good.substr(0, i);
    if (!ParseTopology(bad, "t", &error)) {
      EXPECT_EQ(error.rfind("t:", 0), 0u) << error;
    }
    bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    error.clear();
    if (!ParseTopology(bad, "t", &error)) {
      EXPECT_EQ(error.rfind("t:", 0), 0u) << error;
    }
  }
}

TEST(FormatTopology, ParsedAgain_IsTheSame) {
  const Topology topology = DefaultTopology();
  EXPECT_EQ(Parse(FormatTopology(topology)), topology);
}

TEST(Testdata, EveryTopology_ParsesAndFormats) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("testdata/topologies")) {
    if (entry.path().extension() != ".topology") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const Topology topology = Parse(text.str());
    EXPECT_EQ(Parse(FormatTopology(topology)), topology) << entry.path();
    EXPECT_EQ(text.str()[0], '#') << entry.path() << " begins with a comment on what it is";
    ++files;
  }
  EXPECT_EQ(files, 6);
}

}  // namespace
}  // namespace railhop::rdma
