// What the driver knows of one end of one connection.
//
// A lane is named by place and epoch; the data path has the queue pair, this has the rest: which
// path it is on, which base lane it serves, how far its fence has come. Only the driver's thread
// touches a Link.
#ifndef RAILHOP_CC_RUNTIME_LINK_H_
#define RAILHOP_CC_RUNTIME_LINK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cc/control/handle.h"
#include "cc/control/socket_address.h"
#include "cc/datapath/recv_connection.h"
#include "cc/datapath/send_connection.h"
#include "cc/engine/failover.h"
#include "cc/engine/ids.h"
#include "cc/engine/messages.h"
#include "cc/runtime/comm.h"
#include "cc/runtime/lane_maker.h"

namespace railhop::runtime {

// A base lane as the handshake has made it, epoch 1: the lane's place is its index in the list.
struct BaseLane {
  int local = 0;            // PhysicalDevice::id
  uint8_t slot = 0;         // of that device at this end
  uint8_t remote_slot = 0;  // of the peer's device, in the peer's order
};
// A device of the peer, as its handshake told.
struct PeerDevice {
  std::string name;
  uint8_t port = 1;
};

// What the transport hands over when a connection is made. What is pointed to outlives the link.
struct LinkInfo {
  engine::EndId id;
  engine::InstanceId peer = 0;
  std::string peer_host;
  std::string label;
  control::Secret secret = {};
  std::vector<control::SocketAddress> addresses;
  ConnectionComm* comm = nullptr;
  // Exactly one of them, by id.end.
  datapath::SendConnection* send = nullptr;
  datapath::RecvConnection* recv = nullptr;
  void* memory = nullptr;                    // SenderMemory or ReceiverMemory
  std::vector<const PhysicalDevice*> parts;  // slots 0..n-1 of this end
  std::vector<PeerDevice> peer_parts;        // slots 0..n-1 of the peer
  std::vector<BaseLane> base;
  bool adaptive_routing = false;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  int flush_pointers = 0;  // kPointer* bits of the net device, for flush lanes
};

// One live lane.
struct LinkLane {
  enum class State : uint8_t {
    kMade,      // the receiver's, before UP: data may arrive, nothing is posted
    kUp,        // in use
    kRetiring,  // left in order
    kSuspect,   // left
    kFenced,    // gone at this end
  };
  State state = State::kUp;
  engine::PathId path;
  bool path_known = true;  // remote: only once the peer has told its ports
  uint8_t slot = 0;
  uint8_t remote_slot = 0;
  int base = 0;
  int64_t made_at = 0;

  // Fence.
  bool fence_wanted = false;
  bool fence_job = false;
  int64_t fence_since = 0;
  int64_t fence_at = 0;  // the next try
  bool fence_held = false;
  bool drained = false;  // retiring: the machine was told

  // Progress.
  uint64_t progressed = 0;
  int64_t progress_at = 0;  // it moved, or owed nothing; 0 = not looked at yet
  bool doubted = false;     // the path was told of this stall
  uint32_t inquiry = 0;     // serial; 0 = none
  int64_t inquired_at = 0;
  std::optional<uint64_t> heard;  // what the peer had of it
  int64_t heard_at = 0;

  // Whether what is acknowledged has arrived: messages of ours.
  uint64_t posted = 0;  // as last looked at
  int64_t posted_at = 0;
  bool rests = false;    // nothing is under way, and has not been for the threshold
  uint64_t checked = 0;  // that the question under way is about; 0 = none
  uint64_t proved = 0;   // that the peer has
  int64_t missing_since = 0;
};

// Lanes that are on their way.
struct PendingOffer {
  enum class Stage : uint8_t { kMaking, kOffered, kRaising };
  struct Leg {
    engine::PathId path;
    int base = 0;
    uint8_t index = 0;
    uint8_t slot = 0;
  };
  Stage stage = Stage::kMaking;
  uint32_t epoch = 0;
  int64_t since = 0;
  std::vector<Leg> legs;
  // One for each local device.
  struct Part {
    LaneMaker::Wish wish;
    std::shared_ptr<LaneMaker::Made> made;
    int64_t since = 0;   // of its job
    bool ended = false;  // its job has
    bool late = false;   // nobody waits for its job any more; only the job touches `made`
    bool failed = false;
    std::string error;
  };
  std::vector<std::shared_ptr<Part>> parts;
  int jobs = 0;
  bool wanted = true;  // receiver: the sender has not left it
  engine::Offer offer;
  engine::Answer answer;
};

// Made by std::make_shared.
struct Link : std::enable_shared_from_this<Link> {
  LinkInfo info;
  engine::Failover machine;
  std::map<engine::LaneId, LinkLane> lanes;
  std::map<int, uint8_t> slots;              // physical device to slot, of this end
  std::map<uint8_t, uint32_t> slot_lanes;    // lanes that live on it at once, at most
  std::map<uint8_t, uint32_t> control_keys;  // of this end's memory, by slot
  std::map<uint8_t, int> peer_slots;         // of the peer, to its physical device
  std::vector<uint8_t> route;                // as the data path has it
  bool over = false;                         // given up or closed
  bool failed = false;                       // the data path has been told
  bool closing = false;
  std::string reason;   // of the end
  int64_t fail_by = 0;  // the data path is told by then
  bool peer_over = false;
  std::string peer_reason;
  uint64_t peer_complete_below = 0;  // sender: as the receiver said at its end
  int jobs = 0;                      // of the executor that use the connection

  std::shared_ptr<PendingOffer> offer;         // sender
  std::map<uint32_t, engine::Up> ups;          // sender: of live lanes, by epoch
  std::map<uint32_t, engine::Answer> answers;  // receiver: of live lanes, by epoch
  // Receiver: jobs under way.
  std::map<uint32_t, std::shared_ptr<PendingOffer>> answering;
  // Jobs for lanes, by local device, that hang and that nobody waits for any more. Until they have
  // ended no other is queued there.
  std::map<int, int> late;
  uint32_t made_epoch = 1;  // receiver: the highest of lanes that it has made
  int64_t offer_at = 0;     // not before: back-off
  int offer_failures = 0;
  uint8_t next_place = 0;

  int64_t hindered_since = 0;  // 0 = it moves
  bool no_path_told = false;
  uint64_t episode = 0;
  uint64_t episodes = 0;  // that it was touched by
  std::set<int> avoid;    // sender: local ports that it was told to leave, while there are others
  uint64_t resent_bytes = 0;
  int64_t repeat_at = 0;
  int64_t repeat_pause = 0;
  int64_t watch_at = 0;
  uint32_t inquiries = 0;
  uint32_t check = 0;           // serial of the question whether all has arrived; 0 = none
  uint64_t check_sequence = 0;  // receiver: below it all was announced then
  int64_t check_at = 0;         // not before
  int64_t check_pause = 0;
  std::vector<datapath::LaneView> views;  // kept for its memory

  explicit Link(LinkInfo i) : info(std::move(i)), machine(info.id.end, 1) {}

  datapath::Connection* connection() const {
    if (info.send != nullptr) return info.send;
    return info.recv;
  }
  bool is_sender() const { return info.id.end == engine::End::kSender; }
  LinkLane* Find(engine::LaneId id) {
    const auto found = lanes.find(id);
    return found == lanes.end() ? nullptr : &found->second;
  }
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_LINK_H_
