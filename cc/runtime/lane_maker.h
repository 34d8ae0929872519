// Makes queues, control memory and queue pairs of a connection on any physical device: those of the
// handshake (through LaneBuilder), backup lanes, and probes. The one place that knows the
// attributes of a queue pair, so that a backup has what the primary has: P_Key, service level,
// traffic class, ECE, inline bytes, sizes, timeouts; the MTU is the smaller one of the two ports of
// each.
//
// All calls may hang: on an executor's worker, but for the handshake. Const, so any thread.
#ifndef RAILHOP_CC_RUNTIME_LANE_MAKER_H_
#define RAILHOP_CC_RUNTIME_LANE_MAKER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/control/handshake.h"
#include "cc/datapath/datapath_config.h"
#include "cc/datapath/recv_connection.h"
#include "cc/datapath/send_connection.h"
#include "cc/engine/messages.h"
#include "cc/runtime/net_device.h"
#include "cc/runtime/port_facts.h"
#include "cc/verbs/memory_region.h"
#include "cc/verbs/queue_pair.h"

namespace railhop::runtime {

// What the queue pairs of one end are for. Adaptive routing is the connection's: it does not change
// when a lane of it goes over another kind of link.
struct LaneUse {
  engine::End end = engine::End::kSender;
  bool adaptive_routing = false;
  uint8_t service_level = 0;  // of the sender's HELLO
  uint8_t traffic_class = 0;  // the same; NCCL_IB_FIFO_TC is applied where it counts
};

// The peer's port and queue pair, from whichever message told.
struct RemotePort {
  std::string name;
  bool is_ethernet = false;
  uint8_t mtu = 0;
  uint16_t lid = 0;
  std::array<uint8_t, 16> gid = {};
};
struct RemoteLane {
  uint32_t qp_number = 0;
  uint32_t start_psn = 0;
  ibv_ece ece = {};
};
RemotePort RemotePortOf(const control::DeviceDescription& device);
RemotePort RemotePortOf(const engine::EndDevice& device);
RemoteLane RemoteLaneOf(const control::LaneDescription& lane);
RemoteLane RemoteLaneOf(const engine::EndLane& lane);

// A queue pair in INIT (after Raise: RTS).
struct MadeLane {
  std::unique_ptr<verbs::QueuePair> qp;
  uint32_t start_psn = 0;  // random
  ibv_ece ece = {};        // what this end says of it
  bool in_rtr = false;     // on its way: what Raise has done
};

class LaneMaker {
 public:
  LaneMaker(const datapath::DatapathConfig& config, PortRules rules)
      : config_(config), rules_(std::move(rules)) {}

  const datapath::DatapathConfig& config() const { return config_; }
  const PortRules& rules() const { return rules_; }

  // Queue pairs that may exist at once on one device of a connection of so many lanes: all of them
  // after the others have failed, and beside them those that they are handed over to. With less,
  // lanes that cross rails never go back: old and new ones meet on one device of the receiver.
  uint32_t LanesMax(uint32_t lanes) const { return config_.failover ? 2 * lanes : lanes; }

  // What the two ends of a connection use, by the parts of the net device.
  bool AdaptiveRouting(const std::vector<const PhysicalDevice*>& parts) const;

  // Queue and control memory on a device; the queue has room for all that `lanes_max` lanes that
  // exist at once can put in: the caller makes no more. memory: SenderMemory or ReceiverMemory, by
  // use.end. Errors: Internal, Unimplemented.
  absl::StatusOr<datapath::ConnectionDevice> MakeDevice(const PhysicalDevice& device,
                                                        const LaneUse& use, void* memory,
                                                        uint32_t lanes_max) const;

  // The port as a handshake uses it: where it has no address that it may enter again with, the
  // configured index as it is, as NCCL would.
  absl::StatusOr<PortFacts> PortForHandshake(const PhysicalDevice& device) const;

  // A queue pair in INIT. pkey: PhysicalDevice::pkey of the connection's own device, which the new
  // lane must share; 0 = the configured index as it is.
  // Errors: FailedPrecondition (the device has not that P_Key), Internal.
  absl::StatusOr<MadeLane> MakeLane(const PhysicalDevice& device, const LaneUse& use,
                                    verbs::CompletionQueue* cq, uint16_t pkey) const;

  // The receiver, before Raise: takes the sender's congestion control options; what the NIC made of
  // them is in lane->ece then, for the answer.
  absl::Status TakeOptions(MadeLane* lane, const RemoteLane& remote) const;
  // The sender, before Raise: what the receiver's answer says is set.

  // To RTS. Does again only what is missing: after DeadlineExceeded it may be called again.
  // Errors: DeadlineExceeded, Internal, InvalidArgument (the ports do not fit), FailedPrecondition
  // (our port has no address now; a sentence).
  absl::Status Raise(MadeLane* lane, const PhysicalDevice& device, const LaneUse& use,
                     const PortFacts& local, const RemotePort& remote_port,
                     const RemoteLane& remote) const;

  // A queue pair connected to itself, for flushes; on any device of a receiver into GPU memory.
  absl::StatusOr<datapath::FlushLane> MakeFlushLane(const PhysicalDevice& device,
                                                    const PortFacts& local,
                                                    verbs::CompletionQueue* cq,
                                                    uint16_t pkey) const;
  // Whether receivers on such devices need one.
  bool WantsFlush(int ptr_support) const;

  // ---- All of the above for one offer and one device, as a job of the executor wants it.

  struct Wish {
    const PhysicalDevice* device = nullptr;
    LaneUse use;
    uint16_t pkey = 0;
    uint8_t slot = 0;        // of `device` at this end
    void* memory = nullptr;  // the connection's control memory
    // Of the slot, if the connection has this device already; null: one is made, for lanes_max.
    verbs::CompletionQueue* cq = nullptr;
    uint32_t lanes_max = 2;
    bool flush = false;  // make a flush lane too, with a new device
    // The lanes: by the sender index alone, by the receiver those of the offer.
    std::vector<engine::EndLane> lanes;
    // Receiver: the offer's devices, in which lanes[i].slot is looked up; queue pairs are raised.
    std::vector<engine::EndDevice> peer_devices;
  };
  struct Made {
    PortFacts port;
    std::optional<datapath::ConnectionDevice> device;  // if it was made
    std::optional<datapath::FlushLane> flush;
    std::vector<MadeLane> lanes;             // as in the wish
    engine::EndDevice end_device;            // for the message; control_key only of a new device
    std::vector<engine::EndLane> end_lanes;  // for the message
  };
  // All or nothing. Errors: as above, and FailedPrecondition (the port is not active).
  absl::StatusOr<Made> Make(const Wish& wish) const;
  // The sender, when the answer is there: made->lanes to RTS, by index, but for those that it
  // lacks. Errors: as Raise.
  absl::Status RaiseAnswered(Made* made, const Wish& wish, const engine::Answer& answer) const;

  // ---- Probes.

  // Buffers of a probe's queue pair for control messages: receives are posted into the first half.
  static constexpr uint32_t kProbeBuffers = 4;
  static constexpr uint32_t kProbeBufferBytes = 512;
  struct alignas(4096) ProbeMemory {
    uint8_t received[kProbeBuffers][kProbeBufferBytes];
    uint8_t sent[kProbeBuffers][kProbeBufferBytes];
  };
  static_assert(sizeof(ProbeMemory) == 4096);

  // A small queue pair in INIT with a queue of its own.
  struct MadeProbe {
    std::unique_ptr<ProbeMemory> memory;
    std::unique_ptr<verbs::MemoryRegion> region;  // null: no messages, probes alone
    std::unique_ptr<verbs::CompletionQueue> cq;
    MadeLane lane;
    PortFacts port;

    // Ends it, on the device's worker. What the device may still write to is kept for good.
    void End();

   private:
    static void KeepForGood(std::unique_ptr<ProbeMemory> memory);
  };
  // Receives are posted, with their index as the work request's id. Errors: Internal.
  absl::StatusOr<MadeProbe> MakeProbe(const PhysicalDevice& device, uint16_t pkey) const;
  // Again, of a receive that has completed. 0 or an errno.
  static int PostProbeReceive(MadeProbe* probe, uint32_t index);
  // timeout: exponent, as in verbs. Errors: as Raise.
  absl::Status RaiseProbe(MadeProbe* probe, const PhysicalDevice& device,
                          const engine::ProbeEnd& remote, bool remote_is_ethernet,
                          uint8_t service_level, uint8_t traffic_class, uint8_t timeout) const;

 private:
  absl::StatusOr<verbs::PathAttributes> PathOf(const PhysicalDevice& device, const PortFacts& local,
                                               const RemotePort& remote) const;
  verbs::QueuePairSize SizeFor(const LaneUse& use) const;

  const datapath::DatapathConfig& config_;
  const PortRules rules_;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_LANE_MAKER_H_
