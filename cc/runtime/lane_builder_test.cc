// What the settings make of a connection's queue pairs: each knob by the attributes that verbs get.
#include "cc/runtime/lane_builder.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/units.h"
#include "cc/datapath/fake_nic.h"
#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

constexpr int64_t kNow = kNsPerSecond;

class LaneBuilderTest : public testing::Test {
 protected:
  LaneBuilderTest() {
    for (datapath::FakeNic& nic : nics_) {
      nic.port.active_mtu = IBV_MTU_4096;
      nic.port.lid = 17;
      nic.gid.raw[15] = 9;
    }
    AddPart();
  }

  // One more part of the net device.
  void AddPart() {
    auto part = std::make_unique<PhysicalDevice>();
    part->id = static_cast<int>(parts_.size());
    part->name = "fake" + std::to_string(parts_.size());
    part->context = nics_[parts_.size()].context();
    part->port = 2;
    part->is_ethernet = true;
    part->gid_index = 3;
    device_.parts.push_back(part.get());
    parts_.push_back(std::move(part));
  }

  // A peer with so many devices and lanes.
  static control::EndDescription Peer(size_t devices, size_t lanes) {
    control::EndDescription peer;
    peer.memory_address = 0x1000;
    for (size_t i = 0; i < devices; ++i) {
      control::DeviceDescription device;
      device.name = "peer";
      device.is_ethernet = true;
      device.mtu = IBV_MTU_4096;
      device.lid = static_cast<uint16_t>(30 + i);
      device.gid[15] = static_cast<uint8_t>(40 + i);
      peer.devices.push_back(device);
    }
    for (size_t i = 0; i < lanes; ++i) {
      peer.lanes.push_back({.qp_number = static_cast<uint32_t>(100 + i),
                            .start_psn = static_cast<uint32_t>(200 + i)});
    }
    return peer;
  }

  // Everything up to RTS; the attributes of lane 0's steps.
  struct Steps {
    ibv_qp_attr init = {}, rtr = {}, rts = {};
  };
  Steps Raise(LaneBuilder::Side side, uint8_t service_level, uint8_t traffic_class,
              const control::EndDescription& peer) {
    builder_ = std::make_unique<LaneBuilder>(device_, config_, side);
    const auto lanes = static_cast<uint32_t>(peer.lanes.size());
    EXPECT_TRUE(builder_->Create(lanes, static_cast<uint32_t>(peer.devices.size())).ok());
    const absl::StatusOr<bool> up = builder_->Connect(peer, service_level, traffic_class, kNow);
    EXPECT_TRUE(up.ok() && *up) << up.status();
    Steps steps;
    for (const datapath::ModifiedQp& step : nics_[0].modified) {
      ibv_qp_attr* to = step.attr.qp_state == IBV_QPS_INIT  ? &steps.init
                        : step.attr.qp_state == IBV_QPS_RTR ? &steps.rtr
                                                            : &steps.rts;
      if (to->qp_state == IBV_QPS_RESET) *to = step.attr;
    }
    return steps;
  }

  datapath::FakeNic nics_[8];
  std::vector<std::unique_ptr<PhysicalDevice>> parts_;
  NetDevice device_;
  datapath::DatapathConfig config_;
  std::unique_ptr<LaneBuilder> builder_;
};

TEST(LaneCount, LargerSumWinsUpTo128) {
  EXPECT_EQ(LaneCount(1, 1, 1, 1), 1u);
  EXPECT_EQ(LaneCount(2, 1, 1, 1), 2u);
  EXPECT_EQ(LaneCount(1, 4, 2, 1), 4u);
  EXPECT_EQ(LaneCount(1, 1, 8, 16), 128u);
  EXPECT_EQ(LaneCount(8, 100, 1, 1), 128u);
}

TEST_F(LaneBuilderTest, Defaults_AsNccl) {
  const Steps steps = Raise(LaneBuilder::Side::kSender, 0, 0, Peer(1, 1));
  EXPECT_EQ(steps.init.pkey_index, 0);
  EXPECT_EQ(steps.init.port_num, 2);
  EXPECT_EQ(steps.init.qp_access_flags, unsigned{IBV_ACCESS_REMOTE_WRITE});
  EXPECT_EQ(steps.rtr.path_mtu, IBV_MTU_4096);
  EXPECT_EQ(steps.rtr.dest_qp_num, 100u);
  EXPECT_EQ(steps.rtr.rq_psn, 200u);
  EXPECT_EQ(steps.rtr.min_rnr_timer, 12);
  EXPECT_EQ(steps.rtr.max_dest_rd_atomic, 1);
  EXPECT_EQ(steps.rtr.ah_attr.is_global, 1);
  EXPECT_EQ(steps.rtr.ah_attr.grh.sgid_index, 3);
  EXPECT_EQ(steps.rtr.ah_attr.grh.dgid.raw[15], 40);
  EXPECT_EQ(steps.rtr.ah_attr.grh.hop_limit, 255);
  EXPECT_EQ(steps.rtr.ah_attr.port_num, 2);
  EXPECT_EQ(steps.rts.timeout, 20);
  EXPECT_EQ(steps.rts.retry_cnt, 7);
  EXPECT_EQ(steps.rts.rnr_retry, 7);
  EXPECT_EQ(steps.rts.max_rd_atomic, 1);
}

TEST_F(LaneBuilderTest, Pkey_IndexAtInit) {
  config_.ib_pkey = 5;
  EXPECT_EQ(Raise(LaneBuilder::Side::kSender, 0, 0, Peer(1, 1)).init.pkey_index, 5);
}

TEST_F(LaneBuilderTest, TimeoutAndRetryCount_AtRts) {
  config_.ib_timeout = 14;
  config_.ib_retry_cnt = 3;
  const Steps steps = Raise(LaneBuilder::Side::kReceiver, 0, 0, Peer(1, 1));
  EXPECT_EQ(steps.rts.timeout, 14);
  EXPECT_EQ(steps.rts.retry_cnt, 3);
}

TEST_F(LaneBuilderTest, ServiceLevelAndTrafficClass_OfTheSender) {
  const Steps steps = Raise(LaneBuilder::Side::kSender, 5, 106, Peer(1, 1));
  EXPECT_EQ(steps.rtr.ah_attr.sl, 5);
  EXPECT_EQ(steps.rtr.ah_attr.grh.traffic_class, 106);
}

TEST_F(LaneBuilderTest, FifoTc_ReceiversQueuePairsOnly) {
  config_.ib_fifo_tc = 84;
  EXPECT_EQ(Raise(LaneBuilder::Side::kReceiver, 5, 106, Peer(1, 1)).rtr.ah_attr.grh.traffic_class,
            84);
  nics_[0].modified.clear();
  EXPECT_EQ(Raise(LaneBuilder::Side::kSender, 5, 106, Peer(1, 1)).rtr.ah_attr.grh.traffic_class,
            106);
}

TEST_F(LaneBuilderTest, Mtu_SmallerOfTheTwo) {
  control::EndDescription peer = Peer(1, 1);
  peer.devices[0].mtu = IBV_MTU_1024;
  EXPECT_EQ(Raise(LaneBuilder::Side::kSender, 0, 0, peer).rtr.path_mtu, IBV_MTU_1024);
}

TEST_F(LaneBuilderTest, UseInline_OneEntryOnTheReceiversSide) {
  config_.ib_use_inline = true;
  Raise(LaneBuilder::Side::kReceiver, 0, 0, Peer(1, 1));
  EXPECT_EQ(nics_[0].created_qps.back().cap.max_inline_data, 64u);
  Raise(LaneBuilder::Side::kSender, 0, 0, Peer(1, 1));
  EXPECT_EQ(nics_[0].created_qps.back().cap.max_inline_data, 0u);
}

TEST_F(LaneBuilderTest, AdaptiveRouting_AutoByLinkAndRoomForTwoWrites) {
  Raise(LaneBuilder::Side::kSender, 0, 0, Peer(1, 1));  // Ethernet: off
  EXPECT_EQ(nics_[0].created_qps.back().cap.max_send_wr,
            datapath::kLaneStripesMax + datapath::kQueueSlack);
  config_.ib_adaptive_routing = 1;
  Raise(LaneBuilder::Side::kSender, 0, 0, Peer(1, 1));
  EXPECT_EQ(nics_[0].created_qps.back().cap.max_send_wr,
            2 * datapath::kLaneStripesMax + datapath::kQueueSlack);
  config_.ib_adaptive_routing = -2;
  parts_[0]->is_ethernet = false;
  control::EndDescription peer = Peer(1, 1);
  peer.devices[0].is_ethernet = false;
  Raise(LaneBuilder::Side::kSender, 0, 0, peer);  // InfiniBand: on
  EXPECT_EQ(nics_[0].created_qps.back().cap.max_send_wr,
            2 * datapath::kLaneStripesMax + datapath::kQueueSlack);
}

TEST_F(LaneBuilderTest, InfiniBand_LidInOneSubnetGrhToAnother) {
  parts_[0]->is_ethernet = false;
  control::EndDescription peer = Peer(1, 1);
  peer.devices[0].is_ethernet = false;
  Steps steps = Raise(LaneBuilder::Side::kSender, 0, 0, peer);
  EXPECT_EQ(steps.rtr.ah_attr.is_global, 0);
  EXPECT_EQ(steps.rtr.ah_attr.dlid, 30);
  nics_[0].modified.clear();
  peer.devices[0].gid[7] = 1;  // another subnet
  steps = Raise(LaneBuilder::Side::kSender, 0, 0, peer);
  EXPECT_EQ(steps.rtr.ah_attr.is_global, 1);
  EXPECT_EQ(steps.rtr.ah_attr.dlid, 30);
  nics_[0].modified.clear();
  peer.devices[0].gid[4] = 0x12;  // with the router's LID in it
  peer.devices[0].gid[5] = 0x34;
  steps = Raise(LaneBuilder::Side::kSender, 0, 0, peer);
  EXPECT_EQ(steps.rtr.ah_attr.dlid, 0x1234);
}

TEST_F(LaneBuilderTest, EthernetToInfiniBand_Refused) {
  control::EndDescription peer = Peer(1, 1);
  peer.devices[0].is_ethernet = false;
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kSender);
  ASSERT_TRUE(builder.Create(1, 1).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(builder.Connect(peer, 0, 0, kNow).status()));
}

TEST_F(LaneBuilderTest, PeerWithOtherNumbers_Refused) {
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kSender);
  ASSERT_TRUE(builder.Create(2, 1).ok());
  EXPECT_FALSE(builder.Connect(Peer(1, 3), 0, 0, kNow).ok());
  EXPECT_FALSE(builder.Connect(Peer(2, 2), 0, 0, kNow).ok());
}

TEST_F(LaneBuilderTest, EceEnabled_QueriedTakenAndToldBack) {
  nics_[0].ece = {.vendor_id = 0x15b3, .options = 7, .comp_mask = 0};
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kReceiver);
  ASSERT_TRUE(builder.Create(1, 1).ok());
  EXPECT_EQ(builder.Describe()->lanes[0].ece_options, 7u);
  control::EndDescription peer = Peer(1, 1);
  peer.lanes[0].ece_vendor = 0x15b3;
  peer.lanes[0].ece_options = 3;
  ASSERT_TRUE(builder.TakeOptions(peer).ok());
  EXPECT_EQ(builder.Describe()->lanes[0].ece_options, 3u);
}

TEST_F(LaneBuilderTest, EceDisabled_NeitherAskedNorSet) {
  config_.ib_ece_enable = false;
  nics_[0].ece = {.vendor_id = 0x15b3, .options = 7, .comp_mask = 0};
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kReceiver);
  ASSERT_TRUE(builder.Create(1, 1).ok());
  EXPECT_EQ(builder.Describe()->lanes[0].ece_vendor, 0u);
  control::EndDescription peer = Peer(1, 1);
  peer.lanes[0].ece_vendor = 0x15b3;
  ASSERT_TRUE(builder.TakeOptions(peer).ok());
  EXPECT_EQ(nics_[0].ece_sets, 0);
}

// ETIMEDOUT is tried again after growing pauses that nobody waits in; other errors end it.
TEST_F(LaneBuilderTest, ModifyTimesOut_AgainLaterAsOftenAsSet) {
  config_.ib_mqp_retry_cnt = 2;
  config_.ib_mqp_retry_sleep_msec = 100;
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kSender);
  ASSERT_TRUE(builder.Create(1, 1).ok());
  nics_[0].modify_errors = {ETIMEDOUT, ETIMEDOUT};
  EXPECT_FALSE(builder.Connect(Peer(1, 1), 0, 0, kNow).value());
  EXPECT_FALSE(builder.Connect(Peer(1, 1), 0, 0, kNow + 99 * kNsPerMs).value());
  EXPECT_FALSE(builder.Connect(Peer(1, 1), 0, 0, kNow + 100 * kNsPerMs).value());
  EXPECT_FALSE(builder.Connect(Peer(1, 1), 0, 0, kNow + 299 * kNsPerMs).value());
  EXPECT_TRUE(builder.Connect(Peer(1, 1), 0, 0, kNow + 300 * kNsPerMs).value());

  LaneBuilder other(device_, config_, LaneBuilder::Side::kSender);
  ASSERT_TRUE(other.Create(1, 1).ok());
  nics_[0].modify_errors = {ETIMEDOUT, ETIMEDOUT, ETIMEDOUT};
  int64_t now = kNow;
  absl::StatusOr<bool> up = false;
  for (int i = 0; i < 3; ++i) up = other.Connect(Peer(1, 1), 0, 0, now += kNsPerSecond);
  EXPECT_FALSE(up.ok());
}

TEST_F(LaneBuilderTest, ModifyFails_OnlyRetriedIfAllAreTo) {
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kSender);
  ASSERT_TRUE(builder.Create(1, 1).ok());
  nics_[0].modify_errors = {EINVAL};
  EXPECT_FALSE(builder.Connect(Peer(1, 1), 0, 0, kNow).ok());
  config_.ib_mqp_retry_all = true;
  LaneBuilder patient(device_, config_, LaneBuilder::Side::kSender);
  ASSERT_TRUE(patient.Create(1, 1).ok());
  nics_[0].modify_errors = {EINVAL};
  EXPECT_FALSE(patient.Connect(Peer(1, 1), 0, 0, kNow).value());
  EXPECT_TRUE(patient.Connect(Peer(1, 1), 0, 0, kNow + kNsPerSecond).value());
}

TEST_F(LaneBuilderTest, Fused_LanesInTurnOverDevicesOfBothEnds) {
  AddPart();
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kSender);
  const control::EndDescription peer = Peer(3, 6);
  ASSERT_TRUE(builder.Create(6, 3).ok());
  EXPECT_EQ(builder.Describe()->devices.size(), 2u);
  ASSERT_TRUE(builder.Connect(peer, 0, 0, kNow).value());
  std::vector<int> seen[2];
  for (int nic = 0; nic < 2; ++nic) {
    for (const datapath::ModifiedQp& step : nics_[nic].modified) {
      if (step.attr.qp_state == IBV_QPS_RTR) {
        seen[nic].push_back(step.attr.ah_attr.grh.dgid.raw[15] - 40);
      }
    }
  }
  EXPECT_EQ(seen[0], (std::vector<int>{0, 2, 1}));
  EXPECT_EQ(seen[1], (std::vector<int>{1, 0, 2}));
}

TEST_F(LaneBuilderTest, GpuMemory_FlushLaneUnlessDisabled) {
  device_.properties.ptr_support = kPointerHost | kPointerCuda;
  {
    LaneBuilder builder(device_, config_, LaneBuilder::Side::kReceiver);
    ASSERT_TRUE(builder.Create(1, 1).ok());
    EXPECT_EQ(nics_[0].qps, 2);
  }
  EXPECT_EQ(nics_[0].qps, 0);
  config_.gdr_flush_disable = true;
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kReceiver);
  ASSERT_TRUE(builder.Create(1, 1).ok());
  EXPECT_EQ(nics_[0].qps, 1);
}

TEST_F(LaneBuilderTest, GivenUp_NothingIsLeft) {
  AddPart();
  for (const LaneBuilder::Side side : {LaneBuilder::Side::kSender, LaneBuilder::Side::kReceiver}) {
    LaneBuilder builder(device_, config_, side);
    ASSERT_TRUE(builder.Create(4, 2).ok());
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(nics_[i].qps + nics_[i].cqs + nics_[i].mrs, 0);
}

TEST_F(LaneBuilderTest, StartPsns_RandomAndTold) {
  LaneBuilder builder(device_, config_, LaneBuilder::Side::kSender);
  ASSERT_TRUE(builder.Create(8, 1).ok());
  const control::EndDescription end = *builder.Describe();
  int different = 0;
  for (size_t i = 1; i < 8; ++i) {
    EXPECT_LE(end.lanes[i].start_psn, 0xffffffu);
    if (end.lanes[i].start_psn != end.lanes[0].start_psn) ++different;
  }
  EXPECT_GT(different, 0);
  ASSERT_TRUE(builder.Connect(Peer(1, 8), 0, 0, kNow).value());
  uint32_t sent = 0;
  for (const datapath::ModifiedQp& step : nics_[0].modified) {
    if (step.attr.qp_state == IBV_QPS_RTS) {
      EXPECT_EQ(step.attr.sq_psn, end.lanes[sent].start_psn);
      ++sent;
    }
  }
  EXPECT_EQ(sent, 8u);
}

}  // namespace
}  // namespace railhop::runtime
