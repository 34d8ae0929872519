#include "cc/engine/machine_pages.h"

#include "cc/engine/failover_table.h"
#include "cc/engine/path_health_table.h"
#include "cc/engine/port_health_table.h"
#include "cc/engine/table.h"

namespace railhop::engine {

std::string FailoverMachinePage() {
  const auto rows =
      PageRows(failover::kRows, failover::kGroups, failover::kStateNames, failover::kEventNames,
               failover::kGuardNames, failover::kDoNames, failover::kNextNames);
  // The phases of both ends in one picture.
  const auto edges = PageEdges(failover::kRows, 2 * failover::kPhases, failover::kNextNames,
                               failover::kEventNames);
  return Page(
      "How one end of a connection leaves lanes",
      "Made from the table in `cc/engine/failover_table.h`; do not edit it by hand.\n\n"
      "Each end of a connection has this machine. The sender numbers the epochs; the "
      "receiver asks it to.\nWhat is fenced is the union of what both suspect, and of what "
      "an unfinished episode had. *Its lanes* are\nthose of the episode; *the joined lanes* "
      "are those of the event together with those of an unfinished\nepisode. Only the "
      "receiver asks; a row for both ends leaves each its own.\n",
      edges, rows);
}

std::string PathMachinePage() {
  const auto rows = PageRows(path::kRows, path::kGroups, path::kStateNames, path::kEventNames,
                             path::kGuardNames, path::kDoNames, path::kStateNames);
  const auto edges = PageEdges(path::kRows, static_cast<int>(path::kStateNames.size()),
                               path::kStateNames, path::kEventNames);
  return Page("Whether a path may carry data",
              "Made from the table in `cc/engine/path_health_table.h`; do not edit it by hand.\n\n"
              "One for each pair of ports that is in use or next in line. Only *good* may be "
              "entered. A probe is a round\ntrip over the path itself; at most one is out.\n",
              edges, rows);
}

std::string PortMachinePage() {
  const auto rows = PageRows(port::kRows, port::kGroups, port::kStateNames, port::kEventNames,
                             port::kGuardNames, port::kDoNames, port::kStateNames);
  return Page("Whether a port may carry data",
              "Made from the table in `cc/engine/port_health_table.h`; do not edit it by hand.\n\n"
              "One for each port of this process. A state is what is read of the port (active, "
              "down, fatal) and the\ncommand that is in force (held, drained or none); new lanes "
              "are put on it only in *active* without a command.\n",
              {}, rows);
}

}  // namespace railhop::engine
