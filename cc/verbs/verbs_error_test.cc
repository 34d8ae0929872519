#include "cc/verbs/verbs_error.h"

#include <cerrno>
#include <string>

#include "gtest/gtest.h"

namespace railhop::verbs {
namespace {

TEST(VerbsError, Text_DeviceCallReasonNumber) {
  const absl::Status status = VerbsError("mlx5_0", "ibv_create_qp", ENOMEM);
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_EQ(status.message(), "mlx5_0: ibv_create_qp failed: Cannot allocate memory (errno 12)");
}

TEST(VerbsError, NegativeOrZero_ReadAsAnErrno) {
  EXPECT_EQ(VerbsError("d", "c", -EINVAL), VerbsError("d", "c", EINVAL));
  EXPECT_EQ(VerbsError("d", "c", 0), VerbsError("d", "c", EIO));
}

TEST(VerbsError, Code_ByWhatTheCallerShouldDo) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(VerbsError("d", "c", ETIMEDOUT)));
  for (const int number : {ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT}) {
    EXPECT_TRUE(absl::IsUnimplemented(VerbsError("d", "c", number)));
  }
  EXPECT_TRUE(absl::IsInternal(VerbsError("d", "c", EBUSY)));
}

TEST(VerbsError, Errno_KeptForTheCaller) {
  EXPECT_EQ(ErrnoOf(VerbsError("d", "c", -ENODEV)), ENODEV);
  EXPECT_EQ(ErrnoOf(absl::InternalError("no verbs call")), 0);
  EXPECT_EQ(ErrnoOf(absl::OkStatus()), 0);
  EXPECT_TRUE(SaysGone(VerbsError("d", "c", EIO)));
  EXPECT_TRUE(IsGone(ENODEV));
  EXPECT_TRUE(IsGone(-EIO));
  EXPECT_FALSE(IsGone(0));
  EXPECT_FALSE(IsGone(EBUSY));
  EXPECT_TRUE(SaysGone(VerbsError("d", "c", ENODEV)));
  EXPECT_FALSE(SaysGone(VerbsError("d", "c", ENOMEM)));
}

}  // namespace
}  // namespace railhop::verbs
