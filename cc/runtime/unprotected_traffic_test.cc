#include "cc/runtime/unprotected_traffic.h"

#include <gtest/gtest.h>

namespace railhop::runtime {
namespace {

config::Settings With(const config::Environment& environment) {
  return config::Settings::Load(environment, [](const std::string&) { return std::nullopt; });
}

TEST(UnprotectedTraffic, NoSign_SaysNothing) {
  EXPECT_EQ(UnprotectedTraffic(With({{"NCCL_IB_TC", "1"}, {"NCCL_GIN_TYPE", ""}}),
                               {"/lib/libc.so.6", "/x/libnccl.so.2", "/x/libnccl-net-railhop.so"}),
            "");
}

TEST(UnprotectedTraffic, VariablesAndLibraries_AreNamed) {
  EXPECT_EQ(UnprotectedTraffic(With({{"NCCL_GIN_TYPE", "2"}}),
                               {"/x/deep_ep_cpp.cpython-312.so", "/x/libnccl-gin-x.so"}),
            "this process may use NCCL's device-initiated communication (GIN or RMA: "
            "NCCL_GIN_TYPE=2, deep_ep_cpp.cpython-312.so, libnccl-gin-x.so), which does not pass "
            "through a net plugin: that traffic is not protected");
}

}  // namespace
}  // namespace railhop::runtime
