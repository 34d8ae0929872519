#include "cc/verbs/verbs_error.h"

#include <cerrno>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

namespace railhop::verbs {
namespace {

constexpr char kErrnoPayload[] = "railhop/errno";

absl::Status WithCode(int number, const std::string& text) {
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

}  // namespace

absl::Status VerbsError(absl::string_view device, absl::string_view call, int error_number) {
  // Some providers return the negative number.
  int number = error_number < 0 ? -error_number : error_number;
  if (number == 0) number = EIO;
  const std::string text =
      absl::StrCat(device, ": ", call, " failed: ", std::generic_category().message(number),
                   " (errno ", number, ")");
  absl::Status status = WithCode(number, text);
  status.SetPayload(kErrnoPayload, absl::Cord(absl::StrCat(number)));
  return status;
}

int ErrnoOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrnoPayload);
  int number = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &number)) return 0;
  return number;
}

bool IsGone(int error_number) {
  const int number = error_number < 0 ? -error_number : error_number;
  return number == EIO || number == ENODEV || number == ENXIO;
}

bool SaysGone(const absl::Status& status) { return IsGone(ErrnoOf(status)); }

}  // namespace railhop::verbs
