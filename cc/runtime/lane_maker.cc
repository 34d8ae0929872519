#include "cc/runtime/lane_maker.h"

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/const_init.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cc/base/status_macros.h"
#include "cc/verbs/context.h"
#include "cc/verbs/verbs_error.h"

namespace railhop::runtime {
namespace {

constexpr uint32_t kInlineBytes = sizeof(datapath::CtsEntry);
constexpr uint32_t k24Bits = 0xffffff;
// Probes that one queue pair has under way, at most.
constexpr uint32_t kProbesPosted = 4;
// A device that refuses to end a queue pair may do so the next time; one that is gone never does.
constexpr int kEndAttempts = 8;
// As often as the field can say: a probe's time is told by `timeout` alone.
constexpr int kProbeRetries = 7;

uint64_t SubnetPrefix(const std::array<uint8_t, 16>& gid) {
  uint64_t prefix;
  memcpy(&prefix, gid.data(), sizeof(prefix));
  // The low 16 bits name the subnet; the rest is the same in all of them.
  return be64toh(prefix) & 0xffff;
}

// The address of the router behind which another InfiniBand subnet is: bytes 4 and 5 of a routable
// GID. Source: NCCL 2.30.7, NCCL_IB_ROUTABLE_FLID_GID_INDEX.
uint16_t RouterLid(const std::array<uint8_t, 16>& gid) {
  return static_cast<uint16_t>(gid[4] << 8 | gid[5]);
}

uint32_t RandomPsn() {
  uint32_t psn;
  control::FillRandom(&psn, sizeof(psn));
  return psn & k24Bits;
}

std::string PortName(const PhysicalDevice& device) {
  return absl::StrCat(device.name, ":", device.port);
}

engine::EndLane Describe(const MadeLane& lane, uint8_t index, uint8_t slot) {
  engine::EndLane end;
  end.index = index;
  end.slot = slot;
  end.qp_number = lane.qp->number();
  end.start_psn = lane.start_psn;
  end.ece_vendor = lane.ece.vendor_id;
  end.ece_options = lane.ece.options;
  end.ece_mask = lane.ece.comp_mask;
  return end;
}

const engine::EndDevice* BySlot(const std::vector<engine::EndDevice>& devices, uint8_t slot) {
  for (const engine::EndDevice& device : devices) {
    if (device.slot == slot) return &device;
  }
  return nullptr;
}

}  // namespace

RemotePort RemotePortOf(const control::DeviceDescription& device) {
  return {device.name, device.is_ethernet, device.mtu, device.lid, device.gid};
}

RemotePort RemotePortOf(const engine::EndDevice& device) {
  return {device.name, device.is_ethernet, device.mtu, device.lid, device.gid};
}

RemoteLane RemoteLaneOf(const control::LaneDescription& lane) {
  return {lane.qp_number,
          lane.start_psn,
          {.vendor_id = lane.ece_vendor, .options = lane.ece_options, .comp_mask = lane.ece_mask}};
}

RemoteLane RemoteLaneOf(const engine::EndLane& lane) {
  return {lane.qp_number,
          lane.start_psn,
          {.vendor_id = lane.ece_vendor, .options = lane.ece_options, .comp_mask = lane.ece_mask}};
}

bool LaneMaker::AdaptiveRouting(const std::vector<const PhysicalDevice*>& parts) const {
  if (config_.ib_adaptive_routing != -2) return config_.ib_adaptive_routing != 0;
  return std::none_of(parts.begin(), parts.end(),
                      [](const PhysicalDevice* part) { return part->is_ethernet; });
}

verbs::QueuePairSize LaneMaker::SizeFor(const LaneUse& use) const {
  if (use.end == engine::End::kSender) {
    return {.send_requests =
                datapath::kLaneStripesMax * (use.adaptive_routing ? 2 : 1) + datapath::kQueueSlack,
            .receive_requests = 1,
            .inline_bytes = 0};
  }
  return {.send_requests = datapath::kCtsWritesMax + datapath::kQueueSlack,
          .receive_requests = datapath::kReceivesPosted + datapath::kQueueSlack,
          .inline_bytes = config_.ib_use_inline ? kInlineBytes : 0};
}

absl::StatusOr<datapath::ConnectionDevice> LaneMaker::MakeDevice(const PhysicalDevice& device,
                                                                 const LaneUse& use, void* memory,
                                                                 uint32_t lanes_max) const {
  const verbs::QueuePairSize size = SizeFor(use);
  // Every request may end in a completion: after a fault also those that asked for none.
  const uint32_t entries =
      lanes_max * (size.send_requests + size.receive_requests) + datapath::kSlots;
  const size_t bytes = use.end == engine::End::kSender ? sizeof(datapath::SenderMemory)
                                                       : sizeof(datapath::ReceiverMemory);
  datapath::ConnectionDevice made;
  made.physical = device.id;
  RAILHOP_ASSIGN_OR_RETURN(
      made.cq, verbs::CompletionQueue::Create(device.context, static_cast<int>(entries)));
  // Never relaxed: entries must not be seen before their parts.
  RAILHOP_ASSIGN_OR_RETURN(made.control,
                           verbs::MemoryRegion::Register(device.context, memory, bytes, false));
  return made;
}

absl::StatusOr<PortFacts> LaneMaker::PortForHandshake(const PhysicalDevice& device) const {
  RAILHOP_ASSIGN_OR_RETURN(PortFacts facts, ReadPort(device, rules_));
  if (facts.gid_index >= 0) return facts;
  RAILHOP_ASSIGN_OR_RETURN(const ibv_gid gid,
                           device.context->QueryGid(device.port, device.gid_index));
  facts.gid_index = device.gid_index;
  memcpy(facts.gid.data(), gid.raw, facts.gid.size());
  return facts;
}

absl::StatusOr<MadeLane> LaneMaker::MakeLane(const PhysicalDevice& device, const LaneUse& use,
                                             verbs::CompletionQueue* cq, uint16_t pkey) const {
  RAILHOP_ASSIGN_OR_RETURN(const uint16_t pkey_index, FindPkey(device, rules_, pkey));
  MadeLane lane;
  RAILHOP_ASSIGN_OR_RETURN(lane.qp, verbs::QueuePair::Create(device.context, cq, SizeFor(use)));
  RAILHOP_RETURN_IF_ERROR(lane.qp->ToInit(
      {.port = device.port, .pkey_index = pkey_index, .access = IBV_ACCESS_REMOTE_WRITE}));
  lane.start_psn = RandomPsn();
  if (config_.ib_ece_enable) lane.ece = lane.qp->QueryEce();
  return lane;
}

absl::Status LaneMaker::TakeOptions(MadeLane* lane, const RemoteLane& remote) const {
  if (!config_.ib_ece_enable) return absl::OkStatus();
  RAILHOP_RETURN_IF_ERROR(lane->qp->SetEce(remote.ece));
  lane->ece = lane->qp->QueryEce();
  return absl::OkStatus();
}

absl::StatusOr<verbs::PathAttributes> LaneMaker::PathOf(const PhysicalDevice& device,
                                                        const PortFacts& local,
                                                        const RemotePort& remote) const {
  if (local.is_ethernet != remote.is_ethernet) {
    return absl::InvalidArgumentError(
        absl::StrCat(device.name, " is ", local.is_ethernet ? "Ethernet" : "InfiniBand",
                     " and the peer's ", remote.name, " is not: they cannot be connected"));
  }
  if (local.gid_index < 0) {
    return absl::FailedPreconditionError(absl::StrCat(PortName(device), ": ", local.doubt));
  }
  verbs::PathAttributes path;
  path.port = device.port;
  path.mtu = static_cast<ibv_mtu>(std::min(local.mtu, remote.mtu));
  path.gid_index = static_cast<uint8_t>(local.gid_index);
  memcpy(path.gid.raw, remote.gid.data(), sizeof(path.gid.raw));
  path.timeout = static_cast<uint8_t>(config_.ib_timeout);
  path.retry_count = static_cast<uint8_t>(config_.ib_retry_cnt);
  path.is_global = true;
  if (!local.is_ethernet) {
    path.is_global = SubnetPrefix(local.gid) != SubnetPrefix(remote.gid);
    path.lid = remote.lid;
    if (path.is_global && RouterLid(remote.gid) != 0) path.lid = RouterLid(remote.gid);
  }
  return path;
}

absl::Status LaneMaker::Raise(MadeLane* lane, const PhysicalDevice& device, const LaneUse& use,
                              const PortFacts& local, const RemotePort& remote_port,
                              const RemoteLane& remote) const {
  RAILHOP_ASSIGN_OR_RETURN(verbs::PathAttributes path, PathOf(device, local, remote_port));
  path.remote_qp_number = remote.qp_number;
  path.remote_psn = remote.start_psn;
  path.local_psn = lane->start_psn;
  path.service_level = use.service_level;
  path.traffic_class = use.traffic_class;
  if (use.end == engine::End::kReceiver && config_.ib_fifo_tc != -1 && local.is_ethernet) {
    path.traffic_class = static_cast<uint8_t>(config_.ib_fifo_tc);
  }
  if (!lane->in_rtr) {
    RAILHOP_RETURN_IF_ERROR(lane->qp->ToReadyToReceive(path));
    lane->in_rtr = true;
  }
  return lane->qp->ToReadyToSend(path);
}

absl::StatusOr<datapath::FlushLane> LaneMaker::MakeFlushLane(const PhysicalDevice& device,
                                                             const PortFacts& local,
                                                             verbs::CompletionQueue* cq,
                                                             uint16_t pkey) const {
  RAILHOP_ASSIGN_OR_RETURN(const uint16_t pkey_index, FindPkey(device, rules_, pkey));
  datapath::FlushLane lane;
  RAILHOP_ASSIGN_OR_RETURN(
      lane.qp, verbs::QueuePair::Create(
                   device.context, cq,
                   {.send_requests = datapath::kSlots, .receive_requests = 1, .inline_bytes = 0}));
  RAILHOP_RETURN_IF_ERROR(lane.qp->ToInit(
      {.port = device.port, .pkey_index = pkey_index, .access = IBV_ACCESS_REMOTE_READ}));
  const RemotePort itself = {device.name, local.is_ethernet, local.mtu, local.lid, local.gid};
  RAILHOP_ASSIGN_OR_RETURN(verbs::PathAttributes path, PathOf(device, local, itself));
  path.remote_qp_number = lane.qp->number();
  RAILHOP_RETURN_IF_ERROR(lane.qp->ToReadyToReceive(path));
  RAILHOP_RETURN_IF_ERROR(lane.qp->ToReadyToSend(path));
  return lane;
}

bool LaneMaker::WantsFlush(int ptr_support) const {
  return (ptr_support & (kPointerCuda | kPointerDmaBuf)) != 0 && !config_.gdr_flush_disable;
}

absl::StatusOr<LaneMaker::Made> LaneMaker::Make(const Wish& wish) const {
  const PhysicalDevice& device = *wish.device;
  Made made;
  RAILHOP_ASSIGN_OR_RETURN(made.port, ReadPort(device, rules_));
  if (!made.port.active) {
    return absl::FailedPreconditionError(absl::StrCat(PortName(device), " is not active"));
  }
  if (made.port.gid_index < 0) {
    return absl::FailedPreconditionError(absl::StrCat(PortName(device), ": ", made.port.doubt));
  }
  verbs::CompletionQueue* cq = wish.cq;
  if (cq == nullptr) {
    RAILHOP_ASSIGN_OR_RETURN(made.device,
                             MakeDevice(device, wish.use, wish.memory, wish.lanes_max));
    cq = made.device->cq.get();
  }
  if (cq != wish.cq && wish.flush) {
    RAILHOP_ASSIGN_OR_RETURN(made.flush, MakeFlushLane(device, made.port, cq, wish.pkey));
  }
  const bool raise = wish.use.end == engine::End::kReceiver;
  for (const engine::EndLane& wanted : wish.lanes) {
    RAILHOP_ASSIGN_OR_RETURN(MadeLane lane, MakeLane(device, wish.use, cq, wish.pkey));
    if (raise) {
      const engine::EndDevice* const peer = BySlot(wish.peer_devices, wanted.slot);
      if (peer == nullptr) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the peer offers a lane on its device ", wanted.slot, ", which it does not describe"));
      }
      RAILHOP_RETURN_IF_ERROR(TakeOptions(&lane, RemoteLaneOf(wanted)));
      RAILHOP_RETURN_IF_ERROR(
          Raise(&lane, device, wish.use, made.port, RemotePortOf(*peer), RemoteLaneOf(wanted)));
    }
    made.end_lanes.push_back(Describe(lane, wanted.index, wish.slot));
    if (!raise) made.end_lanes.back().remote_physical = wanted.remote_physical;
    made.lanes.push_back(std::move(lane));
  }
  engine::EndDevice& end = made.end_device;
  end.slot = wish.slot;
  end.physical = device.id;
  end.name = device.name;
  end.port = device.port;
  end.is_ethernet = made.port.is_ethernet;
  end.mtu = made.port.mtu;
  end.lid = made.port.lid;
  end.gid = made.port.gid;
  if (made.device.has_value()) end.control_key = made.device->control->remote_key();
  return made;
}

absl::Status LaneMaker::RaiseAnswered(Made* made, const Wish& wish,
                                      const engine::Answer& answer) const {
  for (size_t i = 0; i < made->lanes.size(); ++i) {
    const uint8_t index = made->end_lanes[i].index;
    const auto lane =
        std::find_if(answer.lanes.begin(), answer.lanes.end(),
                     [index](const engine::EndLane& other) { return other.index == index; });
    if (lane == answer.lanes.end()) continue;  // refused: it stays as it is
    const engine::EndDevice* const peer = BySlot(answer.devices, lane->slot);
    if (peer == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("the peer's answer lacks the device of lane ", index));
    }
    if (!made->lanes[i].in_rtr && config_.ib_ece_enable) {
      RAILHOP_RETURN_IF_ERROR(made->lanes[i].qp->SetEce(RemoteLaneOf(*lane).ece));
    }
    RAILHOP_RETURN_IF_ERROR(Raise(&made->lanes[i], *wish.device, wish.use, made->port,
                                  RemotePortOf(*peer), RemoteLaneOf(*lane)));
  }
  return absl::OkStatus();
}

absl::StatusOr<LaneMaker::MadeProbe> LaneMaker::MakeProbe(const PhysicalDevice& device,
                                                          uint16_t pkey) const {
  MadeProbe probe;
  RAILHOP_ASSIGN_OR_RETURN(probe.port, ReadPort(device, rules_));
  if (probe.port.gid_index < 0) {
    return absl::FailedPreconditionError(absl::StrCat(PortName(device), ": ", probe.port.doubt));
  }
  RAILHOP_ASSIGN_OR_RETURN(const uint16_t pkey_index, FindPkey(device, rules_, pkey));
  constexpr uint32_t kSends = kProbesPosted + kProbeBuffers;
  probe.memory = std::make_unique<ProbeMemory>();
  // A device without room for it can be probed all the same.
  absl::StatusOr<std::unique_ptr<verbs::MemoryRegion>> region =
      verbs::MemoryRegion::Register(device.context, probe.memory.get(), sizeof(ProbeMemory), false);
  if (region.ok()) probe.region = *std::move(region);
  RAILHOP_ASSIGN_OR_RETURN(
      probe.cq, verbs::CompletionQueue::Create(device.context, kSends + kProbeBuffers + 1));
  RAILHOP_ASSIGN_OR_RETURN(
      probe.lane.qp,
      verbs::QueuePair::Create(
          device.context, probe.cq.get(),
          {.send_requests = kSends, .receive_requests = kProbeBuffers, .inline_bytes = 0}));
  RAILHOP_RETURN_IF_ERROR(probe.lane.qp->ToInit(
      {.port = device.port, .pkey_index = pkey_index, .access = IBV_ACCESS_REMOTE_WRITE}));
  for (uint32_t i = 0; probe.region != nullptr && i < kProbeBuffers; ++i) {
    const int error = PostProbeReceive(&probe, i);
    if (error != 0) return verbs::VerbsError(device.name, "ibv_post_recv", error);
  }
  probe.lane.start_psn = RandomPsn();
  return probe;
}

int LaneMaker::PostProbeReceive(MadeProbe* probe, uint32_t index) {
  ibv_sge buffer = {.addr = reinterpret_cast<uintptr_t>(probe->memory->received[index]),
                    .length = kProbeBufferBytes,
                    .lkey = probe->region->local_key()};
  ibv_recv_wr request = {.wr_id = index, .next = nullptr, .sg_list = &buffer, .num_sge = 1};
  return probe->lane.qp->PostReceive(&request);
}

void LaneMaker::MadeProbe::KeepForGood(std::unique_ptr<ProbeMemory> memory) {
  static absl::Mutex mutex(absl::kConstInit);
  static auto* const kept = new std::vector<std::unique_ptr<ProbeMemory>>;
  absl::MutexLock lock(&mutex);
  kept->push_back(std::move(memory));
}

void LaneMaker::MadeProbe::End() {
  bool ended = lane.qp == nullptr;
  for (int i = 0; i < kEndAttempts && !ended; ++i) ended = lane.qp->Destroy().ok();
  if (!ended) {
    // Nothing says that the device has let go of it.
    KeepForGood(std::move(memory));
    if (region != nullptr) region->Abandon();
  }
  lane.qp.reset();
  cq.reset();
  region.reset();
  memory.reset();
}

absl::Status LaneMaker::RaiseProbe(MadeProbe* probe, const PhysicalDevice& device,
                                   const engine::ProbeEnd& remote, bool remote_is_ethernet,
                                   uint8_t service_level, uint8_t traffic_class,
                                   uint8_t timeout) const {
  const RemotePort port = {"port", remote_is_ethernet, remote.mtu, remote.lid, remote.gid};
  RAILHOP_ASSIGN_OR_RETURN(verbs::PathAttributes path, PathOf(device, probe->port, port));
  path.remote_qp_number = remote.qp_number;
  path.remote_psn = remote.start_psn;
  path.local_psn = probe->lane.start_psn;
  path.service_level = service_level;
  path.traffic_class = traffic_class;
  path.timeout = timeout;
  path.retry_count = kProbeRetries;
  if (!probe->lane.in_rtr) {
    RAILHOP_RETURN_IF_ERROR(probe->lane.qp->ToReadyToReceive(path));
    probe->lane.in_rtr = true;
  }
  return probe->lane.qp->ToReadyToSend(path);
}

}  // namespace railhop::runtime
