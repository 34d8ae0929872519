// The failover of one simulated host: the driver with its real parts, stepped by events.
//
// What FailoverService is in life, with SimExecutor for its workers, SimChannel for its sessions,
// and the event loop for its thread.
#ifndef RAILHOP_CC_SIM_PLUGIN_PROCESS_H_
#define RAILHOP_CC_SIM_PLUGIN_PROCESS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "cc/runtime/cover.h"
#include "cc/runtime/driver.h"
#include "cc/runtime/failover_config.h"
#include "cc/runtime/journal.h"
#include "cc/runtime/lane_maker.h"
#include "cc/runtime/port_monitor.h"
#include "cc/runtime/prober.h"
#include "cc/sim/plugin_channel.h"
#include "cc/sim/plugin_executor.h"
#include "cc/sim/plugin_world.h"

namespace railhop::sim {

class PluginProcess final : public Actor {
 public:
  // All outlive it.
  PluginProcess(PluginHost* host, ControlNet* net, const runtime::FailoverConfig& config,
                uint64_t seed);
  ~PluginProcess() override;

  PluginHost* host() const { return host_; }
  runtime::Driver& driver() { return *driver_; }
  runtime::Cover& cover() { return *cover_; }
  runtime::Journal& journal() { return journal_; }
  SimExecutor& executor() { return *executor_; }

  // An event of one of its devices.
  void Take(const runtime::AsyncEvent& event);
  // No more steps.
  void Stop() { stopped_ = true; }

  // Steps so far.
  uint64_t steps() const { return steps_; }

  void OnEvent(uint64_t turn) override;

 private:
  void Wake();
  void StepAt(uint64_t when_ns);

  PluginHost* const host_;
  Prng prng_;
  runtime::Journal journal_;
  runtime::LaneMaker maker_;
  std::unique_ptr<SimExecutor> executor_;
  SimChannel* channel_ = nullptr;
  std::unique_ptr<runtime::Prober> prober_;
  std::unique_ptr<runtime::Cover> cover_;
  std::unique_ptr<runtime::PortMonitor> ports_;
  std::unique_ptr<runtime::Driver> driver_;
  uint64_t next_ns_ = 0;
  uint64_t turn_ = 0;
  uint64_t steps_ = 0;
  bool stopped_ = false;
};

// The name of an end of a connection.
engine::EndId EndIdOf(const PluginConnection& connection, engine::End end);

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_PROCESS_H_
