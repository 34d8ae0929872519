// Rules of failover that only whole processes show, on simulated hosts.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/base/log.h"
#include "cc/rdma_model/topology_text.h"
#include "cc/runtime/failover_config.h"
#include "cc/runtime/journal.h"
#include "cc/sim/memory.h"
#include "cc/sim/plugin_channel.h"
#include "cc/sim/plugin_process.h"
#include "cc/sim/plugin_traffic.h"
#include "cc/sim/plugin_world.h"
#include "cc/sim/verbs_table.h"

namespace railhop::sim {
namespace {

using runtime::JournalEntry;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000 * kMs;

constexpr char kTwoHosts[] = R"(nets lan
host a
  device nic0 pci 0000:10:00.0 numa 0
    port 1 speed 100 address 10.0.1.1
  device nic1 pci 0000:11:00.0 numa 0
    port 1 speed 100 address 10.0.2.1
host b
  device nic0 pci 0000:10:00.0 numa 0
    port 1 speed 100 address 10.0.1.2
  device nic1 pci 0000:11:00.0 numa 0
    port 1 speed 100 address 10.0.2.2
)";

constexpr char kThreeNics[] = R"(nets lan
host a
  device nic0 pci 0000:10:00.0 numa 0
    port 1 speed 100 address 10.0.1.1
  device nic1 pci 0000:11:00.0 numa 0
    port 1 speed 100 address 10.0.2.1
  device nic2 pci 0000:12:00.0 numa 0
    port 1 speed 100 address 10.0.3.1
host b
  device nic0 pci 0000:10:00.0 numa 0
    port 1 speed 100 address 10.0.1.2
  device nic1 pci 0000:11:00.0 numa 0
    port 1 speed 100 address 10.0.2.2
  device nic2 pci 0000:12:00.0 numa 0
    port 1 speed 100 address 10.0.3.2
)";

rdma::Topology Parse(const char* text) {
  std::string error;
  std::optional<rdma::Topology> topology = rdma::ParseTopology(text, "two hosts", &error);
  EXPECT_TRUE(topology.has_value()) << error;
  return topology.value_or(rdma::Topology());
}

// Two processes and connections between them, from a to b, each with `groups` messages and a pause
// after each.
class RulesTest : public testing::Test {
 protected:
  explicit RulesTest(bool confirm = false, const char* topology = kTwoHosts)
      : world_(Parse(topology), {}, {}, confirm, &violations_), net_(&world_, {}, 1) {
    config_.confirm = confirm;
    SetLogThreshold(LogSeverity::kWarning);
    for (const auto& host : world_.hosts()) {
      processes_.push_back(std::make_unique<PluginProcess>(host.get(), &net_, config_, 2));
    }
  }

  void Connect(int count, const std::vector<int>& parts, size_t groups, uint64_t pause_ns,
               uint64_t receive_pause_ns = 0) {
    for (int i = 0; i < count; ++i) {
      auto plan = std::make_unique<TrafficPlan>();
      plan->sender = "a";
      plan->receiver = "b";
      plan->send_parts = plan->recv_parts = parts;
      MessagePlan message;
      message.size = message.room = 5000;
      plan->groups.assign(groups, {.messages = {message}, .send_order = {0}});
      plan->send_pace.idle = 1;
      plan->send_pace.idle_ns = pause_ns;
      plan->recv_pace.idle = receive_pause_ns == 0 ? 0 : 1;
      plan->recv_pace.idle_ns = receive_pause_ns;
      plan->close_alone = receive_pause_ns != 0;
      plan->close_ns = close_ns_;
      plan->seed = static_cast<uint64_t>(i) + 1;
      traffic_.push_back(
          std::make_unique<PluginTraffic>(&world_, &memory_, *plan, traffic_.size()));
      plans_.push_back(std::move(plan));
      traffic_.back()->Start();
    }
  }

  void RunFor(uint64_t ns) {
    const uint64_t end = world_.now_ns() + ns;
    while (world_.loop().next_ns() <= end && world_.loop().Step()) {
    }
  }

  void Fault(const std::string& text) {
    std::string error;
    EXPECT_TRUE(world_.world().Fault(text, &error)) << error;
  }

  std::vector<JournalEntry> Entries(size_t host, JournalEntry::Kind kind) {
    uint64_t gone = 0;
    std::vector<JournalEntry> entries = processes_[host]->journal().Since(0, 10'000, &gone);
    std::erase_if(entries, [kind](const JournalEntry& entry) { return entry.kind != kind; });
    return entries;
  }

  void ExpectAllGoOn() {
    for (const auto& traffic : traffic_) {
      for (const TrafficEnd* end : {traffic->send(), traffic->recv()}) {
        ASSERT_NE(end, nullptr);
        EXPECT_NE(end->state(), EndState::kFailed) << traffic->Name() << ": " << end->what();
      }
    }
    EXPECT_EQ(violations_.count(), 0u);
  }

  // One message whose acknowledgements are lost; the receiver closes 20 ms after it is through. The
  // port is left `at_ns` after the start, and the sender's fence takes long.
  void LoseAcknowledgements(uint64_t at_ns) {
    Connect(1, {0}, 1000, 100 * kMs);
    RunFor(3 * kSecond);
    Fault("a/nic0 blackhole rx acks");
    close_ns_ = 20 * kMs;
    Connect(1, {0}, 1, 0, 1);
    RunFor(at_ns);
    Fault("a/nic0 hang modify_qp err 200ms");
    ASSERT_TRUE(processes_[0]->driver().ForceFailover({.ports = {0}}).ok());
    ASSERT_EQ(traffic_[1]->recv()->requests(), 1u);
    ASSERT_EQ(traffic_[1]->recv()->closed(), at_ns > 20 * kMs);
    // Before whoever runs the job ends what is left alone.
    RunFor(490 * kMs - at_ns);
    EXPECT_TRUE(traffic_[1]->recv()->closed());
    EXPECT_EQ(traffic_[1]->send()->requests(), 1u);
    ExpectAllGoOn();
  }

  uint64_t close_ns_ = kMs;
  Memory memory_;
  Violations violations_;
  runtime::FailoverConfig config_;
  PluginWorld world_;
  ControlNet net_;
  std::vector<std::unique_ptr<TrafficPlan>> plans_;
  std::vector<std::unique_ptr<PluginTraffic>> traffic_;
  std::vector<std::unique_ptr<PluginProcess>> processes_;
};

// Rule 7.
TEST_F(RulesTest, PortDown_AllConnectionsLeaveItInOneStep) {
  Connect(8, {0}, 1000, 100 * kMs);
  RunFor(3 * kSecond);
  Fault("a/nic0 down");
  RunFor(5 * kSecond);
  std::set<int64_t> times;
  std::set<engine::EndId> ends;
  for (const JournalEntry& entry : Entries(0, JournalEntry::Kind::kSuspect)) {
    times.insert(entry.time_ns);
    ends.insert(entry.end);
  }
  EXPECT_EQ(ends.size(), 8u);
  EXPECT_EQ(times.size(), 1u);
  // One line at each end, however many connections.
  for (const size_t host : {0, 1}) {
    EXPECT_EQ(Entries(host, JournalEntry::Kind::kEpisode).size(), 1u) << host;
  }
  ExpectAllGoOn();
}

// Rule 8.
TEST_F(RulesTest, OnePortOfTwo_LanesOnTheOtherStay) {
  Connect(2, {0, 1}, 1000, 10 * kMs);
  RunFor(3 * kSecond);
  const int lanes = processes_[0]->driver().Summarize().lanes;
  Fault("a/nic0 down");
  RunFor(5 * kSecond);
  uint64_t left = 0;
  for (const JournalEntry& entry : Entries(0, JournalEntry::Kind::kSuspect)) {
    EXPECT_EQ(entry.local, 0);
    left += entry.value;
  }
  EXPECT_EQ(2 * left, static_cast<uint64_t>(lanes));
  ExpectAllGoOn();
}

// Calls that hang for a minute each, on the device of all connections: the minutes do not add up.
TEST_F(RulesTest, CallsHangOnADyingPort_AllConnectionsGoOnAfterOneCall) {
  Connect(6, {0}, 10'000, 50 * kMs);
  RunFor(3 * kSecond);
  Fault("a/nic0 quirk hang_verbs");
  Fault("a/nic0 down");
  RunFor(70 * kSecond);
  std::vector<uint64_t> before;
  for (const auto& traffic : traffic_) before.push_back(traffic->recv()->requests());
  RunFor(kSecond);
  for (size_t i = 0; i < traffic_.size(); ++i) {
    EXPECT_GT(traffic_[i]->recv()->requests(), before[i]) << i;
  }
  ExpectAllGoOn();
}

// The nearest backup answers probes, and the calls that new lanes need hang: another is taken.
class HangingBackupTest : public RulesTest, public testing::WithParamInterface<const char*> {
 protected:
  HangingBackupTest() : RulesTest(/*confirm=*/false, kThreeNics) {}
};

TEST_P(HangingBackupTest, PortDown_GoesOverToOneThatWorks) {
  Connect(2, {0}, 10'000, 50 * kMs);
  Connect(1, {0, 1}, 10'000, 50 * kMs);
  RunFor(5 * kSecond);
  Fault(GetParam());
  RunFor(kSecond);
  Fault("a/nic0 down");
  RunFor(6 * kSecond);
  // And it stays so while the calls hang, and after them.
  for (int i = 0; i < 12; ++i) {
    std::vector<uint64_t> before;
    for (const auto& traffic : traffic_) before.push_back(traffic->recv()->requests());
    RunFor(kSecond);
    for (size_t t = 0; t < traffic_.size(); ++t) {
      EXPECT_GT(traffic_[t]->recv()->requests(), before[t]) << t << " after " << 10 * i << " s";
    }
    // One call of each connection hangs at a time, and some of probes.
    for (const auto& process : processes_) EXPECT_LE(process->executor().open_jobs(), 20u);
    RunFor(9 * kSecond);
  }
  ExpectAllGoOn();
}

INSTANTIATE_TEST_SUITE_P(Calls, HangingBackupTest,
                         testing::Values("a/nic1 hang create_qp 60s", "a/nic1 hang create_qp 3s",
                                         "a/nic1 hang modify_qp rts 60s",
                                         "b/nic1 hang create_qp 60s",
                                         "b/nic1 hang modify_qp rtr 60s"));

// A lane that was made in vain uses a queue of the connection: not closed before that is gone.
TEST_F(RulesTest, LaneMadeInVain_IsWaitedForByTheClose) {
  Connect(1, {0, 1}, 10'000, 50 * kMs);
  RunFor(3 * kSecond);
  Fault("b/nic1 hang create_qp 60s");
  Fault("a/nic1 hang destroy_qp 3s");
  Fault("a/nic0 down");
  RunFor(1'700 * kMs);
  const std::vector<JournalEntry> suspects = Entries(0, JournalEntry::Kind::kSuspect);
  ASSERT_FALSE(suspects.empty());
  runtime::Driver& driver = processes_[0]->driver();
  EXPECT_FALSE(driver.Remove(suspects[0].end));
  RunFor(4 * kSecond);
  EXPECT_TRUE(driver.Remove(suspects[0].end));
}

// A device that says that it has failed and lives on: what was registered there ends (rule 2).
TEST_F(RulesTest, DeviceFatal_RegistrationsOnItEnd) {
  Connect(2, {0, 1}, 10'000, 50 * kMs);
  RunFor(3 * kSecond);
  const auto* const device = processes_[0]->host()->devices().Physical()[1];
  const size_t before = CoreOf(device->context->raw())->region_count();
  processes_[0]->Take({.context = device->context, .type = IBV_EVENT_DEVICE_FATAL});
  RunFor(5 * kSecond);
  // One of each connection; its own queues' stay with it.
  EXPECT_EQ(CoreOf(device->context->raw())->region_count() + 2, before);
  ExpectAllGoOn();
}

// Rule 11.
TEST_F(RulesTest, NoControlChannelForAMinute_TrafficGoesOn) {
  Connect(2, {0}, 1000, 50 * kMs);
  RunFor(3 * kSecond);
  net_.Start({.kind = ChannelFault::Kind::kOutage, .for_ns = 60 * kSecond, .host = 0, .other = 1});
  RunFor(30 * kSecond);
  const uint64_t before = traffic_[0]->recv()->requests();
  RunFor(10 * kSecond);
  EXPECT_GT(traffic_[0]->recv()->requests(), before);
  EXPECT_TRUE(Entries(0, JournalEntry::Kind::kSuspect).empty());
  EXPECT_TRUE(Entries(0, JournalEntry::Kind::kGaveUp).empty());
  ExpectAllGoOn();
}

// Rule 11: what is said of a connection's end is said again, after the session is lost.
TEST_F(RulesTest, CloseDuringAnOutage_IsToldAfterIt) {
  Connect(1, {1}, 1000, 50 * kMs);
  RunFor(2 * kSecond);
  net_.Start({.kind = ChannelFault::Kind::kOutage, .for_ns = 3 * kSecond, .host = 0, .other = 1});
  RunFor(100 * kMs);
  // The sender is through and closes; the receiver computes for a minute before it looks.
  Connect(1, {0}, 1, 0, 60 * kSecond);
  RunFor(10 * kSecond);
  EXPECT_TRUE(traffic_[1]->send()->closed());
  EXPECT_FALSE(traffic_[1]->recv()->closed());
  EXPECT_TRUE(Entries(1, JournalEntry::Kind::kGaveUp).empty());
  // Nobody is there any more who could agree on anything.
  Fault("b/nic0 down");
  RunFor(2 * kSecond);
  ASSERT_EQ(Entries(1, JournalEntry::Kind::kGaveUp).size(), 1u);
  EXPECT_NE(Entries(1, JournalEntry::Kind::kGaveUp)[0].text.find("closed"), std::string::npos);
  // Nothing that anybody would have to see to: no episode, and so no warning.
  EXPECT_TRUE(Entries(1, JournalEntry::Kind::kEpisode).empty());
  ExpectAllGoOn();
}

// The same of the last connection, with which the session ends.
TEST_F(RulesTest, CloseOfTheLastDuringAnOutage_IsToldAfterIt) {
  Connect(1, {0}, 1, 0, 60 * kSecond);
  RunFor(kMs / 2);
  net_.Start({.kind = ChannelFault::Kind::kOutage, .for_ns = 3 * kSecond, .host = 0, .other = 1});
  RunFor(2 * kSecond);
  ASSERT_TRUE(traffic_[0]->send()->closed());
  RunFor(10 * kSecond);
  ASSERT_EQ(Entries(1, JournalEntry::Kind::kGaveUp).size(), 1u);
  EXPECT_NE(Entries(1, JournalEntry::Kind::kGaveUp)[0].text.find("has closed its end"),
            std::string::npos)
      << Entries(1, JournalEntry::Kind::kGaveUp)[0].text;
  ExpectAllGoOn();
}

// And where there is no way for longer, by the session of the next connection.
TEST_F(RulesTest, CloseOfTheLastDuringALongOutage_IsToldWithTheNextSession) {
  Connect(1, {0}, 1, 0, 600 * kSecond);
  RunFor(kMs / 2);
  net_.Start({.kind = ChannelFault::Kind::kOutage, .for_ns = 100 * kSecond, .host = 0, .other = 1});
  RunFor(80 * kSecond);
  ASSERT_TRUE(traffic_[0]->send()->closed());
  Connect(1, {1}, 10'000, 50 * kMs);
  RunFor(30 * kSecond);
  ASSERT_EQ(Entries(1, JournalEntry::Kind::kGaveUp).size(), 1u);
  EXPECT_NE(Entries(1, JournalEntry::Kind::kGaveUp)[0].text.find("has closed its end"),
            std::string::npos);
  ExpectAllGoOn();
}

// Rule 3: what had arrived before the receiver closed is done, though nobody is there to compare
// records any more.
TEST_F(RulesTest, ReceiverClosesWhileOurFenceRuns_SendIsDone) { LoseAcknowledgements(5 * kMs); }

TEST_F(RulesTest, ReceiverHasClosedBeforeTheFault_SendIsDone) { LoseAcknowledgements(30 * kMs); }

// A receiving end has not tried what it would go to, and that does not work.
TEST_F(RulesTest, ForcedAtTheReceiver_OthersDoNotWork_GoesOn) {
  Connect(1, {0}, 1000, 50 * kMs);
  Fault("a/nic1 blackhole");
  RunFor(3 * kSecond);
  ASSERT_TRUE(processes_[1]->driver().ForceFailover({.ports = {0}}).ok());
  RunFor(5 * kSecond);
  const uint64_t before = traffic_[0]->recv()->requests();
  RunFor(10 * kSecond);
  EXPECT_GT(traffic_[0]->recv()->requests(), before);
  EXPECT_TRUE(Entries(1, JournalEntry::Kind::kGaveUp).empty());
  ExpectAllGoOn();
}

TEST_F(RulesTest, NoPath_LastPortThatMayBeMended_IsNotHeld) {
  Connect(1, {0}, 1000, 50 * kMs);
  RunFor(3 * kSecond);
  runtime::Driver& driver = processes_[0]->driver();
  ASSERT_TRUE(driver.Hold({.ports = {1}}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(driver.FailBack({.ports = {1}}).status()));
  Fault("a/nic0 down");
  RunFor(2 * kSecond);
  EXPECT_TRUE(absl::IsFailedPrecondition(driver.Hold({.ports = {0}}).status()));
  const absl::StatusOr<runtime::Driver::Touched> back = driver.FailBack({});
  ASSERT_TRUE(back.ok());
  EXPECT_NE(back->note.find("held by command"), std::string::npos);
  ASSERT_EQ(Entries(0, JournalEntry::Kind::kNoPath).size(), 1u);
  EXPECT_NE(Entries(0, JournalEntry::Kind::kNoPath)[0].text.find("held"), std::string::npos);
  Fault("a/nic0 up");
  RunFor(10 * kSecond);
  const uint64_t before = traffic_[0]->recv()->requests();
  RunFor(5 * kSecond);
  EXPECT_GT(traffic_[0]->recv()->requests(), before);
  ExpectAllGoOn();
}

// Rule 4: a queue pair that acknowledges what it does not write, and never fails.
class ConfirmedRulesTest : public RulesTest {
 protected:
  ConfirmedRulesTest() : RulesTest(/*confirm=*/true) {}
};

TEST_F(ConfirmedRulesTest, AcknowledgedAndNotWritten_IsFoundAndSentAgain) {
  Connect(2, {0}, 200, kMs);
  RunFor(20 * kMs);
  Fault("b/nic0 unwritten rx count 1");
  RunFor(20 * kSecond);
  EXPECT_FALSE(Entries(0, JournalEntry::Kind::kSuspect).empty());
  for (const auto& traffic : traffic_) EXPECT_EQ(traffic->recv()->requests(), 200u);
  ExpectAllGoOn();
}

TEST_F(RulesTest, EntryAcknowledgedAndNotWritten_IsFoundAndAnnouncedAgain) {
  Connect(2, {0}, 200, kMs);
  RunFor(20 * kMs);
  Fault("a/nic0 unwritten rx count 1");
  RunFor(20 * kSecond);
  EXPECT_FALSE(Entries(1, JournalEntry::Kind::kSuspect).empty());
  for (const auto& traffic : traffic_) EXPECT_EQ(traffic->recv()->requests(), 200u);
  ExpectAllGoOn();
}

// The same where NCCL has the buffer back: an error that says so, and soon.
TEST_F(RulesTest, AcknowledgedAndNotWritten_EndsInAnErrorThatSaysSo) {
  Connect(1, {0}, 200, kMs);
  RunFor(20 * kMs);
  Fault("b/nic0 unwritten rx count 1");
  RunFor(10 * kSecond);
  ASSERT_EQ(Entries(0, JournalEntry::Kind::kGaveUp).size(), 1u);
  EXPECT_NE(Entries(0, JournalEntry::Kind::kGaveUp)[0].text.find("nothing says that it has"),
            std::string::npos);
  EXPECT_EQ(violations_.count(), 0u);
}

}  // namespace
}  // namespace railhop::sim
