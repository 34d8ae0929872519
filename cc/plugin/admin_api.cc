// The C calls of cc/admin/railhop_admin.h: they ask the process's admin desk.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <variant>

#include "cc/admin/codec.h"
#include "cc/admin/railhop_admin.h"
#include "cc/runtime/admin_desk.h"

namespace railhop::plugin {
namespace {

using runtime::AdminDesk;

static_assert(RAILHOP_ADMIN_VERSION == admin::kApiVersion);
static_assert(RAILHOP_ADMIN_INVALID == static_cast<int>(admin::ErrorCode::kInvalid));
static_assert(RAILHOP_ADMIN_NOT_FOUND == static_cast<int>(admin::ErrorCode::kNotFound));
static_assert(RAILHOP_ADMIN_NOT_LOADED == static_cast<int>(admin::ErrorCode::kNotLoaded));
static_assert(RAILHOP_ADMIN_STALE_SOCKET == static_cast<int>(admin::ErrorCode::kStaleSocket));
static_assert(RAILHOP_ADMIN_PERMISSION == static_cast<int>(admin::ErrorCode::kPermission));
static_assert(RAILHOP_ADMIN_REFUSED == static_cast<int>(admin::ErrorCode::kRefused));
static_assert(RAILHOP_ADMIN_TIMEOUT == static_cast<int>(admin::ErrorCode::kTimeout));
static_assert(RAILHOP_ADMIN_INTERNAL == static_cast<int>(admin::ErrorCode::kInternal));
static_assert(RAILHOP_ADMIN_DRAIN == static_cast<int>(admin::FailoverMode::kDrain));
static_assert(RAILHOP_ADMIN_NOW == static_cast<int>(admin::FailoverMode::kNow));

std::string Answered(std::string_view bytes) {
  const admin::Reply<admin::Request> request = admin::DecodeRequest(bytes);
  return admin::EncodeResponse(request.ok() ? AdminDesk::OfThisProcess().AnswerWaiting(*request)
                                            : admin::Response(request.failure()));
}

int Told(admin::ErrorCode code, const std::string& text, char* error, size_t error_size) {
  if (error != nullptr && error_size > 0) {
    const size_t length = std::min(text.size(), error_size - 1);
    std::memcpy(error, text.data(), length);
    error[length] = '\0';
  }
  return static_cast<int>(code);
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

template <typename Make>
int Command(const Make& make, char* error, size_t error_size) {
  try {
    const admin::Response response = AdminDesk::OfThisProcess().Answer(make());
    const auto* const failure = std::get_if<admin::Failure>(&response);
    if (failure != nullptr) return Told(failure->code, failure->message, error, error_size);
    return Told(admin::ErrorCode::kUnknown, "", error, error_size);
  } catch (...) {
    return Told(admin::ErrorCode::kInternal, "no memory", error, error_size);
  }
}

}  // namespace
}  // namespace railhop::plugin

using railhop::admin::FailBack;
using railhop::admin::FailoverMode;
using railhop::admin::ForceFailover;
using railhop::admin::Hold;
using railhop::admin::Release;
using railhop::plugin::Command;
using railhop::plugin::Text;

// What the build hides by default.
#define RAILHOP_EXPORTED __attribute__((visibility("default")))

extern "C" {

RAILHOP_EXPORTED int railhop_admin_version(void) { return RAILHOP_ADMIN_VERSION; }

RAILHOP_EXPORTED int railhop_admin_call(const void* request, size_t request_size, void** response,
                                        size_t* response_size) {
  *response = nullptr;
  *response_size = 0;
  try {
    const std::string bytes =
        railhop::plugin::Answered({static_cast<const char*>(request), request_size});
    void* const copy = std::malloc(bytes.size() + 1);
    if (copy == nullptr) return RAILHOP_ADMIN_INTERNAL;
    std::memcpy(copy, bytes.data(), bytes.size());
    *response = copy;
    *response_size = bytes.size();
    return RAILHOP_ADMIN_OK;
  } catch (...) {
    return RAILHOP_ADMIN_INTERNAL;
  }
}

RAILHOP_EXPORTED void railhop_admin_free(void* response) { std::free(response); }

RAILHOP_EXPORTED int railhop_force_failover(const char* target, int mode, char* error,
                                            size_t error_size) {
  return Command(
      [&] {
        const bool known = mode == RAILHOP_ADMIN_DRAIN || mode == RAILHOP_ADMIN_NOW;
        return ForceFailover{
            .target = Text(target),
            .mode = known ? static_cast<FailoverMode>(mode) : FailoverMode::kUnknown};
      },
      error, error_size);
}

RAILHOP_EXPORTED int railhop_fail_back(const char* target, char* error, size_t error_size) {
  return Command([&] { return FailBack{.target = Text(target)}; }, error, error_size);
}

RAILHOP_EXPORTED int railhop_hold(const char* target, char* error, size_t error_size) {
  return Command([&] { return Hold{.target = Text(target)}; }, error, error_size);
}

RAILHOP_EXPORTED int railhop_release(const char* target, char* error, size_t error_size) {
  return Command([&] { return Release{.target = Text(target)}; }, error, error_size);
}

}  // extern "C"
