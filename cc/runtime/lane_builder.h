// Makes one end of a connection: completion queues, control memory and queue pairs on each device
// of the net device, then the way of each queue pair to RTS against what the peer has told.
//
// The hard case is a fabric that is slow to answer: modify_qp may time out (ETIMEDOUT) on a busy or
// fresh link. It is tried again after a pause, and the pause is spent outside: Connect says "not
// yet", and the caller comes back.
#ifndef RAILHOP_CC_RUNTIME_LANE_BUILDER_H_
#define RAILHOP_CC_RUNTIME_LANE_BUILDER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/control/handshake.h"
#include "cc/datapath/datapath_config.h"
#include "cc/datapath/recv_connection.h"
#include "cc/datapath/send_connection.h"
#include "cc/runtime/lane_maker.h"
#include "cc/runtime/net_device.h"

namespace railhop::runtime {

// Queue pairs of a connection between these ends: each wants its own number for each device, the
// larger sum wins, and there is a limit. Source: as NCCL's IB transport
// (NCCL_IB_QPS_PER_CONNECTION).
uint32_t LaneCount(uint32_t local_devices, uint32_t local_qps, uint32_t remote_devices,
                   uint32_t remote_qps);

// Not thread-safe.
class LaneBuilder {
 public:
  enum class Side : uint8_t { kSender, kReceiver };

  // `device` and `config` outlive it.
  LaneBuilder(const NetDevice& device, const datapath::DatapathConfig& config, Side side,
              const PortRules& rules = {});
  ~LaneBuilder();

  // Makes everything; queue pairs are in INIT. Errors: Internal, Unimplemented.
  absl::Status Create(uint32_t lanes, uint32_t remote_devices);

  // What the peer needs; nonce, ids and quality of service are the caller's to fill in.
  absl::StatusOr<control::EndDescription> Describe();

  // Takes the peer's congestion control options over (the receiver, before Describe), so that what
  // Describe says is what both have.
  absl::Status TakeOptions(const control::EndDescription& peer);

  // Queue pairs to RTS. service_level and traffic_class are those of the sender's HELLO.
  // false = not yet, call again. Errors: Internal; InvalidArgument (the peer's description does not
  // fit ours).
  absl::StatusOr<bool> Connect(const control::EndDescription& peer, uint8_t service_level,
                               uint8_t traffic_class, int64_t now_ns);

  // The connection, in place at `storage`; the builder is used up. After Connect gave true.
  datapath::SendConnection* FinishSend(void* storage, const control::EndDescription& peer);
  // Receives are posted. Errors: Internal.
  absl::StatusOr<datapath::RecvConnection*> FinishReceive(void* storage,
                                                          const control::EndDescription& peer);

  // For tests; before Finish*.
  verbs::QueuePair* queue_pair(size_t lane) { return lanes_[lane].qp.get(); }
  // Queue pairs that each device's completion queue has room for.
  uint32_t lanes_max() const { return lanes_max_; }

 private:
  absl::Status CreateDevice(const PhysicalDevice& part, uint32_t lanes_max);
  absl::Status ConnectStep(const control::EndDescription& peer);
  std::vector<datapath::Lane> TakeLanes();

  const NetDevice& device_;
  const datapath::DatapathConfig& config_;
  const LaneMaker maker_;
  const Side side_;
  LaneUse use_;
  std::vector<datapath::ConnectionDevice> devices_;
  std::vector<PortFacts> ports_;
  std::vector<control::DeviceDescription> descriptions_;
  std::vector<MadeLane> lanes_;
  std::vector<datapath::FlushLane> flush_lanes_;
  std::unique_ptr<datapath::SenderMemory> sender_memory_;
  std::unique_ptr<datapath::ReceiverMemory> receiver_memory_;
  uint32_t lanes_max_ = 0;
  uint32_t remote_devices_ = 0;
  uint32_t connected_ = 0;  // lanes that are in RTS
  int modify_attempts_ = 0;
  int64_t retry_at_ns_ = 0;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_LANE_BUILDER_H_
