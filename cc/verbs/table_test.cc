#include "cc/verbs/table.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace railhop::verbs {
namespace {

TEST(LoadTable, NoSuchLibrary_NotFoundWithItsName) {
  const absl::Status status = LoadTable("/no/such/libibverbs.so.1").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_NE(std::string(status.message()).find("/no/such/libibverbs.so.1"), std::string::npos);
}

TEST(LoadTable, LibraryWithoutVerbs_NamesTheFirstFunctionMissing) {
  const absl::Status status = LoadTable("libm.so.6").status();
  EXPECT_TRUE(absl::IsUnimplemented(status));
  EXPECT_NE(std::string(status.message()).find("ibv_get_device_list"), std::string::npos);
}

}  // namespace
}  // namespace railhop::verbs
