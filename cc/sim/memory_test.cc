#include "cc/sim/memory.h"

#include <gtest/gtest.h>

namespace railhop::sim {
namespace {

TEST(Buffer, Pattern_HoldsWhereItWasFilledAndNowhereElse) {
  Memory memory;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{1000}}) {
    const Buffer buffer = memory.Allocate(size, 3);
    buffer.Fill(1);
    EXPECT_TRUE(buffer.Holds(1, 0, size));
    EXPECT_TRUE(buffer.GuardsIntact());
    if (size == 0) continue;
    EXPECT_FALSE(buffer.Holds(2, 0, size));
    buffer.data()[size - 1] ^= 1;
    EXPECT_EQ(buffer.FirstWrong(1, 0, size), size - 1);
  }
}

TEST(Buffer, PatternInPieces_IsTheSamePattern) {
  Memory memory;
  const Buffer buffer = memory.Allocate(100);
  buffer.Fill(9, 0, 13);
  buffer.Fill(9, 13, 50);
  buffer.Fill(9, 63, 37);
  EXPECT_TRUE(buffer.Holds(9, 0, 100));
  EXPECT_TRUE(buffer.Holds(9, 5, 20));
}

TEST(Buffer, ShiftedBytes_AreWrong) {
  Memory memory;
  const Buffer buffer = memory.Allocate(64);
  buffer.Fill(1);
  for (size_t i = 0; i + 1 < 64; ++i) buffer.data()[i] = buffer.data()[i + 1];
  EXPECT_LT(buffer.FirstWrong(1, 0, 64), 8u);
}

TEST(Memory, ByteOutside_IsDamage) {
  Memory memory;
  const Buffer first = memory.Allocate(10), second = memory.Allocate(10, 5);
  EXPECT_TRUE(memory.Damaged().empty());
  first.data()[10] = 0;
  ASSERT_EQ(memory.Damaged().size(), 1u);
  EXPECT_EQ(memory.Damaged()[0].data(), first.data());
  second.data()[-1] = 0;
  EXPECT_EQ(memory.Damaged().size(), 2u);
}

TEST(Memory, Reset_UsesTheSameBlocksAgain) {
  Memory memory;
  const uint8_t* before = memory.Allocate(1000).data();
  memory.Allocate(10 << 20);
  memory.Reset();
  EXPECT_EQ(memory.Allocate(1000).data(), before);
  EXPECT_TRUE(memory.Damaged().empty());
}

}  // namespace
}  // namespace railhop::sim
