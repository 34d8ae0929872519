// Probes, ports and lanes over the software fabric, with faults: two "processes" in one, which talk
// by a list of messages.
#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/control/session_hub.h"
#include "cc/runtime/device_table.h"
#include "cc/runtime/lane_builder.h"
#include "cc/runtime/lane_maker.h"
#include "cc/runtime/port_monitor.h"
#include "cc/runtime/prober.h"
#include "cc/runtime/testing/manual_executor.h"
#include "cc/runtime/testing/pair.h"
#include "cc/runtime/thread_executor.h"
#include "cc/verbs/table.h"
#include "gtest/gtest.h"

namespace railhop::runtime {

int RunChild(const std::vector<std::string>&) { return 1; }

namespace {

constexpr int64_t kMs = 1'000'000;
constexpr engine::InstanceId kOne = 11;
constexpr engine::InstanceId kTwo = 22;

void Fabric(const std::string& words) {
  const std::string line =
      std::string(getenv("RAILHOP_TEST_FABRIC_PROGRAM")) + " fault " + words + " >/dev/null";
  ASSERT_EQ(system(line.c_str()), 0) << words;
}

// The fabric's devices as this process finds them.
class Devices {
 public:
  Devices() {
    std::vector<std::string> notes;
    rules_ = DeviceRules::From(config::Options{}, &notes);
    table_ = DeviceTable::Discover(verbs::LoadTable("").value(), rules_).value();
    ports_ = rules_.ports();
    maker_ = std::make_unique<LaneMaker>(config_, ports_);
  }

  DeviceTable* table() { return table_.get(); }
  const PhysicalDevice& device(int id) { return *table_->Physical()[static_cast<size_t>(id)]; }
  const LaneMaker* maker() { return maker_.get(); }
  const PortRules* ports() { return &ports_; }
  datapath::DatapathConfig* config() { return &config_; }

 private:
  DeviceRules rules_;
  PortRules ports_;
  datapath::DatapathConfig config_;
  std::unique_ptr<DeviceTable> table_;
  std::unique_ptr<LaneMaker> maker_;
};

// Two probers and the way between them.
class Probers : public testing::Test {
 protected:
  Probers() {
    for (const engine::InstanceId id : {kOne, kTwo}) {
      Make(id, ProberOptions{.self = id, .stall_ns = 100 * kMs});
    }
  }
  ~Probers() override {
    probers_.clear();
    EXPECT_TRUE(executor_.Stop(60'000 * kMs));
    Fabric("soft0 clear");
    Fabric("soft1 clear");
  }

  void Make(engine::InstanceId id, const ProberOptions& options) {
    probers_[id] =
        std::make_unique<Prober>(devices_.table(), devices_.maker(), &executor_, options);
  }

  // One round of both; results of kOne are kept.
  void Step() {
    for (const Executor::Job& done : executor_.TakeDone()) done();
    const int64_t now = clock_.NowNs();
    for (auto& [id, prober] : probers_) {
      for (Prober::Result& result : prober->Poll(now)) {
        if (id == kOne) results_.push_back(std::move(result));
      }
      for (const Prober::Outgoing& outgoing : prober->TakeOutgoing()) {
        if (session_) probers_[outgoing.peer]->Take(id, outgoing.message, now);
      }
    }
  }
  // The next result; answered = false and "none" if there is none for 10 s.
  Prober::Result Wait() {
    results_.clear();
    WaitFor([this] {
      Step();
      return !results_.empty();
    });
    return results_.empty() ? Prober::Result{.why = "none"} : results_[0];
  }
  Prober::Result Probe(engine::PathId path, bool fresh, int64_t within_ns) {
    const int64_t now = clock_.NowNs();
    probers_[kOne]->Send(kTwo, path, fresh, now, now + within_ns);
    return Wait();
  }

  Devices devices_;
  RealClock clock_;
  ThreadExecutor executor_{[] {}};
  std::map<engine::InstanceId, std::unique_ptr<Prober>> probers_;
  std::vector<Prober::Result> results_;
  bool session_ = true;
};

TEST_F(Probers, HealthyPath_AnsweredAgainAndAgainOnOneQueuePair) {
  for (int i = 0; i < 20; ++i) {
    const Prober::Result result = Probe({0, 1}, false, 5'000 * kMs);
    ASSERT_TRUE(result.answered) << result.why;
    EXPECT_EQ(result.peer, kTwo);
    EXPECT_EQ(result.path, (engine::PathId{0, 1}));
  }
  EXPECT_EQ(probers_[kOne]->counters().opened, 1u);
  EXPECT_EQ(probers_[kTwo]->counters().granted_now, 1);
  probers_[kOne]->Unwant(kTwo, {0, 1});
  EXPECT_TRUE(WaitFor([&] {
    Step();
    return probers_[kTwo]->counters().granted_now == 0;
  }));
}

TEST_F(Probers, Fresh_OverAnotherQueuePairAndTheOldOneGoes) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  ASSERT_TRUE(Probe({0, 1}, true, 5'000 * kMs).answered);
  EXPECT_EQ(probers_[kOne]->counters().opened, 2u);
  EXPECT_TRUE(WaitFor([&] {
    Step();
    return probers_[kOne]->counters().open_now == 1 && probers_[kTwo]->counters().granted_now == 1;
  }));
}

// Silent on one path: unanswered at the deadline, the others answer, and it comes back by itself.
TEST_F(Probers, BlackHole_UnansweredUntilItHeals) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  Fabric("soft0 blackhole");
  const int64_t before = clock_.NowNs();
  const Prober::Result lost = Probe({0, 1}, false, 50 * kMs);
  EXPECT_FALSE(lost.answered);
  EXPECT_FALSE(lost.why.empty());
  EXPECT_GE(clock_.NowNs() - before, 50 * kMs);
  EXPECT_FALSE(Probe({0, 1}, true, 50 * kMs).answered);
  EXPECT_TRUE(Probe({2, 1}, false, 5'000 * kMs).answered);
  Fabric("soft0 clear");
  EXPECT_TRUE(WaitFor([&] { return Probe({0, 1}, false, 200 * kMs).answered; }));
}

// The old queue pair stops for good, the path works: a probe that is asked for after an unanswered
// one is not fooled.
TEST_F(Probers, QueuePairWedged_NextProbeGoesOverAFreshOne) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  Fabric("soft0 wedge tx count 1");
  EXPECT_FALSE(Probe({0, 1}, false, 50 * kMs).answered);
  EXPECT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
}

TEST_F(Probers, QueuePairEndsInError_UnansweredAtOnceThenRemade) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  Fabric("soft0 complete status retry_exc_err count 1");
  const Prober::Result ended = Probe({0, 1}, false, 60'000 * kMs);
  EXPECT_FALSE(ended.answered);
  EXPECT_NE(ended.why.find("status 12"), std::string::npos) << ended.why;
  EXPECT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
}

TEST_F(Probers, PortDown_UnansweredThenAnsweredWithoutACommand) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  Fabric("soft1 down");
  EXPECT_FALSE(Probe({0, 1}, false, 100 * kMs).answered);
  Fabric("soft1 up");
  EXPECT_TRUE(WaitFor([&] { return Probe({0, 1}, false, 200 * kMs).answered; }));
}

// What is open works without a session; what is not waits for one.
TEST_F(Probers, NoSession_OpenQueuePairsAnswerNewOnesDoNot) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  session_ = false;
  EXPECT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  EXPECT_FALSE(Probe({2, 3}, false, 50 * kMs).answered);
  session_ = true;
  probers_[kOne]->SessionUp(kTwo, clock_.NowNs());
  EXPECT_TRUE(Probe({2, 3}, false, 5'000 * kMs).answered);
}

TEST_F(Probers, TooMany_RefusedWithTheReason) {
  probers_.clear();
  Make(kOne, {});
  Make(kTwo, {.queue_pairs_max = 1});
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  const Prober::Result refused = Probe({2, 1}, false, 60'000 * kMs);
  EXPECT_FALSE(refused.answered);
  EXPECT_NE(refused.why.find("all 1 queue pairs"), std::string::npos) << refused.why;
}

TEST_F(Probers, NonsenseFromThePeer_IsAnsweredWithAnErrorOrIgnored) {
  Prober* const prober = probers_[kOne].get();
  const int64_t now = clock_.NowNs();
  engine::ProbeOpen open;
  open.probe = 7;
  open.to = 31;
  open.end.mtu = IBV_MTU_4096;
  prober->Take(kTwo, open, now);
  open.probe = 8;
  open.to = 0;
  open.end.mtu = 99;
  prober->Take(kTwo, open, now);
  prober->Take(kTwo, engine::ProbeAnswer{.probe = 12345}, now);
  prober->Take(kTwo, engine::ProbeClose{.probe = 12345, .by_opener = false}, now);
  prober->Take(kTwo, engine::ProbeClose{.probe = 12345, .by_opener = true}, now);
  prober->Take(kTwo, engine::Goodbye{}, now);
  const std::vector<Prober::Outgoing> answers = prober->TakeOutgoing();
  ASSERT_EQ(answers.size(), 2u);
  for (const Prober::Outgoing& answer : answers) {
    EXPECT_FALSE(std::get<engine::ProbeAnswer>(answer.message).error.empty());
  }
}

// The same open twice: one queue pair, one answer said twice.
TEST_F(Probers, OpenRepeated_SameAnswer) {
  const auto made = devices_.maker()->MakeProbe(devices_.device(1), 0).value();
  engine::ProbeOpen open;
  open.probe = 5;
  open.from = 1;
  open.to = 0;
  open.end.qp_number = made.lane.qp->number();
  open.end.mtu = made.port.mtu;
  open.end.lid = made.port.lid;
  open.end.gid = made.port.gid;
  Prober* const prober = probers_[kOne].get();
  std::vector<Prober::Outgoing> answers;
  prober->Take(kTwo, open, clock_.NowNs());
  ASSERT_TRUE(WaitFor([&] {
    for (const Executor::Job& done : executor_.TakeDone()) done();
    prober->Poll(clock_.NowNs());
    for (Prober::Outgoing& answer : prober->TakeOutgoing()) answers.push_back(std::move(answer));
    return !answers.empty();
  }));
  prober->Take(kTwo, open, clock_.NowNs());
  for (Prober::Outgoing& answer : prober->TakeOutgoing()) answers.push_back(std::move(answer));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(std::get<engine::ProbeAnswer>(answers[0].message),
            std::get<engine::ProbeAnswer>(answers[1].message));
  EXPECT_EQ(std::get<engine::ProbeAnswer>(answers[0].message).error, "");
}

TEST_F(Probers, Forgotten_NothingIsLeft) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  probers_[kOne]->Forget(kTwo);
  probers_[kTwo]->Forget(kOne);
  EXPECT_EQ(probers_[kOne]->counters().open_now, 0);
  EXPECT_EQ(probers_[kTwo]->counters().granted_now, 0);
}

// ---- Control messages over the queue pairs of probes.

class Carried : public Probers {
 protected:
  // Says `text` from one to the other; what has come in one generation.
  std::string Carry(engine::InstanceId from, engine::InstanceId to, const std::string& text) {
    control::LaneCarrier* const sender = probers_[from]->carrier();
    control::LaneCarrier* const receiver = probers_[to]->carrier();
    const uint64_t generation = sender->Generation(to);
    const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
    size_t sent = 0;
    std::string came;
    WaitFor([&] {
      Step();
      sent += sender->Send(to, generation, {bytes + sent, text.size() - sent});
      control::LaneCarrier::Chunk chunk;
      while (receiver->Receive(&chunk)) {
        EXPECT_EQ(chunk.peer, from);
        if (chunk.generation != last_generation_) came.clear();
        last_generation_ = chunk.generation;
        came.append(chunk.bytes.begin(), chunk.bytes.end());
      }
      return came.size() >= text.size() || sender->Generation(to) != generation;
    });
    return came;
  }
  static std::string Text(size_t size, char first) {
    std::string text(size, ' ');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(first + i % 251);
    return text;
  }

  uint64_t last_generation_ = 0;
};

TEST_F(Carried, BytesBothWays_OverTheQueuePairOfTheSmallerId) {
  EXPECT_EQ(probers_[kOne]->carrier()->Generation(kTwo), 0u);
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  const std::string there = Text(100'000, 'a');
  const std::string back = Text(70'001, 'b');
  EXPECT_EQ(Carry(kOne, kTwo, there), there);
  EXPECT_EQ(Carry(kTwo, kOne, back), back);
  EXPECT_EQ(Carry(kOne, kTwo, "x"), "x");
  EXPECT_GE(probers_[kTwo]->counters().carried_bytes, 70'001u);
  // And it is still a probe.
  EXPECT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  EXPECT_EQ(probers_[kOne]->counters().opened, 1u);
}

TEST_F(Carried, NobodyListens_SenderStopsAndProbesGoOn) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  control::LaneCarrier* const sender = probers_[kOne]->carrier();
  const std::vector<uint8_t> bytes(10'000, 7);
  const uint64_t generation = sender->Generation(kTwo);
  const size_t taken = sender->Send(kTwo, generation, bytes);
  EXPECT_GT(taken, 0u);
  EXPECT_LT(taken, 2'000u);
  // The peer's software stands still: its NIC answers all the same.
  const int64_t now = clock_.NowNs();
  probers_[kOne]->Send(kTwo, {0, 1}, false, now, now + 5'000 * kMs);
  EXPECT_TRUE(WaitFor([&] {
    for (const Prober::Result& result : probers_[kOne]->Poll(clock_.NowNs())) {
      if (result.answered) return true;
    }
    return false;
  }));
  EXPECT_EQ(sender->Send(kTwo, generation, bytes), 0u);
}

TEST_F(Carried, QueuePairLost_AnotherGeneration) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  EXPECT_EQ(Carry(kOne, kTwo, "hello"), "hello");
  const uint64_t before = probers_[kOne]->carrier()->Generation(kTwo);
  ASSERT_TRUE(Probe({2, 3}, false, 5'000 * kMs).answered);
  EXPECT_EQ(probers_[kOne]->carrier()->Generation(kTwo), before);
  probers_[kOne]->Unwant(kTwo, {0, 1});
  Step();
  EXPECT_GT(probers_[kOne]->carrier()->Generation(kTwo), before);
  EXPECT_EQ(probers_[kOne]->carrier()->Send(kTwo, before, std::vector<uint8_t>{1}), 0u);
  EXPECT_EQ(Carry(kOne, kTwo, "again"), "again");
}

// C29: no TCP path at all. The session comes up over a lane, and over another when that is lost.
TEST_F(Carried, NoTcp_SessionOverALaneThenOverAnother) {
  ASSERT_TRUE(Probe({0, 1}, false, 5'000 * kMs).answered);
  ASSERT_TRUE(Probe({2, 3}, false, 5'000 * kMs).answered);
  session_ = false;
  std::map<engine::InstanceId, std::unique_ptr<control::SessionHub>> hubs;
  for (const engine::InstanceId id : {kOne, kTwo}) {
    control::SessionHubOptions options;
    options.self = id;
    options.seed = id;
    options.carrier = probers_[id]->carrier();
    hubs[id] = std::make_unique<control::SessionHub>(options);
    hubs[id]->Add(id == kOne ? kTwo : kOne, 77, control::Secret{1, 2, 3}, {});
    probers_[id]->SessionDown(id == kOne ? kTwo : kOne);
  }
  std::vector<uint32_t> heard;
  const auto step = [&] {
    Step();
    for (auto& [id, hub] : hubs) {
      for (const control::ChannelEvent& event : hub->Poll(clock_.NowNs())) {
        if (const auto* inquiry = std::get_if<engine::Inquiry>(&event.message)) {
          heard.push_back(inquiry->serial);
        }
      }
    }
  };
  const auto talks = [&](uint32_t serial) {
    return WaitFor([&] {
      step();
      if (!hubs[kOne]->IsUp(kTwo) || !hubs[kTwo]->IsUp(kOne)) return false;
      hubs[kTwo]->Send(kOne, engine::Inquiry{.serial = serial});
      return !heard.empty() && heard.back() == serial;
    });
  };
  EXPECT_TRUE(talks(1));
  // Whichever way it is, its devices go down.
  Fabric("soft0 down");
  Fabric("soft1 down");
  const int64_t before = clock_.NowNs();
  for (int i = 0; i < 100 && !Probe({0, 1}, false, 20 * kMs).answered; ++i) {
    if (clock_.NowNs() - before > 300 * kMs) break;
  }
  EXPECT_TRUE(talks(2));
  Fabric("soft0 up");
  Fabric("soft1 up");
  hubs.clear();
}

// A job that hangs holds up no result.
TEST_F(Probers, VerbsHang_UnansweredAtTheDeadline) {
  Fabric("soft3 hang create_qp 2s count 1");
  const int64_t before = clock_.NowNs();
  EXPECT_FALSE(Probe({3, 1}, false, 50 * kMs).answered);
  EXPECT_LT(clock_.NowNs() - before, 1'500 * kMs);
  Fabric("soft3 clear");
}

// As when the kernel resolves an address that nobody has: a second for each queue pair.
TEST_F(Probers, QueuePairTakesLong_FencesDoNotWait) {
  Fabric("soft3 hang create_qp 3s count 1");
  const int64_t now = clock_.NowNs();
  probers_[kOne]->Send(kTwo, {3, 1}, false, now, now + 50 * kMs);
  Step();
  EXPECT_TRUE(executor_.RunAndWait({{3, [] {}}}, 2'000 * kMs));
  Fabric("soft3 clear");
}

TEST_F(Probers, ForgottenBeforeTheirTurn_NothingIsMade) {
  ManualExecutor executor;
  Prober prober(devices_.table(), devices_.maker(), &executor, {.self = kOne});
  const int64_t now = clock_.NowNs();
  prober.Send(kTwo, {3, 1}, false, now, now + 50 * kMs);
  EXPECT_EQ(executor.queued(), 1u);
  prober.Forget(kTwo);
  Fabric("soft3 hang create_qp 5s count 1");
  executor.RunAll();
  EXPECT_LT(clock_.NowNs() - now, 4'000 * kMs);
  Fabric("soft3 clear");
}

// ---- Lanes.

// All that a queue pair has been given, as the device tells it.
struct Attributes {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  uint16_t pkey = 0;
};
Attributes Query(verbs::QueuePair* qp) {
  Attributes all;
  const verbs::Context& context = *qp->context();
  EXPECT_EQ(context.table().query_qp(qp->raw(), &all.attr, ~0, &all.init), 0);
  __be16 key = 0;
  EXPECT_EQ(context.table().query_pkey(context.raw(), 1, all.attr.pkey_index, &key), 0);
  all.pkey = be16toh(key);
  return all;
}

void ExpectSame(verbs::QueuePair* primary, verbs::QueuePair* backup) {
  const Attributes a = Query(primary);
  const Attributes b = Query(backup);
  EXPECT_EQ(a.attr.qp_state, b.attr.qp_state);
  EXPECT_EQ(a.attr.qp_access_flags, b.attr.qp_access_flags);
  EXPECT_EQ(a.attr.path_mtu, b.attr.path_mtu);
  EXPECT_EQ(a.attr.min_rnr_timer, b.attr.min_rnr_timer);
  EXPECT_EQ(a.attr.timeout, b.attr.timeout);
  EXPECT_EQ(a.attr.retry_cnt, b.attr.retry_cnt);
  EXPECT_EQ(a.attr.rnr_retry, b.attr.rnr_retry);
  EXPECT_EQ(a.attr.max_rd_atomic, b.attr.max_rd_atomic);
  EXPECT_EQ(a.attr.max_dest_rd_atomic, b.attr.max_dest_rd_atomic);
  EXPECT_EQ(a.attr.ah_attr.sl, b.attr.ah_attr.sl);
  EXPECT_EQ(a.attr.ah_attr.is_global, b.attr.ah_attr.is_global);
  EXPECT_EQ(a.attr.ah_attr.grh.traffic_class, b.attr.ah_attr.grh.traffic_class);
  EXPECT_EQ(a.attr.ah_attr.grh.hop_limit, b.attr.ah_attr.grh.hop_limit);
  EXPECT_EQ(a.init.cap.max_send_wr, b.init.cap.max_send_wr);
  EXPECT_EQ(a.init.cap.max_recv_wr, b.init.cap.max_recv_wr);
  EXPECT_EQ(a.init.cap.max_inline_data, b.init.cap.max_inline_data);
  EXPECT_EQ(a.pkey, b.pkey);
  EXPECT_NE(a.pkey, 0);
  const ibv_ece ece = primary->QueryEce();
  const ibv_ece backup_ece = backup->QueryEce();
  EXPECT_EQ(ece.vendor_id, backup_ece.vendor_id);
  EXPECT_EQ(ece.options, backup_ece.options);
}

struct BothEnds {
  datapath::SenderMemory sender_memory = {};
  datapath::ReceiverMemory receiver_memory = {};
  LaneMaker::Made sender;
  LaneMaker::Made receiver;
  absl::Status status;
};

// One lane between two devices as the driver makes it: offer, answer, raise.
std::unique_ptr<BothEnds> MakeLane(Devices* devices, int from, int to, uint16_t pkey, uint8_t sl,
                                   uint8_t tc) {
  auto ends = std::make_unique<BothEnds>();
  const LaneMaker& maker = *devices->maker();
  LaneMaker::Wish wish;
  wish.device = &devices->device(from);
  wish.use = {.end = engine::End::kSender, .service_level = sl, .traffic_class = tc};
  wish.pkey = pkey;
  wish.memory = &ends->sender_memory;
  wish.lanes = {{.index = 5, .remote_physical = to}};
  absl::StatusOr<LaneMaker::Made> made = maker.Make(wish);
  ends->status = made.status();
  if (!made.ok()) return ends;
  ends->sender = *std::move(made);
  LaneMaker::Wish other = wish;
  other.device = &devices->device(to);
  other.use.end = engine::End::kReceiver;
  other.memory = &ends->receiver_memory;
  other.slot = 3;
  other.lanes = ends->sender.end_lanes;
  other.peer_devices = {ends->sender.end_device};
  made = maker.Make(other);
  ends->status = made.status();
  if (!made.ok()) return ends;
  ends->receiver = *std::move(made);
  engine::Answer answer;
  answer.devices = {ends->receiver.end_device};
  answer.lanes = ends->receiver.end_lanes;
  EXPECT_EQ(answer.lanes[0].index, 5);
  EXPECT_EQ(answer.lanes[0].slot, 3);
  ends->status = maker.RaiseAnswered(&ends->sender, wish, answer);
  return ends;
}

// C34: what the settings ask of a lane of the handshake, a backup lane on other devices has too.
TEST(Lanes, Backup_SameAttributesAsTheHandshakes) {
  Devices devices;
  datapath::DatapathConfig* const config = devices.config();
  config->ib_timeout = 18;
  config->ib_retry_cnt = 5;
  config->ib_fifo_tc = 84;
  config->ib_use_inline = true;
  NetDevice net[2];
  for (int i = 0; i < 2; ++i) net[i].parts = {&devices.device(i)};
  LaneBuilder sender(net[0], *config, LaneBuilder::Side::kSender, *devices.ports());
  LaneBuilder receiver(net[1], *config, LaneBuilder::Side::kReceiver, *devices.ports());
  ASSERT_TRUE(sender.Create(1, 1).ok());
  ASSERT_TRUE(receiver.Create(1, 1).ok());
  const control::EndDescription hello = *sender.Describe();
  ASSERT_TRUE(receiver.TakeOptions(hello).ok());
  const control::EndDescription reply = *receiver.Describe();
  ASSERT_TRUE(receiver.Connect(hello, 3, 106, 1).value());
  ASSERT_TRUE(sender.TakeOptions(reply).ok());
  ASSERT_TRUE(sender.Connect(reply, 3, 106, 1).value());

  const std::unique_ptr<BothEnds> backup = MakeLane(&devices, 2, 3, devices.device(0).pkey, 3, 106);
  ASSERT_TRUE(backup->status.ok()) << backup->status;
  ExpectSame(sender.queue_pair(0), backup->sender.lanes[0].qp.get());
  ExpectSame(receiver.queue_pair(0), backup->receiver.lanes[0].qp.get());
  EXPECT_EQ(Query(receiver.queue_pair(0)).attr.ah_attr.grh.traffic_class, 84);
  EXPECT_EQ(Query(sender.queue_pair(0)).attr.ah_attr.grh.traffic_class, 106);
  // And nothing that must be its own.
  EXPECT_NE(sender.queue_pair(0)->number(), 0u);
  EXPECT_EQ(backup->receiver.end_device.physical, 3);
}

// C32: the smaller one of both ports, for each lane by itself.
TEST(Lanes, BackupWithASmallerMtu_SmallerForThatLaneAlone) {
  Devices devices;
  Fabric("soft2 mtu 1024");
  const std::unique_ptr<BothEnds> small = MakeLane(&devices, 2, 3, 0, 0, 0);
  const std::unique_ptr<BothEnds> large = MakeLane(&devices, 1, 3, 0, 0, 0);
  Fabric("soft2 mtu 4096");
  ASSERT_TRUE(small->status.ok()) << small->status;
  ASSERT_TRUE(large->status.ok()) << large->status;
  for (const LaneMaker::Made* end : {&small->sender, &small->receiver}) {
    EXPECT_EQ(Query(end->lanes[0].qp.get()).attr.path_mtu, IBV_MTU_1024);
  }
  const ibv_mtu mtu = Query(large->sender.lanes[0].qp.get()).attr.path_mtu;
  EXPECT_EQ(Query(large->receiver.lanes[0].qp.get()).attr.path_mtu, mtu);
  EXPECT_GT(mtu, IBV_MTU_1024);
}

// C33: a port that has not the connection's P_Key is refused by name.
TEST(Lanes, PkeyMissing_Refused) {
  Devices devices;
  const uint16_t key = devices.device(0).pkey;
  Fabric("soft2 pkey 0 0x8123");
  const std::unique_ptr<BothEnds> refused = MakeLane(&devices, 2, 3, key, 0, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused->status)) << refused->status;
  EXPECT_NE(refused->status.message().find("soft2:1 has no P_Key 0x"), std::string::npos)
      << refused->status;
  char words[64];
  snprintf(words, sizeof(words), "soft2 pkey 0 0x%x", key);
  Fabric(words);
  EXPECT_TRUE(MakeLane(&devices, 2, 3, key, 0, 0)->status.ok());
}

TEST(Lanes, PortDownOrWithoutAddress_RefusedWithASentence) {
  Devices devices;
  Fabric("soft2 down");
  EXPECT_EQ(MakeLane(&devices, 2, 3, 0, 0, 0)->status.message(), "soft2:1 is not active");
  Fabric("soft2 up");
  EXPECT_TRUE(WaitFor([&] { return MakeLane(&devices, 2, 3, 0, 0, 0)->status.ok(); }));
  Fabric("soft2 gid linklocal for 300ms");
  const std::unique_ptr<BothEnds> without = MakeLane(&devices, 2, 3, 0, 0, 0);
  EXPECT_NE(without->status.message().find("is not there now"), std::string::npos)
      << without->status;
  EXPECT_TRUE(WaitFor([&] { return MakeLane(&devices, 2, 3, 0, 0, 0)->status.ok(); }));
}

// ---- Ports.

class Monitored : public testing::Test {
 protected:
  Monitored() {
    options_.interval_ns = 20 * kMs;
    options_.read_bound_ns = 100 * kMs;
    options_.rescan_ns = 20 * kMs;
    watch_ = std::make_unique<AsyncWatch>([this](const AsyncEvent& event) {
      absl::MutexLock lock(&mutex_);
      events_.push_back(event);
    });
    for (const PhysicalDevice* device : devices_.table()->Physical()) {
      watch_->Watch(device->context);
    }
    monitor_ =
        std::make_unique<PortMonitor>(devices_.table(), devices_.ports(), &executor_, options_);
    // The first readings.
    EXPECT_TRUE(WaitFor([this] {
      Step();
      return news_.size() >= 4;
    }));
    news_.clear();
  }
  ~Monitored() override {
    watch_.reset();
    EXPECT_TRUE(executor_.Stop(60'000 * kMs));
  }

  void Step() {
    for (const Executor::Job& done : executor_.TakeDone()) done();
    std::vector<AsyncEvent> events;
    {
      absl::MutexLock lock(&mutex_);
      events.swap(events_);
    }
    for (const AsyncEvent& event : events) {
      if (listen_) monitor_->Take(event, clock_.NowNs());
    }
    for (PortNews& news : monitor_->Poll(clock_.NowNs())) news_.push_back(std::move(news));
  }
  bool Comes(int physical, PortNews::Kind kind) {
    return WaitFor([&] {
      Step();
      return std::any_of(news_.begin(), news_.end(), [&](const PortNews& news) {
        return news.physical == physical && news.kind == kind;
      });
    });
  }

  Devices devices_;
  RealClock clock_;
  PortMonitorOptions options_;
  ThreadExecutor executor_{[] {}};
  absl::Mutex mutex_;
  std::vector<AsyncEvent> events_;
  std::unique_ptr<PortMonitor> monitor_;
  std::unique_ptr<AsyncWatch> watch_;
  std::vector<PortNews> news_;
  bool listen_ = true;
};

TEST_F(Monitored, DownAndUp_NewsOnceEach) {
  Fabric("soft1 down");
  EXPECT_TRUE(Comes(1, PortNews::Kind::kNotActive));
  EXPECT_FALSE(monitor_->active(1));
  Fabric("soft1 up");
  EXPECT_TRUE(Comes(1, PortNews::Kind::kActive));
  EXPECT_EQ(std::count_if(news_.begin(), news_.end(),
                          [](const PortNews& n) { return n.kind == PortNews::Kind::kNotActive; }),
            1);
}

TEST_F(Monitored, EventsLost_ReadingFindsIt) {
  listen_ = false;
  Fabric("soft1 down event lost");
  EXPECT_TRUE(Comes(1, PortNews::Kind::kNotActive));
  Fabric("soft1 up event lost");
  EXPECT_TRUE(Comes(1, PortNews::Kind::kActive));
}

TEST_F(Monitored, EventWithoutAChange_Doubt) {
  Fabric("soft1 event port_err");
  EXPECT_TRUE(Comes(1, PortNews::Kind::kDoubt));
  EXPECT_TRUE(monitor_->active(1));
}

TEST_F(Monitored, SubnetManagerChange_NoNews) {
  Fabric("soft1 event sm_change");
  for (int i = 0; i < 50; ++i) {
    Step();
    usleep(2000);
  }
  EXPECT_TRUE(news_.empty());
}

// A busy machine reads late while data goes on.
TEST_F(Monitored, ReadingHangs_DoubtOnceAndStillActive) {
  Fabric("soft1 hang query_port 3s count 1");
  EXPECT_TRUE(Comes(1, PortNews::Kind::kDoubt));
  for (int i = 0; i < 100; ++i) {
    Step();
    usleep(2000);
  }
  EXPECT_EQ(std::count_if(news_.begin(), news_.end(),
                          [](const PortNews& news) { return news.physical == 1; }),
            1);
  EXPECT_TRUE(monitor_->active(1));
}

TEST_F(Monitored, ReadingHangsAfterAnErrorEvent_NotActiveAndLaterActive) {
  Fabric("soft1 hang query_port 6s count 1");
  EXPECT_TRUE(Comes(1, PortNews::Kind::kDoubt));
  EXPECT_TRUE(monitor_->active(1));
  Fabric("soft1 event port_err");
  EXPECT_TRUE(Comes(1, PortNews::Kind::kNotActive));
  EXPECT_FALSE(monitor_->active(1));
  EXPECT_TRUE(Comes(1, PortNews::Kind::kActive));
}

TEST_F(Monitored, AddressMoves_FollowedByValue) {
  const PortFacts before = monitor_->facts(0);
  ASSERT_GE(before.gid_index, 0);
  Fabric("soft0 gid move " + std::to_string(before.gid_index) + " 9");
  EXPECT_TRUE(Comes(0, PortNews::Kind::kAddress));
  EXPECT_EQ(monitor_->facts(0).gid, before.gid);
  EXPECT_EQ(monitor_->facts(0).gid_index, 9);
  Fabric("soft0 gid move 9 " + std::to_string(before.gid_index));
}

// The device is gone and comes back: another id, the same place in the net device.
TEST_F(Monitored, DeviceRemovedAndReturned_TakenOnAgain) {
  const NetDevice* const net = devices_.table()->Get(2);
  Fabric("soft2 remove");
  EXPECT_TRUE(Comes(2, PortNews::Kind::kFatal));
  EXPECT_TRUE(monitor_->failed(2));
  Fabric("soft2 return");
  const int id = static_cast<int>(devices_.table()->Physical().size());
  EXPECT_TRUE(Comes(id, PortNews::Kind::kJoined));
  EXPECT_TRUE(Comes(id, PortNews::Kind::kActive));
  EXPECT_EQ(devices_.device(id).replaces, 2);
  EXPECT_EQ(DistanceBetween(devices_.device(id), devices_.device(2)), Distance::kSamePort);
  EXPECT_EQ(devices_.table()->Get(2)->parts[0], &devices_.device(id));
  EXPECT_EQ(net->parts[0], &devices_.device(2));
}

}  // namespace
}  // namespace railhop::runtime
