#include "cc/rdma_model/completion_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace railhop::rdma {
namespace {

struct Ring {
  explicit Ring(uint32_t capacity) : entries(capacity), queue(&state, entries.data()) {
    state.capacity = capacity;
  }
  CqPush Push(uint64_t wr_id, uint32_t qp_num = 1) {
    Completion c;
    c.wr_id = wr_id;
    c.qp_num = qp_num;
    return queue.Push(c, wr_id + 100);
  }
  std::vector<uint64_t> PollAll() {
    std::vector<Completion> got(entries.size());
    got.resize(static_cast<size_t>(queue.Poll(static_cast<int>(got.size()), got.data())));
    std::vector<uint64_t> ids;
    for (const Completion& c : got) ids.push_back(c.wr_id);
    return ids;
  }
  void Arm(CqArm arm) { state.armed = static_cast<uint32_t>(arm); }

  CqState state{};
  std::vector<CqEntry> entries;
  CompletionQueue queue;
};

using Ids = std::vector<uint64_t>;

TEST(CompletionQueue, Poll_OldestFirstAndOnce) {
  Ring ring(4);
  for (uint64_t lap = 0; lap < 5; ++lap) {  // past the ring's end
    for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(ring.Push(lap * 10 + i), CqPush::kStored);
    EXPECT_EQ(ring.PollAll(), (Ids{lap * 10, lap * 10 + 1, lap * 10 + 2}));
    EXPECT_TRUE(ring.queue.Empty());
  }
}

TEST(CompletionQueue, Poll_TakesAtMostWhatWasAskedFor) {
  Ring ring(4);
  for (uint64_t i = 0; i < 3; ++i) ring.Push(i);
  Completion got[2];
  EXPECT_EQ(ring.queue.Poll(0, got), 0);
  EXPECT_EQ(ring.queue.Poll(2, got), 2);
  EXPECT_EQ(ring.PollAll(), (Ids{2}));
}

TEST(CompletionQueue, NoRoom_OverrunsAndKeepsWhatIsThere) {
  Ring ring(2);
  ring.Push(1);
  ring.Push(2);
  EXPECT_EQ(ring.state.overrun, 0u);
  EXPECT_EQ(ring.Push(3), CqPush::kOverrun);
  EXPECT_EQ(ring.state.overrun, 1u);
  EXPECT_EQ(ring.PollAll(), (Ids{1, 2}));
}

TEST(CompletionQueue, ArmedForNext_NotifiesOnce) {
  Ring ring(4);
  EXPECT_EQ(ring.Push(1), CqPush::kStored);
  ring.Arm(CqArm::kNext);
  EXPECT_EQ(ring.Push(2), CqPush::kStoredNotify);
  EXPECT_EQ(ring.Push(3), CqPush::kStored);
}

TEST(CompletionQueue, ArmedForSolicited_WaitsForSolicitedOrFailed) {
  Ring ring(8);
  ring.Arm(CqArm::kSolicited);
  EXPECT_EQ(ring.Push(1), CqPush::kStored);
  Completion solicited;
  solicited.solicited = 1;
  EXPECT_EQ(ring.queue.Push(solicited, 1), CqPush::kStoredNotify);
  ring.Arm(CqArm::kSolicited);
  Completion failed;
  failed.status = WcStatus::kWrFlushErr;
  EXPECT_EQ(ring.queue.Push(failed, 2), CqPush::kStoredNotify);
}

TEST(CompletionQueue, Purge_DropsOneQueuePairAndKeepsOrder) {
  Ring ring(4);
  ring.Push(90);
  ring.Push(91);
  ring.PollAll();  // so that what follows wraps
  ring.Push(1, 7);
  ring.Push(2, 8);
  ring.Push(3, 7);
  ring.Push(4, 8);
  ring.queue.Purge(7);
  ring.Push(5, 7);  // room was made
  EXPECT_EQ(ring.PollAll(), (Ids{2, 4, 5}));
}

TEST(CompletionQueue, PurgeOfAllOrNone_IsWhole) {
  Ring ring(4);
  ring.queue.Purge(7);
  ring.Push(1, 7);
  ring.Push(2, 7);
  ring.queue.Purge(8);
  EXPECT_EQ(ring.PollAll(), (Ids{1, 2}));
  ring.Push(3, 7);
  ring.queue.Purge(7);
  EXPECT_TRUE(ring.queue.Empty());
}

TEST(CompletionQueue, HasToken_AlsoWhenPolledAlready) {
  Ring ring(4);
  EXPECT_FALSE(ring.queue.HasToken(101));
  ring.Push(1);
  EXPECT_TRUE(ring.queue.HasToken(101));
  ring.PollAll();
  EXPECT_TRUE(ring.queue.HasToken(101));
  EXPECT_FALSE(ring.queue.HasToken(0));
}

TEST(CompletionQueue, Fired_IsTakenOnceAndSurvivesTheNextArm) {
  Ring ring(4);
  EXPECT_FALSE(ring.queue.TakeFired());
  ring.queue.Arm(CqArm::kNext);
  EXPECT_EQ(ring.Push(1), CqPush::kStoredNotify);
  ring.queue.Arm(CqArm::kSolicited);
  ring.queue.Arm(CqArm::kNext);
  ring.queue.Arm(CqArm::kSolicited);  // does not weaken
  EXPECT_TRUE(ring.queue.TakeFired());
  EXPECT_FALSE(ring.queue.TakeFired());
  EXPECT_EQ(ring.Push(2), CqPush::kStoredNotify);
  EXPECT_EQ(ring.Push(3), CqPush::kStored);
  EXPECT_TRUE(ring.queue.TakeFired());
}

}  // namespace
}  // namespace railhop::rdma
