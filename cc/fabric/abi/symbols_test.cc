// The built library has every symbol with its version, and is harmless without a fabric.
//
// Arguments: the library, then lists of "symbol version ..." lines.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string g_library;
std::vector<std::string> g_lists;

TEST(Symbols, OfEveryList_Resolve) {
  void* const library = dlopen(g_library.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  ASSERT_FALSE(g_lists.empty());
  for (const std::string& path : g_lists) {
    std::ifstream list(path);
    ASSERT_TRUE(list) << path;
    int count = 0;
    for (std::string line; std::getline(list, line);) {
      if (line.empty() || line[0] == '#') continue;
      std::istringstream words(line);
      std::string symbol;
      std::string version;
      ASSERT_TRUE(words >> symbol >> version) << path << ": " << line;
      EXPECT_NE(dlvsym(library, symbol.c_str(), version.c_str()), nullptr)
          << path << ": " << symbol << "@" << version;
      ++count;
    }
    EXPECT_GT(count, 20) << path;
  }
  EXPECT_EQ(dlvsym(library, "ibv_get_device_list", "IBVERBS_1.17"), nullptr);
}

TEST(DeviceList, WithoutFabric_IsEmptyAndSaysWhyOnce) {
  unsetenv("RAILHOP_FABRIC");
  void* const library = dlopen(g_library.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  using GetList = void** (*)(int*);
  const auto get_list =
      reinterpret_cast<GetList>(dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1"));
  const auto free_list =
      reinterpret_cast<void (*)(void**)>(dlvsym(library, "ibv_free_device_list", "IBVERBS_1.1"));
  ASSERT_NE(get_list, nullptr);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    int count = -1;
    void** const list = get_list(&count);
    EXPECT_EQ(count, 0);
    ASSERT_NE(list, nullptr);
    EXPECT_EQ(list[0], nullptr);
    free_list(list);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("RAILHOP_FABRIC"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 3) return 2;
  g_library = argv[1];
  if (g_library.find('/') == std::string::npos) g_library = "./" + g_library;
  g_lists.assign(argv + 2, argv + argc);
  return RUN_ALL_TESTS();
}
