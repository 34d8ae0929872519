#include <gtest/gtest.h>
#include <infiniband/verbs.h>

namespace {

TEST(WcStatusString, OfEveryStatus_IsKnown) {
  for (int status = 0; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    EXPECT_STRNE(ibv_wc_status_str(static_cast<ibv_wc_status>(status)), "unknown") << status;
  }
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error");
}

TEST(WcStatusString, OfNoStatus_IsUnknown) {
  EXPECT_STREQ(ibv_wc_status_str(static_cast<ibv_wc_status>(-1)), "unknown");
  EXPECT_STREQ(ibv_wc_status_str(static_cast<ibv_wc_status>(1000)), "unknown");
}

TEST(EventString, OfEveryEvent_IsKnown) {
  for (int event = 0; event <= IBV_EVENT_WQ_FATAL; ++event) {
    EXPECT_STRNE(ibv_event_type_str(static_cast<ibv_event_type>(event)), "unknown") << event;
  }
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_PORT_ERR), "port error");
  EXPECT_STREQ(ibv_event_type_str(IBV_EVENT_GID_CHANGE), "GID table change");
  EXPECT_STREQ(ibv_event_type_str(static_cast<ibv_event_type>(99)), "unknown");
}

TEST(PortStateString, OfEveryState_IsKnown) {
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_DOWN), "down");
  EXPECT_STREQ(ibv_port_state_str(static_cast<ibv_port_state>(9)), "unknown");
}

TEST(NodeTypeString, OfEveryType_IsKnown) {
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown");
}

TEST(Rate, ThereAndBack_IsTheSame) {
  for (int rate = 0; rate <= IBV_RATE_1200_GBPS; ++rate) {
    const auto code = static_cast<ibv_rate>(rate);
    if (const int mbps = ibv_rate_to_mbps(code); mbps != -1) {
      EXPECT_EQ(mbps_to_ibv_rate(mbps), code);
    }
    if (const int mult = ibv_rate_to_mult(code); mult != -1) {
      EXPECT_EQ(mult_to_ibv_rate(mult), code);
    }
  }
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_40_GBPS), 16);
}

TEST(Rate, Unknown_IsMaxOrMinusOne) {
  EXPECT_EQ(mbps_to_ibv_rate(1), IBV_RATE_MAX);
  EXPECT_EQ(mult_to_ibv_rate(0), IBV_RATE_MAX);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_14_GBPS), -1);
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_MAX), -1);
}

}  // namespace
