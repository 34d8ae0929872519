#include "python/railhop/handle.h"

#include <algorithm>
#include <utility>

#include "cc/admin/requests.h"
#include "python/railhop/bind.h"

namespace railhop::python {
namespace {

constexpr int64_t kNsPerS = 1'000'000'000;
// A wait is made of such pieces: Python's signal handlers run in between.
constexpr int64_t kSliceNs = kNsPerS / 5;

[[noreturn]] void Invalid(const std::string& text) {
  Throw({.code = admin::ErrorCode::kInvalid, .message = text});
}

admin::FailoverMode Mode(const std::string& word) {
  for (const auto mode : {admin::FailoverMode::kDrain, admin::FailoverMode::kNow}) {
    if (word == admin::Word(mode)) return mode;
  }
  Invalid("mode '" + word + "' is not known: drain lets what is under way complete, now does not");
}

}  // namespace

int64_t Nanoseconds(double seconds, const char* what) {
  if (!(seconds >= 0 && seconds <= 1e9)) {
    Invalid(std::string(what) + "=" + std::to_string(seconds) + ": allowed are 0 to 1e9 seconds");
  }
  return static_cast<int64_t>(seconds * static_cast<double>(kNsPerS));
}

Handle Handle::Here() {
  return Handle(Ask([] { return admin::Client::InProcess(); }));
}

Handle Handle::Attach(std::optional<int64_t> pid, const std::optional<std::string>& job,
                      const std::optional<std::string>& path, double timeout_s) {
  if (pid.has_value() + job.has_value() + path.has_value() != 1) {
    Invalid("name one process: pid=..., job=... or path=... of its socket");
  }
  const int64_t timeout_ns = Nanoseconds(timeout_s, "timeout_s");
  return Handle(Ask([&] {
    if (pid) return admin::Client::ForPid(*pid, timeout_ns);
    if (job) return admin::Client::ForJob(*job, timeout_ns);
    return admin::Client::AtSocket(*path, timeout_ns);
  }));
}

admin::Process Handle::Info() const {
  return Ask([this] { return client_->GetProcess(); });
}

admin::Health Handle::Health() const {
  return Ask([this] { return client_->GetHealth(); });
}

admin::Stats Handle::Stats() const {
  return Ask([this] { return client_->GetStats(); });
}

admin::EventList Handle::Events(int64_t after, int64_t limit, double wait_s) const {
  if (after < 0) Invalid("after=" + std::to_string(after) + ": a serial is 0 or more");
  if (limit < 1 || limit > admin::kEventsMax) {
    Invalid("limit=" + std::to_string(limit) + ": allowed are 1 to " +
            std::to_string(admin::kEventsMax));
  }
  int64_t left_ns = Nanoseconds(wait_s, "wait_s");
  while (true) {
    const int64_t slice_ns = std::min(left_ns, kSliceNs);
    admin::EventList list = Ask([&] {
      return client_->GetEvents(static_cast<uint64_t>(after), static_cast<uint32_t>(limit),
                                slice_ns);
    });
    left_ns -= slice_ns;
    if (!list.events.empty() || left_ns <= 0) return list;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

admin::Outcome Handle::ForceFailover(const std::string& target, const std::string& mode) const {
  const admin::FailoverMode how = Mode(mode);
  return Ask([&] { return client_->ForceFailover(target, how); });
}

admin::Outcome Handle::FailBack(const std::optional<std::string>& target) const {
  return Ask([&] { return client_->FailBack(target.value_or("")); });
}

admin::Outcome Handle::Hold(const std::string& target) const {
  return Ask([&] { return client_->Hold(target); });
}

admin::Outcome Handle::Release(const std::string& target) const {
  return Ask([&] { return client_->Release(target); });
}

std::vector<admin::Option> Handle::Config() const {
  return Ask([this] { return client_->GetConfig(); });
}

admin::Option Handle::SetOption(const std::string& name, const std::string& value) const {
  return Ask([&] { return client_->SetOption(name, value); });
}

}  // namespace railhop::python
