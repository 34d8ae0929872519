#include "cc/sim/plugin_world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/status_macros.h"
#include "cc/rdma_model/fault_grammar.h"
#include "cc/runtime/lane_builder.h"
#include "cc/sim/plugin_verbs.h"

namespace railhop::sim {
namespace {

// What control::FillRandom draws from while a world lives.
Prng* g_random = nullptr;

void FillFromSeed(void* bytes, size_t size) {
  auto* at = static_cast<uint8_t*>(bytes);
  while (size > 0) {
    const uint64_t word = g_random->Next();
    const size_t n = std::min(size, sizeof(word));
    std::memcpy(at, &word, n);
    at += n;
    size -= n;
  }
}

uint64_t Random64() {
  uint64_t value = 0;
  control::FillRandom(&value, sizeof(value));
  return value;
}

// RoCE: link-local v1, v2, then the IPv4 address v1, v2. InfiniBand: the first.
int GidIndexOf(const Nic& nic) {
  const rdma::TopologyPort& port = nic.config().ports.front();
  return port.link_layer == rdma::LinkLayer::kInfiniBand ? 0 : 3;
}

}  // namespace

// ---- devices

PluginDevices::PluginDevices(World* world, Host* host) : world_(world), host_(host) {
  SetVerbsWorld(world_, host_);
  (void)verbs::ForEachDevice(*PluginVerbs(), [this](ibv_device* device) { Add(device, -1); });
}

bool PluginDevices::Add(ibv_device* device, int replaces) {
  absl::StatusOr<std::unique_ptr<verbs::Context>> context =
      verbs::Context::Open(PluginVerbs(), device);
  if (!context.ok()) return false;
  const Nic& nic = *NicOf((*context)->raw());
  const rdma::TopologyPort& port = nic.config().ports.front();
  auto physical = std::make_unique<runtime::PhysicalDevice>();
  physical->id = static_cast<int>(physical_.size());
  physical->name = (*context)->name();
  physical->context = context->get();
  physical->is_ethernet = port.link_layer == rdma::LinkLayer::kEthernet;
  physical->gid_index = GidIndexOf(nic);
  physical->rail_id = port.net;
  const auto& gid = port.gids[static_cast<size_t>(physical->gid_index)].gid;
  std::memcpy(physical->gid.data(), gid.raw, physical->gid.size());
  physical->pkey = port.pkeys.empty() ? 0xffff : port.pkeys.front();
  physical->guid = (*context)->guid();
  physical->pci_path = "/sys/devices/pci0000:00/" + nic.config().pci_path;
  physical->numa_node = nic.config().numa_node;
  physical->speed_mbps = static_cast<int>(port.speed_gbps) * 1000;
  physical->replaces = replaces;
  auto net = std::make_unique<runtime::NetDevice>();
  net->properties.name = physical->name;
  net->properties.pci_path = physical->pci_path;
  net->properties.guid = physical->guid;
  net->properties.speed_mbps = physical->speed_mbps;
  net->properties.rail_id = port.net;
  net->properties.fused = {physical->id};
  net->parts = {physical.get()};
  contexts_.push_back(*std::move(context));
  physical_.push_back(std::move(physical));
  net_devices_.push_back(std::move(net));
  return true;
}

int PluginDevices::Rescan(absl::Span<const int> gone) {
  int added = 0;
  SetVerbsWorld(world_, host_);
  (void)verbs::ForEachDevice(*PluginVerbs(), [&](ibv_device* device) {
    for (const int id : gone) {
      const runtime::PhysicalDevice& old = *physical_[static_cast<size_t>(id)];
      const bool taken = std::any_of(physical_.begin(), physical_.end(),
                                     [id](const auto& p) { return p->replaces == id; });
      if (taken || old.name != PluginVerbs()->get_device_name(device)) continue;
      if (Add(device, id)) ++added;
      return;
    }
  });
  return added;
}

const runtime::NetDevice* PluginDevices::Get(int index) const {
  return index >= 0 && index < Count() ? net_devices_[static_cast<size_t>(index)].get() : nullptr;
}

std::vector<const runtime::PhysicalDevice*> PluginDevices::Physical() const {
  std::vector<const runtime::PhysicalDevice*> all;
  for (const auto& physical : physical_) all.push_back(physical.get());
  return all;
}

absl::StatusOr<int> PluginDevices::Fuse(absl::Span<const int> devices) {
  auto net = std::make_unique<runtime::NetDevice>();
  for (const int index : devices) {
    const runtime::NetDevice* part = Get(index);
    if (part == nullptr || part->parts.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("there is no physical device ", index));
    }
    if (net->parts.empty()) net->properties = part->properties;
    if (!net->parts.empty()) {
      net->properties.name += "+" + part->properties.name;
      net->properties.speed_mbps += part->properties.speed_mbps;
      net->properties.fused.push_back(index);
    }
    net->parts.push_back(part->parts.front());
  }
  net_devices_.push_back(std::move(net));
  return Count() - 1;
}

// ---- hosts

PluginHost::PluginHost(PluginWorld* world, Host* host, const datapath::DatapathConfig& config)
    : world_(world),
      host_(host),
      config_(config),
      instance_id_(Random64()),
      devices_(&world->world(), host) {}

absl::Status PluginHost::Register(runtime::ConnectionComm* comm, void* data, size_t size,
                                  runtime::Memory* memory) {
  return failover_.reg(comm, data, size, memory);
}

absl::Status PluginHost::Deregister(runtime::Memory* memory) { return failover_.dereg(memory); }

// ---- the world

PluginWorld::PluginWorld(const rdma::Topology& topology, const Options& options,
                         const datapath::DatapathConfig& config, bool confirm,
                         Violations* violations)
    : world_(topology, options), confirm_(confirm), violations_(violations), judge_(violations) {
  static Prng random(0);
  random = Prng(options.seed).Fork(11);
  g_random = &random;
  control::SetRandomSource(FillFromSeed);
  SetVerbsActors(this);
  world_.shared().hangs = this;
  world_.shared().writes = &judge_;
  for (const auto& host : world_.hosts()) {
    hosts_.push_back(std::make_unique<PluginHost>(this, host.get(), config));
  }
}

PluginWorld::~PluginWorld() {
  hosts_.clear();
  SetVerbsActors(nullptr);
  SetVerbsWorld(nullptr);
  control::SetRandomSource(nullptr);
}

PluginConnection::~PluginConnection() {
  if (send != nullptr && send->connection != nullptr) send->connection->~SendConnection();
  if (recv != nullptr && recv->connection != nullptr) recv->connection->~RecvConnection();
}

PluginHost* PluginWorld::FindHost(const std::string& name) const {
  for (const auto& host : hosts_) {
    if (host->host()->name == name) return host.get();
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<PluginConnection>> PluginWorld::Connect(PluginHost* sender,
                                                                       int sender_device,
                                                                       PluginHost* receiver,
                                                                       int receiver_device) {
  using runtime::LaneBuilder;
  const runtime::NetDevice& here = *sender->devices().Get(sender_device);
  const runtime::NetDevice& there = *receiver->devices().Get(receiver_device);
  auto made = std::make_unique<PluginConnection>();
  made->sender = sender;
  made->receiver = receiver;
  const auto here_parts = static_cast<uint32_t>(here.parts.size());
  const auto there_parts = static_cast<uint32_t>(there.parts.size());
  const uint32_t lanes = runtime::LaneCount(
      here_parts, static_cast<uint32_t>(sender->config().ib_qps_per_connection), there_parts,
      static_cast<uint32_t>(receiver->config().ib_qps_per_connection));

  LaneBuilder send(here, sender->config(), LaneBuilder::Side::kSender);
  RAILHOP_RETURN_IF_ERROR(send.Create(lanes, there_parts));
  RAILHOP_ASSIGN_OR_RETURN(made->hello, send.Describe());
  const auto sign = [](const PluginHost& host, control::EndDescription* end) {
    control::FillRandom(end->nonce.data(), end->nonce.size());
    end->instance_id = host.instance_id();
    end->host = host.host()->name;
    end->failover = host.config().failover;
  };
  sign(*sender, &made->hello);
  LaneBuilder receive(there, receiver->config(), LaneBuilder::Side::kReceiver);
  RAILHOP_RETURN_IF_ERROR(receive.Create(lanes, here_parts));
  RAILHOP_RETURN_IF_ERROR(receive.TakeOptions(made->hello));
  RAILHOP_ASSIGN_OR_RETURN(made->reply, receive.Describe());
  sign(*receiver, &made->reply);
  for (LaneBuilder* builder : {&receive, &send}) {
    const auto& peer = builder == &send ? made->reply : made->hello;
    RAILHOP_ASSIGN_OR_RETURN(const bool up,
                             builder->Connect(peer, 0, 0, static_cast<int64_t>(now_ns())));
    if (!up) return absl::UnavailableError("modify_qp timed out");
  }
  made->recv = std::make_unique<runtime::RecvComm>();
  RAILHOP_ASSIGN_OR_RETURN(made->recv->connection,
                           receive.FinishReceive(made->recv->storage, made->hello));
  made->failover = made->hello.failover && made->reply.failover;
  made->recv->device = &there;
  made->recv->connection->SetFailover(made->failover, confirm_);
  made->recv->mark = runtime::ConnectionComm::Mark::kRecv;
  made->send = std::make_unique<runtime::SendComm>();
  made->send->connection = send.FinishSend(made->send->storage, made->reply);
  made->send->device = &here;
  made->send->connection->SetFailover(made->failover, confirm_);
  made->send->mark = runtime::ConnectionComm::Mark::kSend;
  return made;
}

uint64_t PluginWorld::TakeHeldUp() { return std::exchange(held_up_ns_, 0); }

void PluginWorld::OnAsyncEvent(ibv_context* context) {
  async_events_.push_back(context);
  if (async_actor_ != nullptr) loop().At(now_ns(), async_actor_);
}

void PluginWorld::OnHang(Nic* nic, rdma::VerbCall call, uint64_t ns) {
  held_up_ns_ += ns;
  if (caller_ == Caller::kEngine) {
    violations_->Add(absl::StrCat("the engine's thread of ", nic->host()->name,
                                  " is held up by a call: ", std::string(rdma::VerbCallName(call)),
                                  " on ", nic->Name()));
  }
}

}  // namespace railhop::sim
