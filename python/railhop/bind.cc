#include "python/railhop/bind.h"

namespace railhop::python {
namespace {

const char* ExceptionName(admin::ErrorCode code) {
  switch (code) {
    case admin::ErrorCode::kInvalid:
      return "InvalidError";
    case admin::ErrorCode::kNotFound:
      return "NotFoundError";
    case admin::ErrorCode::kNotLoaded:
      return "NotLoadedError";
    case admin::ErrorCode::kStaleSocket:
      return "StaleSocketError";
    case admin::ErrorCode::kPermission:
      return "NotAllowedError";
    case admin::ErrorCode::kRefused:
      return "RefusedError";
    case admin::ErrorCode::kTimeout:
      return "NoAnswerError";
    case admin::ErrorCode::kInternal:
    case admin::ErrorCode::kUnknown:
      break;
  }
  return "InternalError";
}

}  // namespace

void Throw(const admin::Failure& failure) {
  const py::object type = py::module_::import("railhop.errors").attr(ExceptionName(failure.code));
  PyErr_SetString(type.ptr(), failure.message.c_str());
  throw py::error_already_set();
}

}  // namespace railhop::python
