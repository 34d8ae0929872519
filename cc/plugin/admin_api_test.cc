// The library as NCCL loads it, asked by somebody else in the same process.
#include <dlfcn.h>

#include <memory>
#include <string>

#include "cc/admin/client.h"
#include "cc/admin/railhop_admin.h"
#include "gtest/gtest.h"

namespace railhop::plugin {
namespace {

constexpr char kLibrary[] = "cc/plugin/libnccl-net-railhop.so";

template <typename Function>
Function* Find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

TEST(AdminApi, LibraryIsLoaded_FoundAndAsked) {
  const admin::Reply<std::unique_ptr<admin::Client>> before = admin::Client::InProcess();
  ASSERT_FALSE(before.ok());
  EXPECT_EQ(before.failure().code, admin::ErrorCode::kNotLoaded);

  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const admin::Reply<std::unique_ptr<admin::Client>> client = admin::Client::InProcess();
  ASSERT_TRUE(client.ok()) << client.failure().message;
  // NCCL has not started it.
  const admin::Reply<admin::Health> health = (*client)->GetHealth();
  ASSERT_FALSE(health.ok());
  EXPECT_EQ(health.failure().code, admin::ErrorCode::kNotLoaded);
  EXPECT_NE(health.failure().message.find("is not started"), std::string::npos);
  // Nothing to wait for.
  EXPECT_FALSE((*client)->GetEvents(0, 1, 60'000'000'000).ok());
}

TEST(AdminApi, CCalls_AnswerBeforeTheStart) {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* const version = Find<decltype(railhop_admin_version)>(library, "railhop_admin_version");
  auto* const call = Find<decltype(railhop_admin_call)>(library, "railhop_admin_call");
  auto* const release = Find<decltype(railhop_admin_free)>(library, "railhop_admin_free");
  auto* const hold = Find<decltype(railhop_hold)>(library, "railhop_hold");
  auto* const force = Find<decltype(railhop_force_failover)>(library, "railhop_force_failover");
  ASSERT_TRUE(version && call && release && hold && force);
  EXPECT_EQ(version(), RAILHOP_ADMIN_VERSION);
  void* response = nullptr;
  size_t size = 0;
  ASSERT_EQ(call("nonsense", 8, &response, &size), RAILHOP_ADMIN_OK);
  EXPECT_GT(size, 0u);
  release(response);
  char error[24] = "";
  EXPECT_EQ(hold("mlx5_0:1", error, sizeof error), RAILHOP_ADMIN_NOT_LOADED);
  EXPECT_STREQ(error, "Railhop is not started ") << "cut to its room";
  EXPECT_EQ(force("mlx5_0:1", RAILHOP_ADMIN_NOW, nullptr, 0), RAILHOP_ADMIN_NOT_LOADED);
}

}  // namespace
}  // namespace railhop::plugin
