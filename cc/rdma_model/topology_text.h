// The text form of a topology, which people write.
//
// One statement a line or several; a statement is a word and its values, and what it is about is
// the last host, device or port named before it. Indentation is for the reader, '#' starts a
// comment. Whatever is left out gets the default that a real device would most likely have, so a
// laptop with one NIC is a single line.
//
//   nets rail0 rail1
//   route rail0 rail1                       # both ways; route_one_way FROM TO
//   host alpha
//     device mlx5_0 pci 0000:17:00.0 numa 0
//       port 1 net rail0 speed 400 address 10.0.0.1 netdev eth0
//
// docs/fabric.md lists every word.
#ifndef RAILHOP_CC_RDMA_MODEL_TOPOLOGY_TEXT_H_
#define RAILHOP_CC_RDMA_MODEL_TOPOLOGY_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "cc/rdma_model/topology.h"

namespace railhop::rdma {

// `file` is only named in errors, which read
// "<file>:<line>: <word>: <what is wrong>; allowed: <what is not>".
// Returns nothing and sets *error when the text is not a valid topology.
std::optional<Topology> ParseTopology(std::string_view text, std::string_view file,
                                      std::string* error);

// With every value written out; parsing it gives the same topology again.
std::string FormatTopology(const Topology& topology);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_TOPOLOGY_TEXT_H_
