// Finds and reads the topology that a user names.
#ifndef RAILHOP_CC_FABRIC_CTL_TOPOLOGY_FILE_H_
#define RAILHOP_CC_FABRIC_CTL_TOPOLOGY_FILE_H_

#include <optional>
#include <string>

#include "cc/rdma_model/topology.h"

namespace railhop::fabric {

// A file, or the name of a built-in topology; "default" (or "") is rdma::DefaultTopology. A file
// comes first.
std::optional<rdma::Topology> LoadTopology(const std::string& file_or_name, std::string* error);

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_CTL_TOPOLOGY_FILE_H_
