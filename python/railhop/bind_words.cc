// Python's enums, made from the words of records.h: what a new version adds there is here at once.
#include <string>

#include "python/railhop/bind.h"

namespace railhop::python {
namespace {

// More than any of the enumerations has.
constexpr int kNumbersMax = 64;

std::string Upper(std::string word) {
  for (char& letter : word) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return word;
}

template <typename Enum>
void BindWord(py::module_* module, const char* name, const char* doc) {
  py::list members;
  for (int i = 0; i < kNumbersMax; ++i) {
    const std::string word = admin::Word(static_cast<Enum>(i));
    // 0 is "unknown", as are all numbers behind the last.
    if (i > 0 && word == admin::Word(static_cast<Enum>(0))) continue;
    members.append(py::make_tuple(Upper(word), word));
  }
  const py::object base = py::module_::import("railhop.words").attr("Word");
  py::object made = base(name, members, py::arg("module") = "railhop");
  made.attr("__doc__") = doc;
  module->attr(name) = made;
  WordClass<Enum>::object = made.release().ptr();
}

}  // namespace

void BindWords(py::module_* module) {
  BindWord<admin::PortState>(module, "PortState", R"(What a port is doing.

UP carries data, or may. SUSPECT is in service with a path in doubt. DOWN is not active, or nothing
gets through. HOLD_DOWN answers again and has to go on doing so before it is used. DRAINING and HELD
are out of service by command, DRAINING with work still under way. REMOVED: the device is gone.

Example:
    >>> railhop.health().ports[0].state
    <PortState.UP: 'up'>
)");
  BindWord<admin::PathState>(module, "PathState",
                             R"(What a path, from a port here to one there, is doing.

UNPROVED has had no probe come back yet. GOOD was proved lately. DOUBTED carries data while a probe
that is due soon decides. FAILED. HOLD_DOWN answers again and has to go on doing so.

Example:
    >>> all(path.state in list(railhop.PathState) for path in railhop.health().paths)
    True
)");
  BindWord<admin::ConnectionState>(module, "ConnectionState", R"(What a connection is doing.

HEALTHY is on its own ports. ON_BACKUP moves, over other ports in part or whole. RECOVERING: lanes
are being left or made, and data waits meanwhile. NO_PATH: nothing can carry it at present. ENDED was
given up. UNPROTECTED is without failover.

Example:
    >>> railhop.health().connections[0].state
    <ConnectionState.HEALTHY: 'healthy'>
)");
  BindWord<admin::Direction>(module, "Direction", R"(Which way a connection carries data.

Example:
    >>> list(railhop.Direction)[1:]
    [<Direction.SEND: 'send'>, <Direction.RECEIVE: 'receive'>]
)");
  BindWord<admin::Verdict>(module, "Verdict",
                           R"(How a process fares: the worst of its connections and ports.

OK. DEGRADED: all moves, over fewer ports than there are. RECOVERING: a connection is recovering.
NO_PATH: a connection has no path, or was given up.

Example:
    >>> railhop.health().verdict is railhop.Verdict.OK
    True
)");
  BindWord<admin::Cause>(module, "Cause", R"(Why a port, a path or a lane was left.

Example:
    >>> railhop.Cause("port_down")
    <Cause.PORT_DOWN: 'port_down'>
)");
  BindWord<admin::Blame>(module, "Blame", R"(What most likely has to be repaired.

Example:
    >>> railhop.Blame("local_nic_or_cable")
    <Blame.LOCAL_NIC_OR_CABLE: 'local_nic_or_cable'>
)");
  BindWord<admin::EventKind>(module, "EventKind", R"(What an event tells.

Example:
    >>> railhop.EventKind("episode_begun")
    <EventKind.EPISODE_BEGUN: 'episode_begun'>
)");
  BindWord<admin::Severity>(module, "Severity", R"(Whether a person may need to act.

Example:
    >>> list(railhop.Severity)[1:]
    [<Severity.INFO: 'info'>, <Severity.WARNING: 'warning'>]
)");
  BindWord<admin::FailoverMode>(module, "FailoverMode", R"(How traffic leaves a port by command.

DRAIN lets what is under way complete first. NOW fences at once, as a fault does.

Example:
    >>> list(railhop.FailoverMode)[1:]
    [<FailoverMode.DRAIN: 'drain'>, <FailoverMode.NOW: 'now'>]
)");
}

}  // namespace railhop::python
