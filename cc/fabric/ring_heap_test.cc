#include "cc/fabric/ring_heap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace railhop::fabric {
namespace {

constexpr uint64_t kPage = RingHeap::kPage;

TEST(RingHeap, Full_GivesZeroUntilSomethingIsFreed) {
  RingHeap heap(kPage, 4 * kPage);
  EXPECT_EQ(heap.Allocate(1), kPage);
  EXPECT_EQ(heap.Allocate(kPage + 1), 2 * kPage);
  EXPECT_EQ(heap.Allocate(1), 0u);
  heap.Free(kPage, 1);
  EXPECT_EQ(heap.Allocate(kPage), kPage);
}

TEST(RingHeap, RingsOfGrowingSizes_UseTheSameRoomAgain) {
  RingHeap heap(kPage, 101 * kPage);
  for (uint64_t pages = 1; pages <= 100; ++pages) {
    const uint64_t offset = heap.Allocate(pages * kPage);
    ASSERT_NE(offset, 0u) << pages;
    heap.Free(offset, pages * kPage);
  }
}

TEST(RingHeap, RandomOrder_NeverOverlapsAndComesBackWhole) {
  std::mt19937 random(1);
  RingHeap heap(kPage, 257 * kPage);
  std::map<uint64_t, uint64_t> taken;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t bytes = random() % (20 * kPage) + 1;
    const uint64_t offset = random() % 2 == 0 ? heap.Allocate(bytes) : 0;
    if (offset != 0) {
      const auto next = taken.lower_bound(offset);
      ASSERT_TRUE(next == taken.end() || offset + bytes <= next->first);
      ASSERT_TRUE(next == taken.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= offset);
      taken.emplace(offset, bytes);
    } else if (!taken.empty()) {
      const auto it = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      heap.Free(it->first, it->second);
      taken.erase(it);
    }
  }
  for (const auto& [offset, bytes] : taken) heap.Free(offset, bytes);
  EXPECT_EQ(heap.Allocate(256 * kPage), kPage);
}

}  // namespace
}  // namespace railhop::fabric
