#include "cc/datapath/connection.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/verbs/verbs_error.h"

namespace railhop::datapath {
namespace {

// Lane::fence, as bits: how far the fence has come.
constexpr uint8_t kBusy = 1;  // a thread is in FenceLane
constexpr uint8_t kInError = 2;
constexpr uint8_t kSendMarkerPosted = 4;
constexpr uint8_t kSendMarkerSeen = 8;
constexpr uint8_t kReceiveMarkerPosted = 16;
constexpr uint8_t kReceiveMarkerSeen = 32;
// Of a lane that is fenced:
constexpr uint8_t kCounted = 64;   // its traffic is in past_traffic_
constexpr uint8_t kCarried = 128;  // something was posted to it

// Faults that wait to be taken: each lane has one, so more are requests for cover, which repeat.
constexpr size_t kFaultsMax = 512;

// How long Close waits for a thread that fences a lane. The call it is in may hang on a dying NIC.
constexpr int kCloseWaitMs = 5000;

// Errors that follow the buffer or the request and not the link (rule 10): another path would do no
// better. Source: ibv_poll_cq(3).
bool FollowsBuffer(int status) {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_PROT_ERR ||
         status == IBV_WC_LOC_ACCESS_ERR || status == IBV_WC_REM_ACCESS_ERR ||
         status == IBV_WC_REM_INV_REQ_ERR;
}

}  // namespace

Connection::Connection(std::vector<ConnectionDevice> devices, std::vector<Lane> lanes,
                       const ConnectionRules& rules, const PeerMemory& peer)
    : rules_(rules),
      device_count_(static_cast<uint32_t>(devices.size())),
      lanes_(std::move(lanes)),
      devices_(std::move(devices)),
      peer_(peer) {
  ConnectionGuard guard(&lock_);
  std::fill(std::begin(slot_physical_), std::end(slot_physical_), kNoDevice);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Start(&lanes_[i], static_cast<uint32_t>(i));
    route_list_.push_back(static_cast<uint8_t>(i));
  }
  RouteChanged();
  QueuesChanged();
}

void Connection::Start(Lane* lane, uint32_t index) {
  lane->physical = static_cast<uint8_t>(devices_[lane->local_device].physical);
  lane->state = LaneState::kOpen;
  lane->live_epoch = lane->epoch & 0xffff;
  lane->work_id = PackWorkId({.kind = WorkKind{},
                              .lane = static_cast<uint8_t>(index),
                              .stripe = 0,
                              .index = 0,
                              .epoch = static_cast<uint16_t>(lane->epoch)});
  slot_physical_[lane->local_device] = lane->physical;
}

Fault Connection::TakeFault() {
  ConnectionGuard guard(&lock_);
  if (fault_taken_) return {};
  if (fault_.kind != Fault::Kind::kNone) fault_taken_ = true;
  return fault_;
}

std::vector<Fault> Connection::TakeFaults() {
  ConnectionGuard guard(&lock_);
  attention_ &= ~kNews;
  return std::exchange(faults_, {});
}

bool Connection::Uses(const ibv_qp* qp) const {
  ConnectionGuard guard(&lock_);
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [qp](const Lane& lane) { return lane.qp != nullptr && lane.qp->raw() == qp; });
}

bool Connection::Uses(const ibv_cq* cq) const {
  ConnectionGuard guard(&lock_);
  return std::any_of(devices_.begin(), devices_.end(), [cq](const ConnectionDevice& device) {
    return device.cq != nullptr && device.cq->raw() == cq;
  });
}

std::vector<LaneRef> Connection::LanesOf(const void* object) const {
  ConnectionGuard guard(&lock_);
  std::vector<LaneRef> found;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (!IsLive(lane)) continue;
    const bool is_qp = lane.qp != nullptr && lane.qp->raw() == object;
    const verbs::CompletionQueue* const cq = devices_[lane.local_device].cq.get();
    if (is_qp || (cq != nullptr && cq->raw() == object)) {
      found.push_back({.index = static_cast<uint8_t>(i), .epoch = lane.epoch});
    }
  }
  return found;
}

bool Connection::Uses(const verbs::Context* context) const {
  ConnectionGuard guard(&lock_);
  return std::any_of(lanes_.begin(), lanes_.end(), [context](const Lane& lane) {
    return lane.qp != nullptr && lane.qp->context() == context;
  });
}

void Connection::GiveUp(int event) {
  ConnectionGuard guard(&lock_);
  End(Outcome::kSystem, {.kind = Fault::Kind::kDevice, .code = event});
}

void Connection::GiveUp(Outcome outcome, const Fault& fault) {
  ConnectionGuard guard(&lock_);
  End(outcome, fault);
}

void Connection::End(Outcome outcome, const Fault& fault) {
  if (fault_.kind == Fault::Kind::kNone) fault_ = fault;
  if (failed_ == Outcome::kOk) failed_ = outcome;
  attention_ |= kFailed;
}

void Connection::SetFailover(bool failover, bool confirm) {
  ConnectionGuard guard(&lock_);
  rules_.failover = failover;
  rules_.confirm = failover && confirm;
  if (rules_.confirm) attention_ |= kConfirms;
}

// ---- The route.

void Connection::RouteChanged() {
  route_count_ = static_cast<uint32_t>(route_list_.size());
  route_ = route_list_.data();
  if (route_next_ >= route_count_) route_next_ = 0;
  route_slots_ = 0;
  for (const uint8_t lane : route_list_) {
    route_slots_ |= static_cast<uint8_t>(1u << lanes_[lane].local_device);
  }
  attention_ = route_count_ == 0 ? attention_ | kNoRoute : attention_ & ~kNoRoute;
}

void Connection::LeaveRoute(uint32_t lane) {
  const auto end = std::remove(route_list_.begin(), route_list_.end(), static_cast<uint8_t>(lane));
  if (end == route_list_.end()) return;
  route_list_.erase(end, route_list_.end());
  RouteChanged();
}

void Connection::SetRoute(absl::Span<const uint8_t> lanes) {
  ConnectionGuard guard(&lock_);
  route_list_.clear();
  for (const uint8_t lane : lanes) {
    if (doomed_ || lane >= lanes_.size() || lanes_[lane].state != LaneState::kOpen) continue;
    route_list_.push_back(lane);
  }
  RouteChanged();
  Settle(false);
}

void Connection::Suspect(uint32_t lane) {
  if (!IsLive(lanes_[lane])) return;
  lanes_[lane].state = LaneState::kSuspect;
  LeaveRoute(lane);
}

Lane* Connection::Find(LaneRef ref) {
  if (ref.index >= lanes_.size()) return nullptr;
  Lane& lane = lanes_[ref.index];
  return lane.epoch == ref.epoch && IsLive(lane) ? &lane : nullptr;
}

void Connection::StopPosting(absl::Span<const LaneRef> lanes) {
  ConnectionGuard guard(&lock_);
  for (const LaneRef& ref : lanes) {
    if (Find(ref) != nullptr) Suspect(ref.index);
  }
}

void Connection::Retire(absl::Span<const LaneRef> lanes) {
  ConnectionGuard guard(&lock_);
  for (const LaneRef& ref : lanes) {
    Lane* const lane = Find(ref);
    if (lane == nullptr || lane->state != LaneState::kOpen) continue;
    lane->state = LaneState::kRetiring;
    LeaveRoute(ref.index);
  }
}

bool Connection::Drained(LaneRef ref) {
  ConnectionGuard guard(&lock_);
  PollAll();
  Lane* const lane = Find(ref);
  if (lane == nullptr || lane->outstanding == 0) return true;
  if (lane->outstanding == lane->unsignalled && lane->state < LaneState::kSuspect) {
    PostNoOp(ref.index);
  }
  return false;
}

void Connection::Observe(std::vector<LaneView>* views) {
  views->clear();
  ConnectionGuard guard(&lock_);
  PollAll();
  Settle(true);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.state == LaneState::kFree) continue;
    const uint64_t progress = lane.completed + lane.arrived;
    const bool only_unsignalled = lane.outstanding != 0 && lane.outstanding == lane.unsignalled;
    lane.idle_looks = only_unsignalled && static_cast<uint32_t>(progress) == lane.last_progress
                          ? static_cast<uint8_t>(lane.idle_looks + 1)
                          : uint8_t{0};
    lane.last_progress = static_cast<uint32_t>(progress);
    if (lane.idle_looks >= 2 && lane.state < LaneState::kSuspect) {
      PostNoOp(static_cast<uint32_t>(i));
      lane.idle_looks = 0;
    }
    views->push_back({.lane = {static_cast<uint8_t>(i), lane.epoch},
                      .state = lane.state,
                      .slot = lane.local_device,
                      .remote_slot = lane.remote_device,
                      .physical = lane.physical,
                      .qp_number = NumberOf(lane),
                      .posted = PostedOn(lane),
                      .progressed = progress,
                      .arrived = lane.arrived,
                      .outstanding = lane.outstanding,
                      .owed = lane.outstanding > lane.unsignalled && IsLive(lane)});
  }
}

void Connection::CountLane(const Lane& lane, std::vector<PortTraffic>* ports) const {
  const uint64_t messages = has_receives() ? lane.arrived : PostedOn(lane);
  if (messages == 0) return;
  auto at = std::lower_bound(
      ports->begin(), ports->end(), int{lane.physical},
      [](const PortTraffic& port, int physical) { return port.physical < physical; });
  if (at == ports->end() || at->physical != lane.physical) {
    at = ports->insert(at, {.physical = lane.physical});
  }
  at->bytes += lane.bytes;
  at->messages += messages;
}

Traffic Connection::CountTraffic() const {
  Traffic traffic;
  ConnectionGuard guard(&lock_);
  traffic.transfers = next_sequence_ - kFirstSequence;
  traffic.ports = past_traffic_;
  for (const Lane& lane : lanes_) {
    traffic.outstanding += lane.outstanding;
    if ((lane.fence & kCounted) == 0) CountLane(lane, &traffic.ports);
  }
  return traffic;
}

// ---- Devices and lanes that come.

bool Connection::HasLiveLane(uint32_t slot) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [slot](const Lane& lane) {
    return IsLive(lane) && lane.local_device == slot;
  });
}

void Connection::QueuesChanged() {
  polled_count_ = 0;
  for (uint32_t slot = 0; slot < device_count_; ++slot) {
    const ConnectionDevice& device = devices_[slot];
    if (device.cq == nullptr || (broken_slots_ >> slot & 1) != 0) continue;
    if (device.flush.qp == nullptr && !HasLiveLane(slot)) continue;
    polled_[polled_count_++] = {device.cq.get(), slot};
  }
}

bool Connection::AddDevice(uint32_t slot, ConnectionDevice* device) {
  ConnectionGuard guard(&lock_);
  if (slot >= kDevicesMax || closing_ || device->physical < 0 ||
      device->physical >= static_cast<int>(kPhysicalMax) || HasLiveLane(slot)) {
    return false;
  }
  const bool replaces = slot < devices_.size() && devices_[slot].cq != nullptr;
  const bool is_same = replaces && devices_[slot].physical == device->physical;
  if (replaces && !is_same && !MayReplace(slot)) return false;
  if (slot >= devices_.size()) devices_.resize(slot + 1);
  device_count_ = static_cast<uint32_t>(devices_.size());
  if (replaces) Replaced(slot, is_same);
  std::swap(devices_[slot], *device);
  slot_physical_[slot] = static_cast<uint8_t>(devices_[slot].physical);
  broken_slots_ &= static_cast<uint8_t>(~(1u << slot));
  vacated_slots_ &= static_cast<uint8_t>(~(1u << slot));
  QueuesChanged();
  return true;
}

bool Connection::AddLane(uint32_t index, Lane* lane) {
  ConnectionGuard guard(&lock_);
  const uint32_t slot = lane->local_device;
  if (index >= kLanesMax || closing_ || slot >= devices_.size() || devices_[slot].cq == nullptr) {
    return false;
  }
  if (index < lanes_.size()) {
    const Lane& old = lanes_[index];
    // The sender's stripes name places: one is free once the records have been compared, or if it
    // never carried anything.
    const bool compared = has_receives() || (old.fence & kCarried) == 0;
    if (IsLive(old) || (old.state == LaneState::kFenced && !compared)) return false;
  }
  Start(lane, index);
  if (!PostReceives(lane, index)) return false;
  while (lanes_.size() <= index) {
    lanes_.emplace_back();
    lanes_.back().state = LaneState::kFree;
    lanes_.back().live_epoch = kNotLive;
  }
  lanes_[index] = std::move(*lane);
  QueuesChanged();
  return true;
}

void Connection::SetPeerDevice(uint32_t remote_slot, uint32_t control_key) {
  ConnectionGuard guard(&lock_);
  if (remote_slot < kDevicesMax) peer_.remote_keys[remote_slot] = control_key;
}

verbs::CompletionQueue* Connection::completion_queue(uint32_t slot) const {
  ConnectionGuard guard(&lock_);
  return slot < devices_.size() ? devices_[slot].cq.get() : nullptr;
}

int Connection::physical(uint32_t slot) const {
  ConnectionGuard guard(&lock_);
  return slot < devices_.size() && devices_[slot].cq != nullptr ? devices_[slot].physical : -1;
}

uint32_t Connection::device_count() const {
  ConnectionGuard guard(&lock_);
  return device_count_;
}

size_t Connection::lane_count() const {
  ConnectionGuard guard(&lock_);
  return lanes_.size();
}

uint32_t Connection::qp_number(size_t lane) const {
  ConnectionGuard guard(&lock_);
  return lane < lanes_.size() ? NumberOf(lanes_[lane]) : 0;
}

uint64_t Connection::stale_completions() const {
  ConnectionGuard guard(&lock_);
  return stale_completions_;
}

// ---- The fence.

void Connection::PostMarkers(uint32_t index) {
  Lane& lane = lanes_[index];
  if ((lane.fence & kSendMarkerPosted) == 0) {
    ibv_send_wr marker = {};
    marker.wr_id = lane.work_id | static_cast<uint64_t>(WorkKind::kSendMarker);
    marker.opcode = IBV_WR_RDMA_WRITE;  // of nothing: in ERR it is only flushed
    marker.send_flags = IBV_SEND_SIGNALED;
    marker.wr.rdma.remote_addr = peer_.address;
    marker.wr.rdma.rkey = peer_.remote_keys[lane.remote_device];
    if (lane.qp->PostSend(&marker) == 0) lane.fence |= kSendMarkerPosted;
  }
  if (!has_receives()) {
    lane.fence |= kReceiveMarkerPosted | kReceiveMarkerSeen;
  } else if ((lane.fence & kReceiveMarkerPosted) == 0) {
    ibv_recv_wr marker = {};
    marker.wr_id = lane.work_id | static_cast<uint64_t>(WorkKind::kReceiveMarker);
    if (lane.qp->PostReceive(&marker) == 0) lane.fence |= kReceiveMarkerPosted;
  }
}

void Connection::TakeMarker(const ibv_wc& wc) {
  const WorkId id = UnpackWorkId(wc.wr_id);
  Lane& lane = lanes_[id.lane];
  lane.fence |= id.kind == WorkKind::kSendMarker ? kSendMarkerSeen : kReceiveMarkerSeen;
}

void Connection::SetFenced(uint32_t index) {
  Lane& lane = lanes_[index];
  lane.state = LaneState::kFenced;
  lane.live_epoch = kNotLive;
  CountLane(lane, &past_traffic_);
  lane.fence = static_cast<uint8_t>(kCounted | (PostedOn(lane) != 0 ? kCarried : 0));
  lane.outstanding = lane.unsignalled = 0;
  if (!HasLiveLane(lane.local_device)) {
    slot_physical_[lane.local_device] = kNoDevice;
    vacated_slots_ |= static_cast<uint8_t>(1u << lane.local_device);
  }
  QueuesChanged();
}

FenceProgress Connection::FenceLane(LaneRef ref, bool last_try) {
  verbs::QueuePair* qp;
  bool in_error;
  {
    ConnectionGuard guard(&lock_);
    Lane* const lane = Find(ref);
    if (lane == nullptr) return FenceProgress::kFenced;
    if (closing_ || (lane->fence & kBusy) != 0) return FenceProgress::kAgain;
    Suspect(ref.index);
    lane->fence |= kBusy;
    qp = lane->qp.get();
    in_error = (lane->fence & kInError) != 0;
  }
  // May hang; the lane's place and queue pair stay as they are while it is busy.
  if (!in_error) in_error = qp->ToError().ok();
  std::unique_ptr<verbs::QueuePair> doomed;
  {
    ConnectionGuard guard(&lock_);
    if (in_error) {
      lanes_[ref.index].fence |= kInError;
      PostMarkers(ref.index);
    }
    PollAll();
    Lane& lane = lanes_[ref.index];
    constexpr uint8_t kBothSeen = kSendMarkerSeen | kReceiveMarkerSeen;
    if ((lane.fence & kBothSeen) != kBothSeen && !last_try) {
      lane.fence &= static_cast<uint8_t>(~kBusy);
      return FenceProgress::kAgain;
    }
    doomed = std::move(lane.qp);
  }
  const bool destroyed = doomed->Destroy().ok();
  const bool gone = !destroyed && doomed->device_is_gone();
  if (gone) doomed.reset();  // tries once more
  ConnectionGuard guard(&lock_);
  Lane& lane = lanes_[ref.index];
  lane.fence &= static_cast<uint8_t>(~kBusy);
  if (destroyed || gone) {
    SetFenced(ref.index);
    return gone ? FenceProgress::kGone : FenceProgress::kFenced;
  }
  lane.qp = std::move(doomed);
  return last_try ? FenceProgress::kHeld : FenceProgress::kAgain;
}

Connection::LaneSet Connection::FencedOf(absl::Span<const LaneRef> lanes) {
  LaneSet set;
  for (const LaneRef& ref : lanes) {
    if (ref.index < lanes_.size() && lanes_[ref.index].epoch == ref.epoch &&
        lanes_[ref.index].state == LaneState::kFenced) {
      set.Add(ref.index);
    }
  }
  return set;
}

void Connection::Free(const LaneSet& lanes) {
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    if (lanes.Has(i)) lanes_[i].state = LaneState::kFree;
  }
}

// Whether a thread is in FenceLane; no other comes in from now on.
bool Connection::IsFencing() {
  ConnectionGuard guard(&lock_);
  closing_ = true;
  if (failed_ == Outcome::kOk) failed_ = Outcome::kMisuse;
  attention_ |= kFailed;
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return (lane.fence & kBusy) != 0; });
}

absl::Status Connection::Close() {
  std::vector<std::unique_ptr<verbs::QueuePair>> pairs;
  std::vector<ConnectionDevice> devices;
  for (int waited = 0; IsFencing(); ++waited) {
    if (waited == kCloseWaitMs) {
      return absl::UnavailableError(
          absl::StrCat(label_, ": a queue pair is being ended, and the call does not return"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  {
    ConnectionGuard guard(&lock_);
    polled_count_ = 0;
    for (Lane& lane : lanes_) pairs.push_back(std::move(lane.qp));
    devices = std::move(devices_);
  }
  absl::Status first;
  // A device that is gone has let go of everything.
  const auto keep_first = [&first](absl::Status status) {
    if (first.ok() && !status.ok() && !verbs::SaysGone(status)) first = std::move(status);
  };
  // A queue pair that is destroyed while it sends may leave the peer without an answer; in ERR it
  // has stopped. A dying device may refuse either: then destroying decides.
  for (ConnectionDevice& device : devices) {
    if (device.flush.qp == nullptr) continue;
    device.flush.qp->ToError().IgnoreError();
    keep_first(device.flush.qp->Destroy());
  }
  for (auto& pair : pairs) {
    if (pair != nullptr) pair->ToError().IgnoreError();
  }
  for (auto& pair : pairs) {
    if (pair != nullptr) keep_first(pair->Destroy());
  }
  if (first.ok()) {
    for (ConnectionDevice& device : devices) {
      if (device.cq != nullptr) keep_first(device.cq->Destroy());
      if (device.control != nullptr) keep_first(device.control->Deregister());
    }
  }
  ConnectionGuard guard(&lock_);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].qp = std::move(pairs[i]);
    lanes_[i].state = LaneState::kFenced;
    lanes_[i].live_epoch = kNotLive;
  }
  devices_ = std::move(devices);
  return first;
}

// ---- Faults.

Outcome Connection::TellNews() {
  attention_ &= ~kNews;
  return Outcome::kFault;
}

Outcome Connection::NotNowSlow() { return (attention_ & kFailed) != 0 ? failed_ : TellNews(); }

void Connection::Queue(const Fault& fault) {
  if (faults_.size() >= kFaultsMax) return;
  faults_.push_back(fault);
  attention_ |= kNews;
}

Fault Connection::FaultOf(Fault::Kind kind, uint32_t index) const {
  const Lane& lane = lanes_[index];
  return {.kind = kind,
          .lane = static_cast<int>(index),
          .device = lane.local_device,
          .qp_number = NumberOf(lane),
          .epoch = lane.epoch,
          .physical = lane.physical};
}

void Connection::Fail(const Fault& fault) {
  if (!rules_.failover) {
    const bool local = fault.kind == Fault::Kind::kPost || fault.kind == Fault::Kind::kQueue ||
                       fault.kind == Fault::Kind::kDevice;
    End(local ? Outcome::kSystem : Outcome::kRemote, fault);
    return;
  }
  if (doomed_) return;
  // No error before every lane is fenced (rule 6): whoever takes the fault sees to it.
  doomed_ = true;
  route_list_.clear();
  RouteChanged();
  Fault fatal = fault;
  fatal.fatal = true;
  Queue(fatal);
}

void Connection::FailPost(uint32_t index, int error_number) {
  Fault fault = FaultOf(Fault::Kind::kPost, index);
  fault.code = error_number;
  const bool known = lanes_[index].state == LaneState::kSuspect;
  Suspect(index);
  if (!rules_.failover) return Fail(fault);
  if (!known) Queue(fault);
}

void Connection::FailProtocol(uint32_t index) { Fail(FaultOf(Fault::Kind::kProtocol, index)); }

void Connection::FailCompletion(int lane, uint32_t device, const ibv_wc& wc) {
  Fault fault = {
      .kind = Fault::Kind::kCompletion, .lane = lane, .device = static_cast<int>(device)};
  bool known = false;
  if (lane >= 0) {
    fault = FaultOf(Fault::Kind::kCompletion, static_cast<uint32_t>(lane));
    known = lanes_[lane].state == LaneState::kSuspect;
    Suspect(static_cast<uint32_t>(lane));
  }
  fault.code = wc.status;
  fault.vendor_error = wc.vendor_err;
  fault.qp_number = wc.qp_num;
  if (!rules_.failover || lane < 0 || FollowsBuffer(wc.status)) return Fail(fault);
  if (!known) Queue(fault);
}

void Connection::FailQueue(uint32_t device) {
  Fault fault = {.kind = Fault::Kind::kQueue, .device = static_cast<int>(device)};
  if (!rules_.failover) return Fail(fault);
  broken_slots_ |= static_cast<uint8_t>(1u << device);
  QueuesChanged();
  bool news = false;
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    if (!IsLive(lanes_[i]) || lanes_[i].local_device != device) continue;
    if (lanes_[i].state != LaneState::kSuspect) {
      if (!news) fault = FaultOf(Fault::Kind::kQueue, i);
      news = true;
    }
    Suspect(i);
  }
  if (news) Queue(fault);
}

void Connection::AskCover(const MemoryKeys* keys, uint32_t physical) {
  if (!rules_.failover || physical >= kPhysicalMax) return;
  const uint32_t bit = uint32_t{1} << physical;
  if ((keys->asked.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  Queue({.kind = Fault::Kind::kUncovered, .physical = static_cast<int>(physical), .memory = keys});
}

}  // namespace railhop::datapath
