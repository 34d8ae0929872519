#include "cc/fabric/control.h"

#include <unistd.h>

#include "cc/fabric/event_log.h"
#include "cc/fabric/snapshot.h"
#include "cc/rdma_model/topology_text.h"
#include "gtest/gtest.h"

namespace railhop::fabric {
namespace {

using rdma::AsyncEvent;

class Fabric {
 public:
  explicit Fabric(const std::string& topology = "device n port 1 address 10.0.0.1 netdev eth0") {
    std::string error;
    FabricOptions options;
    const auto parsed = rdma::ParseTopology(topology, "t", &error);
    EXPECT_TRUE(parsed) << error;
    options.topology = *parsed;
    control_ = Control::Create(options, &error);
    EXPECT_NE(control_, nullptr) << error;
  }
  Control& control() { return *control_; }
  DirectoryHandle& directory() { return control_->directory(); }
  PortEntry& port(uint32_t device = 0, uint32_t port = 1) {
    return directory().port({device, port});
  }

  void Do(const std::string& words) {
    std::string error;
    EXPECT_TRUE(control_->Fault(words, &error)) << words << ": " << error;
  }
  std::string ErrorOf(const std::string& words) {
    std::string error;
    EXPECT_FALSE(control_->Fault(words, &error)) << words;
    return error;
  }
  // The events since the last call.
  std::vector<AsyncEvent> Events() {
    std::vector<AsyncEvent> events;
    while (const auto record = directory().ReadPortEvent(&cursor_)) {
      events.push_back(static_cast<AsyncEvent>(record->event));
      last_ = *record;
    }
    return events;
  }
  const PortEventRecord& last_event() const { return last_; }
  std::string Address(uint32_t index) {
    const rdma::TopologyGid entry = DirectoryHandle::ReadGid(port(), index);
    return rdma::IsEmpty(entry.gid) ? "" : rdma::FormatAddress(entry.gid);
  }
  // Carries out what is due until `done` holds; false when that took half a minute.
  template <typename Done>
  bool RunUntil(const Done& done) {
    for (int i = 0; i < 30000; ++i) {
      control_->RunDue();
      if (done()) return true;
      usleep(1000);
    }
    return false;
  }

 private:
  std::unique_ptr<Control> control_;
  uint64_t cursor_ = 0;
  PortEventRecord last_;
};

using Events = std::vector<AsyncEvent>;

TEST(Fault, DownAndUp_ChangeThePortAndSendEvents) {
  Fabric fabric;
  fabric.Do("n down");
  EXPECT_EQ(fabric.port().link_state, static_cast<uint32_t>(rdma::PortLinkState::kDown));
  EXPECT_EQ(fabric.port().phys_state, 3u);
  EXPECT_EQ(fabric.port().link_downed, 1u);
  EXPECT_EQ(fabric.Events(), Events{AsyncEvent::kPortErr});
  EXPECT_EQ(fabric.last_event().device, 0u);
  EXPECT_EQ(fabric.last_event().port, 1u);
  fabric.Do("n down");  // it is down already: no second event
  EXPECT_EQ(fabric.Events(), Events{});
  EXPECT_EQ(fabric.port().link_downed, 1u);
  fabric.Do("n up");
  EXPECT_EQ(fabric.port().link_state, static_cast<uint32_t>(rdma::PortLinkState::kActive));
  EXPECT_EQ(fabric.port().phys_state, 5u);
  EXPECT_EQ(fabric.Events(), Events{AsyncEvent::kPortActive});
}

TEST(Fault, SecondPort_IsItsOwn) {
  Fabric fabric("device n port 1 port 2");
  fabric.Do("n:2 down");
  EXPECT_EQ(fabric.port(0, 1).link_state, static_cast<uint32_t>(rdma::PortLinkState::kActive));
  EXPECT_EQ(fabric.port(0, 2).link_state, static_cast<uint32_t>(rdma::PortLinkState::kDown));
  EXPECT_EQ(fabric.Events(), Events{AsyncEvent::kPortErr});
  EXPECT_EQ(fabric.last_event().port, 2u);
}

TEST(Fault, EventWords_LoseDoubleAndDelayEvents) {
  Fabric fabric;
  fabric.Do("n down event lost");
  EXPECT_EQ(fabric.Events(), Events{});
  fabric.Do("n up event doubled");
  EXPECT_EQ(fabric.Events(), (Events{AsyncEvent::kPortActive, AsyncEvent::kPortActive}));
  const uint64_t before = MonotonicNs();
  fabric.Do("n down event late 10s");
  EXPECT_EQ(fabric.Events(), Events{AsyncEvent::kPortErr});
  EXPECT_GE(fabric.last_event().due_ns, before + 10'000'000'000);
  fabric.Do("n events lost");
  fabric.Do("n up");
  EXPECT_EQ(fabric.Events(), Events{});
}

TEST(Fault, EarlyEvent_ComesBeforeTheChange) {
  Fabric fabric;
  fabric.Do("n down event early 50ms");
  EXPECT_EQ(fabric.Events(), Events{AsyncEvent::kPortErr});
  EXPECT_EQ(fabric.port().link_state, static_cast<uint32_t>(rdma::PortLinkState::kActive));
  EXPECT_TRUE(fabric.RunUntil([&] { return fabric.port().link_state == 1u; }));
  EXPECT_EQ(fabric.Events(), Events{});
}

TEST(Fault, For_IsUndone) {
  Fabric fabric;
  fabric.Do("n down for 20ms");
  EXPECT_EQ(fabric.port().link_state, 1u);
  EXPECT_TRUE(fabric.RunUntil([&] { return fabric.port().link_state == 4u; }));
  EXPECT_EQ(fabric.Events(), (Events{AsyncEvent::kPortErr, AsyncEvent::kPortActive}));
}

TEST(Fault, Flap_CountsAndEndsUp) {
  Fabric fabric;
  fabric.Do("n flap every 4ms count 3");
  EXPECT_TRUE(fabric.RunUntil(
      [&] { return fabric.port().link_downed == 3u && fabric.port().link_state == 4u; }));
  EXPECT_EQ(fabric.Events().size(), 6u);
}

TEST(Fault, Clear_UndoesAtOnce) {
  Fabric fabric;
  fabric.Do("n down for 1h");
  fabric.Do("n loss 10%");
  fabric.Do("n clear");
  EXPECT_EQ(fabric.port().link_state, 4u);
  EXPECT_EQ(fabric.port().faults.packet_rules, 0u);
}

TEST(Fault, PacketRules_AreInTheTableUntilTheirEnd) {
  Fabric fabric;
  fabric.Do("n loss 1% for 20ms");
  fabric.Do("n delay 1ms");
  std::string error, list;
  ASSERT_TRUE(fabric.control().Fault("n list", &error, &list));
  EXPECT_EQ(list, "n:1 loss 1% for 20ms  # in force, 0 hits\nn:1 delay 1ms  # in force, 0 hits\n");
  EXPECT_TRUE(fabric.RunUntil([&] { return (fabric.port().faults.packet_rules & 1) == 0; }));
  EXPECT_NE(fabric.port().faults.packet_rules, 0u);
}

TEST(Fault, Gid_SetRemoveMove) {
  Fabric fabric;
  ASSERT_EQ(fabric.Address(3), "10.0.0.1");
  const uint32_t generation = fabric.directory().dir().gid_generation;
  fabric.Do("n gid move 3 8");
  EXPECT_EQ(fabric.Address(3), "");
  EXPECT_EQ(fabric.Address(8), "10.0.0.1");
  EXPECT_NE(fabric.directory().dir().gid_generation, generation);
  fabric.Do("n gid set 3 10.0.0.7 v2");
  EXPECT_EQ(fabric.Address(3), "10.0.0.7");
  fabric.Do("n gid remove 8");
  EXPECT_EQ(fabric.Address(8), "");
  EXPECT_EQ(fabric.Events(), Events(3, AsyncEvent::kGidChange));
}

TEST(Fault, GidWithAnEnd_ComesBack) {
  Fabric fabric;
  fabric.Do("n gid remove 3 for 10ms");
  EXPECT_EQ(fabric.Address(3), "");
  EXPECT_TRUE(fabric.RunUntil([&] { return fabric.Address(3) == "10.0.0.1"; }));
  fabric.Do("n gid move 3 2 for 10ms");
  EXPECT_EQ(fabric.Address(3), "");
  EXPECT_TRUE(fabric.RunUntil([&] { return fabric.Address(3) == "10.0.0.1"; }));
  EXPECT_EQ(DirectoryHandle::ReadGid(fabric.port(), 2).type, rdma::GidType::kRoceV1);
  EXPECT_EQ(DirectoryHandle::ReadGid(fabric.port(), 3).type, rdma::GidType::kRoceV2);
}

// Field case: after the link is back only link-local addresses are there for a while, and then the
// routable one has another index.
TEST(Fault, LinkLocalForAWhile_ThenAtAnotherIndex) {
  Fabric fabric;
  fabric.Do("n gid linklocal for 10ms");
  EXPECT_EQ(fabric.Address(2), "");
  EXPECT_EQ(fabric.Address(3), "");
  EXPECT_NE(fabric.Address(0), "");
  EXPECT_TRUE(fabric.RunUntil([&] { return fabric.Address(3) == "10.0.0.1"; }));
  fabric.Do("n gid move 3 5");
  EXPECT_EQ(fabric.Address(5), "10.0.0.1");
}

TEST(Fault, InfiniBand_LidSmPkey) {
  Fabric fabric("device n port 1 link infiniband lid 5 pkey 0xffff pkey 0x8001");
  fabric.Do("n lid 17 for 10ms");
  EXPECT_EQ(fabric.port().lid, 17u);
  EXPECT_TRUE(fabric.RunUntil([&] { return fabric.port().lid == 5u; }));
  fabric.Do("n smlid 2");
  EXPECT_EQ(fabric.port().sm_lid, 2u);
  fabric.Do("n pkey 1 0x8002");
  EXPECT_EQ(fabric.port().pkeys[1], 0x8002u);
  EXPECT_EQ(fabric.Events(), (Events{AsyncEvent::kLidChange, AsyncEvent::kLidChange,
                                     AsyncEvent::kSmChange, AsyncEvent::kPkeyChange}));
  EXPECT_EQ(fabric.port().link_state, 4u);
}

TEST(Fault, SpeedAndMtu_AreReported) {
  Fabric fabric;
  fabric.Do("n speed 25Gb/s for 10ms");
  EXPECT_EQ(fabric.port().rate_mbps, 25000u);
  EXPECT_EQ(fabric.port().active_width, 1u);
  EXPECT_TRUE(fabric.RunUntil([&] { return fabric.port().rate_mbps == 100000u; }));
  EXPECT_EQ(fabric.port().active_width, 2u);
  EXPECT_EQ(fabric.port().active_speed, 32u);
  fabric.Do("n mtu 1024");
  EXPECT_EQ(fabric.port().active_mtu, 3u);
}

TEST(Fault, RemoveAndReturn_ChangeTheGeneration) {
  Fabric fabric("device n port 1 device m port 1");
  fabric.Do("n remove");
  EXPECT_EQ(fabric.directory().DevicesOfHost(0), std::vector<uint32_t>{1});
  EXPECT_EQ(fabric.directory().device(0).generation, 1u);
  EXPECT_EQ(fabric.Events(), Events{AsyncEvent::kDeviceFatal});
  EXPECT_EQ(fabric.last_event().port, 0u);
  fabric.Do("n remove");  // it is gone already
  EXPECT_EQ(fabric.Events(), Events{});
  fabric.Do("n return");
  EXPECT_EQ(fabric.directory().DevicesOfHost(0).size(), 2u);
  EXPECT_EQ(fabric.directory().device(0).generation, 2u);
  fabric.Do("n remove for 10ms event lost");
  EXPECT_EQ(fabric.Events(), Events{});
  EXPECT_TRUE(fabric.RunUntil([&] { return fabric.directory().DevicesOfHost(0).size() == 2; }));
}

TEST(Fault, Quirk_OnAndOffAndBack) {
  Fabric fabric("device n quirk no_uc port 1");
  const auto quirks = [&] { return fabric.directory().device(0).quirks.load(); };
  EXPECT_EQ(quirks(), rdma::kQuirkNoUc);
  fabric.Do("n quirk short_cq for 10ms");
  EXPECT_EQ(quirks(), rdma::kQuirkNoUc | rdma::kQuirkShortCq);
  EXPECT_TRUE(fabric.RunUntil([&] { return quirks() == rdma::kQuirkNoUc; }));
  fabric.Do("n quirk no_uc off");
  EXPECT_EQ(quirks(), 0u);
  fabric.Do("n quirk no_uc for 10ms");
  EXPECT_TRUE(fabric.RunUntil([&] { return quirks() == 0; }));
}

TEST(Fault, EventOfAQueuePair_NamesIt) {
  Fabric fabric;
  fabric.Do("n event qp_fatal qp 3");
  EXPECT_EQ(fabric.Events(), Events{AsyncEvent::kQpFatal});
  EXPECT_EQ(fabric.last_event().qp, 4u);
  fabric.Do("n event device_fatal");
  fabric.Events();
  EXPECT_EQ(fabric.last_event().port, 0u);
  EXPECT_EQ(fabric.last_event().qp, 0u);
}

TEST(Fault, WhatThePortCannot_IsRefused) {
  Fabric fabric;
  EXPECT_EQ(fabric.ErrorOf("n lid 5"), "n:1: lid: this port is Ethernet and has none");
  EXPECT_EQ(fabric.ErrorOf("n gid set 3 10.0.0.7 ib"),
            "n:1: gid_set: not a GID type of this port; allowed: v1, v2");
  EXPECT_EQ(fabric.ErrorOf("n gid remove 16"), "n:1: 16: no such GID index; allowed: 0 to 15");
  EXPECT_EQ(fabric.ErrorOf("n pkey 1 0x8001"), "n:1: 1: no such P_Key index; allowed: 0 to 0");
  EXPECT_NE(fabric.ErrorOf("n speed 123Gb/s").find("allowed: 10Gb/s, 25Gb/s"), std::string::npos);
  EXPECT_EQ(fabric.ErrorOf("q down"), "q: no such device; allowed: n");
  EXPECT_EQ(fabric.ErrorOf("n:2 down"), "n:2: no such port; allowed: 1");
  EXPECT_NE(fabric.ErrorOf("n dwon").find("dwon"), std::string::npos);
}

TEST(Fault, TooMany_IsRefused) {
  Fabric fabric;
  for (int i = 0; i < rdma::kMaxFaultRules; ++i) fabric.Do("n loss 1%");
  EXPECT_NE(fabric.ErrorOf("n loss 1%").find("64 faults are in force"), std::string::npos);
  fabric.Do("n clear");
  fabric.Do("n loss 1%");
}

TEST(Fault, SeveralHosts_NamesNeedAHostOrADefault) {
  Fabric fabric("host a device n port 1\nhost b device n port 1");
  EXPECT_NE(fabric.ErrorOf("n down").find("on several hosts; allowed: a/n, b/n"),
            std::string::npos);
  fabric.Do("b/n down");
  EXPECT_EQ(fabric.port(1).link_state, 1u);
  fabric.control().set_default_host("a");
  fabric.Do("n down");
  EXPECT_EQ(fabric.port(0).link_state, 1u);
}

TEST(Create, TimeScale) {
  FabricOptions options;
  options.topology = rdma::DefaultTopology();
  options.time_scale = 0.01;
  std::string error;
  const auto control = Control::Create(options, &error);
  ASSERT_NE(control, nullptr);
  EXPECT_EQ(control->directory().dir().time_scale_ppm, 10'000u);
  options.time_scale = 0;
  EXPECT_EQ(Control::Create(options, &error), nullptr);
  EXPECT_NE(error.find("out of range; allowed: 0.000001 to 1000000"), std::string::npos);
}

TEST(Snapshot, TextAndJson_ShowTheFault) {
  Fabric fabric;
  fabric.Do("n down");
  fabric.Do("n blackhole rx");
  fabric.port().tx_bytes = 1536;
  const SlotRef slot = fabric.directory().ClaimSlot(0, 0);
  fabric.directory().AllocateQpn(slot, 0);
  const FabricSnapshot snapshot = TakeSnapshot(fabric.directory());
  ASSERT_EQ(snapshot.devices.size(), 1u);
  ASSERT_EQ(snapshot.processes.size(), 1u);
  EXPECT_EQ(snapshot.processes[0].queue_pairs, 1u);
  const std::string text = SnapshotText(snapshot);
  for (const char* part : {"n:1", "DOWN", "100Gb/s", "10.0.0.1", "1.5KiB", "blackhole rx"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  const std::string json = SnapshotJson(snapshot);
  for (const char* part : {R"("state":"DOWN")", R"("words":"blackhole rx")", R"("tx_bytes":1536)",
                           R"("link_downed":1)", R"({"index":3,"address":"10.0.0.1","type":"v2"})",
                           R"("queue_pairs":1)"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in\n" << json;
  }
  EXPECT_EQ(json.find('\n'), std::string::npos);
}

TEST(EventLog, EveryStepIsALine) {
  Fabric fabric;
  fabric.Do("n down");
  fabric.directory().Log({.port = 1,
                          .qp_order = 3,
                          .kind = static_cast<uint32_t>(rdma::LogKind::kDrop),
                          .psn = 17,
                          .count = 2,
                          .message = 5,
                          .arg = 1});
  uint64_t cursor = 0;
  std::string text, json;
  while (const auto record = fabric.directory().ReadLog(&cursor)) {
    text += LogText(fabric.directory(), *record).substr(15) + "\n";
    json += LogJson(fabric.directory(), *record);
  }
  EXPECT_EQ(text,
            "n:1 fault_set down\nn:1 port_state DOWN\nn:1 event port_err\n"
            "n:1 qp 3 drop psn 17 count 2 message 5 rule 1\n");
  EXPECT_NE(json.find(R"("kind":"event","arg":10,"event":"port_err"})"), std::string::npos) << json;
}

}  // namespace
}  // namespace railhop::fabric
