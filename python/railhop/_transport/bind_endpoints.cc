#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "python/railhop/_transport/bindings.h"
#include "python/railhop/_transport/endpoint.h"
#include "python/railhop/_transport/failure.h"

namespace railhop::transport {

namespace py = pybind11;

namespace {

// Memory, and the Python object whose bytes it is.
struct BoundMemory {
  std::shared_ptr<Memory> memory;
  py::buffer_info view;
};

py::bytes HandleOf(const Listener& listener) { return py::bytes(listener.handle()); }

std::shared_ptr<Connection> Accept(Listener& listener, const py::object& timeout_s) {
  std::shared_ptr<Connection> made;
  InPieces(timeout_s, [&](double seconds) { return (made = listener.Accept(seconds)) != nullptr; });
  if (made == nullptr) throw Failure(FailureKind::kTimeout, "nobody connected in the time given");
  return made;
}

std::shared_ptr<Connection> Connect(const std::shared_ptr<Plugin>& plugin, int device,
                                    const std::string& handle, double timeout_s) {
  std::shared_ptr<Connection> made;
  {
    const py::gil_scoped_release release;
    made = Connection::Connect(plugin, device, handle, timeout_s);
  }
  if (made == nullptr) {
    throw Failure(FailureKind::kTimeout, "the peer did not accept in the time given");
  }
  return made;
}

std::unique_ptr<BoundMemory> Register(const std::shared_ptr<Connection>& connection,
                                      const py::buffer& buffer) {
  auto bound = std::make_unique<BoundMemory>();
  bound->view = buffer.request(!connection->sends());
  const auto bytes = static_cast<size_t>(bound->view.size * bound->view.itemsize);
  const py::gil_scoped_release release;
  bound->memory = std::make_shared<Memory>(connection, bound->view.ptr, bytes);
  return bound;
}

std::unique_ptr<Request> Post(const BoundMemory& bound, size_t offset, const py::object& size,
                              int tag, double timeout_s) {
  const size_t bytes = size.is_none() ? bound.memory->size() - offset : size.cast<size_t>();
  const py::gil_scoped_release release;
  return std::make_unique<Request>(bound.memory, offset, bytes, tag, timeout_s);
}

py::object Test(Request& request) {
  bool done = false;
  {
    const py::gil_scoped_release release;
    done = request.Test();
  }
  if (!done) return py::none();
  return py::int_(request.size());
}

int Wait(Request& request, const py::object& timeout_s) {
  if (!InPieces(timeout_s, [&](double seconds) { return request.Wait(seconds); })) {
    throw Failure(FailureKind::kTimeout, "the request is not done in the time given");
  }
  return request.size();
}

void BindDevice(py::module_& module) {
  using netperf::NetDevice;
  py::class_<NetDevice>(module, "Device")
      .def_readonly("name", &NetDevice::name)
      .def_readonly("pci", &NetDevice::pci_path)
      .def_readonly("guid", &NetDevice::guid)
      .def_readonly("port", &NetDevice::port)
      .def_readonly("speed_mbps", &NetDevice::speed_mbps)
      .def_readonly("recvs_max", &NetDevice::max_recvs)
      .def_readonly("connections_max", &NetDevice::max_comms)
      .def("__repr__", [](const NetDevice& device) {
        return "Device(name='" + device.name + "', port=" + std::to_string(device.port) +
               ", speed_mbps=" + std::to_string(device.speed_mbps) + ")";
      });
}

}  // namespace

void BindEndpoints(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  BindDevice(module);
  py::class_<Plugin, std::shared_ptr<Plugin>>(module, "Plugin")
      .def(py::init<const std::string&, int>(), py::arg("path"), py::arg("version") = 0, Released())
      .def_property_readonly("name", &Plugin::name)
      .def_property_readonly("version", &Plugin::version)
      .def("devices", &Plugin::Devices, Released())
      .def(
          "listen",
          [](const std::shared_ptr<Plugin>& plugin, int device) {
            return std::make_unique<Listener>(plugin, device);
          },
          py::arg("device") = 0, Released())
      .def("connect", &Connect, py::arg("device"), py::arg("handle"), py::arg("timeout_s") = 30.0)
      .def("close", &Plugin::Close, Released());
  py::class_<Listener>(module, "Listener")
      .def_property_readonly("handle", &HandleOf)
      .def("accept", &Accept, py::arg("timeout_s") = 30.0)
      .def("close", &Listener::Close, Released());
  py::class_<Connection, std::shared_ptr<Connection>>(module, "Connection")
      .def_property_readonly("sends", &Connection::sends)
      .def("register", &Register, py::arg("buffer"))
      .def("close", &Connection::Close, Released());
  py::class_<BoundMemory>(module, "Memory")
      .def_property_readonly("size", [](const BoundMemory& bound) { return bound.memory->size(); })
      .def("post", &Post, py::arg("offset") = 0, py::arg("size") = py::none(), py::arg("tag") = 0,
           py::arg("timeout_s") = 30.0, py::keep_alive<0, 1>())
      .def("close", [](const BoundMemory& bound) {
        const py::gil_scoped_release release;
        bound.memory->Close();
      });
  py::class_<Request>(module, "Request")
      .def("test", &Test)
      .def("wait", &Wait, py::arg("timeout_s") = 30.0);
}

}  // namespace railhop::transport
