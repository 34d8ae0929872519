#include "cc/datapath/connection.h"

#include <algorithm>
#include <utility>

namespace railhop::datapath {

Fault Connection::TakeFault() {
  ConnectionGuard guard(&lock_);
  if (fault_taken_) return {};
  if (fault_.kind != Fault::Kind::kNone) fault_taken_ = true;
  return fault_;
}

bool Connection::Uses(const ibv_qp* qp) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [qp](const Lane& lane) { return lane.qp->raw() == qp; });
}

bool Connection::Uses(const ibv_cq* cq) const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [cq](const ConnectionDevice& device) { return device.cq->raw() == cq; });
}

bool Connection::Uses(const verbs::Context* context) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [context](const Lane& lane) { return lane.qp->context() == context; });
}

void Connection::GiveUp(int event) {
  ConnectionGuard guard(&lock_);
  Fail({.kind = Fault::Kind::kDevice, .code = event});
}

absl::Status Connection::Close() {
  {
    ConnectionGuard guard(&lock_);
    if (failed_ == Outcome::kOk) failed_ = Outcome::kMisuse;
  }
  // A queue pair that is destroyed while it sends may leave the peer without an answer; in ERR it
  // has stopped. A dying device may refuse either: then destroying decides.
  for (Lane& lane : lanes_) {
    if (lane.qp != nullptr && lane.state != LaneState::kFenced) lane.qp->ToError().IgnoreError();
  }
  absl::Status first;
  const auto keep_first = [&first](absl::Status status) {
    if (first.ok() && !status.ok()) first = std::move(status);
  };
  for (Lane& lane : lanes_) {
    lane.state = LaneState::kFenced;
    if (lane.qp != nullptr) keep_first(lane.qp->Destroy());
  }
  if (!first.ok()) return first;
  for (ConnectionDevice& device : devices_) {
    if (device.cq != nullptr) keep_first(device.cq->Destroy());
    if (device.control != nullptr) keep_first(device.control->Deregister());
  }
  return first;
}

Outcome Connection::Fail(const Fault& fault) {
  if (fault_.kind == Fault::Kind::kNone) fault_ = fault;
  const bool local = fault.kind == Fault::Kind::kPost || fault.kind == Fault::Kind::kQueue ||
                     fault.kind == Fault::Kind::kDevice;
  if (failed_ == Outcome::kOk) failed_ = local ? Outcome::kSystem : Outcome::kRemote;
  return failed_;
}

Outcome Connection::FailPost(uint32_t lane, int error_number) {
  lanes_[lane].state = LaneState::kSuspect;
  return Fail({.kind = Fault::Kind::kPost,
               .lane = static_cast<int>(lane),
               .device = lanes_[lane].local_device,
               .code = error_number,
               .qp_number = lanes_[lane].qp->number(),
               .epoch = lanes_[lane].epoch});
}

Outcome Connection::FailProtocol(uint32_t lane) {
  return Fail({.kind = Fault::Kind::kProtocol,
               .lane = static_cast<int>(lane),
               .device = lanes_[lane].local_device,
               .qp_number = lanes_[lane].qp->number(),
               .epoch = lanes_[lane].epoch});
}

Outcome Connection::FailCompletion(int lane, uint32_t device, const ibv_wc& wc) {
  Fault fault = {.kind = Fault::Kind::kCompletion,
                 .lane = lane,
                 .device = static_cast<int>(device),
                 .code = wc.status,
                 .vendor_error = wc.vendor_err,
                 .qp_number = wc.qp_num};
  if (lane >= 0) {
    lanes_[lane].state = LaneState::kSuspect;
    fault.epoch = lanes_[lane].epoch;
  }
  return Fail(fault);
}

}  // namespace railhop::datapath
