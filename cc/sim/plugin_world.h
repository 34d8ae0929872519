// Hosts that run the plugin, on simulated NICs: processes of one cluster in one thread.
//
// A host has the devices of its NICs as the plugin's device table would give them, registrations,
// and connections made without sockets: two LaneBuilders tell each other what HELLO and REPLY
// would. What NCCL does with them is in plugin_traffic.h.
//
// A call that hangs is carried out at once and its caller held up afterwards (TakeHeldUp), since
// time cannot pass inside a call: other actors would run in the middle of it.
#ifndef RAILHOP_CC_SIM_PLUGIN_WORLD_H_
#define RAILHOP_CC_SIM_PLUGIN_WORLD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cc/control/handshake.h"
#include "cc/datapath/datapath_config.h"
#include "cc/engine/ids.h"
#include "cc/runtime/comm.h"
#include "cc/runtime/net_device.h"
#include "cc/sim/plugin_judge.h"
#include "cc/sim/transfer.h"
#include "cc/sim/verbs_table.h"
#include "cc/sim/world.h"
#include "cc/verbs/context.h"

namespace railhop::sim {

class PluginWorld;
struct PluginConnection;

// Whose thread a verbs call is made on.
enum class Caller : uint8_t { kNobody, kNccl, kWorker, kEngine };

// The NICs of a host as net devices: each alone first, then what Fuse has made.
class PluginDevices final : public runtime::DeviceSource {
 public:
  // Opens the host's NICs.
  explicit PluginDevices(World* world, Host* host);

  // A NIC that was removed and is back gets a new context and a new id.
  int Rescan(absl::Span<const int> gone) override;

  int Count() const override { return static_cast<int>(net_devices_.size()); }
  const runtime::NetDevice* Get(int index) const override;
  absl::StatusOr<int> Fuse(absl::Span<const int> devices) override;
  std::vector<const runtime::PhysicalDevice*> Physical() const override;

  const std::vector<std::unique_ptr<runtime::PhysicalDevice>>& physical() const {
    return physical_;
  }
  const std::vector<std::unique_ptr<verbs::Context>>& contexts() const { return contexts_; }

 private:
  bool Add(ibv_device* device, int replaces);

  World* const world_;
  Host* const host_;
  std::vector<std::unique_ptr<verbs::Context>> contexts_;
  std::vector<std::unique_ptr<runtime::PhysicalDevice>> physical_;
  std::vector<std::unique_ptr<runtime::NetDevice>> net_devices_;
};

// A process of the plugin.
class PluginHost {
 public:
  PluginHost(PluginWorld* world, Host* host, const datapath::DatapathConfig& config);

  PluginWorld* world() const { return world_; }
  Host* host() const { return host_; }
  bool alive() const { return host_->alive; }
  PluginDevices& devices() { return devices_; }
  const datapath::DatapathConfig& config() const { return config_; }
  uint64_t instance_id() const { return instance_id_; }

  // What its PluginProcess does for a connection.
  struct Failover {
    std::function<absl::Status(runtime::ConnectionComm*, void*, size_t, runtime::Memory*)> reg;
    std::function<absl::Status(runtime::Memory*)> dereg;
    std::function<void(runtime::ConnectionComm*)> closed;
    std::function<void(const PluginConnection&, engine::End)> added;
    std::function<void(const PluginConnection&, engine::End)> notify;
    // Whether nothing uses the connection any more.
    std::function<bool(const PluginConnection&, engine::End)> remove;
    // Runs a close where it may hang; false: it has not ended in bounded time, and goes on.
    std::function<bool(runtime::ConnectionComm*, std::function<void()>)> run;
  };
  Failover& failover() { return failover_; }

  // As NCCL's regMr: on every device of the net device. Errors: as Cover.
  absl::Status Register(runtime::ConnectionComm* comm, void* data, size_t size,
                        runtime::Memory* memory);
  absl::Status Deregister(runtime::Memory* memory);

 private:
  PluginWorld* const world_;
  Host* const host_;
  const datapath::DatapathConfig config_;
  const uint64_t instance_id_;
  PluginDevices devices_;
  Failover failover_;
};

// A connection, both ends.
struct PluginConnection {
  PluginConnection() = default;
  // Ends both ends, closed or not: the world outlives it.
  ~PluginConnection();
  PluginConnection(const PluginConnection&) = delete;
  PluginConnection& operator=(const PluginConnection&) = delete;

  PluginHost* sender = nullptr;
  PluginHost* receiver = nullptr;
  std::unique_ptr<runtime::SendComm> send;
  std::unique_ptr<runtime::RecvComm> recv;
  bool failover = false;
  control::EndDescription hello;  // of the sender
  control::EndDescription reply;
};

class PluginWorld final : public VerbsActors, public HangListener {
 public:
  PluginWorld(const rdma::Topology& topology, const Options& options,
              const datapath::DatapathConfig& config, bool confirm, Violations* violations);
  ~PluginWorld() override;
  PluginWorld(const PluginWorld&) = delete;
  PluginWorld& operator=(const PluginWorld&) = delete;

  World& world() { return world_; }
  EventLoop& loop() { return world_.loop(); }
  uint64_t now_ns() { return world_.loop().now_ns(); }
  Violations& violations() { return *violations_; }
  WriteJudge& judge() { return judge_; }
  const std::vector<std::unique_ptr<PluginHost>>& hosts() const { return hosts_; }
  PluginHost* FindHost(const std::string& name) const;

  // At once, as if the handshake took no time. Errors: as LaneBuilder.
  absl::StatusOr<std::unique_ptr<PluginConnection>> Connect(PluginHost* sender, int sender_device,
                                                            PluginHost* receiver,
                                                            int receiver_device);

  // For how long the calls since the last question hold their caller up.
  uint64_t TakeHeldUp();
  bool IsHeldUp() const { return held_up_ns_ != 0; }
  void AddHeldUp(uint64_t ns) { held_up_ns_ += ns; }
  Caller caller() const { return caller_; }

  // Events of devices that wait to be read, oldest first.
  std::deque<ibv_context*>& async_events() { return async_events_; }
  // Told of each.
  void set_async_actor(Actor* actor) { async_actor_ = actor; }

  void OnAsyncEvent(ibv_context* context) override;
  void OnHang(Nic* nic, rdma::VerbCall call, uint64_t ns) override;

 private:
  friend class CallerScope;

  World world_;
  const bool confirm_;
  Violations* const violations_;
  WriteJudge judge_;
  std::vector<std::unique_ptr<PluginHost>> hosts_;
  uint64_t held_up_ns_ = 0;
  Caller caller_ = Caller::kNobody;
  std::deque<ibv_context*> async_events_;
  Actor* async_actor_ = nullptr;
};

// Says whose thread runs, as long as it lives.
class CallerScope {
 public:
  CallerScope(PluginWorld* world, Caller caller) : world_(world), before_(world->caller_) {
    world->caller_ = caller;
  }
  ~CallerScope() { world_->caller_ = before_; }
  CallerScope(const CallerScope&) = delete;
  CallerScope& operator=(const CallerScope&) = delete;

 private:
  PluginWorld* const world_;
  const Caller before_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_PLUGIN_WORLD_H_
