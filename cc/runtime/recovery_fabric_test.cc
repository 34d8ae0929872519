// The data path's recovery over the software fabric, with the test as the driver: while two threads
// send and receive, lanes are fenced at both ends, records carried over by hand, new lanes made on
// other devices. Every byte of every transfer is checked, and the guards around it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cc/base/prng.h"
#include "cc/runtime/lane_maker.h"
#include "cc/runtime/testing/fabric_devices.h"
#include "cc/runtime/testing/pair.h"
#include "cc/verbs/memory_region.h"
#include "gtest/gtest.h"

namespace railhop::runtime {

int RunChild(const std::vector<std::string>&) { return 1; }

namespace {

using datapath::ConnectionDevice;
using datapath::FenceProgress;
using datapath::Lane;
using datapath::LaneRef;
using datapath::Outcome;
using datapath::RecvConnection;
using datapath::ResumeResult;
using datapath::SendConnection;

constexpr uint32_t kLanesAtOnce = 20;  // of one device: room in its queue
constexpr size_t kGuard = 4096;
constexpr size_t kRoom = 1 << 20;
constexpr size_t kDepth = 12;
constexpr uint8_t kWiped = 0xa5;

struct Shape {
  const char* name;
  int devices;
  int lanes;
  bool split;
  bool adaptive_routing;
  bool confirm;
  int grouped;  // receives in a transfer, at most
};

// Memory that is registered on every device.
class Region {
 public:
  Region(const std::vector<const PhysicalDevice*>& devices, size_t size) : bytes_(size) {
    keys.Start(reinterpret_cast<uintptr_t>(bytes_.data()),
               reinterpret_cast<uintptr_t>(bytes_.data()) + size);
    for (const PhysicalDevice* device : devices) {
      regions_.push_back(
          verbs::MemoryRegion::Register(device->context, bytes_.data(), size, false).value());
      keys.Add(device->id, regions_.back()->local_key(), regions_.back()->remote_key());
    }
  }
  uint8_t* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  datapath::MemoryKeys keys;

 private:
  std::vector<uint8_t> bytes_;
  std::vector<std::unique_ptr<verbs::MemoryRegion>> regions_;
};

uint64_t Word(uint64_t pattern, size_t index) {
  uint64_t seed = pattern * 0x10001 + index;
  return SplitMix64(&seed);
}
void Fill(uint8_t* data, size_t size, uint64_t pattern) {
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = Word(pattern, i);
    memcpy(data + i, &word, std::min<size_t>(8, size - i));
  }
}
// The middle of `data` (kGuard, room, kGuard) has `size` bytes of the pattern and all else is
// wiped.
bool IsExactly(const uint8_t* data, size_t room, size_t size, uint64_t pattern) {
  const auto wiped = [data](size_t from, size_t to) {
    return std::all_of(data + from, data + to, [](uint8_t byte) { return byte == kWiped; });
  };
  if (!wiped(0, kGuard) || !wiped(kGuard + size, room + 2 * kGuard)) return false;
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = Word(pattern, i);
    if (memcmp(data + kGuard + i, &word, std::min<size_t>(8, size - i)) != 0) return false;
  }
  return true;
}

size_t SizeOf(uint64_t message, size_t room) {
  Prng prng(message * 7 + 1);
  static constexpr size_t kEdges[] = {0,    1,     127,   128,   129,    4095,   4096,
                                      4097, 65000, 65535, 65537, 100000, 262143, kRoom};
  if (prng.Below(3) == 0) return std::min(room, kEdges[prng.Below(std::size(kEdges))]);
  return prng.Below(prng.Below(4) == 0 ? room + 1 : 20000);
}

class Recovery : public testing::TestWithParam<Shape> {
 protected:
  Recovery()
      : devices_(FabricDevices::Open(kPointerHost)),
        physical_(devices_->Physical()),
        maker_(Config(), {}) {}

  static const datapath::DatapathConfig& Config() {
    static const auto* const config = [] {
      auto* made = new datapath::DatapathConfig();
      made->ib_timeout = 10;  // 4 ms
      made->ib_retry_cnt = 2;
      return made;
    }();
    return *config;
  }
  LaneUse Use(bool of_sender) const {
    return {.end = of_sender ? engine::End::kSender : engine::End::kReceiver,
            .adaptive_routing = GetParam().adaptive_routing};
  }
  datapath::Connection* connection(bool of_sender) {
    return of_sender ? static_cast<datapath::Connection*>(send_.get()) : recv_.get();
  }

  RemotePort PortOf(int physical) {
    const PortFacts facts = maker_.PortForHandshake(*physical_[physical]).value();
    return {.name = physical_[physical]->name,
            .is_ethernet = facts.is_ethernet,
            .mtu = facts.mtu,
            .lid = facts.lid,
            .gid = facts.gid};
  }
  // Two queue pairs that are connected, in RTS.
  std::pair<Lane, Lane> MakeLanes(verbs::CompletionQueue* from_cq, int from,
                                  verbs::CompletionQueue* to_cq, int to) {
    MadeLane a = maker_.MakeLane(*physical_[from], Use(true), from_cq, 0).value();
    MadeLane b = maker_.MakeLane(*physical_[to], Use(false), to_cq, 0).value();
    const PortFacts from_port = maker_.PortForHandshake(*physical_[from]).value();
    const PortFacts to_port = maker_.PortForHandshake(*physical_[to]).value();
    EXPECT_TRUE(maker_
                    .Raise(&b, *physical_[to], Use(false), to_port, PortOf(from),
                           {.qp_number = a.qp->number(), .start_psn = a.start_psn})
                    .ok());
    EXPECT_TRUE(maker_
                    .Raise(&a, *physical_[from], Use(true), from_port, PortOf(to),
                           {.qp_number = b.qp->number(), .start_psn = b.start_psn})
                    .ok());
    Lane one;
    one.qp = std::move(a.qp);
    Lane other;
    other.qp = std::move(b.qp);
    return {std::move(one), std::move(other)};
  }

  void Connect() {
    const Shape& shape = GetParam();
    auto sender_memory = std::make_unique<datapath::SenderMemory>();
    auto receiver_memory = std::make_unique<datapath::ReceiverMemory>();
    std::vector<ConnectionDevice> from_devices, to_devices;
    datapath::PeerMemory of_sender = {reinterpret_cast<uintptr_t>(sender_memory.get()), {}};
    datapath::PeerMemory of_receiver = {reinterpret_cast<uintptr_t>(receiver_memory.get()), {}};
    for (int i = 0; i < shape.devices; ++i) {
      from_devices.push_back(
          maker_.MakeDevice(*physical_[i], Use(true), sender_memory.get(), kLanesAtOnce).value());
      to_devices.push_back(
          maker_.MakeDevice(*physical_[i], Use(false), receiver_memory.get(), kLanesAtOnce)
              .value());
      of_sender.remote_keys[i] = from_devices.back().control->remote_key();
      of_receiver.remote_keys[i] = to_devices.back().control->remote_key();
    }
    std::vector<Lane> from_lanes, to_lanes;
    for (int i = 0; i < shape.lanes; ++i) {
      const int device = i % shape.devices;
      auto [a, b] =
          MakeLanes(from_devices[device].cq.get(), device, to_devices[device].cq.get(), device);
      for (Lane* lane : {&a, &b}) {
        lane->local_device = lane->remote_device = static_cast<uint8_t>(device);
        lane->epoch = 1;
      }
      from_lanes.push_back(std::move(a));
      to_lanes.push_back(std::move(b));
      live_.push_back({static_cast<uint8_t>(i), 1});
    }
    const datapath::ConnectionRules rules = {
        .lanes_per_send = static_cast<uint32_t>(shape.split ? shape.lanes : shape.devices),
        .adaptive_routing = shape.adaptive_routing,
        .ar_threshold = 8192,
        .inline_cts = false,
        .failover = true,
        .confirm = shape.confirm};
    send_ = std::make_unique<SendConnection>(std::move(from_devices), std::move(from_lanes), rules,
                                             std::move(sender_memory), of_receiver);
    recv_ = std::make_unique<RecvConnection>(std::move(to_devices), std::move(to_lanes), rules,
                                             std::move(receiver_memory),
                                             std::vector<datapath::FlushLane>());
    send_->SetFailover(true, shape.confirm);
    recv_->SetFailover(true, shape.confirm);
    recv_->SetPeer(of_sender);
    ASSERT_EQ(recv_->PostReceives(), Outcome::kOk);
  }

  // ---- NCCL's threads. A message's number gives its size, pattern and tag.

  void Fail(const std::string& what) {
    if (!failed_.exchange(true)) why_ = what;
  }
  static bool IsGood(Outcome outcome) {
    return outcome == Outcome::kOk || outcome == Outcome::kFault;
  }
  int GroupOf(uint64_t transfer) const {
    Prng prng(transfer);
    return static_cast<int>(prng.Between(1, static_cast<uint64_t>(GetParam().grouped)));
  }

  void Sender() {
    std::vector<std::unique_ptr<Region>> buffers;
    for (size_t i = 0; i < kDepth * 8; ++i) {
      buffers.push_back(std::make_unique<Region>(physical_, i < kDepth ? kRoom : kRoom / 8));
    }
    std::vector<datapath::Request*> under_way(buffers.size());
    uint64_t transfer = 1;
    uint64_t message = 0;
    int in_group = 0;
    size_t left = 0;
    while (!failed_ && (sent_ == 0 || left > 0)) {
      const bool done = stop_sending_ && in_group == 0;
      left = 0;
      bool posted = false;
      for (size_t i = 0; i < under_way.size(); ++i) {
        if (under_way[i] != nullptr) {
          int over = 0;
          if (!IsGood(
                  send_->Test(static_cast<datapath::SendRequest*>(under_way[i]), &over, nullptr))) {
            return Fail("a send's test failed");
          }
          if (over == 0) {
            ++left;
            continue;
          }
          // NCCL has the buffer back, and uses it.
          memset(buffers[i]->data(), 0x11, 64);
          under_way[i] = nullptr;
        }
        if (posted || done || (GetParam().grouped > 1) != (buffers[i]->size() < kRoom)) continue;
        const size_t size = SizeOf(message, buffers[i]->size());
        Fill(buffers[i]->data(), size, message);
        if (!IsGood(send_->Send(buffers[i]->data(), size, in_group + 1, &buffers[i]->keys,
                                &under_way[i]))) {
          return Fail("a send failed");
        }
        posted = true;
        if (under_way[i] == nullptr) continue;
        ++left;
        ++message;
        if (++in_group == GroupOf(transfer)) {
          in_group = 0;
          ++transfer;
        }
      }
      if (stop_sending_ && in_group == 0) sent_ = transfer - 1;
    }
  }

  struct Receive {
    std::vector<std::unique_ptr<Region>> buffers;
    datapath::Request* request = nullptr;
    uint64_t first_message = 0;
    int receives = 0;
  };
  void Receiver() {
    const size_t room = GetParam().grouped > 1 ? kRoom / 8 : kRoom;
    std::vector<Receive> ring(kDepth);
    for (Receive& receive : ring) {
      for (int i = 0; i < GetParam().grouped; ++i) {
        receive.buffers.push_back(std::make_unique<Region>(physical_, room + 2 * kGuard));
      }
    }
    uint64_t next = 1;     // to be announced
    uint64_t oldest = 1;   // not complete
    uint64_t message = 0;  // of `next`
    while (!failed_ && (sent_ == 0 || oldest <= sent_)) {
      if (next - oldest < kDepth && (sent_ == 0 || next <= sent_)) {
        Receive& receive = ring[next % kDepth];
        const int n = GroupOf(next);
        void* data[8];
        size_t sizes[8];
        int tags[8];
        const datapath::MemoryKeys* keys[8];
        for (int i = 0; i < n; ++i) {
          if (receive.request == nullptr)
            memset(receive.buffers[i]->data(), kWiped, room + 2 * kGuard);
          data[i] = receive.buffers[i]->data() + kGuard;
          sizes[i] = room;
          tags[i] = i + 1;
          keys[i] = &receive.buffers[i]->keys;
        }
        if (!IsGood(recv_->Receive(n, data, sizes, tags, keys, &receive.request))) {
          return Fail("a receive failed");
        }
        if (receive.request != nullptr) {
          receive.first_message = message;
          receive.receives = n;
          message += static_cast<uint64_t>(n);
          ++next;
        }
      }
      if (oldest == next) continue;
      Receive& receive = ring[oldest % kDepth];
      int over = 0;
      int sizes[8];
      if (!IsGood(recv_->Test(static_cast<datapath::Transfer*>(receive.request), &over, sizes))) {
        return Fail("a receive's test failed");
      }
      if (over == 0) continue;
      for (int i = 0; i < receive.receives; ++i) {
        const uint64_t number = receive.first_message + static_cast<uint64_t>(i);
        const size_t size = SizeOf(number, room);
        if (sizes[i] != static_cast<int>(size)) {
          return Fail(absl::StrCat("message ", number, " has ", sizes[i], " bytes, not ", size));
        }
        if (!IsExactly(receive.buffers[i]->data(), room, size, number)) {
          return Fail(absl::StrCat("message ", number, " of ", size, " bytes is wrong"));
        }
      }
      receive.request = nullptr;
      ++oldest;
      ++received_;
    }
  }

  // ---- The driver.

  void FenceBoth(LaneRef lane, bool receiver_first) {
    for (const bool side : {!receiver_first, receiver_first}) {
      FenceProgress progress = FenceProgress::kAgain;
      ASSERT_TRUE(WaitFor([&] {
        progress = connection(side)->FenceLane(lane, false);
        return progress != FenceProgress::kAgain;
      }));
      ASSERT_EQ(progress, FenceProgress::kFenced);
    }
  }
  void Episode(std::vector<LaneRef> lanes, bool receiver_first, bool parallel) {
    if (receiver_first) {
      // The sender goes on until its own errors tell: what it posts into the void comes back.
      recv_->StopPosting(lanes);
      for (const LaneRef& lane : lanes) {
        ASSERT_TRUE(
            WaitFor([&] { return recv_->FenceLane(lane, false) != FenceProgress::kAgain; }));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(prng_.Below(20)));
    }
    send_->StopPosting(lanes);
    recv_->StopPosting(lanes);
    std::vector<std::thread> workers;
    for (const LaneRef& lane : lanes) {
      if (parallel) {
        workers.emplace_back([this, lane, receiver_first] { FenceBoth(lane, receiver_first); });
      } else {
        FenceBoth(lane, receiver_first);
      }
    }
    for (std::thread& worker : workers) worker.join();
    const datapath::SenderRecord of_sender = send_->Record();
    const datapath::ReceiverRecord of_receiver = recv_->Record();
    ++epoch_;
    ASSERT_EQ(recv_->Resume(of_sender, lanes, epoch_).status, ResumeResult::Status::kResumed);
    const ResumeResult result = send_->Resume(of_receiver, lanes);
    ASSERT_EQ(result.status, ResumeResult::Status::kResumed) << "at " << result.sequence;
    resent_ += result.stripes;
    for (const LaneRef& lane : lanes) {
      live_.erase(std::remove(live_.begin(), live_.end(), lane), live_.end());
      places_.push_back(lane.index);
    }
  }
  uint32_t SlotFor(bool of_sender, int physical) {
    datapath::Connection* const c = connection(of_sender);
    uint32_t slot = 0;
    while (slot < c->device_count() && c->physical(slot) != physical) ++slot;
    if (slot < c->device_count()) return slot;
    void* const memory = of_sender ? send_->control_memory() : recv_->control_memory();
    ConnectionDevice device =
        maker_.MakeDevice(*physical_[physical], Use(of_sender), memory, kLanesAtOnce).value();
    const uint32_t key = device.control->remote_key();
    EXPECT_TRUE(c->AddDevice(slot, &device));
    connection(!of_sender)->SetPeerDevice(slot, key);
    return slot;
  }
  void NewLane() {
    const int from = static_cast<int>(prng_.Below(physical_.size()));
    const int to = static_cast<int>(prng_.Below(physical_.size()));
    const uint32_t from_slot = SlotFor(true, from);
    const uint32_t to_slot = SlotFor(false, to);
    auto [a, b] =
        MakeLanes(send_->completion_queue(from_slot), from, recv_->completion_queue(to_slot), to);
    a.local_device = b.remote_device = static_cast<uint8_t>(from_slot);
    b.local_device = a.remote_device = static_cast<uint8_t>(to_slot);
    a.epoch = b.epoch = ++epoch_;
    uint8_t place = static_cast<uint8_t>(send_->lane_count());
    if (!places_.empty()) {
      place = places_.back();
      places_.pop_back();
    }
    ASSERT_TRUE(recv_->AddLane(place, &b));
    ASSERT_TRUE(send_->AddLane(place, &a));
    live_.push_back({place, epoch_});
    std::vector<uint8_t> route;
    for (const LaneRef& lane : live_) route.push_back(lane.index);
    recv_->SetRoute(route);
    recv_->Reannounce(epoch_);
    send_->SetRoute(route);
  }
  // What NCCL's threads have met by themselves: lanes that were fenced at the other end first.
  void CheckFaults() {
    for (const bool side : {true, false}) {
      for (const datapath::Fault& fault : connection(side)->TakeFaults()) {
        EXPECT_FALSE(fault.fatal) << "kind " << static_cast<int>(fault.kind) << " code "
                                  << fault.code;
        if (fault.fatal) Fail("a fatal fault");
      }
    }
  }

  void Round() {
    std::vector<LaneRef> lanes = live_;
    for (size_t i = lanes.size(); i > 1; --i) std::swap(lanes[i - 1], lanes[prng_.Below(i)]);
    // One, some, or all of them.
    lanes.resize(prng_.Between(1, prng_.Below(4) == 0 ? lanes.size() : (lanes.size() + 1) / 2));
    Episode(lanes, prng_.Below(2) == 0, prng_.Below(2) == 0);
    while (!failed_ && live_.size() < static_cast<size_t>(GetParam().lanes)) NewLane();
    std::vector<datapath::LaneView> views;
    send_->Observe(&views);
    recv_->Observe(&views);
    CheckFaults();
  }

  std::unique_ptr<FabricDevices> devices_;
  const std::vector<const PhysicalDevice*> physical_;
  LaneMaker maker_;
  std::unique_ptr<SendConnection> send_;
  std::unique_ptr<RecvConnection> recv_;
  std::vector<LaneRef> live_;
  std::vector<uint8_t> places_;
  uint32_t epoch_ = 1;
  Prng prng_{17};
  uint64_t resent_ = 0;
  std::atomic<bool> stop_sending_{false};
  std::atomic<uint64_t> sent_{0};  // transfers, once it is known
  std::atomic<uint64_t> received_{0};
  std::atomic<bool> failed_{false};
  std::string why_;
};

TEST_P(Recovery, LanesFencedInTheMiddleOfTraffic_EveryByteAndNoOther) {
  ASSERT_GE(physical_.size(), 2u);
  Connect();
  std::thread sender([this] { Sender(); });
  std::thread receiver([this] { Receiver(); });
  constexpr int kRounds = 40;
  // On a busy machine an episode may find nothing under way, again and again.
  constexpr int kRoundsMax = 4000;
  for (int round = 0; round < kRounds || (resent_ == 0 && round < kRoundsMax); ++round) {
    if (failed_ || HasFatalFailure()) break;
    const uint64_t before = received_;
    Round();
    // Traffic goes on between the episodes.
    EXPECT_TRUE(WaitFor([&] {
      CheckFaults();
      return failed_ || received_ > before + 3;
    })) << "nothing moves after episode "
        << round;
    if (HasFailure()) break;
  }
  if (HasFailure()) Fail("the driver failed");
  stop_sending_ = true;
  EXPECT_TRUE(WaitFor([&] {
    std::vector<datapath::LaneView> views;
    recv_->Observe(&views);
    return failed_ || (sent_ != 0 && received_ >= sent_);
  })) << "it does not end";
  if (received_ < sent_ || sent_ == 0) Fail("stuck");
  sender.join();
  receiver.join();
  EXPECT_FALSE(failed_) << why_;
  EXPECT_GT(resent_, 0u);
  EXPECT_TRUE(send_->Close().ok());
  EXPECT_TRUE(recv_->Close().ok());
}

INSTANTIATE_TEST_SUITE_P(Shapes, Recovery,
                         testing::Values(Shape{"OneLane", 1, 1, false, false, false, 1},
                                         Shape{"TwoDevices", 2, 2, false, false, false, 1},
                                         Shape{"SplitOverFour", 2, 4, true, false, false, 1},
                                         Shape{"AdaptiveRouting", 2, 4, true, true, false, 1},
                                         Shape{"Grouped", 2, 2, false, false, false, 8},
                                         Shape{"Confirmed", 2, 3, false, false, true, 1}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace railhop::runtime
