#include "cc/runtime/lane_builder.h"

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/status_macros.h"
#include "cc/base/units.h"
#include "cc/verbs/context.h"

namespace railhop::runtime {
namespace {

using control::DeviceDescription;
using control::EndDescription;

constexpr uint32_t kFirstEpoch = 1;
constexpr uint32_t kInlineBytes = sizeof(datapath::CtsEntry);
constexpr uint32_t k24Bits = 0xffffff;

verbs::QueuePairSize SizeFor(LaneBuilder::Side side, const datapath::DatapathConfig& config,
                             bool adaptive_routing) {
  if (side == LaneBuilder::Side::kSender) {
    return {.send_requests = datapath::kLaneStripesMax * (adaptive_routing ? 2 : 1),
            .receive_requests = 1,
            .inline_bytes = 0};
  }
  return {.send_requests = datapath::kCtsWritesMax,
          .receive_requests = datapath::kReceivesPosted,
          .inline_bytes = config.ib_use_inline ? kInlineBytes : 0};
}

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

}  // namespace

uint32_t LaneCount(uint32_t local_devices, uint32_t local_qps, uint32_t remote_devices,
                   uint32_t remote_qps) {
  return std::clamp(std::max(local_devices * local_qps, remote_devices * remote_qps), uint32_t{1},
                    datapath::kLanesMax);
}

LaneBuilder::LaneBuilder(const NetDevice& device, const datapath::DatapathConfig& config, Side side)
    : device_(device), config_(config), side_(side) {}

LaneBuilder::~LaneBuilder() {
  // Queue pairs go before the queues and the memory that they use.
  flush_lanes_.clear();
  lanes_.clear();
  devices_.clear();
}

bool LaneBuilder::adaptive_routing() const {
  if (config_.ib_adaptive_routing != -2) return config_.ib_adaptive_routing != 0;
  return std::none_of(device_.parts.begin(), device_.parts.end(),
                      [](const PhysicalDevice* part) { return part->is_ethernet; });
}

absl::Status LaneBuilder::CreateDevice(const PhysicalDevice& part, uint32_t lanes_on_device) {
  const verbs::QueuePairSize size = SizeFor(side_, config_, adaptive_routing());
  // Every request may end in a completion: after a fault also those that asked for none.
  const uint32_t entries =
      lanes_on_device * (size.send_requests + size.receive_requests) + datapath::kSlots;
  datapath::ConnectionDevice made;
  RAILHOP_ASSIGN_OR_RETURN(made.cq,
                           verbs::CompletionQueue::Create(part.context, static_cast<int>(entries)));
  void* memory = sender_memory_.get();
  size_t bytes = sizeof(datapath::SenderMemory);
  if (side_ == Side::kReceiver) {
    memory = receiver_memory_.get();
    bytes = sizeof(datapath::ReceiverMemory);
  }
  // Never relaxed: entries must not be seen before their parts.
  RAILHOP_ASSIGN_OR_RETURN(made.control,
                           verbs::MemoryRegion::Register(part.context, memory, bytes, false));
  RAILHOP_ASSIGN_OR_RETURN(const ibv_port_attr port, part.context->QueryPort(part.port));
  RAILHOP_ASSIGN_OR_RETURN(const ibv_gid gid, part.context->QueryGid(part.port, part.gid_index));
  DeviceDescription description;
  description.name = part.name;
  description.port = part.port;
  description.is_ethernet = part.is_ethernet;
  description.mtu = static_cast<uint8_t>(port.active_mtu);
  description.lid = port.lid;
  memcpy(description.gid.data(), gid.raw, sizeof(gid.raw));
  description.control_key = made.control->remote_key();
  description.rail = static_cast<int16_t>(part.rail_id);
  devices_.push_back(std::move(made));
  descriptions_.push_back(std::move(description));
  return absl::OkStatus();
}

absl::Status LaneBuilder::CreateLane(uint32_t index, uint32_t remote_devices) {
  const uint32_t local = index % static_cast<uint32_t>(devices_.size());
  const PhysicalDevice& part = *device_.parts[local];
  datapath::Lane lane;
  lane.local_device = static_cast<uint8_t>(local);
  lane.remote_device = static_cast<uint8_t>(index % remote_devices);
  lane.epoch = kFirstEpoch;
  RAILHOP_ASSIGN_OR_RETURN(lane.qp,
                           verbs::QueuePair::Create(part.context, devices_[local].cq.get(),
                                                    SizeFor(side_, config_, adaptive_routing())));
  RAILHOP_RETURN_IF_ERROR(lane.qp->ToInit({.port = part.port,
                                           .pkey_index = static_cast<uint16_t>(config_.ib_pkey),
                                           .access = IBV_ACCESS_REMOTE_WRITE}));
  lanes_.push_back(std::move(lane));
  uint32_t psn;
  control::FillRandom(&psn, sizeof(psn));
  psns_.push_back(psn & k24Bits);
  return absl::OkStatus();
}

absl::Status LaneBuilder::Create(uint32_t lanes, uint32_t remote_devices) {
  remote_devices_ = remote_devices;
  if (side_ == Side::kSender) {
    sender_memory_ = std::make_unique<datapath::SenderMemory>();
  } else {
    receiver_memory_ = std::make_unique<datapath::ReceiverMemory>();
  }
  const auto devices = static_cast<uint32_t>(device_.parts.size());
  for (const PhysicalDevice* part : device_.parts) {
    RAILHOP_RETURN_IF_ERROR(CreateDevice(*part, (lanes + devices - 1) / devices));
  }
  for (uint32_t i = 0; i < lanes; ++i) RAILHOP_RETURN_IF_ERROR(CreateLane(i, remote_devices));
  const bool has_gpu_memory =
      (device_.properties.ptr_support & (kPointerCuda | kPointerDmaBuf)) != 0;
  if (side_ == Side::kReceiver && has_gpu_memory && !config_.gdr_flush_disable) {
    return CreateFlushLanes();
  }
  return absl::OkStatus();
}

absl::Status LaneBuilder::CreateFlushLanes() {
  for (size_t i = 0; i < device_.parts.size(); ++i) {
    const PhysicalDevice& part = *device_.parts[i];
    datapath::FlushLane lane;
    RAILHOP_ASSIGN_OR_RETURN(lane.qp, verbs::QueuePair::Create(part.context, devices_[i].cq.get(),
                                                               {.send_requests = datapath::kSlots,
                                                                .receive_requests = 1,
                                                                .inline_bytes = 0}));
    RAILHOP_RETURN_IF_ERROR(lane.qp->ToInit({.port = part.port,
                                             .pkey_index = static_cast<uint16_t>(config_.ib_pkey),
                                             .access = IBV_ACCESS_REMOTE_READ}));
    RAILHOP_ASSIGN_OR_RETURN(verbs::PathAttributes path,
                             PathOf(part, descriptions_[i], descriptions_[i]));
    path.remote_qp_number = lane.qp->number();
    RAILHOP_RETURN_IF_ERROR(lane.qp->ToReadyToReceive(path));
    RAILHOP_RETURN_IF_ERROR(lane.qp->ToReadyToSend(path));
    flush_lanes_.push_back(std::move(lane));
  }
  return absl::OkStatus();
}

absl::StatusOr<EndDescription> LaneBuilder::Describe() {
  EndDescription end;
  end.epoch = kFirstEpoch;
  end.memory_address = side_ == Side::kSender ? reinterpret_cast<uintptr_t>(sender_memory_.get())
                                              : reinterpret_cast<uintptr_t>(receiver_memory_.get());
  end.devices = descriptions_;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const ibv_ece ece = config_.ib_ece_enable ? lanes_[i].qp->QueryEce() : ibv_ece{};
    end.lanes.push_back({.qp_number = lanes_[i].qp->number(),
                         .start_psn = psns_[i],
                         .ece_vendor = ece.vendor_id,
                         .ece_options = ece.options,
                         .ece_mask = ece.comp_mask});
  }
  return end;
}

absl::Status LaneBuilder::TakeOptions(const EndDescription& peer) {
  if (!config_.ib_ece_enable) return absl::OkStatus();
  for (size_t i = 0; i < lanes_.size() && i < peer.lanes.size(); ++i) {
    RAILHOP_RETURN_IF_ERROR(lanes_[i].qp->SetEce({.vendor_id = peer.lanes[i].ece_vendor,
                                                  .options = peer.lanes[i].ece_options,
                                                  .comp_mask = peer.lanes[i].ece_mask}));
  }
  return absl::OkStatus();
}

absl::StatusOr<verbs::PathAttributes> LaneBuilder::PathOf(const PhysicalDevice& part,
                                                          const DeviceDescription& local,
                                                          const DeviceDescription& remote) const {
  if (local.is_ethernet != remote.is_ethernet) {
    return absl::InvalidArgumentError(
        absl::StrCat(local.name, " is ", local.is_ethernet ? "Ethernet" : "InfiniBand",
                     " and the peer's ", remote.name, " is not: they cannot be connected"));
  }
  verbs::PathAttributes path;
  path.port = part.port;
  path.mtu = static_cast<ibv_mtu>(std::min(local.mtu, remote.mtu));
  path.gid_index = static_cast<uint8_t>(part.gid_index);
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

absl::Status LaneBuilder::ConnectStep(const EndDescription& peer, uint8_t service_level,
                                      uint8_t traffic_class) {
  datapath::Lane& lane = lanes_[connected_];
  const PhysicalDevice& part = *device_.parts[lane.local_device];
  RAILHOP_ASSIGN_OR_RETURN(
      verbs::PathAttributes path,
      PathOf(part, descriptions_[lane.local_device], peer.devices[lane.remote_device]));
  path.remote_qp_number = peer.lanes[connected_].qp_number;
  path.remote_psn = peer.lanes[connected_].start_psn;
  path.local_psn = psns_[connected_];
  path.service_level = service_level;
  path.traffic_class = traffic_class;
  if (side_ == Side::kReceiver && config_.ib_fifo_tc != -1 && part.is_ethernet) {
    path.traffic_class = static_cast<uint8_t>(config_.ib_fifo_tc);
  }
  if (!in_rtr_) {
    RAILHOP_RETURN_IF_ERROR(lane.qp->ToReadyToReceive(path));
    in_rtr_ = true;
  }
  return lane.qp->ToReadyToSend(path);
}

absl::StatusOr<bool> LaneBuilder::Connect(const EndDescription& peer, uint8_t service_level,
                                          uint8_t traffic_class, int64_t now_ns) {
  if (peer.lanes.size() != lanes_.size() || peer.devices.size() != remote_devices_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer has ", peer.devices.size(), " devices and ", peer.lanes.size(),
                     " queue pairs for this connection, we have agreed on ", remote_devices_,
                     " and ", lanes_.size()));
  }
  if (now_ns < retry_at_ns_) return false;
  while (connected_ < lanes_.size()) {
    const absl::Status step = ConnectStep(peer, service_level, traffic_class);
    if (!step.ok()) {
      const bool worth_it = absl::IsDeadlineExceeded(step) ||
                            (config_.ib_mqp_retry_all && !absl::IsInvalidArgument(step));
      if (!worth_it || modify_attempts_ >= config_.ib_mqp_retry_cnt) return step;
      ++modify_attempts_;
      retry_at_ns_ = now_ns + modify_attempts_ * config_.ib_mqp_retry_sleep_msec * kNsPerMs;
      return false;
    }
    in_rtr_ = false;
    modify_attempts_ = 0;
    ++connected_;
  }
  return true;
}

namespace {

datapath::PeerMemory PeerMemoryOf(const EndDescription& peer) {
  datapath::PeerMemory memory;
  memory.address = peer.memory_address;
  for (size_t i = 0; i < peer.devices.size(); ++i) {
    memory.remote_keys[i] = peer.devices[i].control_key;
  }
  return memory;
}

}  // namespace

datapath::SendConnection* LaneBuilder::FinishSend(void* storage, const EndDescription& peer) {
  const auto lanes = static_cast<uint32_t>(lanes_.size());
  const auto widest = static_cast<uint32_t>(std::max(device_.parts.size(), peer.devices.size()));
  const datapath::ConnectionRules rules = {
      .lanes_per_send = config_.ib_split_data_on_qps ? lanes : std::min(lanes, widest),
      .adaptive_routing = adaptive_routing(),
      .ar_threshold = static_cast<uint64_t>(std::max<int64_t>(config_.ib_ar_threshold, 0)),
      .inline_cts = false};
  return new (storage) datapath::SendConnection(std::move(devices_), std::move(lanes_), rules,
                                                std::move(sender_memory_), PeerMemoryOf(peer));
}

absl::StatusOr<datapath::RecvConnection*> LaneBuilder::FinishReceive(void* storage,
                                                                     const EndDescription& peer) {
  datapath::ConnectionRules rules;
  rules.inline_cts = config_.ib_use_inline;
  auto* connection =
      new (storage) datapath::RecvConnection(std::move(devices_), std::move(lanes_), rules,
                                             std::move(receiver_memory_), std::move(flush_lanes_));
  connection->SetPeer(PeerMemoryOf(peer));
  if (connection->PostReceives() != datapath::Outcome::kOk) {
    const datapath::Fault fault = connection->TakeFault();
    connection->Close().IgnoreError();
    connection->~RecvConnection();
    return absl::InternalError(absl::StrCat("receives could not be posted: errno ", fault.code));
  }
  return connection;
}

}  // namespace railhop::runtime
