// What the parser of topologies knows besides the topology itself, and what both directions of the
// text form share.
//
// For topology_text.cc, topology_check.cc and topology_format.cc alone.
#ifndef RAILHOP_CC_RDMA_MODEL_TOPOLOGY_DRAFT_H_
#define RAILHOP_CC_RDMA_MODEL_TOPOLOGY_DRAFT_H_

#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cc/rdma_model/topology.h"

namespace railhop::rdma {

// Words of `cap` lines, with the most that the software can do.
struct CapRow {
  const char* name;
  uint32_t TopologyCaps::*field;
  uint32_t max;
};
inline constexpr CapRow kCaps[] = {
    {"max_qp", &TopologyCaps::max_qp, 1u << 18},
    {"max_qp_wr", &TopologyCaps::max_qp_wr, 1u << 20},
    {"max_sge", &TopologyCaps::max_sge, kMaxSge},
    {"max_cq", &TopologyCaps::max_cq, 1u << 20},
    {"max_cqe", &TopologyCaps::max_cqe, 1u << 22},
    {"max_mr", &TopologyCaps::max_mr, 1u << 24},
    {"max_pd", &TopologyCaps::max_pd, 1u << 20},
    {"max_rd_atomic", &TopologyCaps::max_rd_atomic, 128},
};

struct ErrnoRow {
  const char* name;
  int value;
};
inline constexpr ErrnoRow kOpenErrnos[] = {
    {"ok", 0},          {"EACCES", EACCES}, {"EBUSY", EBUSY},   {"EIO", EIO},
    {"ENODEV", ENODEV}, {"ENOENT", ENOENT}, {"ENOMEM", ENOMEM}, {"EPERM", EPERM},
};

// A GID table under construction: addresses in the order they came, and entries set by hand.
struct PortDraft {
  int line = 0;
  int number = 0;
  bool has_net = false;
  bool has_active_mtu = false;
  bool has_link_local = false;
  Gid link_local;
  std::vector<Gid> addresses;
  std::map<uint32_t, TopologyGid> by_hand;
};

struct DeviceDraft {
  int line = 0;
  bool has_system_guid = false;
  std::vector<PortDraft> ports;
};

struct TopologyError {
  int line = 0;
  std::string word, message, allowed;
};

// Fills in what the text left out and checks what only the whole can show. Drafts are by device.
std::optional<TopologyError> FinishTopology(const std::vector<DeviceDraft>& drafts,
                                            Topology* topology);

// "a, b, c", or `if_empty`.
std::string JoinWords(const std::vector<std::string>& words, const std::string& if_empty);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_TOPOLOGY_DRAFT_H_
