#include "cc/runtime/health.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

using engine::Cause;
using engine::PathState;
using engine::PortState;

constexpr int64_t kOffset = 1'000'000;
constexpr engine::InstanceId kPeer = 0xabc;

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() {
    for (int i = 0; i < 2; ++i) {
      devices_[i].id = i;
      devices_[i].name = "mlx5_" + std::to_string(i);
      devices_[i].pci_path = "/sys/devices/pci0000:00/0000:8" + std::to_string(i) + ":00.0";
      devices_[i].is_ethernet = true;
      devices_[i].speed_mbps = 100'000;
      input_.transport.ports.push_back(&devices_[i]);
    }
    input_.transport.running = true;
    input_.unix_offset = kOffset;
    input_.now = 5000;
    DriverSnapshot snapshot;
    snapshot.now = 5000;
    for (const PhysicalDevice& device : devices_) {
      DriverSnapshot::Port port;
      port.device = &device;
      port.known = true;
      port.facts = {.active = true, .mtu = 5, .lid = 3, .gid_index = 0};
      snapshot.ports.push_back(port);
    }
    snapshot.peers[kPeer] = {.host = "node-17", .up = true, .ports = {{0, "mlx5_0:1"}}};
    DriverSnapshot::Link link;
    link.id = {.connection = 0x12, .end = engine::End::kSender};
    link.peer = kPeer;
    link.label = "mlx5_0 to node-17";
    link.home = {0};
    link.lanes = {{.local = 0}};
    snapshot.links.push_back(link);
    input_.driver = snapshot;
    Path(0, PathState::kGood);
  }

  DriverSnapshot& driver() { return *input_.driver; }
  DriverSnapshot::Link& link() { return driver().links[0]; }
  void Path(int local, PathState state) {
    DriverSnapshot::Path path;
    path.peer = kPeer;
    path.path = {.local = local, .remote = 0};
    path.state = state;
    path.since = 100 * (local + 1);
    if (state == PathState::kDown) path.cause = Cause::kStall;
    if (state == PathState::kHeld) path.held_until = 7000;
    driver().paths.push_back(path);
  }
  admin::Health health() const { return MakeHealth(input_); }
  admin::Port port(size_t i) const { return health().ports[i]; }

  PhysicalDevice devices_[2];
  HealthInput input_;
};

TEST_F(HealthTest, AllIsWell_Ok) {
  const admin::Health all = health();
  EXPECT_EQ(all.verdict, admin::Verdict::kOk);
  ASSERT_EQ(all.devices.size(), 2u);
  EXPECT_EQ(all.devices[1].name, "mlx5_1");
  EXPECT_EQ(all.devices[1].pci, "0000:81:00.0");
  ASSERT_EQ(all.ports.size(), 2u);
  EXPECT_EQ(all.ports[0].name, "mlx5_0:1");
  EXPECT_EQ(all.ports[0].state, admin::PortState::kUp);
  EXPECT_EQ(all.ports[0].mtu_bytes, 4096u);
  EXPECT_EQ(all.ports[0].lanes, 1u);
  EXPECT_EQ(all.ports[0].connections, 1u);
  ASSERT_EQ(all.paths.size(), 1u);
  EXPECT_EQ(all.paths[0].peer_host, "node-17");
  EXPECT_EQ(all.paths[0].peer_port, "mlx5_0:1");
  EXPECT_EQ(all.paths[0].since_unix_ns, kOffset + 100);
  ASSERT_EQ(all.connections.size(), 1u);
  EXPECT_EQ(all.connections[0].id, "0000000000000012");
  EXPECT_EQ(all.connections[0].state, admin::ConnectionState::kHealthy);
  EXPECT_EQ(all.connections[0].peer_host, "node-17");
}

// As many as a job of hundreds of processes has: each gets its own traffic, in the driver's order,
// and those without failover come behind.
TEST_F(HealthTest, ThousandsOfConnections_EachWithItsOwnTraffic) {
  constexpr size_t kLinks = 4000;
  constexpr size_t kUnprotected = 100;
  // Only compared, never looked into.
  std::vector<char> comms(kLinks + kUnprotected);
  const auto comm = [&comms](size_t i) {
    return reinterpret_cast<const ConnectionComm*>(&comms[i]);
  };
  const DriverSnapshot::Link pattern = link();
  driver().links.clear();
  for (size_t i = 0; i < kLinks; ++i) {
    DriverSnapshot::Link& one = driver().links.emplace_back(pattern);
    one.id.connection = i + 1;
    one.comm = comm(i);
  }
  // In another order than the driver's.
  for (size_t i = comms.size(); i-- > 0;) {
    TransportView::Comm& one = input_.transport.comms.emplace_back();
    one.comm = comm(i);
    one.label = std::to_string(i);
    one.is_send = true;
    one.home = {1};
    one.traffic.transfers = 10 * i + 1;
    one.traffic.ports = {{.physical = 0, .bytes = 1000 * i, .messages = 1}};
  }
  const admin::Health all = health();
  ASSERT_EQ(all.connections.size(), comms.size());
  for (size_t i = 0; i < kLinks; ++i) {
    const admin::Connection& one = all.connections[i];
    ASSERT_EQ(one.id, HexId(i + 1));
    ASSERT_EQ(one.messages, 10 * i + 1);
    ASSERT_EQ(one.bytes, 1000 * i);
    ASSERT_EQ(one.state, admin::ConnectionState::kHealthy);
  }
  for (size_t i = kLinks; i < comms.size(); ++i) {
    const admin::Connection& one = all.connections[i];
    const size_t which = comms.size() - 1 - (i - kLinks);
    ASSERT_EQ(one.label, std::to_string(which));
    ASSERT_EQ(one.messages, 10 * which + 1);
    ASSERT_EQ(one.state, admin::ConnectionState::kUnprotected);
  }
  EXPECT_EQ(all.ports[0].connections, kLinks);
}

// What the port says of itself comes first, then what its paths say.
TEST_F(HealthTest, PortState_WorstThatIsKnown) {
  driver().ports[1].state = PortState::kDown;
  driver().ports[1].cause = Cause::kPortDown;
  driver().ports[1].since = 40;
  EXPECT_EQ(port(1).state, admin::PortState::kDown);
  EXPECT_EQ(port(1).cause, admin::Cause::kPortDown);
  EXPECT_EQ(port(1).since_unix_ns, kOffset + 40);
  driver().ports[1].state = PortState::kFatal;
  EXPECT_EQ(port(1).state, admin::PortState::kRemoved);
  driver().ports[1].state = driver().ports[1].command = PortState::kHeld;
  EXPECT_EQ(port(1).state, admin::PortState::kHeld);
  EXPECT_TRUE(port(1).held_by_command);
  EXPECT_EQ(health().verdict, admin::Verdict::kDegraded);
}

TEST_F(HealthTest, DrainedPort_DrainingWhileItHasLanes) {
  driver().ports[0].state = driver().ports[0].command = PortState::kDrained;
  EXPECT_EQ(port(0).state, admin::PortState::kDraining);
  link().lanes = {{.local = 1, .backup = true}};
  EXPECT_EQ(port(0).state, admin::PortState::kHeld);
}

TEST_F(HealthTest, ActivePortOverWhichNothingComes_IsDown) {
  Path(1, PathState::kDown);
  EXPECT_EQ(port(1).state, admin::PortState::kDown);
  EXPECT_EQ(port(1).cause, admin::Cause::kStall);
  EXPECT_EQ(port(1).since_unix_ns, kOffset + 200);
  Path(1, PathState::kGood);
  EXPECT_EQ(port(1).state, admin::PortState::kUp) << "one path works";
}

TEST_F(HealthTest, PathInHoldDown_SaysHowLongYet) {
  Path(1, PathState::kHeld);
  EXPECT_EQ(port(1).state, admin::PortState::kHoldDown);
  EXPECT_EQ(port(1).hold_down_ns, 2000);
}

TEST_F(HealthTest, DoubtedPath_PortSuspectVerdictStays) {
  driver().paths[0].state = PathState::kDoubtful;
  EXPECT_EQ(port(0).state, admin::PortState::kSuspect);
  EXPECT_EQ(health().verdict, admin::Verdict::kOk);
}

TEST_F(HealthTest, ConnectionState_WorstFirst) {
  const auto state = [this] { return health().connections[0].state; };
  link().lanes = {{.local = 1, .backup = true}};
  EXPECT_EQ(state(), admin::ConnectionState::kOnBackup);
  EXPECT_EQ(health().verdict, admin::Verdict::kDegraded);
  link().hindered_since = 4000;
  EXPECT_EQ(state(), admin::ConnectionState::kRecovering);
  EXPECT_EQ(health().connections[0].hindered_ns, 1000);
  EXPECT_EQ(health().verdict, admin::Verdict::kRecovering);
  link().no_path = true;
  EXPECT_EQ(state(), admin::ConnectionState::kNoPath);
  EXPECT_EQ(health().verdict, admin::Verdict::kNoPath);
  link().over = true;
  EXPECT_EQ(state(), admin::ConnectionState::kEnded);
}

TEST_F(HealthTest, DeviceThatIsBack_ShownOnceAndCountsOn) {
  PhysicalDevice back = devices_[1];
  back.id = 2;
  back.replaces = 1;
  input_.transport.ports.push_back(&back);
  DriverSnapshot::Port known;
  known.device = &back;
  driver().ports.push_back(known);
  driver().ports[1].state = PortState::kFatal;
  input_.transport.closed[1].sent_bytes = 100;
  input_.transport.closed[2].sent_bytes = 10;
  const admin::Health all = health();
  ASSERT_EQ(all.ports.size(), 2u);
  EXPECT_EQ(all.ports[1].name, "mlx5_1:1");
  EXPECT_EQ(all.ports[1].state, admin::PortState::kUp);
  ASSERT_EQ(all.devices.size(), 2u);
  EXPECT_FALSE(all.devices[1].removed);
  const admin::Stats stats = MakeStats(input_);
  ASSERT_EQ(stats.ports.size(), 2u);
  EXPECT_EQ(stats.ports[1].sent_bytes, 110u);
}

TEST_F(HealthTest, Stats_OpenAndClosedConnectionsOfBothDirections) {
  input_.transport.closed[0] = {
      .sent_bytes = 1, .received_bytes = 2, .sent_messages = 3, .received_messages = 4};
  TransportView::Comm comm;
  comm.is_send = true;
  comm.traffic.ports = {{.physical = 0, .bytes = 10, .messages = 20}};
  input_.transport.comms.push_back(comm);
  comm.is_send = false;
  comm.traffic.ports = {{.physical = 0, .bytes = 100, .messages = 200}};
  input_.transport.comms.push_back(comm);
  driver().counts.ports[0] = {.resent_bytes = 5, .stalls = 6, .faults = 7};
  driver().counts.faults[static_cast<size_t>(Cause::kStall)] = 2;
  driver().counts.resume.Add(1'500'000);
  const admin::Stats stats = MakeStats(input_);
  EXPECT_EQ(stats.ports[0].sent_bytes, 11u);
  EXPECT_EQ(stats.ports[0].received_bytes, 102u);
  EXPECT_EQ(stats.ports[0].sent_messages, 23u);
  EXPECT_EQ(stats.ports[0].received_messages, 204u);
  EXPECT_EQ(stats.ports[0].resent_bytes, 5u);
  EXPECT_EQ(stats.ports[0].stalls, 6u);
  EXPECT_EQ(stats.ports[0].faults, 7u);
  ASSERT_EQ(stats.faults.size(), 1u);
  EXPECT_EQ(stats.faults[0].cause, admin::Cause::kStall);
  EXPECT_EQ(stats.faults[0].count, 2u);
  const admin::Histogram& resume = stats.histograms[2];
  EXPECT_EQ(resume.name, "resume");
  EXPECT_EQ(resume.count, 1u);
  EXPECT_EQ(resume.sum, 1'500'000u);
  ASSERT_EQ(resume.counts.size(), resume.bounds.size() + 1);
  for (size_t i = 0; i < resume.bounds.size(); ++i) {
    EXPECT_EQ(resume.counts[i], resume.bounds[i] == 2'000'000 ? 1u : 0u);
  }
}

TEST_F(HealthTest, WithoutFailover_PortsAndConnectionsAreThere) {
  input_.driver.reset();
  input_.facts[0] = {.active = true, .mtu = 3};
  input_.facts[1] = {.active = false};
  TransportView::Comm comm;
  comm.label = "mlx5_0 to node-17";
  comm.is_send = true;
  comm.home = {0};
  comm.traffic.transfers = 9;
  input_.transport.comms.push_back(comm);
  const admin::Health all = health();
  ASSERT_EQ(all.ports.size(), 2u);
  EXPECT_EQ(all.ports[0].state, admin::PortState::kUp);
  EXPECT_EQ(all.ports[0].mtu_bytes, 1024u);
  EXPECT_EQ(all.ports[0].connections, 1u);
  EXPECT_EQ(all.ports[1].state, admin::PortState::kDown);
  ASSERT_EQ(all.connections.size(), 1u);
  EXPECT_EQ(all.connections[0].state, admin::ConnectionState::kUnprotected);
  EXPECT_EQ(all.connections[0].messages, 9u);
  EXPECT_TRUE(all.paths.empty());
  EXPECT_EQ(MakeStats(input_).histograms.size(), 4u);
}

TEST_F(HealthTest, Event_NamesForNumbers) {
  JournalEntry entry;
  entry.serial = 4;
  entry.time_ns = 30;
  entry.kind = JournalEntry::Kind::kPathState;
  entry.local = 1;
  entry.peer = kPeer;
  entry.remote = 0;
  entry.end = {.connection = 0xff, .end = engine::End::kReceiver};
  entry.value = static_cast<uint64_t>(PathState::kDown);
  entry.cause = Cause::kStall;
  const admin::Event event = MakeEvent(entry, NamesOf(input_), kOffset);
  EXPECT_EQ(event.serial, 4u);
  EXPECT_EQ(event.time_unix_ns, kOffset + 30);
  EXPECT_EQ(event.kind, admin::EventKind::kPathState);
  EXPECT_EQ(event.port, "mlx5_1:1");
  EXPECT_EQ(event.peer_host, "node-17");
  EXPECT_EQ(event.peer_port, "mlx5_0:1");
  EXPECT_EQ(event.connection, "00000000000000ff");
  EXPECT_EQ(event.direction, admin::Direction::kReceive);
  EXPECT_EQ(event.cause, admin::Cause::kStall);
  EXPECT_EQ(event.text, "failed");
}

TEST(HealthEvents, EveryKindAndCause_HasAWordOfItsOwn) {
  std::set<std::string> words;
  for (int i = 0; i < static_cast<int>(JournalEntry::Kind::kCount_); ++i) {
    JournalEntry entry;
    entry.kind = static_cast<JournalEntry::Kind>(i);
    const std::string word = admin::Word(MakeEvent(entry, {}, 0).kind);
    EXPECT_NE(word, "unknown");
    EXPECT_TRUE(words.insert(word).second) << word;
  }
  for (size_t i = 0; i < kCauses; ++i) {
    const admin::Cause cause = ToAdmin(static_cast<Cause>(i));
    // The same phrases as in the log.
    EXPECT_STREQ(admin::Phrase(cause), CauseText(static_cast<Cause>(i)));
  }
}

}  // namespace
}  // namespace railhop::runtime
