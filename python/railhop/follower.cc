#include "python/railhop/follower.h"

#include <utility>

#include "cc/admin/requests.h"
#include "python/railhop/bind.h"

namespace railhop::python {
namespace {

constexpr double kForeverS = 1e6;

// The first question waits only this long, so that a process that is killed later is known to have
// answered: only one that never did is an error.
constexpr double kFirstS = 0.05;

}  // namespace

Follower::Follower(Handle handle, int64_t after, std::optional<double> timeout_s)
    : handle_(std::move(handle)), after_(after), timeout_s_(timeout_s) {
  if (timeout_s) Nanoseconds(*timeout_s, "timeout_s");
}

std::optional<admin::Event> Follower::Next() {
  while (ready_.empty()) {
    admin::EventList list;
    const double whole_s = timeout_s_.value_or(kForeverS);
    const bool first = !heard_ && whole_s > kFirstS;
    try {
      list = handle_.Events(after_, admin::kEventsDefault, first ? kFirstS : whole_s);
    } catch (py::error_already_set& error) {
      // A process that has ended has no more events. That its socket is gone means just that: it
      // was there when the handle was made. One that refuses at once may be full, or was killed
      // before: an error.
      const py::object stale = py::module_::import("railhop.errors").attr("StaleSocketError");
      const py::object missing = py::module_::import("railhop.errors").attr("NotFoundError");
      if (error.matches(missing) || (heard_ && error.matches(stale))) return std::nullopt;
      throw;
    }
    heard_ = true;
    gone_ += list.gone;
    if (list.events.empty() && timeout_s_ && !first) return std::nullopt;
    for (admin::Event& event : list.events) {
      after_ = static_cast<int64_t>(event.serial);
      ready_.push_back(std::move(event));
    }
  }
  admin::Event event = std::move(ready_.front());
  ready_.pop_front();
  return event;
}

}  // namespace railhop::python
