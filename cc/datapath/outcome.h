// What a call on the hot path comes to. An enum, since absl::Status costs too much there.
#ifndef RAILHOP_CC_DATAPATH_OUTCOME_H_
#define RAILHOP_CC_DATAPATH_OUTCOME_H_

#include <cstdint>

namespace railhop::datapath {

enum class Outcome : uint8_t {
  kOk = 0,          // also "not now": no request, or not done
  kMisuse = 1,      // the caller broke a rule of the ABI: internal error
  kSystem = 2,      // the operating system or the local verbs device failed
  kRemote = 3,      // the peer or the way to it has been given up
  kBadSetting = 4,  // a user's setting forbids it: invalid usage
  // As kOk, with all that the call gives; and Connection::TakeFaults has something. Only with
  // ConnectionRules::failover; it never leaves the plugin.
  kFault = 5,
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_OUTCOME_H_
