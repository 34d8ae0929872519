#include "cc/verbs/verbs_error.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace railhop::verbs {

absl::Status VerbsError(absl::string_view device, absl::string_view call, int error_number) {
  // Some providers return the negative number.
  int number = error_number < 0 ? -error_number : error_number;
  if (number == 0) number = EIO;
  const std::string text =
      absl::StrCat(device, ": ", call, " failed: ", std::generic_category().message(number),
                   " (errno ", number, ")");
  switch (number) {
    case ETIMEDOUT:
      return absl::DeadlineExceededError(text);
    case ENOSYS:
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
      return absl::UnimplementedError(text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace railhop::verbs
