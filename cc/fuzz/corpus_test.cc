// Gives a fuzz target every input of its corpus: in all builds, with whatever sanitizer they have.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace railhop::fuzz {
namespace {

std::set<std::filesystem::path> Inputs() {
  std::set<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(RAILHOP_CORPUS)) {
    inputs.insert(entry.path());
  }
  return inputs;
}

TEST(Corpus, EveryInput_KeepsTheProperties) {
  ASSERT_FALSE(Inputs().empty()) << "no input in " RAILHOP_CORPUS;
  for (const std::filesystem::path& path : Inputs()) {
    // Said first: a property that does not hold ends the process.
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
              0);
  }
  LLVMFuzzerTestOneInput(nullptr, 0);
}

}  // namespace
}  // namespace railhop::fuzz
