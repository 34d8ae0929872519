#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/railhop/_transport/bindings.h"
#include "python/railhop/_transport/failure.h"
#include "python/railhop/_transport/messenger.h"
#include "python/railhop/_transport/plugin_handle.h"

namespace railhop::transport {

namespace py = pybind11;

namespace {

// An operation, and the Python object whose bytes it moves: that stays until no thread touches
// them.
class BoundOperation {
 public:
  BoundOperation(std::shared_ptr<Messenger> messenger, std::shared_ptr<Operation> operation,
                 py::object owner)
      : messenger_(std::move(messenger)),
        operation_(std::move(operation)),
        owner_(std::move(owner)) {}
  BoundOperation(const BoundOperation&) = delete;
  BoundOperation& operator=(const BoundOperation&) = delete;
  ~BoundOperation() { Cancel(); }

  void Cancel() {
    if (operation_->done.load(std::memory_order_acquire)) return;
    const py::gil_scoped_release release;
    messenger_->Cancel(operation_);
  }

  bool Done() const { return operation_->done.load(std::memory_order_acquire); }
  int Source() const { return operation_->source; }

  // False: not within the time.
  bool Wait(const py::object& timeout_s) {
    return InPieces(timeout_s,
                    [&](double seconds) { return messenger_->Wait(*operation_, seconds); });
  }

 private:
  std::shared_ptr<Messenger> messenger_;
  std::shared_ptr<Operation> operation_;
  py::object owner_;
};

std::shared_ptr<Messenger> Make(const std::string& path, int rank, int size, int lanes,
                                std::vector<std::string> kinds, int version) {
  const py::gil_scoped_release release;
  auto plugin = StartPlugin(path, version);
  return std::make_shared<Messenger>(std::move(plugin), rank, size, lanes, std::move(kinds));
}

bool ConnectMessenger(Messenger& messenger, const std::vector<py::bytes>& handles,
                      const py::object& timeout_s) {
  const std::vector<std::string> texts(handles.begin(), handles.end());
  return InPieces(timeout_s, [&](double seconds) { return messenger.Connect(texts, seconds); });
}

std::unique_ptr<BoundOperation> SendFrom(const std::shared_ptr<Messenger>& messenger, int peer,
                                         uint32_t kind, uint64_t tag, uintptr_t address,
                                         size_t size, py::object owner) {
  auto operation = messenger->Send(peer, kind, tag, reinterpret_cast<const void*>(address), size);
  return std::make_unique<BoundOperation>(messenger, std::move(operation), std::move(owner));
}

std::unique_ptr<BoundOperation> ReceiveInto(const std::shared_ptr<Messenger>& messenger, int peer,
                                            uint32_t kind, uint64_t tag, uintptr_t address,
                                            size_t size, py::object owner) {
  auto operation = messenger->Receive(peer, kind, tag, reinterpret_cast<void*>(address), size);
  return std::make_unique<BoundOperation>(messenger, std::move(operation), std::move(owner));
}

std::vector<py::dict> Report(const Messenger& messenger) {
  std::vector<py::dict> rows;
  for (const LaneReport& lane : messenger.Report()) {
    py::dict row;
    row["peer"] = lane.peer;
    row["lane"] = lane.lane;
    row["device"] = lane.device;
    row["sent_bytes"] = lane.sent.bytes;
    row["sent_parts"] = lane.sent.parts;
    row["received_bytes"] = lane.received.bytes;
    row["received_parts"] = lane.received.parts;
    rows.push_back(row);
  }
  return rows;
}

std::vector<std::pair<int64_t, int64_t>> Dips(const Messenger& messenger) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (const Dip& dip : messenger.Dips()) pairs.emplace_back(dip.begin_unix_ns, dip.end_unix_ns);
  return pairs;
}

}  // namespace

void BindMessenger(py::module_& module) {
  py::class_<BoundOperation>(module, "Operation")
      .def_property_readonly("done", &BoundOperation::Done)
      .def_property_readonly("source", &BoundOperation::Source)
      .def("wait", &BoundOperation::Wait, py::arg("timeout_s") = py::none())
      .def("cancel", &BoundOperation::Cancel);
  py::class_<Messenger, std::shared_ptr<Messenger>>(module, "Messenger")
      .def(py::init(&Make), py::arg("path"), py::arg("rank"), py::arg("size"), py::arg("lanes"),
           py::arg("kinds") = std::vector<std::string>(), py::arg("version") = 0)
      .def(
          "listen",
          [](Messenger& messenger, int peer) {
            std::string handles;
            {
              const py::gil_scoped_release release;
              handles = messenger.Listen(peer);
            }
            return py::bytes(handles);
          },
          py::arg("peer"))
      .def("connect", &ConnectMessenger, py::arg("handles"), py::arg("timeout_s") = 60.0)
      .def("send", &SendFrom, py::arg("peer"), py::arg("kind"), py::arg("tag"), py::arg("address"),
           py::arg("size"), py::arg("owner") = py::none())
      .def("receive", &ReceiveInto, py::arg("peer"), py::arg("kind"), py::arg("tag"),
           py::arg("address"), py::arg("size"), py::arg("owner") = py::none())
      .def("report", &Report)
      .def("dips", &Dips)
      .def_property_readonly("closed", &Messenger::closed)
      .def("close", &Messenger::Close, py::arg("goodbye_s") = 2.0,
           py::call_guard<py::gil_scoped_release>());
}

}  // namespace railhop::transport
