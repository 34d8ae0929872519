// What a port looks like now: state, MTU, LID, address, P_Key.
//
// The hard case is the address of a RoCE port after a fault: it may come back later than the port,
// at another index of the GID table, or not at all. It is looked up by value: where it was, then
// anywhere, then (it may have changed for good) by the rules of NCCL_IB_GID_INDEX and its kin.
#ifndef RAILHOP_CC_RUNTIME_PORT_FACTS_H_
#define RAILHOP_CC_RUNTIME_PORT_FACTS_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cc/runtime/gid_choice.h"
#include "cc/runtime/net_device.h"

namespace railhop::runtime {

struct PortRules {
  GidRule gid;
  int pkey_index = 0;  // NCCL_IB_PKEY
  std::string root;    // before every path in /sys; a folder in tests
};

struct PortFacts {
  bool active = false;
  bool is_ethernet = false;
  uint8_t mtu = 0;  // ibv_mtu, 1..5
  uint16_t lid = 0;
  int gid_index = -1;  // -1: the port has no address that may be used now; `doubt` says why
  std::array<uint8_t, 16> gid = {};
  std::string doubt;
  friend bool operator==(const PortFacts&, const PortFacts&) = default;
};

// Reads the port. May hang: for the executor. Errors: as verbs gives them (a device that is gone:
// Internal).
absl::StatusOr<PortFacts> ReadPort(const PhysicalDevice& device, const PortRules& rules);

// Where the port's P_Key table has this key: the configured index if it is there, else another,
// else where the same partition's other kind of membership is.
// pkey 0: the configured index. May hang. Errors: FailedPrecondition (the key is not there; a
// sentence), Internal.
absl::StatusOr<uint16_t> FindPkey(const PhysicalDevice& device, const PortRules& rules,
                                  uint16_t pkey);

// A GidReader over a port's table.
GidReader GidsOf(const verbs::Context& context, uint8_t port, int table_length,
                 const std::string& root);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_PORT_FACTS_H_
