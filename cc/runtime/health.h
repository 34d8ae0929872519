// What the admin API tells, made from copies of what the parts know. Pure.
//
// The hard case is a port's state: the driver knows what the port says of itself, and what probes
// say of each path over it. A port that reads as active and over which nothing gets through is down
// to a person.
#ifndef RAILHOP_CC_RUNTIME_HEALTH_H_
#define RAILHOP_CC_RUNTIME_HEALTH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cc/admin/records.h"
#include "cc/runtime/driver_snapshot.h"
#include "cc/runtime/journal.h"
#include "cc/runtime/transport_view.h"

namespace railhop::runtime {

struct HealthInput {
  admin::Process process;
  TransportView transport;
  // None: failover is off.
  std::optional<DriverSnapshot> driver;
  JournalCounters counters;
  int64_t now = 0;          // of the driver's clock
  int64_t unix_offset = 0;  // what is to be added to it, for the wall clock
  // With failover off: the ports as read, by PhysicalDevice::id; none = not known.
  std::map<int, PortFacts> facts;
};

admin::Health MakeHealth(const HealthInput& input);
admin::Stats MakeStats(const HealthInput& input);

// The names by which events are told.
struct EventNames {
  std::map<int, std::string> ports;  // of this process
  std::map<engine::InstanceId, DriverSnapshot::Peer> peers;
};
EventNames NamesOf(const HealthInput& input);
admin::Event MakeEvent(const JournalEntry& entry, const EventNames& names, int64_t unix_offset);

// "mlx5_0:1".
std::string PortName(const PhysicalDevice& device);
// As connections and processes are named in the admin API: 16 hexadecimal digits.
std::string HexId(uint64_t id);

// Of port and path states, as events tell them.
admin::PortState ToAdmin(engine::PortState state);
admin::PathState ToAdmin(engine::PathState state);
admin::Cause ToAdmin(engine::Cause cause);
admin::Blame ToAdmin(engine::Blame blame);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_HEALTH_H_
