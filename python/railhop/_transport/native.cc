// The native part of railhop._transport: a NCCL net plugin driven without NCCL.
#include <pybind11/pybind11.h>

#include "python/railhop/_transport/bindings.h"
#include "python/railhop/_transport/failure.h"

namespace py = pybind11;

namespace {

using railhop::transport::Failure;
using railhop::transport::FailureKind;

const char* ClassName(FailureKind kind) {
  switch (kind) {
    case FailureKind::kLoad:
      return "PluginLoadError";
    case FailureKind::kPlugin:
      return "PluginCallError";
    case FailureKind::kPeer:
      return "PeerError";
    case FailureKind::kMismatch:
      return "MismatchError";
    case FailureKind::kTimeout:
      return "TransportTimeoutError";
    case FailureKind::kClosed:
      return "ClosedError";
  }
  return "TransportError";
}

// Raises the class of railhop._transport.errors that fits.
void Translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const Failure& failure) {
    const py::object made = py::module_::import("railhop._transport.errors")
                                .attr(ClassName(failure.kind()))(failure.what());
    made.attr("result") = static_cast<int>(failure.result());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  }
}

}  // namespace

PYBIND11_MODULE(native, module) {
  module.doc() = "Native part of railhop._transport.";
  py::register_local_exception_translator(&Translate);
  railhop::transport::BindEndpoints(module);
  railhop::transport::BindMessenger(module);
}
