#include "cc/engine/machine_pages.h"

#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace railhop::engine {
namespace {

constexpr const char* kHow = "run: bazel run //cc/engine:machine_pages_main -- $PWD/docs/reference";

std::string CheckedIn(const std::string& name) {
  std::ifstream file("docs/reference/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(MachinePages, Failover_IsThatOfTheTable) {
  EXPECT_EQ(CheckedIn("failover-machine.md"), FailoverMachinePage()) << kHow;
}

TEST(MachinePages, Path_IsThatOfTheTable) {
  EXPECT_EQ(CheckedIn("path-machine.md"), PathMachinePage()) << kHow;
}

TEST(MachinePages, Port_IsThatOfTheTable) {
  EXPECT_EQ(CheckedIn("port-machine.md"), PortMachinePage()) << kHow;
}

}  // namespace
}  // namespace railhop::engine
