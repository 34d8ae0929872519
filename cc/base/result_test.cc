#include "cc/base/result.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace railhop {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return Error{std::to_string(n) + " is odd"};
  return n / 2;
}

TEST(Result, Value_IsOk) {
  Result<int> r = Half(4);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(*r, 2);
  EXPECT_EQ(r.error(), "");
}

TEST(Result, Error_CarriesItsText) {
  Result<int> r = Half(3);
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.error(), "3 is odd");
}

TEST(Result, StringValue_IsNotTakenForAnError) {
  Result<std::string> r(std::string("text"));
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->size(), 4u);
}

TEST(Result, MoveOnlyValue_CanBeTakenOut) {
  Result<std::unique_ptr<int>> r(std::make_unique<int>(7));
  std::unique_ptr<int> taken = std::move(r).value();
  EXPECT_EQ(*taken, 7);
}

TEST(ResultDeathTest, ValueOfAnError_Aborts) {
  Result<int> r = Half(1);
  EXPECT_DEATH((void)r.value(), "");
}

}  // namespace
}  // namespace railhop
