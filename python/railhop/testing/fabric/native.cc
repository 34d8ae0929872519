// The Python binding of the fabric's control library: what `railhop-fabric` does, as calls.
//
// Snapshots and log lines cross as JSON, so the field names are those of `railhop-fabric show
// --json` and cannot drift; railhop.testing.fabric turns them into Python objects. The GIL is
// released where a call waits.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cc/fabric/control.h"
#include "cc/fabric/ctl/topology_file.h"
#include "cc/fabric/event_log.h"
#include "cc/fabric/owned_fabric.h"
#include "cc/fabric/snapshot.h"

namespace py = pybind11;

namespace railhop::fabric {
namespace {

// A fabric that this process owns, or one that it joined.
class Handle {
 public:
  static std::unique_ptr<Handle> Create(const std::string& topology, const std::string& name,
                                        uint64_t seed, double time_scale) {
    std::string error;
    const auto loaded = LoadTopology(topology, &error);
    if (!loaded.has_value()) throw py::value_error(error);
    auto handle = std::make_unique<Handle>();
    handle->owned_ = OwnedFabric::Create({name, *loaded, seed, time_scale}, &error);
    if (handle->owned_ == nullptr) throw std::runtime_error(error);
    return handle;
  }

  static std::unique_ptr<Handle> Attach(const std::string& reference, const std::string& name) {
    std::string error;
    auto handle = std::make_unique<Handle>();
    handle->joined_ =
        name.empty() ? Control::Attach(reference, &error) : Control::AttachByName(name, &error);
    if (handle->joined_ == nullptr) throw std::runtime_error(error);
    return handle;
  }

  void Close() {
    py::gil_scoped_release release;
    owned_.reset();
    joined_.reset();
  }

  std::string Fault(const std::string& words) {
    std::string error;
    std::string output;
    bool done = false;
    {
      py::gil_scoped_release release;
      done = control().Fault(words, &error, &output);
    }
    if (!done) throw py::value_error(error);
    return output;
  }

  std::string Snapshot() { return SnapshotJson(TakeSnapshot(control().directory())); }

  std::vector<std::string> Log() {
    std::vector<std::string> lines;
    uint64_t cursor = 0;
    while (const auto record = control().directory().ReadLog(&cursor)) {
      lines.push_back(LogJson(control().directory(), *record));
    }
    return lines;
  }

  std::string Reference() { return control().directory().Reference(); }

 private:
  Control& control() {
    if (owned_ != nullptr) return owned_->control();
    if (joined_ != nullptr) return *joined_;
    throw std::runtime_error("the fabric is closed");
  }

  std::unique_ptr<OwnedFabric> owned_;
  std::unique_ptr<Control> joined_;
};

}  // namespace
}  // namespace railhop::fabric

PYBIND11_MODULE(native, module) {
  using railhop::fabric::Handle;
  module.doc() = "Native part of railhop.testing.fabric.";
  py::class_<Handle>(module, "Handle")
      .def_static("create", &Handle::Create, py::arg("topology"), py::arg("name"), py::arg("seed"),
                  py::arg("time_scale"))
      .def_static("attach", &Handle::Attach, py::arg("reference"), py::arg("name"))
      .def("close", &Handle::Close)
      .def("fault", &Handle::Fault, py::arg("words"))
      .def("snapshot", &Handle::Snapshot)
      .def("log", &Handle::Log)
      .def("reference", &Handle::Reference);
}
