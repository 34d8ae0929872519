// railhop._native: the admin API in Python. Each bind_*.cc adds its part.
#include "python/railhop/bind.h"

PYBIND11_MODULE(_native, module) {
  module.doc() = "The compiled part of railhop: `import railhop` has all of it.";
  railhop::python::BindWords(&module);
  railhop::python::BindHealth(&module);
  railhop::python::BindStats(&module);
  railhop::python::BindEvents(&module);
  railhop::python::BindConfig(&module);
  railhop::python::BindProcess(&module);
}
