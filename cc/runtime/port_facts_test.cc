#include "cc/runtime/port_facts.h"

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "cc/config/options.h"
#include "cc/runtime/device_table.h"
#include "cc/runtime/fake_verbs.h"
#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

class PortFactsTest : public testing::Test {
 protected:
  explicit PortFactsTest(int64_t pinned = -1)
      : verbs_({{.name = "mlx5_0", .guid = 1}, {.name = "mlx5_1", .guid = 2}}) {
    config::Options options;
    options.ib_gid_index = pinned;
    std::vector<std::string> notes;
    const DeviceRules rules = DeviceRules::From(options, &notes);
    rules_ = rules.ports();
    table_ = DeviceTable::Discover(verbs_.table(), rules).value();
  }

  FakePort& port(size_t device) { return verbs_.device(device).ports[0]; }
  const PhysicalDevice& device(int id) { return *table_->Physical()[static_cast<size_t>(id)]; }
  PortFacts Read() { return ReadPort(device(0), rules_).value(); }

  FakeVerbs verbs_;
  PortRules rules_;
  std::unique_ptr<DeviceTable> table_;
};

class PinnedPortFactsTest : public PortFactsTest {
 protected:
  PinnedPortFactsTest() : PortFactsTest(3) {}
};

TEST_F(PortFactsTest, Nothing_AsItWasFound) {
  const PortFacts facts = Read();
  EXPECT_TRUE(facts.active);
  EXPECT_TRUE(facts.is_ethernet);
  EXPECT_EQ(facts.gid_index, 3);
  EXPECT_EQ(GidText(facts.gid), "10.0.0.1");
  EXPECT_EQ(facts.doubt, "");
  EXPECT_EQ(device(0).pkey, 0xffff);
  EXPECT_EQ(device(0).guid, 1u);
  EXPECT_EQ(device(0).speed_mbps, 200000);
}

// C16, not pinned: the same address, of the same RoCE version, at another index.
TEST_F(PortFactsTest, AddressMoved_FollowedByValueAndVersion) {
  port(0).gids = {{"fe80::1", 1}, {"fe80::1", 2}, {"", 2},         {"", 2},
                  {"", 2},        {"", 2},        {"10.0.0.1", 1}, {"10.0.0.1", 2}};
  EXPECT_EQ(Read().gid_index, 7);
}

TEST_F(PinnedPortFactsTest, PinnedAddressMoved_NotUsableAndSaysWhy) {
  EXPECT_EQ(Read().gid_index, 3);
  port(0).gids[3].address = "10.0.0.9";
  EXPECT_EQ(Read().gid_index, -1);
  EXPECT_EQ(Read().doubt,
            "NCCL_IB_GID_INDEX=3 is pinned and has the address 10.0.0.9 now, not 10.0.0.1");
  port(0).gids[3].address = "";
  EXPECT_EQ(Read().doubt, "NCCL_IB_GID_INDEX=3 is pinned and has no address now, not 10.0.0.1");
  port(0).gids[3].address = "10.0.0.1";
  EXPECT_EQ(Read().gid_index, 3);
}

// C14: the port is up before its address is.
TEST_F(PortFactsTest, OnlyLinkLocalLeft_NotUsableYet) {
  port(0).gids.resize(2);
  const PortFacts facts = Read();
  EXPECT_TRUE(facts.active);
  EXPECT_EQ(facts.gid_index, -1);
  EXPECT_NE(facts.doubt.find("10.0.0.1 is not there now"), std::string::npos) << facts.doubt;
}

TEST_F(PortFactsTest, OtherAddress_TakenByTheRules) {
  port(0).gids[2].address = port(0).gids[3].address = "10.0.7.7";
  const PortFacts facts = Read();
  EXPECT_EQ(facts.gid_index, 3);
  EXPECT_EQ(GidText(facts.gid), "10.0.7.7");
}

TEST_F(PortFactsTest, PortDownOrUnreadable_Told) {
  verbs_.SetUp(0, 0, false);
  EXPECT_FALSE(Read().active);
  port(0).query_errno = EIO;
  EXPECT_FALSE(ReadPort(device(0), rules_).ok());
}

// C33: by value; the configured index first.
TEST_F(PortFactsTest, Pkey_ByValueElseRefused) {
  EXPECT_EQ(FindPkey(device(1), rules_, 0).value(), 0);
  EXPECT_EQ(FindPkey(device(1), rules_, 0xffff).value(), 0);
  port(1).pkeys = {0x8005, 0, 0xffff};
  EXPECT_EQ(FindPkey(device(1), rules_, 0xffff).value(), 2);
  EXPECT_EQ(FindPkey(device(1), rules_, 0).value(), 0);
  port(1).pkeys = {0x8005, 0x7fff};
  EXPECT_EQ(FindPkey(device(1), rules_, 0xffff).value(), 1);
  port(1).pkeys = {0x8005};
  const absl::Status refused = FindPkey(device(1), rules_, 0xffff).status();
  EXPECT_EQ(refused.message(), "mlx5_1:1 has no P_Key 0xffff (index 0 has 0x8005)");
}

PhysicalDevice At(int id, const std::string& path, int numa) {
  PhysicalDevice device;
  device.id = id;
  device.pci_path = path;
  device.numa_node = numa;
  return device;
}

TEST(Distance, ByPortSwitchNodeHost) {
  const std::string root = "/sys/devices/pci0000:15/0000:15:01.0/";
  const PhysicalDevice a = At(0, root + "0000:16:00.0/0000:17:00.0/0000:18:00.0", 0);
  EXPECT_EQ(DistanceBetween(a, a), Distance::kSamePort);
  EXPECT_EQ(DistanceBetween(a, At(1, root + "0000:16:00.0/0000:17:01.0/0000:19:00.0", 0)),
            Distance::kSameSwitch);
  EXPECT_EQ(DistanceBetween(a, At(1, "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0", 0)),
            Distance::kSameNode);
  EXPECT_EQ(DistanceBetween(a, At(1, "/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0", 1)),
            Distance::kSameHost);
  EXPECT_EQ(DistanceBetween(a, At(1, "", -1)), Distance::kSameHost);
  EXPECT_EQ(DistanceBetween(At(0, "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0", -1),
                            At(1, "/sys/devices/pci0000:15/0000:15:02.0/0000:19:00.0", -1)),
            Distance::kSameNode);
}

}  // namespace
}  // namespace railhop::runtime
