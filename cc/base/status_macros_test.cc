#include "cc/base/status_macros.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "gtest/gtest.h"

namespace railhop {
namespace {

absl::StatusOr<int> Positive(int n) {
  if (n <= 0) return absl::InvalidArgumentError("not positive");
  return n;
}

absl::Status Check(int n, bool* reached) {
  RAILHOP_RETURN_IF_ERROR(Positive(n));
  RAILHOP_RETURN_IF_ERROR(Positive(n).status());
  *reached = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> Sum(int a, int b) {
  RAILHOP_ASSIGN_OR_RETURN(const int first, Positive(a));
  int second = 0;
  RAILHOP_ASSIGN_OR_RETURN(second, Positive(b));
  return std::make_unique<int>(first + second);
}

absl::StatusOr<int> Unwrap(int a, int b) {
  RAILHOP_ASSIGN_OR_RETURN(std::unique_ptr<int> sum, Sum(a, b));
  return *sum;
}

TEST(ReturnIfError, Ok_GoesOn) {
  bool reached = false;
  EXPECT_TRUE(Check(1, &reached).ok());
  EXPECT_TRUE(reached);
}

TEST(ReturnIfError, Error_ReturnsAtOnce) {
  bool reached = false;
  EXPECT_EQ(Check(0, &reached), absl::InvalidArgumentError("not positive"));
  EXPECT_FALSE(reached);
}

TEST(AssignOrReturn, MoveOnlyValues_AreMoved) { EXPECT_EQ(*Unwrap(2, 3), 5); }

TEST(AssignOrReturn, Error_ReturnsAtOnce) {
  EXPECT_EQ(Unwrap(2, -3).status(), absl::InvalidArgumentError("not positive"));
}

TEST(WithContext, Error_GetsThePrefixAndKeepsCodeAndPayload) {
  absl::Status status = absl::NotFoundError("no such port");
  status.SetPayload("type", absl::Cord("value"));
  const absl::Status annotated = WithContext(status, "mlx5_0");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(annotated.message()), "mlx5_0: no such port");
  EXPECT_EQ(annotated.GetPayload("type"), absl::Cord("value"));
  EXPECT_TRUE(WithContext(absl::OkStatus(), "x").ok());
}

}  // namespace
}  // namespace railhop
