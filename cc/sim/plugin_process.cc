#include "cc/sim/plugin_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/control/handshake.h"

namespace railhop::sim {
namespace {

constexpr uint64_t kLongestSleepNs = 1'000'000'000;  // as FailoverService

runtime::LinkInfo InfoOf(const PluginConnection& c, engine::End end,
                         const runtime::LaneMaker& maker) {
  const bool sends = end == engine::End::kSender;
  const control::EndDescription& own = sends ? c.hello : c.reply;
  const control::EndDescription& peer = sends ? c.reply : c.hello;
  runtime::LinkInfo info;
  info.id = EndIdOf(c, end);
  info.peer = peer.instance_id;
  info.peer_host = peer.host;
  info.label = absl::StrCat(own.host, " to ", peer.host);
  info.comm = sends ? static_cast<runtime::ConnectionComm*>(c.send.get()) : c.recv.get();
  info.send = sends ? c.send->connection : nullptr;
  info.recv = sends ? nullptr : c.recv->connection;
  info.memory = reinterpret_cast<void*>(own.memory_address);
  info.parts = info.comm->device->parts;
  for (const control::DeviceDescription& device : peer.devices) {
    info.peer_parts.push_back({.name = device.name, .port = device.port});
  }
  for (size_t i = 0; i < own.lanes.size(); ++i) {
    const size_t slot = i % own.devices.size();
    info.base.push_back({.local = info.parts[slot]->id,
                         .slot = static_cast<uint8_t>(slot),
                         .remote_slot = static_cast<uint8_t>(i % peer.devices.size())});
  }
  info.adaptive_routing = maker.AdaptiveRouting(info.parts);
  info.service_level = c.hello.service_level;
  info.traffic_class = c.hello.traffic_class;
  info.flush_pointers = info.comm->device->properties.ptr_support;
  return info;
}

}  // namespace

engine::EndId EndIdOf(const PluginConnection& connection, engine::End end) {
  return {.connection = control::ConnectionIdOf(connection.hello.nonce), .end = end};
}

PluginProcess::PluginProcess(PluginHost* host, ControlNet* net,
                             const runtime::FailoverConfig& config, uint64_t seed)
    : host_(host), prng_(seed), maker_(host->config(), runtime::PortRules()) {
  executor_ = std::make_unique<SimExecutor>(host, prng_.Next(), [this] { Wake(); });
  channel_ = net->Open(host, [this] { Wake(); });
  runtime::DeviceSource* devices = &host->devices();
  runtime::ProberOptions prober;
  prober.stall_ns = config.health.stall;
  prober.seed = prng_.Next();
  prober_ = std::make_unique<runtime::Prober>(devices, &maker_, executor_.get(), prober);
  runtime::CoverOptions cover;
  cover.backups = config.cover_backups;
  cover_ = std::make_unique<runtime::Cover>(devices, executor_.get(), cover);
  runtime::PortMonitorOptions ports;
  ports.interval_ns = config.port_poll_interval_ns;
  ports_ = std::make_unique<runtime::PortMonitor>(devices, &maker_.rules(), executor_.get(), ports);
  runtime::DriverOptions options;
  options.health = config.health;
  options.give_up = config.give_up_ns;
  options.seed = prng_.Next();
  driver_ = std::make_unique<runtime::Driver>(runtime::Driver::Parts{.self = host->instance_id(),
                                                                     .channel = channel_,
                                                                     .executor = executor_.get(),
                                                                     .devices = devices,
                                                                     .maker = &maker_,
                                                                     .prober = prober_.get(),
                                                                     .cover = cover_.get(),
                                                                     .ports = ports_.get(),
                                                                     .journal = &journal_,
                                                                     .wake = [this] { Wake(); }},
                                              options);
  PluginHost::Failover& hooks = host->failover();
  hooks.reg = [this](runtime::ConnectionComm* comm, void* data, size_t size,
                     runtime::Memory* memory) {
    return cover_->Register(comm, memory, {.data = data, .size = size});
  };
  hooks.dereg = [this](runtime::Memory* memory) { return cover_->Deregister(memory); };
  hooks.closed = [this](runtime::ConnectionComm* comm) { cover_->Closed(comm); };
  hooks.added = [this](const PluginConnection& c, engine::End end) {
    if (c.failover) driver_->Add(InfoOf(c, end, maker_));
  };
  hooks.notify = [this](const PluginConnection& c, engine::End end) {
    driver_->Notify(EndIdOf(c, end));
  };
  hooks.run = [this](runtime::ConnectionComm* comm, std::function<void()> job) {
    const int physical = comm->device->parts[0]->id;
    return executor_->RunAndWait({{physical, std::move(job)}}, executor_->CloseBoundNs(physical));
  };
  hooks.remove = [this](const PluginConnection& c, engine::End end) {
    return driver_->Remove(EndIdOf(c, end));
  };
  Wake();
}

PluginProcess::~PluginProcess() {
  stopped_ = true;
  driver_.reset();
  prober_.reset();
  cover_.reset();
  ports_.reset();
  executor_.reset();
}

void PluginProcess::Take(const runtime::AsyncEvent& event) { driver_->Take(event); }

// A thread that is woken runs some microseconds later, seldom milliseconds.
void PluginProcess::Wake() {
  const uint64_t delay = prng_.Chance(0.02) ? prng_.Below(2'000'000) : 1'000 + prng_.Below(20'000);
  StepAt(host_->world()->now_ns() + delay);
}

void PluginProcess::StepAt(uint64_t when_ns) {
  if (next_ns_ != 0 && next_ns_ <= when_ns) return;
  next_ns_ = when_ns;
  host_->world()->loop().At(when_ns, this, ++turn_);
}

void PluginProcess::OnEvent(uint64_t turn) {
  if (turn != turn_ || stopped_ || !host_->alive()) return;
  next_ns_ = 0;
  ++steps_;
  PluginWorld* world = host_->world();
  const uint64_t now = world->now_ns();
  CallerScope scope(world, Caller::kEngine);
  driver_->Step(static_cast<int64_t>(now));
  (void)world->TakeHeldUp();
  const int64_t due = driver_->next_due();
  const uint64_t wait = due <= static_cast<int64_t>(now)
                            ? 0
                            : std::min<uint64_t>(static_cast<uint64_t>(due) - now, kLongestSleepNs);
  StepAt(now + std::max<uint64_t>(wait, 1'000) + prng_.Below(5'000));
}

}  // namespace railhop::sim
