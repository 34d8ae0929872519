// Return early on an error, for functions that return absl::Status or absl::StatusOr.
//
//   RAILHOP_RETURN_IF_ERROR(Open(name));
//   RAILHOP_ASSIGN_OR_RETURN(const int port, FindPort(name));
#ifndef RAILHOP_CC_BASE_STATUS_MACROS_H_
#define RAILHOP_CC_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace railhop {

// The status with "context: " before its message, for a layer boundary; OK stays as it is. Payloads
// are kept.
absl::Status WithContext(const absl::Status& status, absl::string_view context);

namespace status_internal {

inline const absl::Status& AsStatus(const absl::Status& status) { return status; }

template <typename T>
const absl::Status& AsStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

}  // namespace status_internal
}  // namespace railhop

// Evaluates a Status or StatusOr once; returns it if it is not OK.
#define RAILHOP_RETURN_IF_ERROR(expression)                        \
  do {                                                             \
    const auto& railhop_result = (expression);                     \
    if (!railhop_result.ok()) {                                    \
      return ::railhop::status_internal::AsStatus(railhop_result); \
    }                                                              \
  } while (false)

#define RAILHOP_STATUS_CONCAT_INNER(a, b) a##b
#define RAILHOP_STATUS_CONCAT(a, b) RAILHOP_STATUS_CONCAT_INNER(a, b)

// Evaluates a StatusOr once; returns its status if it is not OK, else assigns its value to
// `target`, which may be a declaration. Two statements: wants braces after an `if`.
#define RAILHOP_ASSIGN_OR_RETURN(target, expression)                       \
  auto RAILHOP_STATUS_CONCAT(railhop_status_or_, __LINE__) = (expression); \
  if (!RAILHOP_STATUS_CONCAT(railhop_status_or_, __LINE__).ok()) {         \
    return ::railhop::status_internal::AsStatus(                           \
        RAILHOP_STATUS_CONCAT(railhop_status_or_, __LINE__));              \
  }                                                                        \
  target = std::move(RAILHOP_STATUS_CONCAT(railhop_status_or_, __LINE__)).value()

#endif  // RAILHOP_CC_BASE_STATUS_MACROS_H_
