// The settings of failover, as numbers; RAILHOP_* in docs/reference/environment.md.
#ifndef RAILHOP_CC_RUNTIME_FAILOVER_CONFIG_H_
#define RAILHOP_CC_RUNTIME_FAILOVER_CONFIG_H_

#include <cstdint>

#include "cc/engine/path_health.h"

namespace railhop::runtime {

struct FailoverConfig {
  bool enabled = true;         // RAILHOP_FAILOVER
  bool confirm = false;        // RAILHOP_CONFIRM_RECEIVES
  engine::HealthTimes health;  // RAILHOP_STALL_THRESHOLD, _PROBE_INTERVAL, _HOLD_DOWN(_MAX)
  int64_t give_up_ns = 300'000'000'000;           // RAILHOP_GIVE_UP_TIME
  int64_t port_poll_interval_ns = 1'000'000'000;  // RAILHOP_PORT_POLL_INTERVAL
  int cover_backups = -1;                         // RAILHOP_COVER; -1 = all
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_FAILOVER_CONFIG_H_
