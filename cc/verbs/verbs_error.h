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

// The errno that a status was made of by VerbsError, through contexts that were added; 0 if none.
int ErrnoOf(const absl::Status& status);
// Whether it says that the device is gone: EIO, ENODEV or ENXIO (some providers give it negative).
bool IsGone(int error_number);
bool SaysGone(const absl::Status& status);

}  // namespace railhop::verbs

#endif  // RAILHOP_CC_VERBS_VERBS_ERROR_H_
