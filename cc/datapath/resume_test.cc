// What becomes of what went over lanes that failed: records, resends, lies.
#include <utility>
#include <vector>

#include "cc/datapath/testing/failover_cases.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

// ---- Records and resending.

// Each size, cut for three lanes: the middle one fails with its packet lost, acknowledged or only
// not acknowledged.
TEST(Resume, MiddleLaneOfThree_OnlyItsStripeIfMissing) {
  for (const bool adaptive : {false, true}) {
    for (const size_t size : {size_t{4096}, size_t{6144}, size_t{6145}, size_t{10000},
                              size_t{49999}, size_t{50000}, size_t{99991}}) {
      for (const bool arrived : {false, true}) {
        SCOPED_TRACE(size);
        TwoEnds::Shape shape = Shape(3, 3, 3);
        shape.rules.adaptive_routing = adaptive;
        shape.rules.ar_threshold = 8192;
        TwoEnds t(shape);
        Transfer* const receive = t.Receive(77, size + 9);
        t.Settle();
        SendRequest* const sent = t.Send(5, size);
        ASSERT_NE(sent, nullptr);
        t.Expect(77, 5, size);
        const size_t packets = t.PostedOn(true, 1).size();
        ASSERT_GE(packets, 1u);
        for (size_t i = 0; i < packets; ++i) {
          t.Step(true, 1, arrived ? Fate::kArrives : Fate::kLost);
        }
        t.Break(true, 1);
        const ResumeResult result = t.Episode(Refs({1}), 2);
        EXPECT_EQ(result.status, Status::kResumed);
        EXPECT_EQ(result.stripes, arrived ? 0u : 1u);
        ExpectDone(&t, receive, sent, static_cast<int>(size));
      }
    }
  }
}

TEST(Resume, ZeroBytes_SentAgain) {
  TwoEnds t(Shape(2, 2));
  Transfer* const receive = t.Receive(0, 100);
  t.Settle();
  SendRequest* const sent = t.Send(0, 0);
  t.Step(true, 0, Fate::kLost);
  t.Break(true, 0);
  const ResumeResult result = t.Episode(Refs({0}), 2);
  EXPECT_EQ(result.stripes, 1u);
  EXPECT_EQ(result.bytes, 0u);
  ExpectDone(&t, receive, sent, 0);
}

// More stripes than a request has room for, and more than 64.
TEST(Resume, HundredLanes_ThoseThatFailed) {
  TwoEnds t(Shape(2, 100, 100));
  constexpr size_t kSize = 400001;
  for (int round = 0; round < 2; ++round) {
    Transfer* const receive = t.Receive(0, kSize);
    t.Settle();
    SendRequest* const sent = t.Send(0, kSize);
    ASSERT_NE(sent, nullptr);
    t.Expect(0, 0, kSize);
    std::vector<LaneRef> failed;
    uint32_t lost = 0;
    for (uint8_t lane = round == 0 ? 1 : 0; lane < 100; lane += 2) {
      failed.push_back(t.Ref(true, lane));
      while (!t.PostedOn(true, lane).empty()) {
        const bool arrives = lane % 3 == 0;
        t.Step(true, lane, arrives ? Fate::kArrives : Fate::kLost);
        lost += arrives ? 0 : 1;
      }
    }
    if (round == 1) {
      for (uint8_t lane = 1; lane < 100; lane += 2) {
        t.AddLane(lane, 3, 2, 3);
      }
    }
    const ResumeResult result = t.Episode(failed, round == 0 ? 2 : 4);
    EXPECT_EQ(result.status, Status::kResumed);
    EXPECT_EQ(result.stripes, lost);
    if (round == 1) {
      std::vector<uint8_t> route;
      for (uint8_t lane = 1; lane < 100; lane += 2) route.push_back(lane);
      t.SetRoutes(route);
      t.Up(4);
    }
    ExpectDone(&t, receive, sent, kSize);
  }
}

TEST(Resume, GroupedReceives_OnlyWhatIsMissing) {
  TwoEnds t(Shape(2, 2));
  Transfer* const receive = t.ReceiveGroup({{0, 1000}, {1000, 1000}, {2000, 1000}, {3000, 500}});
  t.Settle();
  // Tags 3, 1, 4 go out in this order, over lanes 0, 1, 0; 2 later.
  SendRequest* const third = t.Send(2000, 999, 3);
  SendRequest* const first = t.Send(0, 1000, 1);
  SendRequest* const fourth = t.Send(3000, 1, 4);
  ASSERT_TRUE(third && first && fourth);
  t.Expect(0, 0, 1000);
  t.Expect(1000, 1000, 1000);
  t.Expect(2000, 2000, 999);
  t.Expect(3000, 3000, 1);
  EXPECT_TRUE(t.Step(true, 0));  // the third
  EXPECT_TRUE(t.Step(true, 0, Fate::kLost));
  t.Break(true, 0);
  const ResumeResult result = t.Episode(Refs({0}), 2);
  EXPECT_EQ(result.stripes, 1u);
  EXPECT_EQ(result.bytes, 1u);
  t.Settle();
  EXPECT_TRUE(t.IsSent(third) && t.IsSent(first) && t.IsSent(fourth));
  EXPECT_TRUE(t.Received(receive).empty());
  SendRequest* const second = t.Send(1000, 1000, 2);
  ASSERT_NE(second, nullptr);
  t.Settle();
  EXPECT_EQ(t.Received(receive), (std::vector<int>{1000, 1000, 999, 1}));
  EXPECT_TRUE(t.IsSent(second));
  EXPECT_EQ(t.Check(), "");
}

// What is under way on a healthy lane is left alone: no byte twice, although the record lacks it.
TEST(Resume, UnderWayOnAHealthyLane_NotSentAgain) {
  TwoEnds t(Shape(2, 2, 2));
  Transfer* const receive = t.Receive(0, 8192);
  t.Settle();
  SendRequest* const sent = t.Send(0, 8192);
  t.Expect(0, 0, 8192);
  const ResumeResult result = t.Episode(Refs({0}), 2);
  EXPECT_EQ(result.stripes, 1u);
  EXPECT_EQ(t.PostedOn(true, 1).size(), 2u);  // its own, and the one that was missing
  ExpectDone(&t, receive, sent, 8192);
}

TEST(Resume, NoLaneIsLeft_WaitsForANewOne) {
  TwoEnds t(Shape(1, 1));
  Transfer* const receive = t.Receive(0, 5000);
  t.Settle();
  SendRequest* const sent = t.Send(0, 5000);
  t.Expect(0, 0, 5000);
  const ResumeResult result = t.Episode(Refs({0}), 2);
  EXPECT_EQ(result.stripes, 1u);
  EXPECT_EQ(t.send->waiting(), 1u);
  EXPECT_EQ(t.recv->waiting(), 1u);
  EXPECT_EQ(t.Receive(6000, 10), nullptr);
  t.AddLane(1, 1, 2, 3);
  EXPECT_EQ(t.posted(true) + t.posted(false), 0u);
  t.SetRoutes({1});
  // The sender has no entry with a key for it yet.
  EXPECT_EQ(t.posted(true), 0u);
  EXPECT_EQ(t.posted(false), 1u);
  t.Up(3);
  ExpectDone(&t, receive, sent, 5000);
  EXPECT_EQ(t.send->waiting() + t.recv->waiting(), 0u);
}

// The entry was lost with its lane before the sender saw it.
TEST(Resume, EntryLost_AnnouncedAgain) {
  TwoEnds t(Shape(2, 2));
  Transfer* const first = t.Receive(0, 10);
  Transfer* const second = t.Receive(10, 10);
  EXPECT_TRUE(t.Step(false, 1));
  EXPECT_TRUE(t.Step(false, 0, Fate::kLost));
  EXPECT_EQ(t.Send(0, 10), nullptr);
  t.Episode(Refs({0}), 2);
  t.Settle();
  SendRequest* const a = t.Send(0, 10);
  SendRequest* const b = t.Send(10, 10);
  ASSERT_TRUE(a && b);
  t.Expect(0, 0, 20);
  t.Settle();
  EXPECT_EQ(t.Received(first), std::vector<int>{10});
  EXPECT_EQ(t.Received(second), std::vector<int>{10});
  EXPECT_TRUE(t.IsSent(a) && t.IsSent(b));
  EXPECT_EQ(t.Check(), "");
}

// The repeat of an entry is under way while its transfer completes: the slot's next transfer waits,
// or the late repeat would land over it and it would never be seen.
TEST(Resume, LateRepeat_SlotsNextTransferWaits) {
  TwoEnds t(Shape(2, 2));
  Transfer* const first = t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);  // over lane 0
  t.Episode(Refs({1}), 2);                  // the other fails: the entry is repeated over lane 0
  ASSERT_EQ(t.PostedOn(false, 0).size(), 1u);
  ASSERT_TRUE(t.Step(true, 0));
  EXPECT_EQ(t.Received(first), std::vector<int>{10});
  ASSERT_TRUE(t.Acknowledge(true, 0));
  EXPECT_TRUE(t.IsSent(sent));
  // 31 more transfers, while the repeat does not move.
  for (uint32_t i = 1; i < kSlots; ++i) ASSERT_NE(t.Receive(i * 10, 10), nullptr) << i;
  EXPECT_EQ(t.Receive(0, 10), nullptr);
  ASSERT_TRUE(t.Step(false, 0));  // lands
  EXPECT_EQ(t.Receive(0, 10), nullptr);
  ASSERT_TRUE(t.Acknowledge(false, 0));
  EXPECT_NE(t.Receive(0, 10), nullptr);
}

// The first announcement is still under way when the entry is announced again: over the same lane,
// so that the older one cannot land last.
TEST(Resume, RepeatWhileTheFirstIsUnderWay_BehindIt) {
  TwoEnds t(Shape(2, 2));
  t.Receive(0, 10);
  t.AddLane(2, 2, 2, 2);
  t.SetRoutes({1, 2});
  t.Up(2);
  EXPECT_EQ(t.PostedOn(false, 0).size(), 2u);
  EXPECT_EQ(t.PostedOn(false, 1).size() + t.PostedOn(false, 2).size(), 0u);
  // That lane may not be posted to any more: over another.
  t.recv->Retire(Refs({0}));
  t.Up(3);
  EXPECT_EQ(t.PostedOn(false, 0).size(), 2u);
  EXPECT_EQ(t.PostedOn(false, 1).size() + t.PostedOn(false, 2).size(), 1u);
}

TEST(Resume, RepeatLostWithItsLane_SlotIsFreeAfterTheNextEpisode) {
  TwoEnds t(Shape(3, 3));
  Transfer* const first = t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  t.Step(true, 0);
  t.Episode(Refs({0}), 2);  // announced over 0, repeated over another
  EXPECT_EQ(t.Received(first), std::vector<int>{10});
  EXPECT_TRUE(t.IsSent(sent));
  for (uint32_t i = 1; i < kSlots; ++i) ASSERT_NE(t.Receive(i * 10, 10), nullptr);
}

// An entry from before a lane was made says nothing about it: there may be another device in its
// slot, or none that has keys.
TEST(Resume, OldEntry_NotUsedOnANewLane) {
  TwoEnds t(Shape(1, 1));
  t.Receive(0, 10);
  t.Settle();
  t.AddLane(1, 1, 1, 2);
  t.send->SetRoute({1});
  EXPECT_EQ(t.Send(0, 10), nullptr);
  t.recv->Reannounce(2);
  EXPECT_EQ(t.Send(0, 10), nullptr);
  t.Settle();
  EXPECT_NE(t.Send(0, 10), nullptr);
  EXPECT_EQ(t.PostedOn(true, 1).size(), 1u);
}

TEST(Resume, OldEntryHasAKeyForTheNewLanesDevice_NotUsedEither) {
  TwoEnds t(Shape(1, 1));
  t.Receive(0, 10);
  t.Settle();
  t.AddLane(1, 0, 0, 2);
  t.send->SetRoute({1});
  EXPECT_EQ(t.Send(0, 10), nullptr);
  t.Up(2);
  t.Settle();
  EXPECT_NE(t.Send(0, 10), nullptr);
}

TEST(Resume, SendsOfTheFuture_UseTheNewLanesWithNewEntries) {
  TwoEnds t(Shape(1, 1));
  t.AddLane(1, 1, 1, 2);
  t.SetRoutes({0, 1});
  t.Up(2);
  for (int i = 0; i < 40; ++i) {
    Transfer* const receive = t.Receive(0, 10);
    t.Settle();
    SendRequest* const sent = t.Send(0, 10);
    ASSERT_NE(sent, nullptr);
    t.Expect(0, 0, 10);
    ExpectDone(&t, receive, sent, 10);
  }
  EXPECT_EQ(ViewOf(t.send.get(), 1).posted, 20u);
}

// Bytes count on the port that they went over, also after its lane was fenced and its place has
// another one; what is sent again counts again.
TEST(Traffic, PortIsLost_BothPortsCount) {
  TwoEnds t(Shape(1, 1));
  Transfer* receive = t.Receive(0, 1000);
  t.Settle();
  SendRequest* sent = t.Send(0, 1000);
  t.Expect(0, 0, 1000);
  ExpectDone(&t, receive, sent, 1000);
  receive = t.Receive(2000, 500);
  t.Settle();
  sent = t.Send(2000, 500);
  t.Expect(2000, 2000, 500);
  EXPECT_EQ(t.Episode(Refs({0}), 2).bytes, 500u);
  t.AddLane(0, 1, 1, 3);
  t.SetRoutes({0});
  t.Up(3);
  ExpectDone(&t, receive, sent, 500);
  const Traffic out = t.send->CountTraffic();
  ASSERT_EQ(out.ports.size(), 2u);
  EXPECT_EQ(out.ports[0].physical, 0);
  EXPECT_EQ(out.ports[0].bytes, 1500u);
  EXPECT_EQ(out.ports[0].messages, 2u);
  EXPECT_EQ(out.ports[1].physical, 1);
  EXPECT_EQ(out.ports[1].bytes, 500u);
  EXPECT_EQ(out.ports[1].messages, 1u);
  EXPECT_EQ(out.transfers, 2u);
  EXPECT_EQ(out.outstanding, 0u);
  const Traffic in = t.recv->CountTraffic();
  ASSERT_EQ(in.ports.size(), 2u);
  EXPECT_EQ(in.ports[0].bytes, 1000u);
  EXPECT_EQ(in.ports[1].bytes, 500u);
  EXPECT_EQ(in.bytes(), 1500u);
  EXPECT_EQ(in.transfers, 2u);
  ASSERT_TRUE(t.send->Close().ok());
  EXPECT_EQ(t.send->CountTraffic().bytes(), 2000u);
}

// With adaptive routing the receiver's completions tell no lengths.
TEST(Traffic, AdaptiveRouting_LengthsAreCounted) {
  TwoEnds::Shape shape = Shape(2, 2);
  shape.rules.lanes_per_send = 2;
  shape.rules.adaptive_routing = true;
  shape.rules.ar_threshold = 100;
  TwoEnds t(shape);
  Transfer* const receive = t.Receive(0, 10000);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10000);
  t.Expect(0, 0, 10000);
  ExpectDone(&t, receive, sent, 10000);
  const Traffic in = t.recv->CountTraffic();
  const Traffic out = t.send->CountTraffic();
  ASSERT_EQ(in.ports.size(), 2u);
  ASSERT_EQ(out.ports.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(in.ports[i].bytes, out.ports[i].bytes);
  EXPECT_EQ(in.bytes(), 10000u);
}

// ---- Acknowledged is not delivered.

TEST(Lost, AcknowledgedNotDeliveredButStillOurs_SentAgain) {
  TwoEnds t(Shape(2, 2));
  Transfer* const receive = t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  t.Step(true, 0, Fate::kOnlyConfirmed);
  t.send->Poll();
  EXPECT_EQ(t.Episode(Refs({0}), 2).stripes, 1u);
  EXPECT_FALSE(t.IsSent(sent));  // though it was acknowledged
  t.Expect(0, 0, 10);
  ExpectDone(&t, receive, sent, 10);
}

TEST(Lost, BufferIsNcclsAgain_SaidAndNothingChanged) {
  TwoEnds t(Shape(2, 2));
  t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  t.Step(true, 0, Fate::kOnlyConfirmed);
  EXPECT_TRUE(t.IsSent(sent));
  const ResumeResult result = t.Episode(Refs({0}), 2);
  EXPECT_EQ(result.status, Status::kLost);
  EXPECT_EQ(result.sequence, kFirstSequence);
  EXPECT_EQ(t.posted(true), 0u);
  EXPECT_EQ(ViewOf(t.send.get(), 0).state, LaneState::kFenced);
}

// ---- The receiver has ended: there is no record, only what it says of its end.

TEST(CompleteBelow, AcknowledgementsLost_WhatHasArrivedIsDone) {
  TwoEnds t(Shape(2, 2, 2));
  t.Receive(0, 8192);
  t.Receive(8192, 10);
  t.Settle();
  SendRequest* const arrived = t.Send(0, 8192);  // two stripes
  SendRequest* const missing = t.Send(8192, 10);
  t.Step(true, 0);
  t.Step(true, 1);
  EXPECT_EQ(t.recv->Poll(), Outcome::kOk);
  EXPECT_FALSE(t.IsSent(arrived));
  t.send->CompleteBelow(t.recv->Record().complete_below);
  t.send->GiveUp(Outcome::kRemote, {.kind = Fault::Kind::kGiveUp, .fatal = true});
  EXPECT_TRUE(t.IsSent(arrived));
  int done = 0;
  EXPECT_EQ(t.send->Test(missing, &done, nullptr), Outcome::kRemote);
}

TEST(CompleteBelow, BeyondWhatWasSent_Nothing) {
  TwoEnds t(Shape(1, 1));
  t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  t.send->CompleteBelow(kFirstSequence + 2);
  EXPECT_FALSE(t.IsSent(sent));
}

// ---- Records that cannot be true.

class Lies : public testing::Test {
 protected:
  Lies() : t(Shape(2, 2, 2)) {
    t.Receive(0, 8192);
    t.ReceiveGroup({{0, 10}, {10, 10}});
    t.Settle();
    sent = t.Send(0, 8192);  // two stripes
    EXPECT_NE(t.Send(0, 10, 2), nullptr);
    t.send->StopPosting(Refs({0}));
    t.Fence(true, {0, 1});
    t.Fence(false, {0, 1});
    record = t.recv->Record();
  }
  void ExpectLie() {
    const ResumeResult result = t.send->Resume(record, Refs({0}));
    EXPECT_EQ(result.status, Status::kLie);
    EXPECT_EQ(t.send->waiting(), 0u);
  }
  TwoEnds t;
  SendRequest* sent;
  ReceiverRecord record;
};

TEST_F(Lies, Truth_Accepted) {
  EXPECT_EQ(record.complete_below, 1u);
  EXPECT_EQ(record.next_sequence, 3u);
  ASSERT_EQ(record.open.size(), 2u);
  EXPECT_EQ(record.open[1].receives.size(), 2u);
  EXPECT_EQ(t.send->Resume(record, Refs({0})).status, Status::kResumed);
  EXPECT_EQ(t.recv->Resume(t.send->Record(), Refs({0}), 2).status, Status::kResumed);
}
TEST_F(Lies, NextBelowWhatWeSent) {
  record.next_sequence = 2;
  record.open.pop_back();
  ExpectLie();
}
TEST_F(Lies, CompleteBeyondWhatWeSent) {
  record.complete_below = 3;
  record.open.clear();
  ExpectLie();
}
TEST_F(Lies, NothingIsComplete) {
  record.complete_below = 0;
  ExpectLie();
}
TEST_F(Lies, MoreOpenThanSlots) {
  record.next_sequence = 34;
  ExpectLie();
}
TEST_F(Lies, PartlySentTransferComplete) {
  record.open.pop_back();
  ExpectLie();
}
TEST_F(Lies, OutOfOrder) {
  std::swap(record.open[0], record.open[1]);
  ExpectLie();
}
TEST_F(Lies, StripesBeyondTheCut) {
  record.open[0].receives[0] = {.stripes = 2, .arrived = {4, 0}};
  ExpectLie();
}
TEST_F(Lies, AnotherCut) {
  record.open[0].receives[0] = {.stripes = 3, .arrived = {1, 0}};
  ExpectLie();
}
TEST_F(Lies, ArrivedWithoutACut) {
  record.open[0].receives[0] = {.stripes = 0, .arrived = {1, 0}};
  ExpectLie();
}
TEST_F(Lies, ArrivedWithoutASend) {
  record.open[1].receives[0] = {.stripes = 1, .arrived = {1, 0}};
  ExpectLie();
}
TEST_F(Lies, AnotherNumberOfReceives) {
  record.open[1].receives.pop_back();
  ExpectLie();
}
TEST_F(Lies, NoReceives) {
  record.open[0].receives.clear();
  ExpectLie();
}
TEST_F(Lies, TooManyReceives) {
  record.open[0].receives.resize(9);
  ExpectLie();
}
TEST_F(Lies, ArrivedThoughItWaits) {
  EXPECT_EQ(t.send->Resume(record, Refs({0})).status, Status::kResumed);
  t.send->StopPosting(Refs({1}));
  t.Fence(true, {1, 1});
  t.Fence(false, {1, 1});
  const ReceiverRecord truth = t.recv->Record();
  EXPECT_EQ(t.send->Resume(truth, Refs({1})).status, Status::kResumed);
  ASSERT_GT(t.send->waiting(), 0u);
  record = truth;
  record.open[0].receives[0] = {.stripes = 2, .arrived = {1, 0}};
  EXPECT_EQ(t.send->Resume(record, Refs({1})).status, Status::kLie);
}
TEST_F(Lies, SenderIsAheadOfUs) {
  SenderRecord of_sender = t.send->Record();
  EXPECT_EQ(of_sender.announcements, (std::vector<uint64_t>{1, 2}));
  of_sender.next_sequence = 4;
  EXPECT_EQ(t.recv->Resume(of_sender, Refs({0}), 2).status, Status::kLie);
  of_sender = {.next_sequence = 2, .announcements = {9}};
  EXPECT_EQ(t.recv->Resume(of_sender, Refs({0}), 2).status, Status::kLie);
  of_sender = {.next_sequence = 0, .announcements = {}};
  EXPECT_EQ(t.recv->Resume(of_sender, Refs({0}), 2).status, Status::kLie);
}

}  // namespace
}  // namespace railhop::datapath
