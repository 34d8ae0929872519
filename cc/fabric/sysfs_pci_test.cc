#include "cc/fabric/sysfs_pci.h"

#include <map>

#include "gtest/gtest.h"

namespace railhop::fabric {
namespace {

TEST(PciFolders, OneStep) {
  EXPECT_EQ(PciFolders("0000:17:00.0"),
            std::vector<std::string>{"/sys/devices/pci0000:17/0000:17:00.0"});
}

TEST(PciFolders, Bridges_AreAbove) {
  EXPECT_EQ(
      PciFolders("0000:15:00.0/0000:16:01.0/0000:18:00.0"),
      (std::vector<std::string>{"/sys/devices/pci0000:15/0000:15:00.0",
                                "/sys/devices/pci0000:15/0000:15:00.0/0000:16:01.0",
                                "/sys/devices/pci0000:15/0000:15:00.0/0000:16:01.0/0000:18:00.0"}));
}

TEST(PciDeviceFiles, SayWhatNcclReads) {
  const rdma::TopologyDevice device = rdma::DefaultTopology().devices[0];
  std::map<std::string, std::string> files;
  for (const auto& [name, text] : PciDeviceFiles(device)) files[name] = text;
  EXPECT_EQ(files["class"], "0x020000\n");
  EXPECT_EQ(files["numa_node"], "0\n");
  EXPECT_EQ(files["max_link_speed"], "8.0 GT/s PCIe\n");
  EXPECT_EQ(files["current_link_width"], "16\n");
  for (const char* name : {"vendor", "device", "local_cpus", "local_cpulist", "subsystem_vendor"}) {
    EXPECT_GT(files[name].size(), 1u) << name;
  }
}

TEST(PciDeviceFiles, NodeThatThisMachineLacks_AllProcessors) {
  rdma::TopologyDevice device = rdma::DefaultTopology().devices[0];
  device.numa_node = 1000;
  std::map<std::string, std::string> files;
  for (const auto& [name, text] : PciBridgeFiles(device)) files[name] = text;
  EXPECT_EQ(files["class"], "0x060400\n");
  EXPECT_EQ(files["numa_node"], "1000\n");
  EXPECT_EQ(files["local_cpulist"].substr(0, 2), "0-");
  EXPECT_EQ(files["local_cpus"].find_first_not_of("0123456789abcdef,\n"), std::string::npos);
}

TEST(RealPciFolder, NoSuchDevice_Empty) { EXPECT_EQ(RealPciFolder("5248:10:00.0"), ""); }

}  // namespace
}  // namespace railhop::fabric
