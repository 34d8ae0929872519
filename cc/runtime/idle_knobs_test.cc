#include "cc/runtime/idle_knobs.h"

#include <gtest/gtest.h>

namespace railhop::runtime {
namespace {

std::vector<std::string> Notes(const config::Environment& environment, FoundLinks found) {
  return IdleKnobs(config::LoadOptions(config::Settings::Load(
                       environment, [](const std::string&) { return std::nullopt; })),
                   found);
}

constexpr FoundLinks kRoce = {.roce = true, .infiniband = false};
constexpr FoundLinks kInfiniBand = {.roce = false, .infiniband = true};
constexpr FoundLinks kBoth = {.roce = true, .infiniband = true};

TEST(IdleKnobs, RoceKnobsOnInfiniBand_AreNamed) {
  for (const char* name : {"NCCL_IB_GID_INDEX", "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_TC",
                           "NCCL_IB_FIFO_TC", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE"}) {
    EXPECT_EQ(Notes({{name, "3"}}, kInfiniBand),
              std::vector<std::string>{std::string(name) +
                                       "=3 has no effect: it is for RoCE, and all ports are "
                                       "InfiniBand"});
    EXPECT_TRUE(Notes({{name, "3"}}, kRoce).empty()) << name;
    EXPECT_TRUE(Notes({{name, "3"}}, kBoth).empty()) << name;
  }
}

TEST(IdleKnobs, FlidOnRoce_IsNamed) {
  EXPECT_EQ(Notes({{"NCCL_IB_ROUTABLE_FLID_GID_INDEX", "2"}}, kRoce).size(), 1u);
  EXPECT_TRUE(Notes({{"NCCL_IB_ROUTABLE_FLID_GID_INDEX", "2"}}, kInfiniBand).empty());
}

TEST(IdleKnobs, ThresholdWithoutAdaptiveRouting_IsNamed) {
  EXPECT_EQ(Notes({{"NCCL_IB_AR_THRESHOLD", "1"}}, kRoce).size(), 1u);
  EXPECT_TRUE(Notes({{"NCCL_IB_AR_THRESHOLD", "1"}}, kInfiniBand).empty());
  EXPECT_TRUE(
      Notes({{"NCCL_IB_AR_THRESHOLD", "1"}, {"NCCL_IB_ADAPTIVE_ROUTING", "1"}}, kRoce).empty());
  EXPECT_EQ(
      Notes({{"NCCL_IB_AR_THRESHOLD", "1"}, {"NCCL_IB_ADAPTIVE_ROUTING", "0"}}, kInfiniBand).size(),
      1u);
}

TEST(IdleKnobs, NothingSet_SaysNothing) {
  EXPECT_TRUE(Notes({}, kRoce).empty());
  EXPECT_TRUE(Notes({{"NCCL_IB_TC", ""}}, kInfiniBand).empty());
}

}  // namespace
}  // namespace railhop::runtime
