#include "cc/runtime/device_table.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "cc/runtime/fake_verbs.h"

namespace railhop::runtime {
namespace {

using Names = std::vector<std::string>;

// A /sys of its own, for the devices that the test gives a PCI address.
class Sys {
 public:
  Sys() {
    const char* base = getenv("TEST_TMPDIR");
    std::string pattern = std::string(base == nullptr ? "/tmp" : base) + "/sysXXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = std::filesystem::canonical(pattern).string();
  }
  ~Sys() { std::filesystem::remove_all(root_); }

  void Place(const std::string& device, const std::string& pci) const {
    namespace fs = std::filesystem;
    const fs::path function = fs::path(root_) / "sys/devices/pci" / pci;
    const fs::path folder = fs::path(root_) / "sys/class/infiniband" / device;
    fs::create_directories(function);
    fs::create_directories(folder);
    fs::create_symlink(function, folder / "device");
  }
  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(root_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

std::unique_ptr<DeviceTable> Discover(const FakeVerbs& fake, const config::Options& options = {},
                                      const std::string& root = "/none") {
  Names notes;
  DeviceRules rules = DeviceRules::From(options, &notes);
  rules.root = root;
  absl::StatusOr<std::unique_ptr<DeviceTable>> table = DeviceTable::Discover(fake.table(), rules);
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *std::move(table) : nullptr;
}

Names NamesOf(const DeviceTable& table) {
  Names names;
  for (int i = 0; i < table.Count(); ++i) {
    const NetDevice& device = *table.Get(i);
    names.push_back(device.properties.name + ":" + std::to_string(device.parts[0]->port));
  }
  return names;
}

config::Options With(const std::function<void(config::Options*)>& change) {
  config::Options options;
  change(&options);
  return options;
}

FakeDevice Named(const std::string& name, uint64_t guid = 1) {
  return {.name = name, .guid = guid};
}

TEST(DeviceTable, PlainDevice_PropertiesAreTruthful) {
  const Sys sys;
  sys.Place("mlx5_0", "0000:17:00.1");
  FakeDevice device = Named("mlx5_0", 0x1122334455667788);
  device.max_qp = 4711;
  const FakeVerbs fake({device});
  const auto table = Discover(fake, {}, sys.root());
  ASSERT_EQ(table->Count(), 1);
  const DeviceProperties& p = table->Get(0)->properties;
  EXPECT_EQ(p.name, "mlx5_0");
  EXPECT_EQ(p.pci_path, sys.root() + "/sys/devices/pci/0000:17:00.0");
  EXPECT_EQ(be64toh(p.guid), 0x1122334455667788u);
  EXPECT_EQ(p.speed_mbps, 200000);
  EXPECT_EQ(p.port, 1);
  EXPECT_EQ(p.max_comms, 4711);
  EXPECT_EQ(p.max_recvs, 8);
  EXPECT_TRUE(p.reg_is_global);
  EXPECT_FALSE(p.force_flush);
  EXPECT_EQ(p.rail_id, -1);
  EXPECT_EQ(p.plane_id, -1);
  EXPECT_EQ(p.fused, std::vector<int>{0});
  EXPECT_EQ(p.max_p2p_bytes, uint64_t{1} << 40);
  EXPECT_EQ(p.max_coll_bytes, uint64_t{1} << 29);
  EXPECT_EQ(p.max_multi_request, 1);
  const PhysicalDevice& part = *table->Get(0)->parts[0];
  EXPECT_EQ(part.gid_index, 3);
  EXPECT_TRUE(part.is_ethernet);
  EXPECT_TRUE(part.relaxed_ordering);
  EXPECT_TRUE(table->Complaints().empty());
  EXPECT_EQ(table->Get(1), nullptr);
  EXPECT_EQ(table->Get(-1), nullptr);
  EXPECT_EQ(table->Describe()[0],
            "device [0] mlx5_0:1 RoCE speed 200000 Mb/s, GID 3 10.0.0.1, PCI 0000:17:00.0, memory "
            "host+dmabuf, relaxed ordering");
}

TEST(DeviceTable, Destroyed_ClosesEveryDevice) {
  const FakeVerbs fake({Named("a"), Named("b")});
  {
    const auto table = Discover(fake, With([](auto* o) { o->ib_hca = "a"; }));
    EXPECT_EQ(fake.open_contexts(), 1);
  }
  EXPECT_EQ(fake.open_contexts(), 0);
}

TEST(DeviceTable, PciOrder_NumbersByAddress) {
  const Sys sys;
  sys.Place("mlx5_0", "0000:b7:00.0");
  sys.Place("mlx5_1", "0000:17:00.0");
  sys.Place("mlx5_3", "0000:57:00.0");
  const FakeVerbs fake({Named("mlx5_0"), Named("mlx5_1"), Named("mlx5_2"), Named("mlx5_3")});
  EXPECT_EQ(NamesOf(*Discover(fake, {}, sys.root())),
            (Names{"mlx5_1:1", "mlx5_3:1", "mlx5_0:1", "mlx5_2:1"}));
  EXPECT_EQ(NamesOf(*Discover(fake, With([](auto* o) { o->ib_device_pci_order = 0; }), sys.root())),
            (Names{"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"}));
}

struct FilterCase {
  const char* hca;
  Names names;
};

TEST(DeviceTable, HcaFilter_SelectsPorts) {
  FakeDevice dual = Named("mlx5_0");
  dual.ports.resize(2);
  const FakeVerbs fake({dual, Named("mlx5_1"), Named("mlx5_10"), Named("rxe0")});
  const FilterCase cases[] = {
      {"", {"mlx5_0:1", "mlx5_0:2", "mlx5_1:1", "mlx5_10:1", "rxe0:1"}},
      {"mlx5", {"mlx5_0:1", "mlx5_0:2", "mlx5_1:1", "mlx5_10:1"}},
      {"mlx5_1", {"mlx5_1:1", "mlx5_10:1"}},
      {"=mlx5_1", {"mlx5_1:1"}},
      {"^mlx5_1", {"mlx5_0:1", "mlx5_0:2", "rxe0:1"}},
      {"^=mlx5_1", {"mlx5_0:1", "mlx5_0:2", "mlx5_10:1", "rxe0:1"}},
      {"mlx5_0:2,rxe0", {"mlx5_0:2", "rxe0:1"}},
      {"^mlx5_0:2", {"mlx5_0:1", "mlx5_1:1", "mlx5_10:1", "rxe0:1"}},
      {"^", {}},
      {"none", {}},
  };
  for (const FilterCase& c : cases) {
    const auto table = Discover(fake, With([&](auto* o) { o->ib_hca = c.hca; }));
    EXPECT_EQ(NamesOf(*table), c.names) << c.hca;
    EXPECT_EQ(table->Complaints().empty(), !c.names.empty()) << c.hca;
  }
}

TEST(DeviceTable, HcaFilter_GivesRailAndPlane) {
  const FakeVerbs fake({Named("mlx5_0"), Named("mlx5_1")});
  const auto table = Discover(fake, With([](auto* o) { o->ib_hca = "mlx5_0:1:7:2,mlx5_1::8"; }));
  EXPECT_EQ(table->Get(0)->properties.rail_id, 7);
  EXPECT_EQ(table->Get(0)->properties.plane_id, 2);
  EXPECT_EQ(table->Get(1)->properties.rail_id, 8);
  EXPECT_EQ(table->Get(1)->properties.plane_id, -1);
}

TEST(DeviceTable, ThirteenthPlane_IsRefused) {
  std::vector<FakeDevice> devices;
  std::string hca;
  for (int i = 0; i < 13; ++i) {
    devices.push_back(Named("d" + std::to_string(i)));
    hca += (i == 0 ? "=d" : ",d") + std::to_string(i) + ":1:0:" + std::to_string(i);
  }
  const FakeVerbs fake(devices);
  Names notes;
  const DeviceRules rules = DeviceRules::From(With([&](auto* o) { o->ib_hca = hca; }), &notes);
  EXPECT_EQ(DeviceTable::Discover(fake.table(), rules).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DeviceTable, MergeVfs_CountsPortsOfOneCard) {
  const Sys sys;
  sys.Place("pf0", "0000:17:00.0");
  sys.Place("pf1", "0000:17:00.1");
  sys.Place("vf0", "0000:17:01.2");
  const FakeVerbs fake({Named("pf0"), Named("pf1"), Named("vf0")});
  const auto merged = Discover(fake, {}, sys.root());
  EXPECT_EQ(merged->Get(0)->properties.pci_path, merged->Get(2)->properties.pci_path);
  EXPECT_EQ(merged->Get(0)->properties.port, 1);
  EXPECT_EQ(merged->Get(1)->properties.port, 2);
  EXPECT_EQ(merged->Get(2)->properties.port, 3);
  const auto apart = Discover(fake, With([](auto* o) { o->ib_merge_vfs = 0; }), sys.root());
  EXPECT_NE(apart->Get(0)->properties.pci_path, apart->Get(2)->properties.pci_path);
  EXPECT_EQ(apart->Get(1)->properties.port, 2);
  EXPECT_EQ(apart->Get(2)->properties.port, 1);
}

TEST(DeviceTable, Speed_AskedOrFromTheTables) {
  FakeDevice device = Named("a");
  device.ports[0].queried_speed_hundred_mbps = 1234;
  FakeVerbs fake({device});
  EXPECT_EQ(Discover(fake)->Get(0)->properties.speed_mbps, 123400);
  EXPECT_EQ(Discover(fake, With([](auto* o) { o->ib_query_port_speed = 0; }))
                ->Get(0)
                ->properties.speed_mbps,
            200000);
  fake.table()->query_port_speed = nullptr;
  EXPECT_EQ(Discover(fake)->Get(0)->properties.speed_mbps, 200000);
}

TEST(DeviceTable, PointerSupport_AsProbed) {
  FakeVerbs fake({Named("a")});
  const Sys with_module;
  with_module.Write("sys/module/nvidia_peermem/version", "1");
  EXPECT_EQ(Discover(fake)->Get(0)->properties.ptr_support, kPointerHost | kPointerDmaBuf);
  EXPECT_EQ(Discover(fake, {}, with_module.root())->Get(0)->properties.ptr_support,
            kPointerHost | kPointerCuda | kPointerDmaBuf);
  fake.dmabuf_works = false;
  EXPECT_EQ(Discover(fake)->Get(0)->properties.ptr_support, kPointerHost);
  fake.table()->reg_dmabuf_mr = nullptr;
  EXPECT_EQ(Discover(fake)->Get(0)->properties.ptr_support, kPointerHost);
}

TEST(DeviceTable, RelaxedOrdering_WantedAndPossible) {
  FakeVerbs fake({Named("a")});
  const auto relaxed = [&](int64_t mode) {
    return Discover(fake, With([&](auto* o) { o->ib_pci_relaxed_ordering = mode; }))
        ->Get(0)
        ->parts[0]
        ->relaxed_ordering;
  };
  EXPECT_TRUE(relaxed(2));
  EXPECT_TRUE(relaxed(1));
  EXPECT_FALSE(relaxed(0));
  EXPECT_FALSE(relaxed(3)) << "as in NCCL";
  fake.iova2_works = false;
  EXPECT_FALSE(relaxed(2));
}

TEST(DeviceTable, GidKnobs_PickTheEntry) {
  FakeDevice device = Named("a");
  device.ports[0].gids = {{"fe80::1", 1}, {"unreadable"}, {"10.0.0.1", 1}, {"10.0.0.1", 2},
                          {"fd00::1", 1}, {"fd00::1", 2}, {"10.9.0.1", 1}, {"10.9.0.1", 2}};
  const FakeVerbs fake({device});
  const auto index = [&](const std::function<void(config::Options*)>& change) {
    return Discover(fake, With(change))->Get(0)->parts[0]->gid_index;
  };
  EXPECT_EQ(index([](auto*) {}), 3);
  EXPECT_EQ(index([](auto* o) { o->ib_roce_version_num = 1; }), 2);
  EXPECT_EQ(index([](auto* o) { o->ib_addr_family = "AF_INET6"; }), 5);
  EXPECT_EQ(index([](auto* o) { o->ib_addr_range = "10.9.0.0/16"; }), 7);
  EXPECT_EQ(index([](auto* o) { o->ib_gid_index = 4; }), 4);
}

TEST(DeviceTable, WithoutQueryGidEx_VersionsComeFromSys) {
  FakeVerbs fake({Named("a")});
  fake.table()->query_gid_ex = nullptr;
  const Sys sys;
  const char* types[] = {"IB/RoCE v1\n", "RoCE v2\n", "IB/RoCE v1\n", "RoCE v2\n"};
  for (int i = 0; i < 4; ++i) {
    sys.Write("sys/class/infiniband/a/ports/1/gid_attrs/types/" + std::to_string(i), types[i]);
  }
  EXPECT_EQ(Discover(fake, {}, sys.root())->Get(0)->parts[0]->gid_index, 3);
}

TEST(DeviceTable, InfiniBand_RoutableIdKnob) {
  FakeDevice device = Named("ib0");
  device.ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  device.ports[0].gids = {{"fe80::1", 0}, {"fe80::2", 0}, {"fe80:0:17::3", 0}};
  const FakeVerbs fake({device});
  EXPECT_EQ(Discover(fake)->Get(0)->parts[0]->gid_index, 0);
  const auto table = Discover(fake, With([](auto* o) { o->ib_routable_flid_gid_index = 2; }));
  EXPECT_EQ(table->Get(0)->parts[0]->gid_index, 2);
  EXPECT_FALSE(table->Get(0)->parts[0]->is_ethernet);
}

TEST(DeviceTable, PkeyIndex_LeavesOutPortsWithoutIt) {
  FakeDevice two = Named("a");
  two.ports[0].pkeys = {0xffff, 0x8001};
  const FakeVerbs fake({two, Named("b")});
  const auto first = Discover(fake);
  EXPECT_EQ(first->Count(), 2);
  const auto second = Discover(fake, With([](auto* o) { o->ib_pkey = 1; }));
  EXPECT_EQ(NamesOf(*second), Names{"a:1"});
  EXPECT_EQ(second->Complaints(),
            Names{"b:1 is left out: NCCL_IB_PKEY=1 is no entry of its P_Key table"});
}

TEST(DeviceTable, DeviceThatDoesNotOpen_IsNamedOnce) {
  FakeDevice locked = Named("mlx5_0");
  locked.open_errno = EACCES;
  const FakeVerbs fake({locked, Named("mlx5_1")});
  const auto table = Discover(fake);
  EXPECT_EQ(NamesOf(*table), Names{"mlx5_1:1"});
  ASSERT_EQ(table->Complaints().size(), 1u);
  EXPECT_EQ(table->Complaints()[0].find("devices that cannot be opened: mlx5_0"), 0u);
  EXPECT_TRUE(Discover(fake, With([](auto* o) { o->ib_hca = "=mlx5_1"; }))->Complaints().empty());
  EXPECT_TRUE(Discover(fake, With([](auto* o) { o->ib_hca = "^mlx5_0"; }))->Complaints().empty());
}

TEST(DeviceTable, NothingToUse_SaysWhy) {
  const FakeVerbs empty({});
  EXPECT_EQ(Discover(empty)->Complaints(), Names{"libibverbs lists no RDMA device"});
  FakeDevice down = Named("a");
  down.ports[0].up = false;
  {
    const FakeVerbs fake({down});
    EXPECT_EQ(Discover(fake)->Complaints(), Names{"no port is up (waiting: a:1)"});
  }
  FakeVerbs failing({});
  failing.list_errno = EIO;
  Names notes;
  EXPECT_EQ(DeviceTable::Discover(failing.table(), DeviceRules::From({}, &notes)).status().code(),
            absl::StatusCode::kInternal);
}

TEST(DeviceTable, OtherLinkLayer_IsLeftOut) {
  FakeDevice odd = Named("a");
  odd.ports[0].link_layer = IBV_LINK_LAYER_UNSPECIFIED;
  const FakeVerbs fake({odd, Named("b")});
  EXPECT_EQ(NamesOf(*Discover(fake)), Names{"b:1"});
}

TEST(DeviceTable, PortThatComesUp_JoinsAtTheEnd) {
  const Sys sys;
  sys.Place("a", "0000:17:00.0");
  sys.Place("b", "0000:27:00.0");
  FakeDevice down = Named("a");
  down.ports[0].up = false;
  FakeVerbs fake({down, Named("b")});
  const auto table = Discover(fake, {}, sys.root());
  EXPECT_EQ(NamesOf(*table), Names{"b:1"});
  EXPECT_EQ(table->WaitingPorts(), Names{"a:1"});
  EXPECT_EQ(table->IdleContexts().size(), 1u);
  EXPECT_EQ(table->JoinPorts(), 0);
  const NetDevice* before = table->Get(0);
  fake.SetUp(0, 0, true);
  EXPECT_EQ(table->JoinPorts(), 1);
  EXPECT_EQ(NamesOf(*table), (Names{"b:1", "a:1"}));
  EXPECT_EQ(table->Get(0), before);
  EXPECT_TRUE(table->WaitingPorts().empty());
  EXPECT_TRUE(table->IdleContexts().empty());
  EXPECT_EQ(table->JoinPorts(), 0);
}

TEST(DeviceTable, Watched_JoinsByItself) {
  FakeDevice down = Named("a");
  down.ports[0].up = false;
  FakeVerbs fake({down, Named("b")});
  const auto table = Discover(fake);
  table->StartWatching(1'000'000);
  fake.SetUp(0, 0, true);
  for (int i = 0; i < 10'000 && table->Count() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(table->Count(), 2);
}

TEST(DeviceTable, Watched_EndsWithTheTable) {
  FakeDevice down = Named("a");
  down.ports[0].up = false;
  const FakeVerbs fake({down});
  Discover(fake)->StartWatching(3'600'000'000'000);  // would hang for an hour
}

TEST(Fuse, UpToEight_SumsAndNames) {
  std::vector<FakeDevice> devices;
  for (int i = 0; i < 9; ++i) devices.push_back(Named("d" + std::to_string(i)));
  const FakeVerbs fake(devices);
  const auto table = Discover(fake);
  const absl::StatusOr<int> two = table->Fuse({0, 1});
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(*two, 9);
  const NetDevice& net = *table->Get(*two);
  EXPECT_EQ(net.properties.name, "d0+d1");
  EXPECT_EQ(net.properties.speed_mbps, 400000);
  EXPECT_EQ(net.properties.fused, (std::vector<int>{0, 1}));
  EXPECT_EQ(net.parts.size(), 2u);
  EXPECT_EQ(*table->Fuse({0, 1, 2, 3, 4, 5, 6, 7}), 10);
  EXPECT_EQ(table->Fuse({0, 1, 2, 3, 4, 5, 6, 7, 8}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*table->Fuse({3}), 11) << "of one device, as NCCL allows";
  EXPECT_EQ(table->Get(11)->properties.name, "d3");
}

TEST(Fuse, BadDevices_AreRefused) {
  FakeDevice ib = Named("ib");
  ib.ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  const FakeVerbs fake({Named("a"), Named("b"), ib});
  const auto table = Discover(fake);
  const int fused = *table->Fuse({0, 1});
  const std::vector<int> wrong[] = {{}, {-1}, {99}, {0, 99}, {fused, 2}, {0, 0}, {0, 2}};
  for (const std::vector<int>& devices : wrong) {
    EXPECT_EQ(table->Fuse(devices).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(table->Count(), 4) << "nothing is left of a refusal";
}

TEST(Fuse, MergeNicsOff_RefusesMoreThanOne) {
  const FakeVerbs fake({Named("a"), Named("b")});
  const auto table = Discover(fake, With([](auto* o) { o->ib_merge_nics = 0; }));
  EXPECT_EQ(table->Fuse({0, 1}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(table->Fuse({0}).ok());
}

TEST(Fuse, RailAndPlane_OfTheParts) {
  const FakeVerbs fake({Named("a"), Named("b"), Named("c")});
  const auto table = Discover(fake, With([](auto* o) { o->ib_hca = "a:1:5:1,b:1:5:2,c:1:6"; }));
  const DeviceProperties& same = table->Get(*table->Fuse({0, 1}))->properties;
  EXPECT_EQ(same.rail_id, 5);
  EXPECT_EQ(same.plane_id, (1 << 14) | (1 << 1) | (1 << 2));
  const DeviceProperties& mixed = table->Get(*table->Fuse({0, 2}))->properties;
  EXPECT_EQ(mixed.rail_id, -1);
  EXPECT_EQ(mixed.plane_id, (1 << 14) | (1 << 1) | (1 << 0));
}

TEST(DeviceRules, BadTexts_AreNamed) {
  Names notes;
  DeviceRules::From(With([](auto* o) {
                      o->ib_hca = ":1,a";
                      o->ib_addr_family = "ipv4";
                      o->ib_addr_range = "x";
                    }),
                    &notes);
  EXPECT_EQ(notes.size(), 3u);
}

// NCCL_IB_HCA may name any number as a rail; a peer must not refuse all else for that.
TEST(RailForPeers, OutOfAMessagesRange_NotKnown) {
  EXPECT_EQ(RailForPeers(-1), -1);
  EXPECT_EQ(RailForPeers(0), 0);
  EXPECT_EQ(RailForPeers(0x7fff), 0x7fff);
  EXPECT_EQ(RailForPeers(0x8000), -1);
  EXPECT_EQ(RailForPeers(-5), -1);
}

}  // namespace
}  // namespace railhop::runtime
