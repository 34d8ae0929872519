// One function for each class of the module.
#ifndef RAILHOP_PYTHON_RAILHOP__TRANSPORT_BINDINGS_H_
#define RAILHOP_PYTHON_RAILHOP__TRANSPORT_BINDINGS_H_

#include <pybind11/pybind11.h>

namespace railhop::transport {

void BindEndpoints(pybind11::module_& module);
void BindMessenger(pybind11::module_& module);

// Runs `step(seconds)` in short pieces without the GIL until it gives true or `seconds` are over,
// so that signals (Ctrl-C) are seen between them. None: no end.
template <typename Step>
bool InPieces(const pybind11::object& seconds, Step step) {
  constexpr double kPiece = 0.1;
  const bool endless = seconds.is_none();
  double left = endless ? kPiece : seconds.cast<double>();
  while (true) {
    const double piece = left < kPiece ? left : kPiece;
    bool over = false;
    {
      const pybind11::gil_scoped_release release;
      over = step(piece);
    }
    if (over) return true;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    if (endless) continue;
    left -= piece;
    if (left <= 0) return false;
  }
}

}  // namespace railhop::transport

#endif  // RAILHOP_PYTHON_RAILHOP__TRANSPORT_BINDINGS_H_
