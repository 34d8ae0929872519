#include "cc/runtime/device_place.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace railhop::runtime {
namespace {

// A folder of its own that goes away with it.
class Folder {
 public:
  Folder() {
    const char* base = getenv("TEST_TMPDIR");
    std::string pattern = std::string(base == nullptr ? "/tmp" : base) + "/placeXXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(PciPath, RealPath_OfTheDeviceLink) {
  const Folder folder;
  const std::filesystem::path root = std::filesystem::canonical(folder.path());
  std::filesystem::create_directories(root / "devices/0000:17:00.1");
  std::filesystem::create_directories(root / "class/mlx5_0");
  std::filesystem::create_symlink("../../devices/0000:17:00.1", root / "class/mlx5_0/device");
  EXPECT_EQ(RealPciPath(folder.path() + "/class/mlx5_0"), (root / "devices/0000:17:00.1").string());
  EXPECT_EQ(RealPciPath(folder.path() + "/class/mlx5_1"), "");
}

TEST(PciPath, Merged_ZeroesFunctionAndVirtualDigits) {
  EXPECT_EQ(MergedPciPath("/sys/0000:17:00.1", true), "/sys/0000:17:00.0");
  EXPECT_EQ(MergedPciPath("/sys/0000:17:02.3", true), "/sys/0000:17:00.0");
  EXPECT_EQ(MergedPciPath("/sys/0000:17:02.3", false), "/sys/0000:17:02.0");
  EXPECT_EQ(MergedPciPath("", true), "");
  EXPECT_EQ(MergedPciPath("x", true), "x");
}

TEST(PciPath, SameCard_ByTheMergeRule) {
  EXPECT_TRUE(SameCard("/sys/0000:17:00.0", "/sys/0000:17:00.0", true));
  EXPECT_TRUE(SameCard("/sys/0000:17:00.0", "/sys/0000:17:02.0", true));
  EXPECT_FALSE(SameCard("/sys/0000:17:00.0", "/sys/0000:17:02.0", false));
  EXPECT_FALSE(SameCard("/sys/0000:17:00.0", "/sys/0000:18:00.0", true));
  EXPECT_FALSE(SameCard("", "", true));
}

TEST(PciOrder, ByAddress_PathlessLastAndStable) {
  EXPECT_EQ(PciOrder("/sys/devices/pci0000:15/0000:15:00.0/0000:17:00.1"), 0x000017001);
  EXPECT_EQ(PciOrder("/sys/0001:00:00.0/"), 0x000100000);
  EXPECT_EQ(PciOrder(""), -1);
  const std::vector<std::string> paths = {"", "/s/0000:b7:00.0", "/s/0000:17:00.1", "",
                                          "/s/0000:17:00.0"};
  EXPECT_EQ(PciSortedOrder(paths), (std::vector<int>{4, 2, 1, 0, 3}));
}

struct SpeedCase {
  uint32_t width;
  uint32_t speed;
  int mbps;
};

TEST(Speed, FromCodes_AsInTheTables) {
  const SpeedCase cases[] = {
      {1, 1, 2500},    {2, 2, 20000},    {2, 4, 40000},    {2, 8, 40000},    {2, 16, 56000},
      {2, 32, 100000}, {2, 64, 200000},  {2, 128, 400000}, {2, 256, 800000}, {4, 64, 400000},
      {8, 32, 300000}, {16, 64, 100000}, {1, 32, 25000},   {0, 0, 2500},
  };
  for (const SpeedCase& c : cases) {
    EXPECT_EQ(SpeedMbpsFromCodes(c.width, c.speed), c.mbps) << c.width << " " << c.speed;
  }
}

TEST(PeerMemory, AnyOfTheModules_Counts) {
  for (const char* module :
       {"sys/kernel/mm/memory_peers/nv_mem/version", "sys/kernel/mm/memory_peers/nv_mem_nc/version",
        "sys/module/nvidia_peermem/version"}) {
    const Folder folder;
    EXPECT_FALSE(HasPeerMemory(folder.path()));
    folder.Write(module, "1\n");
    EXPECT_TRUE(HasPeerMemory(folder.path())) << module;
  }
}

TEST(RoceVersion, FromSysfs_UnknownIsZero) {
  const Folder folder;
  folder.Write("ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
  folder.Write("ports/1/gid_attrs/types/1", "RoCE v2\n");
  folder.Write("ports/2/gid_attrs/types/0", "RoCE v1\n");
  folder.Write("ports/1/gid_attrs/types/2", "");
  EXPECT_EQ(RoceVersionFromSysfs(folder.path(), 1, 0), 1);
  EXPECT_EQ(RoceVersionFromSysfs(folder.path(), 1, 1), 2);
  EXPECT_EQ(RoceVersionFromSysfs(folder.path(), 2, 0), 1);
  EXPECT_EQ(RoceVersionFromSysfs(folder.path(), 1, 2), 0);
  EXPECT_EQ(RoceVersionFromSysfs(folder.path(), 1, 9), 0);
}

}  // namespace
}  // namespace railhop::runtime
