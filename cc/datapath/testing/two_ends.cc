#include "cc/datapath/testing/two_ends.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

constexpr uint8_t kUntouched = 0xa5;
constexpr uint32_t kFromKey = 0x1000;  // + physical
constexpr uint32_t kToKey = 0x2000;

}  // namespace

TwoEnds::TwoEnds(const Shape& shape, size_t bytes) {
  const int nics = shape.devices + shape.spare;
  for (int i = 0; i < nics; ++i) {
    sender_nics.push_back(std::make_unique<FakeNic>());
    receiver_nics.push_back(std::make_unique<FakeNic>());
    // No two queue pairs have the same number, and no two registrations the same key.
    sender_nics.back()->qps_created = 0x1000 * static_cast<uint32_t>(i + 1);
    receiver_nics.back()->qps_created = 0x1000 * static_cast<uint32_t>(i + 101);
    sender_nics.back()->first_key = 0x10000 + 0x100 * static_cast<uint32_t>(i);
    receiver_nics.back()->first_key = 0x20000 + 0x100 * static_cast<uint32_t>(i);
  }
  from.resize(bytes);
  uint64_t seed = 1;
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = SplitMix64(&seed);
    memcpy(&from[i], &word, 8);
  }
  to.assign(bytes + 2 * kGuard, kUntouched);
  expected_ = to;
  const auto from_address = reinterpret_cast<uintptr_t>(from.data());
  from_keys.Start(from_address, from_address + bytes);
  const auto to_address = reinterpret_cast<uintptr_t>(to.data() + kGuard);
  to_keys.Start(to_address, to_address + bytes);
  for (int i = 0; i < (shape.cover_spares ? nics : shape.devices); ++i) {
    from_keys.Add(i, kFromKey + static_cast<uint32_t>(i), 1);
    to_keys.Add(i, 1, kToKey + static_cast<uint32_t>(i));
  }

  auto sender_memory = std::make_unique<SenderMemory>();
  auto receiver_memory = std::make_unique<ReceiverMemory>();
  sender_memory_ = sender_memory.get();
  receiver_memory_ = receiver_memory.get();
  PeerMemory of_receiver = {reinterpret_cast<uintptr_t>(receiver_memory_), {}};
  PeerMemory of_sender = {reinterpret_cast<uintptr_t>(sender_memory_), {}};
  std::vector<ConnectionDevice> send_devices, recv_devices;
  std::vector<FlushLane> flush_lanes;
  for (int i = 0; i < shape.devices; ++i) {
    send_devices.push_back(MakeDevice(true, i));
    recv_devices.push_back(MakeDevice(false, i));
    of_sender.remote_keys[i] = send_devices.back().control->remote_key();
    of_receiver.remote_keys[i] = recv_devices.back().control->remote_key();
    if (shape.flush) {
      flush_lanes.push_back(
          {MakeLane(false, recv_devices.back().cq.get(), i).qp, of_receiver.remote_keys[i]});
    }
  }
  std::vector<Lane> send_lanes, recv_lanes;
  for (int i = 0; i < shape.lanes; ++i) {
    const int device = i % shape.devices;
    send_lanes.push_back(MakeLane(true, send_devices[device].cq.get(), device));
    recv_lanes.push_back(MakeLane(false, recv_devices[device].cq.get(), device));
    for (Lane* lane : {&send_lanes.back(), &recv_lanes.back()}) {
      lane->local_device = lane->remote_device = static_cast<uint8_t>(device);
      lane->epoch = 1;
    }
    Pair(sender_nics[device].get(), send_lanes.back(), receiver_nics[device].get(),
         recv_lanes.back());
    for (const bool side : {true, false}) {
      lanes_[{side, static_cast<uint32_t>(i)}] = {static_cast<uint8_t>(i), 1};
    }
  }
  send = std::make_unique<SendConnection>(std::move(send_devices), std::move(send_lanes),
                                          shape.rules, std::move(sender_memory), of_receiver);
  recv =
      std::make_unique<RecvConnection>(std::move(recv_devices), std::move(recv_lanes), shape.rules,
                                       std::move(receiver_memory), std::move(flush_lanes));
  send->SetFailover(shape.rules.failover, shape.rules.confirm);
  recv->SetFailover(shape.rules.failover, shape.rules.confirm);
  recv->SetPeer(of_sender);
  EXPECT_EQ(recv->PostReceives(), Outcome::kOk);
}

TwoEnds::~TwoEnds() {
  send->Close().IgnoreError();
  recv->Close().IgnoreError();
  EXPECT_EQ(error, "");
}

ConnectionDevice TwoEnds::MakeDevice(bool of_sender, int physical) {
  FakeNic* const nic = Nics(of_sender)[physical].get();
  ConnectionDevice device;
  device.cq = verbs::CompletionQueue::Create(nic->context(), 100).value();
  device.control = (of_sender ? verbs::MemoryRegion::Register(nic->context(), sender_memory_,
                                                              sizeof(SenderMemory), false)
                              : verbs::MemoryRegion::Register(nic->context(), receiver_memory_,
                                                              sizeof(ReceiverMemory), false))
                       .value();
  device.physical = physical;
  return device;
}

Lane TwoEnds::MakeLane(bool of_sender, verbs::CompletionQueue* cq, int physical) {
  FakeNic* const nic = Nics(of_sender)[physical].get();
  Lane lane;
  lane.qp = verbs::QueuePair::Create(nic->context(), cq, {}).value();
  return lane;
}

void TwoEnds::Pair(FakeNic* sender, const Lane& a, FakeNic* receiver, const Lane& b) {
  const End one = {sender, a.qp->number()};
  const End other = {receiver, b.qp->number()};
  peers_[one] = other;
  peers_[other] = one;
  pairs_[one] = static_cast<FakeQp*>(a.qp->raw());
  pairs_[other] = static_cast<FakeQp*>(b.qp->raw());
}

// ---- NCCL's side.

Transfer* TwoEnds::Receive(size_t offset, size_t size, int tag) {
  void* data = to.data() + kGuard + offset;
  const MemoryKeys* keys = &to_keys;
  Request* request = nullptr;
  const Outcome outcome = recv->Receive(1, &data, &size, &tag, &keys, &request);
  EXPECT_TRUE(outcome == Outcome::kOk || outcome == Outcome::kFault) << static_cast<int>(outcome);
  return static_cast<Transfer*>(request);
}

Transfer* TwoEnds::ReceiveGroup(const std::vector<std::pair<size_t, size_t>>& buffers) {
  void* data[kReceivesMax];
  size_t sizes[kReceivesMax];
  int tags[kReceivesMax];
  const MemoryKeys* keys[kReceivesMax];
  for (size_t i = 0; i < buffers.size(); ++i) {
    data[i] = to.data() + kGuard + buffers[i].first;
    sizes[i] = buffers[i].second;
    tags[i] = static_cast<int>(i) + 1;
    keys[i] = &to_keys;
  }
  Request* request = nullptr;
  const Outcome outcome =
      recv->Receive(static_cast<int>(buffers.size()), data, sizes, tags, keys, &request);
  EXPECT_TRUE(outcome == Outcome::kOk || outcome == Outcome::kFault) << static_cast<int>(outcome);
  return static_cast<Transfer*>(request);
}

SendRequest* TwoEnds::Send(size_t offset, size_t size, int tag) {
  Request* request = nullptr;
  const Outcome outcome = send->Send(from.data() + offset, size, tag, &from_keys, &request);
  EXPECT_TRUE(outcome == Outcome::kOk || outcome == Outcome::kFault) << static_cast<int>(outcome);
  return static_cast<SendRequest*>(request);
}

bool TwoEnds::IsSent(SendRequest* request) {
  int done = 0;
  const Outcome outcome = send->Test(request, &done, nullptr);
  EXPECT_TRUE(outcome == Outcome::kOk || outcome == Outcome::kFault) << static_cast<int>(outcome);
  return done != 0;
}

std::vector<int> TwoEnds::Received(Transfer* request) {
  int done = 0;
  int sizes[kReceivesMax];
  const uint32_t receives = request->receives;
  const Outcome outcome = recv->Test(request, &done, sizes);
  EXPECT_TRUE(outcome == Outcome::kOk || outcome == Outcome::kFault) << static_cast<int>(outcome);
  if (done == 0) return {};
  return std::vector<int>(sizes, sizes + receives);
}

// ---- The wire.

void TwoEnds::Object(const std::string& what) {
  if (error.empty()) error = what;
}

FakeQp* TwoEnds::Find(const End& end) {
  const auto found = pairs_.find(end);
  return found == pairs_.end() ? nullptr : found->second;
}

bool TwoEnds::MayBeNext(const FakeNic& nic, size_t index) const {
  for (size_t i = 0; i < index; ++i) {
    if (nic.sends[i].qp == nic.sends[index].qp) return false;
  }
  return true;
}

void TwoEnds::Land(bool to_receiver, FakeNic* nic, ibv_qp* qp, const PostedSend& packet) {
  const uint64_t address = packet.request.wr.rdma.remote_addr;
  if (packet.request.num_sge > 0) {
    const auto data = reinterpret_cast<uintptr_t>(to.data() + kGuard);
    uint32_t physical = 0;
    auto& nics = Nics(!to_receiver);
    while (nics[physical].get() != nic) ++physical;
    if (to_receiver && address >= data && address < data + to.size() - 2 * kGuard) {
      if (packet.request.wr.rdma.rkey != kToKey + physical) {
        Object(absl::StrCat("a write to device ", physical, " names key ",
                            packet.request.wr.rdma.rkey));
      }
      if (packet.sge.lkey >> 8 != kFromKey >> 8) Object("data is sent with a key of other memory");
    } else {
      const auto base = to_receiver ? reinterpret_cast<uintptr_t>(receiver_memory_)
                                    : reinterpret_cast<uintptr_t>(sender_memory_);
      if (address < base || address + packet.sge.length > base + sizeof(SenderMemory)) {
        return Object("a write beside all memory");
      }
      if (packet.request.wr.rdma.rkey >> 8 != (nic->first_key >> 8)) {
        Object(absl::StrCat("a control write to device ", physical, " names key ",
                            packet.request.wr.rdma.rkey));
      }
    }
  }
  FakeNic::CarryOut(packet);
  if (packet.request.opcode != IBV_WR_RDMA_WRITE_WITH_IMM) return;
  auto* const fake = static_cast<FakeQp*>(qp);
  if (fake->receives.empty()) return Object("no receive is posted");
  ibv_wc wc = {};
  wc.wr_id = fake->receives.front();
  fake->receives.pop_front();
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  wc.imm_data = packet.request.imm_data;
  wc.byte_len = packet.sge.length;
  wc.qp_num = qp->qp_num;
  nic->completions.push_back(wc);
}

void TwoEnds::Carry(FakeNic* nic, size_t index, Fate fate) {
  PostedSend packet = nic->sends[index];
  nic->sends.erase(nic->sends.begin() + static_cast<ptrdiff_t>(index));
  const bool from_sender = std::any_of(sender_nics.begin(), sender_nics.end(),
                                       [nic](const auto& other) { return other.get() == nic; });
  if (fate == Fate::kArrives) {
    const auto found = peers_.find({nic, packet.qp->qp_num});
    if (found == peers_.end()) return nic->Complete(packet);  // a flush lane: to itself
    FakeQp* const qp = Find(found->second);
    if (qp == nullptr || qp->is_error) {
      ++writes_after_fence;  // on a real wire: retried until it fails
    } else {
      Land(from_sender, found->second.nic, qp, packet);
      nic->unacknowledged.push_back(std::move(packet));
      return;
    }
  }
  if (fate == Fate::kOnlyConfirmed) {
    if ((packet.request.send_flags & IBV_SEND_SIGNALED) != 0) nic->Complete(packet);
    return;
  }
  // It stays outstanding until its queue pair goes to ERR.
  packet.is_lost = true;
  nic->unacknowledged.push_back(std::move(packet));
}

bool TwoEnds::StepRandom(Prng* prng, Fate fate) {
  std::vector<std::pair<FakeNic*, size_t>> choices;
  for (auto* nics : {&sender_nics, &receiver_nics}) {
    for (auto& nic : *nics) {
      for (size_t i = 0; i < nic->sends.size(); ++i) {
        if (MayBeNext(*nic, i)) choices.push_back({nic.get(), i});
      }
    }
  }
  if (choices.empty()) return false;
  const auto& [nic, index] = choices[prng->Below(choices.size())];
  Carry(nic, index, fate);
  return true;
}

std::vector<PostedSend> TwoEnds::PostedOn(bool of_sender, uint32_t lane) const {
  std::vector<PostedSend> posted;
  const Connection* connection =
      of_sender ? static_cast<const Connection*>(send.get()) : recv.get();
  const uint32_t number = connection->qp_number(lane);
  for (const auto& nic : of_sender ? sender_nics : receiver_nics) {
    for (const PostedSend& packet : nic->sends) {
      const auto found = pairs_.find({nic.get(), number});
      if (found != pairs_.end() && packet.qp == found->second) posted.push_back(packet);
    }
  }
  return posted;
}

bool TwoEnds::Step(bool of_sender, uint32_t lane, Fate fate) {
  const std::vector<PostedSend> posted = PostedOn(of_sender, lane);
  if (posted.empty()) return false;
  for (auto& nic : Nics(of_sender)) {
    for (size_t i = 0; i < nic->sends.size(); ++i) {
      if (nic->sends[i].qp != posted[0].qp) continue;
      Carry(nic.get(), i, fate);
      return true;
    }
  }
  return false;
}

namespace {

// Acknowledges the oldest of this queue pair; false if that was lost.
bool AcknowledgeOne(FakeNic* nic, ibv_qp* qp) {
  for (size_t i = 0; i < nic->unacknowledged.size(); ++i) {
    const PostedSend& packet = nic->unacknowledged[i];
    if (packet.qp != qp) continue;
    if (packet.is_lost) return false;
    if ((packet.request.send_flags & IBV_SEND_SIGNALED) != 0) nic->Complete(packet);
    nic->unacknowledged.erase(nic->unacknowledged.begin() + static_cast<ptrdiff_t>(i));
    return true;
  }
  return false;
}

}  // namespace

bool TwoEnds::AcknowledgeRandom(Prng* prng) {
  std::vector<std::pair<FakeNic*, ibv_qp*>> choices;
  for (auto* nics : {&sender_nics, &receiver_nics}) {
    for (auto& nic : *nics) {
      for (const PostedSend& packet : nic->unacknowledged)
        choices.push_back({nic.get(), packet.qp});
    }
  }
  if (choices.empty()) return false;
  const auto& [nic, qp] = choices[prng->Below(choices.size())];
  return AcknowledgeOne(nic, qp);
}

bool TwoEnds::Acknowledge(bool of_sender, uint32_t lane) {
  const uint32_t number = connection(of_sender)->qp_number(lane);
  for (auto& nic : Nics(of_sender)) {
    FakeQp* const qp = Find({nic.get(), number});
    if (qp != nullptr && AcknowledgeOne(nic.get(), qp)) return true;
  }
  return false;
}

void TwoEnds::Settle() {
  for (int quiet = 0; quiet < 3;) {
    bool moved = false;
    for (auto* nics : {&sender_nics, &receiver_nics}) {
      for (auto& nic : *nics) {
        while (!nic->sends.empty()) {
          moved = true;
          Carry(nic.get(), 0, Fate::kArrives);
        }
        std::vector<ibv_qp*> pairs;
        for (const PostedSend& packet : nic->unacknowledged) pairs.push_back(packet.qp);
        for (ibv_qp* qp : pairs) moved |= AcknowledgeOne(nic.get(), qp);
        moved |= !nic->completions.empty();
      }
    }
    send->Poll();
    recv->Poll();
    quiet = moved ? 0 : quiet + 1;
  }
}

size_t TwoEnds::posted(bool of_sender) const {
  size_t count = 0;
  for (const auto& nic : of_sender ? sender_nics : receiver_nics) count += nic->sends.size();
  return count;
}

// ---- The driver's side.

LaneRef TwoEnds::Ref(bool of_sender, uint32_t lane) const { return lanes_.at({of_sender, lane}); }

void TwoEnds::Break(bool of_sender, uint32_t lane) {
  const uint32_t number = connection(of_sender)->qp_number(lane);
  for (auto& nic : Nics(of_sender)) {
    FakeQp* const qp = Find({nic.get(), number});
    if (qp == nullptr || qp->is_error) continue;
    for (auto* queue : {&nic->unacknowledged, &nic->sends}) {
      const auto first = std::find_if(queue->begin(), queue->end(),
                                      [qp](const PostedSend& packet) { return packet.qp == qp; });
      if (first == queue->end()) continue;
      nic->Complete(*first, IBV_WC_RETRY_EXC_ERR);
      queue->erase(first);
      break;
    }
    nic->Flush(qp);
    return;
  }
}

FenceProgress TwoEnds::Fence(bool of_sender, LaneRef lane, bool last_try) {
  const uint32_t number = connection(of_sender)->qp_number(lane.index);
  FenceProgress progress = FenceProgress::kAgain;
  for (int i = 0; i < 100 && progress == FenceProgress::kAgain; ++i) {
    progress = connection(of_sender)->FenceLane(lane, last_try);
  }
  if (progress == FenceProgress::kFenced) {
    for (auto& nic : Nics(of_sender)) pairs_.erase({nic.get(), number});
  }
  return progress;
}

ResumeResult TwoEnds::Episode(const std::vector<LaneRef>& lanes, uint32_t epoch) {
  send->StopPosting(lanes);
  recv->StopPosting(lanes);
  for (const LaneRef& lane : lanes) {
    EXPECT_EQ(Fence(true, lane), FenceProgress::kFenced);
    EXPECT_EQ(Fence(false, lane), FenceProgress::kFenced);
  }
  const SenderRecord of_sender = send->Record();
  const ReceiverRecord of_receiver = recv->Record();
  const ResumeResult back = recv->Resume(of_sender, lanes, epoch);
  EXPECT_EQ(back.status, ResumeResult::Status::kResumed);
  return send->Resume(of_receiver, lanes);
}

uint32_t TwoEnds::SlotFor(bool of_sender, int physical) {
  Connection* const c = connection(of_sender);
  uint32_t slot = 0;
  while (slot < c->device_count() && c->physical(slot) != physical) ++slot;
  if (slot < c->device_count()) return slot;
  ConnectionDevice device = MakeDevice(of_sender, physical);
  const uint32_t key = device.control->remote_key();
  EXPECT_TRUE(c->AddDevice(slot, &device));
  connection(!of_sender)->SetPeerDevice(slot, key);
  return slot;
}

void TwoEnds::AddLane(uint32_t index, int from_physical, int to_physical, uint32_t epoch) {
  const uint32_t from_slot = SlotFor(true, from_physical);
  const uint32_t to_slot = SlotFor(false, to_physical);
  Lane a = MakeLane(true, send->completion_queue(from_slot), from_physical);
  Lane b = MakeLane(false, recv->completion_queue(to_slot), to_physical);
  a.local_device = b.remote_device = static_cast<uint8_t>(from_slot);
  b.local_device = a.remote_device = static_cast<uint8_t>(to_slot);
  a.epoch = b.epoch = epoch;
  Pair(sender_nics[from_physical].get(), a, receiver_nics[to_physical].get(), b);
  EXPECT_TRUE(recv->AddLane(index, &b));
  EXPECT_TRUE(send->AddLane(index, &a));
  for (const bool side : {true, false}) {
    lanes_[{side, index}] = {static_cast<uint8_t>(index), epoch};
  }
}

void TwoEnds::SetRoutes(const std::vector<uint8_t>& lanes) {
  recv->SetRoute(lanes);
  send->SetRoute(lanes);
}

// ---- Bytes.

void TwoEnds::Expect(size_t offset, size_t from_offset, size_t size) {
  memcpy(expected_.data() + kGuard + offset, from.data() + from_offset, size);
}

void TwoEnds::Forget(size_t offset, size_t size) {
  memset(expected_.data() + kGuard + offset, kUntouched, size);
  memset(to.data() + kGuard + offset, kUntouched, size);
}

std::string TwoEnds::CheckRange(size_t offset, size_t size, size_t around) const {
  const size_t first = kGuard + offset - around;
  const size_t last = kGuard + offset + size + around;
  if (memcmp(&to[first], &expected_[first], last - first) == 0) return "";
  for (size_t i = first; i < last; ++i) {
    if (to[i] != expected_[i]) {
      return absl::StrCat("byte ", static_cast<int64_t>(i) - static_cast<int64_t>(kGuard), " is ",
                          to[i], ", not ", expected_[i]);
    }
  }
  return "";
}

}  // namespace railhop::datapath
