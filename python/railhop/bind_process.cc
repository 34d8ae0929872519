// The calls: on this process as functions of the module, on another as methods of Process.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/railhop/bind.h"
#include "python/railhop/follower.h"
#include "python/railhop/handle.h"

namespace railhop::python {
namespace {

using OptionalText = std::optional<std::string>;

constexpr int64_t kLimitDefault = 1024;
constexpr double kTimeoutDefaultS = 10.0;

// A socket that was found, and who is behind it.
struct Found {
  int64_t pid = 0;
  int64_t uid = 0;
  std::string path;
  std::optional<admin::Process> info;
  std::string problem;
};

std::vector<Found> Processes(const OptionalText& job, double timeout_s) {
  const int64_t timeout_ns = Nanoseconds(timeout_s, "timeout_s");
  std::vector<admin::FoundProcess> all = Ask([&] { return admin::FindProcesses(timeout_ns); });
  // One that does not answer in time may be of this job.
  std::erase_if(all, [&job](const admin::FoundProcess& one) {
    if (!job) return false;
    if (one.process.ok()) return one.process->job != *job;
    return one.process.failure().code != admin::ErrorCode::kTimeout;
  });
  std::vector<Found> found;
  for (admin::FoundProcess& one : all) {
    Found next{.pid = one.socket.pid, .uid = one.socket.uid, .path = one.socket.path};
    if (one.process.ok()) {
      next.info = std::move(one.process.value());
    } else {
      next.problem = one.process.failure().message;
    }
    found.push_back(std::move(next));
  }
  return found;
}

void BindFound(py::module_* module) {
  py::class_<Found>(*module, "FoundProcess", R"(A process of this node that has, or had, the plugin.

Example:
    >>> found = railhop.processes()[0]
    >>> found.problem
    ''
    >>> found.attach().info().pid == found.pid
    True
)")
      .def_readonly("pid", &Found::pid, "Its number.")
      .def_readonly("uid", &Found::uid, "The user that it belongs to.")
      .def_readonly("path", &Found::path, "Its socket.")
      .def_readonly("info", &Found::info, "Who it is; None if it did not say.")
      .def_readonly("problem", &Found::problem, "Why it did not say; else empty.")
      .def(
          "attach",
          [](const Found& found, double timeout_s) {
            return Handle::Attach(std::nullopt, std::nullopt, found.path, timeout_s);
          },
          py::arg("timeout_s") = kTimeoutDefaultS,
          R"(Takes hold of it. Raises what railhop.attach raises.

Example:
    >>> railhop.processes()[0].attach().health().verdict
    <Verdict.OK: 'ok'>
)")
      .def("__repr__", [](const Found& found) {
        return "FoundProcess(pid=" + std::to_string(found.pid) + ", path='" + found.path + "'" +
               (found.info ? ", info=" + Record<admin::Process>::Repr(*found.info) : "") +
               (found.problem.empty() ? "" : ", problem='" + found.problem + "'") + ")";
      });
}

void BindReading(py::class_<Handle>* process) {
  process
      ->def("info", &Handle::Info, R"(Who it is.

Example:
    >>> railhop.processes()[0].attach().info().version == railhop.__version__
    True
)")
      .def("health", &Handle::Health, R"(How it fares now; see railhop.health.

Example:
    >>> railhop.processes()[0].attach().health().verdict
    <Verdict.OK: 'ok'>
)")
      .def("stats", &Handle::Stats, R"(Its counters; see railhop.stats.

Example:
    >>> railhop.processes()[0].attach().stats().gave_up
    0
)")
      .def("events", &Handle::Events, py::arg("after") = 0, py::arg("limit") = kLimitDefault,
           py::arg("wait_s") = 0.0, R"(What happened in it; see railhop.events.

Example:
    >>> railhop.processes()[0].attach().events(limit=1)[0].serial
    1
)")
      .def(
          "follow",
          [](const Handle& handle, int64_t after, std::optional<double> timeout_s) {
            return Follower(handle, after, timeout_s);
          },
          py::arg("after") = 0, py::arg("timeout_s") = py::none(),
          R"(Its events as they happen, until it ends; see railhop.follow.

Example:
    >>> for event in railhop.processes()[0].attach().follow():
    ...     break
    >>> event.serial
    1
)")
      .def("config", &Handle::Config, R"(Its options; see railhop.config.

Example:
    >>> options = railhop.processes()[0].attach().config()
    >>> [option.source for option in options if option.name == "RAILHOP_FAILOVER"]
    ['default']
)");
}

void BindSteering(py::class_<Handle>* process) {
  process
      ->def("force_failover", &Handle::ForceFailover, py::arg("target"), py::arg("mode") = "drain",
            R"(Moves traffic away; see railhop.force_failover.

Example:
    >>> process = railhop.processes()[0].attach()
    >>> process.force_failover("mlx5_1").ports
    ('mlx5_1:1',)
    >>> _ = process.release("mlx5_1")
)")
      .def("fail_back", &Handle::FailBack, py::arg("target") = py::none(),
           R"(Moves traffic back; see railhop.fail_back.

Example:
    >>> process = railhop.processes()[0].attach()
    >>> isinstance(process.fail_back(), railhop.Outcome)
    True
)")
      .def("hold", &Handle::Hold, py::arg("target"),
           R"(Takes a port or device out of service; see railhop.hold.

Example:
    >>> process = railhop.processes()[0].attach()
    >>> process.hold("mlx5_1:1").ports
    ('mlx5_1:1',)
    >>> _ = process.release("mlx5_1:1")
)")
      .def("release", &Handle::Release, py::arg("target"),
           R"(Takes it into service again; see railhop.release.

Example:
    >>> process = railhop.processes()[0].attach()
    >>> _ = process.hold("mlx5_1")
    >>> process.release("mlx5_1").ports
    ('mlx5_1:1',)
)")
      .def("set_option", &Handle::SetOption, py::arg("name"), py::arg("value"),
           R"(Changes an option while it runs; see railhop.set_option.

Example:
    >>> process = railhop.processes()[0].attach()
    >>> process.set_option("RAILHOP_STALL_THRESHOLD", "2s").source
    'command'
)");
}

void BindReadingHere(py::module_* module) {
  module->def(
      "health", [] { return Handle::Here().Health(); },
      R"(How this process fares: verdict, devices, ports, paths, connections, last episodes.

Raises:
  NotLoadedError: NCCL has not loaded the plugin in this process.

Example:
    >>> health = railhop.health()
    >>> health.verdict
    <Verdict.OK: 'ok'>
    >>> [port.name for port in health.ports]
    ['mlx5_0:1', 'mlx5_1:1', 'mlx5_2:1', 'mlx5_3:1']
)");
  module->def(
      "stats", [] { return Handle::Here().Stats(); },
      R"(The counters of this process: bytes by port, faults by cause, times to recover.

Raises:
  NotLoadedError: NCCL has not loaded the plugin in this process.

Example:
    >>> stats = railhop.stats()
    >>> sum(port.sent_bytes + port.received_bytes for port in stats.ports) > 0
    True
)");
  module->def(
      "events",
      [](int64_t after, int64_t limit, double wait_s) {
        return Handle::Here().Events(after, limit, wait_s);
      },
      py::arg("after") = 0, py::arg("limit") = kLimitDefault, py::arg("wait_s") = 0.0,
      R"(What happened in this process, oldest first.

Args:
  after: only events with a greater serial: the last that was seen.
  limit: at most so many, 1 to 4096.
  wait_s: if there is none, wait so long for the first.

Raises:
  NotLoadedError: NCCL has not loaded the plugin in this process.
  InvalidError: A number that is not allowed.

Example:
    >>> seen = railhop.events().last_serial
    >>> len(railhop.events(after=seen + 1000, wait_s=0.01))
    0
)");
  module->def(
      "follow",
      [](int64_t after, std::optional<double> timeout_s) {
        return Follower(Handle::Here(), after, timeout_s);
      },
      py::arg("after") = 0, py::arg("timeout_s") = py::none(),
      R"(Events of this process as they happen: an iterator that waits for the next.

Args:
  after: only events with a greater serial; 0 begins with the oldest that is kept.
  timeout_s: end if there is none for so long; None waits for ever.

Raises:
  NotLoadedError: NCCL has not loaded the plugin in this process.

Example:
    >>> for event in railhop.follow(timeout_s=1):
    ...     if event.serial == 3:
    ...         break
    >>> event.serial
    3
)");
  module->def(
      "config", [] { return Handle::Here().Config(); },
      R"(Every option of this process with what is in force and where it comes from.

Raises:
  NotLoadedError: NCCL has not loaded the plugin in this process.

Example:
    >>> [option.value for option in railhop.config() if option.name == "RAILHOP_FAILOVER"]
    ['1']
)");
}

void BindSteeringHere(py::module_* module) {
  module->def(
      "force_failover",
      [](const std::string& target, const std::string& mode) {
        return Handle::Here().ForceFailover(target, mode);
      },
      py::arg("target"), py::arg("mode") = "drain",
      R"(Moves this process's traffic away from a port, a device or what carries a connection now.

A port or device stays out of service until it is released.

Args:
  target: "mlx5_0:1", a port; "mlx5_0", all ports of a device; "connection:" and its id.
  mode: "drain" lets what is under way complete first; "now" fences at once, as a fault does.

Raises:
  NotFoundError: No such target; the text lists what there is.
  RefusedError: It would leave a connection without a path. Nothing has changed.
  InvalidError: A word that means nothing.

Example:
    >>> railhop.force_failover("mlx5_0").ports
    ('mlx5_0:1',)
    >>> railhop.release("mlx5_0").ports
    ('mlx5_0:1',)
)");
  module->def(
      "fail_back", [](const OptionalText& target) { return Handle::Here().FailBack(target); },
      py::arg("target") = py::none(),
      R"(Moves traffic back to the nearest ports that answer, without waiting for the hold-down.

Args:
  target: as force_failover has it; None is everything.

Raises:
  NotFoundError: No such target; the text lists what there is.

Example:
    >>> isinstance(railhop.fail_back(), railhop.Outcome)
    True
)");
  module->def(
      "hold", [](const std::string& target) { return Handle::Here().Hold(target); },
      py::arg("target"),
      R"(Takes a port or device out of service, in order, until it is released.

Raises:
  NotFoundError: No such port or device; the text lists what there is.
  RefusedError: It is the last that carries a connection. Nothing has changed.

Example:
    >>> _ = railhop.hold("mlx5_2")
    >>> [port.held_by_command for port in railhop.health().ports if port.name == "mlx5_2:1"]
    [True]
    >>> _ = railhop.release("mlx5_2")
)");
  module->def(
      "release", [](const std::string& target) { return Handle::Here().Release(target); },
      py::arg("target"),
      R"(Takes a port or device into service again, once probes have proved it.

Where no command holds it nothing changes, and the outcome names no port.

Raises:
  NotFoundError: No such port or device; the text lists what there is.

Example:
    >>> _ = railhop.hold("mlx5_2")
    >>> railhop.release("mlx5_2").ports
    ('mlx5_2:1',)
    >>> railhop.release("mlx5_2").text
    'mlx5_2: no command holds it; nothing has changed'
)");
  module->def(
      "set_option",
      [](const std::string& name, const std::string& value) {
        return Handle::Here().SetOption(name, value);
      },
      py::arg("name"), py::arg("value"),
      R"(Changes an option of this process while it runs; config() says which may be changed.

Raises:
  NotFoundError: No such option.
  RefusedError: It cannot change while the process runs.
  InvalidError: Not a value of it; the text says what is allowed.

Example:
    >>> railhop.set_option("RAILHOP_STALL_THRESHOLD", "2s").source
    'command'
)");
}

void BindFinding(py::module_* module) {
  module->def("attach", &Handle::Attach, py::kw_only(), py::arg("pid") = py::none(),
              py::arg("job") = py::none(), py::arg("path") = py::none(),
              py::arg("timeout_s") = kTimeoutDefaultS,
              R"(Takes hold of a process of this node from outside, by its admin socket.

Args:
  pid: of the process.
  job: RAILHOP_JOB_ID, SLURM_JOB_ID or TORCHELASTIC_RUN_ID of it, if it is the only one here.
  path: of its socket.
  timeout_s: for each call.

Raises:
  NotFoundError: No such process or job, or one without the plugin.
  StaleSocketError: The process has ended.
  NotAllowedError: It belongs to another user.
  InvalidError: Not exactly one of pid, job and path.

Example:
    >>> process = railhop.attach(pid=railhop.processes()[0].pid)
    >>> process.health().process.running
    True
)");
  module->def("processes", &Processes, py::arg("job") = py::none(), py::kw_only(),
              py::arg("timeout_s") = 1.0,
              R"(All processes of this node that have the plugin, by pid.

Those that do not answer are among them, with the reason in `problem`.

Args:
  job: only those of this job, and those that do not answer in time: their job is not known.
  timeout_s: for each of them to say who it is.

Raises:
  NotFoundError: RAILHOP_ADMIN_DIR is set, and there is no such folder.
  NotAllowedError: RAILHOP_ADMIN_DIR is set to a folder that this user may not look into.
  InvalidError: RAILHOP_ADMIN_DIR is set to what is no folder.

Example:
    >>> [found.problem for found in railhop.processes()]
    ['', '']
    >>> railhop.processes(job="nobody's")
    []
)");
}

}  // namespace

void BindProcess(py::module_* module) {
  py::class_<Handle> process(*module, "Process",
                             R"(Another process of this node: railhop.attach() makes it.

It has the same calls as the module has for its own process. Calls from several threads may wait at
the same time.

Example:
    >>> process = railhop.processes()[0].attach()
    >>> sorted({port.state for port in process.health().ports})
    [<PortState.UP: 'up'>]
)");
  process.def_property_readonly("name", &Handle::name, "The path of its socket.");
  process.def("__repr__", [](const Handle& handle) { return "Process('" + handle.name() + "')"; });
  BindReading(&process);
  BindSteering(&process);
  BindFound(module);
  BindReadingHere(module);
  BindSteeringHere(module);
  BindFinding(module);
}

}  // namespace railhop::python
