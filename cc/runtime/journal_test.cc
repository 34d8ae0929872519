#include "cc/runtime/journal.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

constexpr size_t kAll = 100'000;

void Fill(Journal* journal, size_t count) {
  for (size_t i = 0; i < count; ++i) journal->Append({.kind = JournalEntry::Kind::kCommand});
}

std::vector<uint64_t> SerialsSince(const Journal& journal, uint64_t after, size_t limit,
                                   uint64_t* gone) {
  std::vector<uint64_t> serials;
  for (const JournalEntry& entry : journal.Since(after, limit, gone)) {
    serials.push_back(entry.serial);
  }
  return serials;
}

TEST(JournalSince, Empty_Nothing) {
  const Journal journal;
  uint64_t gone = 7;
  EXPECT_TRUE(journal.Since(0, kAll, &gone).empty());
  EXPECT_EQ(gone, 0u);
}

TEST(JournalSince, Some_LaterOnesUpToTheLimit) {
  Journal journal;
  Fill(&journal, 5);
  uint64_t gone = 7;
  EXPECT_EQ(SerialsSince(journal, 0, kAll, &gone), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(gone, 0u);
  EXPECT_EQ(SerialsSince(journal, 2, 2, &gone), (std::vector<uint64_t>{3, 4}));
  EXPECT_TRUE(SerialsSince(journal, 5, kAll, &gone).empty());
}

TEST(JournalSince, RingIsFull_TellsHowManyAreGone) {
  Journal journal;
  Fill(&journal, Journal::kEntriesMax + 3);
  uint64_t gone = 0;
  std::vector<uint64_t> serials = SerialsSince(journal, 0, kAll, &gone);
  EXPECT_EQ(gone, 3u);
  ASSERT_EQ(serials.size(), Journal::kEntriesMax);
  EXPECT_EQ(serials.front(), 4u);
  EXPECT_EQ(serials.back(), journal.last_serial());
  serials = SerialsSince(journal, 2, 1, &gone);
  EXPECT_EQ(gone, 1u);
  EXPECT_EQ(serials, std::vector<uint64_t>{4});
  serials = SerialsSince(journal, 3, 1, &gone);
  EXPECT_EQ(gone, 0u);
  EXPECT_EQ(serials, std::vector<uint64_t>{4});
}

// A caller may ask from any place: behind the end there is nothing, and nothing is gone.
TEST(JournalSince, BehindTheEnd_Nothing) {
  Journal journal;
  Fill(&journal, Journal::kEntriesMax + 3);
  for (const uint64_t after :
       {journal.last_serial(), journal.last_serial() + 1, std::numeric_limits<uint64_t>::max() - 1,
        std::numeric_limits<uint64_t>::max()}) {
    uint64_t gone = 7;
    EXPECT_TRUE(journal.Since(after, kAll, &gone).empty()) << after;
    EXPECT_EQ(gone, 0u) << after;
  }
}

}  // namespace
}  // namespace railhop::runtime
