// main() of tests that run over the software fabric: starts itself again inside a fresh one.
//
//   test --fabric=PATH/railhop-fabric --library=PATH/libibverbs.so.1 [--topology=NAME]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cc/runtime/testing/pair.h"
#include "gtest/gtest.h"

namespace {

std::string TakeOption(const char* name, int argc, char** argv) {
  const std::string prefix = std::string("--") + name + "=";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind(prefix, 0) == 0) return word.substr(prefix.size());
  }
  return "";
}

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--child") {
    return railhop::runtime::RunChild(std::vector<std::string>(argv + 2, argv + argc));
  }
  if (getenv("RAILHOP_FABRIC") == nullptr) {
    const std::string fabric = TakeOption("fabric", argc, argv);
    const std::string library = FolderOf(TakeOption("library", argc, argv));
    const std::string topology = TakeOption("topology", argc, argv);
    std::vector<std::string> words = {fabric, "run", "--no-sysfs", "--library-dir", library};
    if (!topology.empty()) {
      words.insert(words.end(), {"--topology", topology});
    }
    words.insert(words.end(), {"--", "/proc/self/exe"});
    // The program itself, by a name that means the same after the exec.
    char self[4096] = "";
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) return 125;
    words.back() = self;
    words.insert(words.end(), argv + 1, argv + argc);
    std::vector<char*> raw;
    for (std::string& word : words) raw.push_back(word.data());
    raw.push_back(nullptr);
    execv(raw[0], raw.data());
    perror(raw[0]);
    return 125;
  }
  setenv("RAILHOP_TEST_FABRIC_PROGRAM", TakeOption("fabric", argc, argv).c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
