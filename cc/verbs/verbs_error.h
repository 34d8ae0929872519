// errno of a verbs call -> absl::Status.
#ifndef RAILHOP_CC_VERBS_VERBS_ERROR_H_
#define RAILHOP_CC_VERBS_VERBS_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace railhop::verbs {

// "mlx5_0: ibv_create_qp failed: Cannot allocate memory (errno 12)". Code by what the caller should
// do: DeadlineExceeded for ETIMEDOUT (try again), Unimplemented for what the device or library
// cannot do (ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT), Internal for all else. error_number 0 is read
// as EIO.
absl::Status VerbsError(absl::string_view device, absl::string_view call, int error_number);

}  // namespace railhop::verbs

#endif  // RAILHOP_CC_VERBS_VERBS_ERROR_H_
