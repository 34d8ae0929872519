// Options with what is in force, and what a command has done.
#include "python/railhop/bind.h"

namespace railhop::python {

void BindConfig(py::module_* module) {
  using admin::Option;
  Record<Option>(module, "Option", R"(A setting and what is in force.

Example:
    >>> options = {option.name: option for option in railhop.config()}
    >>> options["RAILHOP_FAILOVER"].value
    '1'
)")
      .Field("name", &Option::name, "Of the variable.")
      .Field("value", &Option::value, "In force.")
      .Field("default_value", &Option::default_value, "Without any setting.")
      .Field("source", &Option::source, "default, environment, a file with its line, or command.")
      .Field("unit", &Option::unit, "Empty if it has none.")
      .Field("range", &Option::range, "What is allowed.")
      .Field("doc", &Option::doc, "What it does.")
      .Field("changeable", &Option::changeable, "While the process runs.")
      .Field("note", &Option::note, "After a change: what comes of it besides; empty if nothing.");

  using admin::Outcome;
  Record<Outcome>(module, "Outcome", R"(What a command has done.

Example:
    >>> railhop.hold("mlx5_3").ports
    ('mlx5_3:1',)
    >>> railhop.release("mlx5_3").ports
    ('mlx5_3:1',)
)")
      .Field("ports", &Outcome::ports, "That it concerned.")
      .Field("connections", &Outcome::connections, "That had lanes there.")
      .Field("text", &Outcome::text, "One line for a person.");
}

}  // namespace railhop::python
