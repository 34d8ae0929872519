#include "cc/rdma_model/topology.h"

#include "gtest/gtest.h"

namespace railhop::rdma {
namespace {

TEST(Address, Ipv4_IsMapped) {
  const Gid gid = *ParseAddress("10.1.2.3");
  EXPECT_TRUE(IsIpv4Mapped(gid));
  EXPECT_EQ(FormatAddress(gid), "10.1.2.3");
  EXPECT_EQ(FormatGidFull(gid), "0000:0000:0000:0000:0000:ffff:0a01:0203");
  EXPECT_EQ(*ParseAddress("::ffff:10.1.2.3"), gid);
}

TEST(Address, Ipv6_KeepsItsForm) {
  const Gid gid = *ParseAddress("fd00::1:2");
  EXPECT_FALSE(IsIpv4Mapped(gid));
  EXPECT_FALSE(IsLinkLocal(gid));
  EXPECT_EQ(FormatAddress(gid), "fd00::1:2");
  EXPECT_TRUE(IsLinkLocal(*ParseAddress("fe80::1")));
  EXPECT_FALSE(IsLinkLocal(*ParseAddress("fec0::1")));
}

TEST(Address, NotOne_IsRefused) {
  for (const char* text : {"", "10.0.0", "10.0.0.256", "fe80::g", "soft0", "10.0.0.1/24"}) {
    EXPECT_FALSE(ParseAddress(text)) << text;
  }
}

TEST(Guid, Format_AsInSysfs) {
  EXPECT_EQ(FormatGuid(0x0002c90300a1b2c3), "0002:c903:00a1:b2c3");
  EXPECT_EQ(FormatGidFull(GidOf(0xfe80000000000000, 0x0002c90300a1b2c3)),
            "fe80:0000:0000:0000:0002:c903:00a1:b2c3");
}

// The order that Linux makes: link-local first, for each address first v1, then v2.
TEST(EthernetGids, TwoAddresses_SixEntries) {
  const Gid local = *ParseAddress("fe80::1");
  const Gid four = *ParseAddress("10.0.0.1");
  const Gid six = *ParseAddress("fd00::1");
  const std::vector<TopologyGid> expected = {{local, GidType::kRoceV1}, {local, GidType::kRoceV2},
                                             {four, GidType::kRoceV1},  {four, GidType::kRoceV2},
                                             {six, GidType::kRoceV1},   {six, GidType::kRoceV2}};
  EXPECT_EQ(EthernetGids(local, {four, six}), expected);
  EXPECT_EQ(EthernetGids(Gid{}, {four}).size(), 2u);
}

// Width times lane speed is the rate, within what the encoding takes: codes from ibv_query_port(3).
TEST(WidthSpeed, EverySpeed_MultipliesOut) {
  for (const uint32_t gbps : KnownSpeedsGbps()) {
    const WidthSpeed link = WidthSpeedOf(gbps);
    const uint32_t lanes = link.width == 1 ? 1 : link.width == 2 ? 4 : 0;
    const uint32_t lane_gbps = link.speed == 4     ? 10
                               : link.speed == 16  ? 14
                               : link.speed == 32  ? 25
                               : link.speed == 64  ? 50
                               : link.speed == 128 ? 100
                               : link.speed == 256 ? 200
                                                   : 0;
    EXPECT_EQ(lanes * lane_gbps, gbps);
  }
  EXPECT_EQ(WidthSpeedOf(123).width, 0u);
  EXPECT_EQ(RateText(100), "100 Gb/sec (4X EDR)");
}

TEST(DefaultTopology, FourPorts_AllDifferent) {
  const Topology topology = DefaultTopology();
  ASSERT_EQ(topology.devices.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const TopologyDevice& device = topology.devices[i];
    EXPECT_EQ(device.name, "soft" + std::to_string(i));
    ASSERT_EQ(device.ports.size(), 1u);
    ASSERT_EQ(device.ports[0].gids.size(), 4u);
    EXPECT_EQ(FormatAddress(device.ports[0].gids[3].gid), "10.0.0." + std::to_string(i + 1));
    EXPECT_EQ(device.ports[0].gids[3].type, GidType::kRoceV2);
    for (int j = 0; j < i; ++j) {
      EXPECT_NE(device.node_guid, topology.devices[j].node_guid);
      EXPECT_NE(device.pci_path, topology.devices[j].pci_path);
    }
  }
}

TEST(PciAddress, LastOfAPath) {
  EXPECT_EQ(PciAddressOf("0000:17:00.0"), "0000:17:00.0");
  EXPECT_EQ(PciAddressOf("0000:15:00.0/0000:16:00.0/0000:18:00.1"), "0000:18:00.1");
}

}  // namespace
}  // namespace railhop::rdma
