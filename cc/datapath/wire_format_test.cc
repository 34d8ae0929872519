#include "cc/datapath/wire_format.h"

#include <set>

#include "cc/datapath/connection.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

TEST(Immediate, EachFieldAlone_OwnBitsAndBack) {
  uint32_t seen = 0;
  const Immediate fields[] = {{31, 0, 0, 1, false, 0},  {0, 7, 0, 1, false, 0},
                              {0, 0, 127, 1, false, 0}, {0, 0, 0, 128, false, 0},
                              {0, 0, 0, 1, true, 0},    {0, 0, 0, 1, false, 0x1ff}};
  for (const Immediate& field : fields) {
    const uint32_t bits = PackImmediate(field);
    EXPECT_EQ(seen & bits, 0u);
    seen |= bits;
    const Immediate back = UnpackImmediate(bits);
    EXPECT_EQ(back.slot, field.slot);
    EXPECT_EQ(back.receive, field.receive);
    EXPECT_EQ(back.stripe, field.stripe);
    EXPECT_EQ(back.stripes, field.stripes);
    EXPECT_EQ(back.has_record, field.has_record);
    EXPECT_EQ(back.epoch, field.epoch);
  }
  EXPECT_EQ(seen, 0xffffffffu);
}

TEST(Immediate, EpochBeyondItsBits_LowBitsOnly) {
  EXPECT_EQ(PackImmediate({0, 0, 0, 1, false, 0x200}), PackImmediate({0, 0, 0, 1, false, 0}));
}

TEST(WorkId, Extremes_BackAsTheyWere) {
  for (const WorkId id :
       {WorkId{WorkKind::kData, 127, 127, 255, 7}, WorkId{WorkKind::kFlush, 0, 0, 31},
        WorkId{WorkKind::kReceiveMarker, 0xff, 0xff, 0xffff, 0xffff}}) {
    const WorkId back = UnpackWorkId(PackWorkId(id));
    EXPECT_EQ(back.kind, id.kind);
    EXPECT_EQ(back.lane, id.lane);
    EXPECT_EQ(back.stripe, id.stripe);
    EXPECT_EQ(back.index, id.index);
    EXPECT_EQ(back.epoch, id.epoch);
  }
}

TEST(Slot, ConsecutiveSequences_AllSlotsInTurn) {
  std::set<uint32_t> slots;
  for (uint64_t s = kFirstSequence; s < kFirstSequence + kSlots; ++s) slots.insert(SlotOf(s));
  EXPECT_EQ(slots.size(), kSlots);
  EXPECT_EQ(SlotOf(kFirstSequence), SlotOf(kFirstSequence + kSlots));
}

}  // namespace
}  // namespace railhop::datapath
