#include "cc/rdma_model/packet.h"

#include <gtest/gtest.h>

namespace railhop::rdma {
namespace {

TEST(Train, TakeFront_PartsAddUpToTheWhole) {
  Train rest;
  rest.psn = 0xfffffe;
  rest.count = 4;
  rest.mtu = 256;
  rest.length = rest.message_length = 900;
  const Train front = rest.TakeFront(3);
  EXPECT_EQ(front.psn, 0xfffffeu);
  EXPECT_EQ(front.count, 3u);
  EXPECT_EQ(front.length, 768u);
  EXPECT_EQ(front.offset, 0u);
  EXPECT_TRUE(front.first);
  EXPECT_FALSE(front.last);
  EXPECT_EQ(rest.psn, 1u);  // wrapped
  EXPECT_EQ(rest.count, 1u);
  EXPECT_EQ(rest.length, 132u);
  EXPECT_EQ(rest.offset, 768u);
  EXPECT_FALSE(rest.first);
  EXPECT_TRUE(rest.last);
}

TEST(Train, TakeFrontOfMiddle_KeepsMessageEnds) {
  Train rest;
  rest.first = rest.last = false;
  rest.count = 2;
  rest.mtu = 256;
  rest.length = 512;
  rest.offset = 512;
  const Train front = rest.TakeFront(1);
  EXPECT_FALSE(front.first);
  EXPECT_FALSE(front.last);
  EXPECT_EQ(rest.offset, 768u);
  EXPECT_FALSE(rest.last);
}

TEST(Response, TakeFront_PartsAddUpToTheWhole) {
  Response rest;
  rest.psn = 0xffffff;
  rest.count = 3;
  rest.mtu = 256;
  rest.length = 600;
  rest.remote_addr = 1000;
  const Response front = rest.TakeFront(2);
  EXPECT_EQ(front.psn, 0xffffffu);
  EXPECT_EQ(front.length, 512u);
  EXPECT_EQ(front.remote_addr, 1000u);
  EXPECT_EQ(rest.psn, 1u);
  EXPECT_EQ(rest.count, 1u);
  EXPECT_EQ(rest.length, 88u);
  EXPECT_EQ(rest.remote_addr, 1512u);
}

TEST(PacketCount, EmptyMessage_IsOnePacket) {
  EXPECT_EQ(PacketCount(0, 4096), 1u);
  EXPECT_EQ(PacketCount(1, 4096), 1u);
  EXPECT_EQ(PacketCount(4096, 4096), 1u);
  EXPECT_EQ(PacketCount(4097, 4096), 2u);
  EXPECT_EQ(PacketCount(kMaxMessageBytes, 256), 1u << 22);
}

TEST(Psn, AcrossTheWrap_KeepsOrder) {
  EXPECT_EQ(PsnAdd(kPsnMask, 1), 0u);
  EXPECT_EQ(PsnDiff(0, kPsnMask), 1);
  EXPECT_EQ(PsnDiff(kPsnMask, 0), -1);
  EXPECT_EQ(PsnDiff(5, 5), 0);
  EXPECT_EQ(PsnDiff(0x7fffff, 0), 0x7fffff);
  EXPECT_EQ(PsnDiff(0x800000, 0), -0x800000);
}

TEST(Timers, KnownCodes_MatchTheSpecification) {
  EXPECT_EQ(AckTimeoutNs(0), 0u);
  EXPECT_EQ(AckTimeoutNs(14), 67'108'864u);
  EXPECT_EQ(RnrTimerNs(0), 655'360'000u);
  EXPECT_EQ(RnrTimerNs(1), 10'000u);
  EXPECT_EQ(RnrTimerNs(12), 640'000u);
  EXPECT_EQ(RnrTimerNs(31), 491'520'000u);
}

}  // namespace
}  // namespace railhop::rdma
