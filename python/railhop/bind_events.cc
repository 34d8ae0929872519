// Events: what happened in a process, as a list and as they come.
#include <optional>
#include <string>

#include "python/railhop/bind.h"
#include "python/railhop/follower.h"

namespace railhop::python {
namespace {

void BindEvent(py::module_* module) {
  using admin::Event;
  Record<Event>(module, "Event", R"(Something that happened in a process.

Fields that do not concern its kind are empty, or 0.

Example:
    >>> for event in railhop.events(limit=3):
    ...     print(event.serial, isinstance(event.kind, railhop.EventKind))
    1 True
    2 True
    3 True
)")
      .Field("serial", &Event::serial, "From 1, without gaps.")
      .Field("time_unix_ns", &Event::time_unix_ns, "When it happened.")
      .Field("kind", &Event::kind, "What it tells.")
      .Field("severity", &Event::severity, "Whether a person may need to act.")
      .Field("episode", &Event::episode, "That it belongs to; 0 if none.")
      .Field("port", &Event::port, "Of this process.")
      .Field("peer_host", &Event::peer_host, "The host at the other end.")
      .Field("peer_port", &Event::peer_port, "The port there.")
      .Field("connection", &Event::connection, "Its id, hexadecimal.")
      .Field("direction", &Event::direction, "Of the connection.")
      .Field("epoch", &Event::epoch, "Of the connection, from then on.")
      .Field("cause", &Event::cause, "Why.")
      .Field("blame", &Event::blame, "What most likely has to be repaired.")
      .Field("value", &Event::value, "Lanes, or nanoseconds of an episode that is over.")
      .Field("bytes", &Event::bytes, "Sent again.")
      .Field("text", &Event::text, "For people.");
}

const admin::Event& Item(const admin::EventList& list, int64_t index) {
  const auto size = static_cast<int64_t>(list.events.size());
  const int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size) throw py::index_error("there are " + std::to_string(size) + " events");
  return list.events[static_cast<size_t>(at)];
}

void BindEventList(py::module_* module) {
  using admin::EventList;
  Record<EventList> record(module, "EventList", R"(Events, oldest first: a sequence of them.

Example:
    >>> events = railhop.events(limit=2)
    >>> len(events), events[-1].serial, events.gone
    (2, 2, 0)
)");
  record.Field("events", &EventList::events, "Oldest first.")
      .Field("gone", &EventList::gone, "That were asked for and are not kept any more.")
      .Field("last_serial", &EventList::last_serial,
             "Of all that there are, also of those behind the limit.");
  record.python()
      .def("__len__", [](const EventList& list) { return list.events.size(); })
      .def("__getitem__", &Item, py::arg("index"), py::return_value_policy::reference_internal)
      .def("__iter__", [](const py::object& self) -> py::typing::Iterator<admin::Event> {
        return py::iter(self.attr("events"));
      });
}

void BindFollower(py::module_* module) {
  py::class_<Follower>(*module, "EventFollower",
                       R"(Events as they happen: railhop.follow() makes it.

Example:
    >>> next(railhop.follow()).serial
    1
)")
      .def("__iter__",
           [](const py::object& self) -> py::typing::Iterator<admin::Event> {
             return py::reinterpret_borrow<py::typing::Iterator<admin::Event>>(self);
           })
      .def("__next__",
           [](Follower& follower) {
             std::optional<admin::Event> event = follower.Next();
             if (!event) throw py::stop_iteration();
             return std::move(*event);
           })
      .def_property_readonly("gone", &Follower::gone,
                             "Events that were asked for and are not kept any more.");
}

}  // namespace

void BindEvents(py::module_* module) {
  BindEvent(module);
  BindEventList(module);
  BindFollower(module);
}

}  // namespace railhop::python
