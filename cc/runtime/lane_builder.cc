#include "cc/runtime/lane_builder.h"

#include <algorithm>
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

PortRules WithPkey(PortRules rules, const datapath::DatapathConfig& config) {
  rules.pkey_index = config.ib_pkey;
  return rules;
}

}  // namespace

uint32_t LaneCount(uint32_t local_devices, uint32_t local_qps, uint32_t remote_devices,
                   uint32_t remote_qps) {
  return std::clamp(std::max(local_devices * local_qps, remote_devices * remote_qps), uint32_t{1},
                    datapath::kLanesMax);
}

LaneBuilder::LaneBuilder(const NetDevice& device, const datapath::DatapathConfig& config, Side side,
                         const PortRules& rules)
    : device_(device), config_(config), maker_(config, WithPkey(rules, config)), side_(side) {
  use_.end = side == Side::kSender ? engine::End::kSender : engine::End::kReceiver;
  use_.adaptive_routing = maker_.AdaptiveRouting(device.parts);
}

LaneBuilder::~LaneBuilder() {
  // Queue pairs go before the queues and the memory that they use.
  flush_lanes_.clear();
  lanes_.clear();
  devices_.clear();
}

absl::Status LaneBuilder::CreateDevice(const PhysicalDevice& part, uint32_t lanes_max) {
  void* const memory = side_ == Side::kSender ? static_cast<void*>(sender_memory_.get())
                                              : static_cast<void*>(receiver_memory_.get());
  RAILHOP_ASSIGN_OR_RETURN(datapath::ConnectionDevice made,
                           maker_.MakeDevice(part, use_, memory, lanes_max));
  RAILHOP_ASSIGN_OR_RETURN(PortFacts port, maker_.PortForHandshake(part));
  DeviceDescription description;
  description.name = part.name;
  description.port = part.port;
  description.is_ethernet = port.is_ethernet;
  description.mtu = port.mtu;
  description.lid = port.lid;
  description.gid = port.gid;
  description.control_key = made.control->remote_key();
  description.rail = static_cast<int16_t>(RailForPeers(part.rail_id));
  devices_.push_back(std::move(made));
  ports_.push_back(std::move(port));
  descriptions_.push_back(std::move(description));
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
  // With failover one device may have to carry all lanes.
  lanes_max_ = maker_.LanesMax(config_.failover ? lanes : (lanes + devices - 1) / devices);
  for (const PhysicalDevice* part : device_.parts) {
    RAILHOP_RETURN_IF_ERROR(CreateDevice(*part, lanes_max_));
  }
  for (uint32_t i = 0; i < lanes; ++i) {
    const uint32_t local = i % devices;
    RAILHOP_ASSIGN_OR_RETURN(
        MadeLane lane, maker_.MakeLane(*device_.parts[local], use_, devices_[local].cq.get(), 0));
    lanes_.push_back(std::move(lane));
  }
  if (side_ == Side::kReceiver && maker_.WantsFlush(device_.properties.ptr_support)) {
    for (uint32_t i = 0; i < devices; ++i) {
      RAILHOP_ASSIGN_OR_RETURN(
          datapath::FlushLane lane,
          maker_.MakeFlushLane(*device_.parts[i], ports_[i], devices_[i].cq.get(), 0));
      flush_lanes_.push_back(std::move(lane));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<EndDescription> LaneBuilder::Describe() {
  EndDescription end;
  end.epoch = kFirstEpoch;
  end.memory_address = side_ == Side::kSender ? reinterpret_cast<uintptr_t>(sender_memory_.get())
                                              : reinterpret_cast<uintptr_t>(receiver_memory_.get());
  end.devices = descriptions_;
  for (const MadeLane& lane : lanes_) {
    end.lanes.push_back({.qp_number = lane.qp->number(),
                         .start_psn = lane.start_psn,
                         .ece_vendor = lane.ece.vendor_id,
                         .ece_options = lane.ece.options,
                         .ece_mask = lane.ece.comp_mask});
  }
  return end;
}

absl::Status LaneBuilder::TakeOptions(const EndDescription& peer) {
  for (size_t i = 0; i < lanes_.size() && i < peer.lanes.size(); ++i) {
    RAILHOP_RETURN_IF_ERROR(maker_.TakeOptions(&lanes_[i], RemoteLaneOf(peer.lanes[i])));
  }
  return absl::OkStatus();
}

absl::Status LaneBuilder::ConnectStep(const EndDescription& peer) {
  const size_t local = connected_ % devices_.size();
  return maker_.Raise(&lanes_[connected_], *device_.parts[local], use_, ports_[local],
                      RemotePortOf(peer.devices[connected_ % remote_devices_]),
                      RemoteLaneOf(peer.lanes[connected_]));
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
  use_.service_level = service_level;
  use_.traffic_class = traffic_class;
  while (connected_ < lanes_.size()) {
    const absl::Status step = ConnectStep(peer);
    if (!step.ok()) {
      const bool worth_it = absl::IsDeadlineExceeded(step) ||
                            (config_.ib_mqp_retry_all && !absl::IsInvalidArgument(step));
      if (!worth_it || modify_attempts_ >= config_.ib_mqp_retry_cnt) return step;
      ++modify_attempts_;
      retry_at_ns_ = now_ns + modify_attempts_ * config_.ib_mqp_retry_sleep_msec * kNsPerMs;
      return false;
    }
    modify_attempts_ = 0;
    ++connected_;
  }
  return true;
}

std::vector<datapath::Lane> LaneBuilder::TakeLanes() {
  std::vector<datapath::Lane> lanes;
  for (MadeLane& made : lanes_) {
    datapath::Lane lane;
    lane.local_device = static_cast<uint8_t>(lanes.size() % devices_.size());
    lane.remote_device = static_cast<uint8_t>(lanes.size() % remote_devices_);
    lane.epoch = kFirstEpoch;
    lane.qp = std::move(made.qp);
    lanes.push_back(std::move(lane));
  }
  lanes_.clear();
  return lanes;
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
      .adaptive_routing = use_.adaptive_routing,
      .ar_threshold = static_cast<uint64_t>(std::max<int64_t>(config_.ib_ar_threshold, 0)),
      .inline_cts = false};
  std::vector<datapath::Lane> made = TakeLanes();
  return new (storage) datapath::SendConnection(std::move(devices_), std::move(made), rules,
                                                std::move(sender_memory_), PeerMemoryOf(peer));
}

absl::StatusOr<datapath::RecvConnection*> LaneBuilder::FinishReceive(void* storage,
                                                                     const EndDescription& peer) {
  datapath::ConnectionRules rules;
  rules.inline_cts = config_.ib_use_inline;
  std::vector<datapath::Lane> made = TakeLanes();
  auto* connection =
      new (storage) datapath::RecvConnection(std::move(devices_), std::move(made), rules,
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
