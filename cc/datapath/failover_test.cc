// Lanes that fail, and what becomes of what went over them: each case by hand.
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "cc/datapath/two_ends.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

using Fate = TwoEnds::Fate;
using Status = ResumeResult::Status;

TwoEnds::Shape Shape(int devices, int lanes, uint32_t lanes_per_send = 1) {
  TwoEnds::Shape shape;
  shape.devices = devices;
  shape.lanes = lanes;
  shape.rules.lanes_per_send = lanes_per_send;
  return shape;
}

// Lanes of both ends, in their first epoch.
std::vector<LaneRef> Refs(std::initializer_list<int> lanes) {
  std::vector<LaneRef> refs;
  for (const int lane : lanes) refs.push_back({static_cast<uint8_t>(lane), 1});
  return refs;
}

LaneView ViewOf(Connection* connection, uint32_t lane) {
  std::vector<LaneView> views;
  connection->Observe(&views);
  for (const LaneView& view : views) {
    if (view.lane.index == lane) return view;
  }
  ADD_FAILURE() << "no lane " << lane;
  return {};
}

void ExpectDone(TwoEnds* t, Transfer* receive, SendRequest* sent, int size) {
  t->Settle();
  EXPECT_EQ(t->Received(receive), std::vector<int>{size});
  EXPECT_TRUE(t->IsSent(sent));
  EXPECT_EQ(t->Check(), "");
}

// ---- Faults.

TEST(Faults, ErrorCompletion_LaneSuspectCallsGoOnToldOnce) {
  TwoEnds t(Shape(2, 2));
  t.Receive(0, 100);
  t.Settle();
  SendRequest* const sent = t.Send(0, 100);
  ASSERT_NE(sent, nullptr);
  ASSERT_TRUE(t.Step(true, 0, Fate::kLost));
  t.Break(true, 0);
  int done = 0;
  EXPECT_EQ(t.send->Test(sent, &done, nullptr), Outcome::kFault);
  EXPECT_EQ(t.send->Test(sent, &done, nullptr), Outcome::kOk);
  EXPECT_EQ(done, 0);
  const std::vector<Fault> faults = t.send->TakeFaults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, Fault::Kind::kCompletion);
  EXPECT_EQ(faults[0].code, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(faults[0].lane, 0);
  EXPECT_EQ(faults[0].epoch, 1u);
  EXPECT_EQ(faults[0].physical, 0);
  EXPECT_FALSE(faults[0].fatal);
  EXPECT_TRUE(t.send->TakeFaults().empty());
  EXPECT_EQ(ViewOf(t.send.get(), 0).state, LaneState::kSuspect);
  EXPECT_EQ(ViewOf(t.send.get(), 1).state, LaneState::kOpen);
  EXPECT_EQ(t.send->TakeFault().kind, Fault::Kind::kNone);
}

// The rest of a failed queue is no news, and neither is a lane that was suspect already. Fields
// that mean nothing in error (FakeNic fills them with junk) are not read.
TEST(Faults, FlushedAfterwards_NoNewsAndNotRead) {
  TwoEnds t(Shape(1, 2));
  t.Receive(0, 10);
  t.recv->StopPosting(Refs({1}));
  t.Break(false, 1);
  t.Break(false, 0);
  int told = 0;
  for (int i = 0; i < 100; ++i) told += t.recv->Poll() == Outcome::kFault ? 1 : 0;
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(t.receiver_nics[0]->completions.empty());
  EXPECT_EQ(t.recv->TakeFaults().size(), 1u);
}

TEST(Faults, WhatFollowsTheBuffer_FatalNothingPostedThenGivenUp) {
  for (const ibv_wc_status status : {IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_ACCESS_ERR,
                                     IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR}) {
    TwoEnds t(Shape(1, 2));
    for (int i = 0; i < 3; ++i) t.Receive(0, 10);
    t.Settle();
    SendRequest* const first = t.Send(0, 10);
    SendRequest* const second = t.Send(0, 10);
    t.sender_nics[0]->Complete(t.PostedOn(true, 0)[0]);
    t.sender_nics[0]->Complete(t.PostedOn(true, 1)[0], status);
    int done = 0;
    EXPECT_EQ(t.send->Test(second, &done, nullptr), Outcome::kFault);
    const std::vector<Fault> faults = t.send->TakeFaults();
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_TRUE(faults[0].fatal);
    EXPECT_EQ(t.Send(0, 10), nullptr);  // not now, and no error before all is fenced
    t.send->SetRoute({{0, 1}});
    EXPECT_EQ(t.Send(0, 10), nullptr);
    t.send->GiveUp(Outcome::kRemote, faults[0]);
    EXPECT_EQ(t.send->Test(second, &done, nullptr), Outcome::kRemote);
    EXPECT_EQ(t.send->Test(second, &done, nullptr), Outcome::kRemote);
    EXPECT_EQ(t.send->TakeFault().code, status);
    EXPECT_EQ(t.send->Test(first, &done, nullptr), Outcome::kOk);
    EXPECT_EQ(done, 1);
  }
}

TEST(Faults, PeerBreaksTheProtocol_FatalForTheDriver) {
  TwoEnds t(Shape(1, 1));
  Transfer* const receive = t.Receive(0, 10);
  ibv_wc wc = {};
  wc.wr_id = PackWorkId({WorkKind::kReceive, 0, 0, 0, 1});
  wc.imm_data = 0xffffffff;
  t.receiver_nics[0]->completions.push_back(wc);
  int done = 0;
  EXPECT_EQ(t.recv->Test(receive, &done, nullptr), Outcome::kFault);
  const std::vector<Fault> faults = t.recv->TakeFaults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, Fault::Kind::kProtocol);
  EXPECT_TRUE(faults[0].fatal);
}

TEST(Faults, QueueThatCannotBePolled_AllItsLanesSuspectOthersGoOn) {
  TwoEnds t(Shape(2, 4));
  t.sender_nics[0]->poll_result = -1;
  t.receiver_nics[0]->poll_result = 0;
  EXPECT_EQ(t.send->Poll(), Outcome::kFault);
  const std::vector<Fault> faults = t.send->TakeFaults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, Fault::Kind::kQueue);
  EXPECT_EQ(t.send->Poll(), Outcome::kOk);
  EXPECT_EQ(ViewOf(t.send.get(), 2).state, LaneState::kSuspect);
  EXPECT_EQ(ViewOf(t.send.get(), 3).state, LaneState::kOpen);
  Transfer* const receive = t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  ASSERT_NE(sent, nullptr);
  t.Expect(0, 0, 10);
  ExpectDone(&t, receive, sent, 10);
}

TEST(Faults, PostRefusedInTheMiddle_OthersGoOutThatOneAfterTheEpisode) {
  TwoEnds t(Shape(3, 3, 3));
  constexpr size_t kSize = 30001;
  Transfer* const receive = t.Receive(0, kSize);
  t.Settle();
  t.sender_nics[1]->post_send_error = ENOMEM;
  Request* request = nullptr;
  EXPECT_EQ(t.send->Send(t.from.data(), kSize, 1, &t.from_keys, &request), Outcome::kFault);
  ASSERT_NE(request, nullptr);
  const std::vector<Fault> faults = t.send->TakeFaults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, Fault::Kind::kPost);
  EXPECT_EQ(faults[0].code, ENOMEM);
  EXPECT_EQ(faults[0].lane, 1);
  t.sender_nics[1]->post_send_error = 0;
  t.Settle();
  EXPECT_TRUE(t.Received(receive).empty());
  const ResumeResult result = t.Episode(Refs({1}), 2);
  EXPECT_EQ(result.status, Status::kResumed);
  EXPECT_EQ(result.stripes, 1u);
  EXPECT_EQ(result.bytes, 10112u);  // a third, rounded up to 128
  t.Expect(0, 0, kSize);
  ExpectDone(&t, receive, static_cast<SendRequest*>(request), kSize);
}

TEST(Faults, EntryRefused_AnnouncedOverAnother) {
  TwoEnds t(Shape(2, 2));
  t.receiver_nics[0]->post_send_error = EIO;
  void* data = t.to.data() + TwoEnds::kGuard;
  const size_t size = 10;
  const int tag = 1;
  const MemoryKeys* keys = &t.to_keys;
  Request* request = nullptr;
  EXPECT_EQ(t.recv->Receive(1, &data, &size, &tag, &keys, &request), Outcome::kFault);
  ASSERT_NE(request, nullptr);
  t.receiver_nics[0]->post_send_error = 0;
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  ASSERT_NE(sent, nullptr);
  t.Expect(0, 0, 10);
  ExpectDone(&t, static_cast<Transfer*>(request), sent, 10);
}

// ---- The route.

TEST(Route, SharesAndOrder_AsGiven) {
  TwoEnds t(Shape(3, 3));
  t.send->SetRoute({{0, 2, 2, 0, 2}});
  for (int i = 0; i < 10; ++i) t.Receive(0, 10);
  t.Settle();
  for (int i = 0; i < 10; ++i) ASSERT_NE(t.Send(0, 10), nullptr);
  EXPECT_EQ(t.PostedOn(true, 0).size(), 4u);
  EXPECT_EQ(t.PostedOn(true, 1).size(), 0u);
  EXPECT_EQ(t.PostedOn(true, 2).size(), 6u);
}

TEST(Route, Empty_NotNowAtBothEnds) {
  TwoEnds t(Shape(1, 1));
  t.Receive(0, 10);
  t.Settle();
  t.SetRoutes({});
  EXPECT_EQ(t.Receive(0, 10), nullptr);
  EXPECT_EQ(t.Send(0, 10), nullptr);
  t.SetRoutes({0});
  EXPECT_NE(t.Receive(0, 10), nullptr);
  EXPECT_NE(t.Send(0, 10), nullptr);
}

TEST(Route, LanesThatAreNotOpen_LeftOut) {
  TwoEnds t(Shape(3, 3));
  t.send->Retire(Refs({0}));
  t.send->StopPosting(Refs({1}));
  t.send->SetRoute({{0, 1, 2, 77}});
  for (int i = 0; i < 4; ++i) t.Receive(0, 10);
  t.Settle();
  for (int i = 0; i < 4; ++i) ASSERT_NE(t.Send(0, 10), nullptr);
  EXPECT_EQ(t.PostedOn(true, 2).size(), 4u);
}

TEST(Route, StopPostingOfAnotherEpoch_ChangesNothing) {
  TwoEnds t(Shape(1, 1));
  t.send->StopPosting({{{0, 2}, {5, 1}}});
  t.send->Retire({{{0, 7}}});
  EXPECT_EQ(ViewOf(t.send.get(), 0).state, LaneState::kOpen);
}

// ---- Retiring.

TEST(Retire, Sender_DrainedOnceAcknowledged) {
  TwoEnds t(Shape(2, 2));
  t.Receive(0, 10);
  t.Receive(10, 10);
  t.Settle();
  t.Send(0, 10);
  t.Send(10, 10);
  t.send->Retire(Refs({0}));
  EXPECT_FALSE(t.send->Drained({0, 1}));
  EXPECT_TRUE(t.Step(true, 0));
  EXPECT_FALSE(t.send->Drained({0, 1}));
  EXPECT_TRUE(t.Acknowledge(true, 0));
  EXPECT_TRUE(t.send->Drained({0, 1}));
  EXPECT_TRUE(t.send->Drained({0, 9}));  // is not there
  EXPECT_FALSE(t.send->Drained({1, 1}));
}

TEST(Retire, Receiver_UnsignalledEntriesAreAskedFor) {
  TwoEnds t(Shape(1, 2));
  t.Receive(0, 10);
  t.Receive(10, 10);
  t.recv->Retire(Refs({0}));
  EXPECT_FALSE(t.recv->Drained({0, 1}));
  ASSERT_EQ(t.PostedOn(false, 0).size(), 2u);  // the entry and one no-op, not more
  EXPECT_FALSE(t.recv->Drained({0, 1}));
  ASSERT_EQ(t.PostedOn(false, 0).size(), 2u);
  EXPECT_TRUE(t.Step(false, 0));
  EXPECT_TRUE(t.Step(false, 0));
  EXPECT_TRUE(t.Acknowledge(false, 0));
  EXPECT_FALSE(t.recv->Drained({0, 1}));
  EXPECT_TRUE(t.Acknowledge(false, 0));
  EXPECT_TRUE(t.recv->Drained({0, 1}));
}

TEST(Retire, ThenEpisode_NothingIsSentAgain) {
  TwoEnds t(Shape(2, 2));
  std::vector<Transfer*> receives;
  std::vector<SendRequest*> sends;
  for (size_t i = 0; i < 6; ++i) receives.push_back(t.Receive(i * 100, 100));
  t.Settle();
  for (size_t i = 0; i < 6; ++i) sends.push_back(t.Send(i * 100, 100));
  t.send->Retire(Refs({0}));
  t.recv->Retire(Refs({0}));
  while (!t.send->Drained({0, 1})) {
    ASSERT_TRUE(t.Acknowledge(true, 0) || t.Step(true, 0));
  }
  for (int i = 0; i < 100 && !t.recv->Drained({0, 1}); ++i) {
    if (!t.Acknowledge(false, 0)) t.Step(false, 0);
  }
  EXPECT_TRUE(t.recv->Drained({0, 1}));
  const ResumeResult result = t.Episode(Refs({0}), 2);
  EXPECT_EQ(result.stripes, 0u);
  t.Expect(0, 0, 600);
  for (size_t i = 0; i < 6; ++i) ExpectDone(&t, receives[i], sends[i], 100);
}

// ---- The fence.

TEST(Fence, Healthy_MarkersThenDestroyed) {
  TwoEnds t(Shape(1, 2));
  EXPECT_EQ(t.recv->FenceLane({0, 1}, false), FenceProgress::kFenced);
  EXPECT_EQ(t.receiver_nics[0]->qps, 1);
  EXPECT_EQ(ViewOf(t.recv.get(), 0).state, LaneState::kFenced);
  EXPECT_EQ(t.recv->FenceLane({0, 1}, false), FenceProgress::kFenced);  // again
  EXPECT_EQ(t.recv->FenceLane({1, 9}, false), FenceProgress::kFenced);  // not this one
  EXPECT_EQ(ViewOf(t.recv.get(), 1).state, LaneState::kOpen);
  EXPECT_EQ(t.receiver_nics[0]->modified.back().attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(t.recv->TakeFaults().size(), 0u);
}

// What arrived before the fence counts, though it is polled by the fence itself.
TEST(Fence, ArrivedAndNotPolled_Counts) {
  TwoEnds t(Shape(1, 1));
  Transfer* const receive = t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  ASSERT_TRUE(t.Step(true, 0));
  const ResumeResult result = t.Episode(Refs({0}), 2);
  EXPECT_EQ(result.stripes, 0u);
  EXPECT_EQ(t.Received(receive), std::vector<int>{10});
  EXPECT_TRUE(t.IsSent(sent));  // its acknowledgement was lost: done from the record
}

TEST(Fence, SilentQueuePair_AgainUntilTheLastTryThenOnlyWhatWasPolled) {
  TwoEnds t(Shape(1, 1));
  t.receiver_nics[0]->is_silent = true;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(t.recv->FenceLane({0, 1}, false), FenceProgress::kAgain);
  EXPECT_EQ(t.receiver_nics[0]->qps, 1);
  EXPECT_EQ(t.recv->FenceLane({0, 1}, true), FenceProgress::kFenced);
  EXPECT_EQ(t.receiver_nics[0]->qps, 0);
}

TEST(Fence, ErrorStateRefused_TriedAgainAndDestroyedAtTheEnd) {
  TwoEnds t(Shape(1, 1));
  t.sender_nics[0]->modify_errors = {ETIMEDOUT, ETIMEDOUT};
  EXPECT_EQ(t.send->FenceLane({0, 1}, false), FenceProgress::kAgain);
  EXPECT_EQ(t.send->FenceLane({0, 1}, false), FenceProgress::kAgain);
  EXPECT_EQ(t.send->FenceLane({0, 1}, false), FenceProgress::kFenced);
}

TEST(Fence, CannotBeDestroyed_HeldUntilItCan) {
  TwoEnds t(Shape(1, 1));
  t.sender_nics[0]->destroy_qp_error = EBUSY;
  EXPECT_EQ(t.send->FenceLane({0, 1}, false), FenceProgress::kAgain);
  EXPECT_EQ(t.send->FenceLane({0, 1}, true), FenceProgress::kHeld);
  EXPECT_EQ(ViewOf(t.send.get(), 0).state, LaneState::kSuspect);
  t.sender_nics[0]->destroy_qp_error = 0;
  EXPECT_EQ(t.send->FenceLane({0, 1}, true), FenceProgress::kFenced);
}

TEST(Fence, DeviceGone_CountsAsFenced) {
  for (const int error : {EIO, ENODEV}) {
    TwoEnds t(Shape(1, 1));
    t.sender_nics[0]->destroy_qp_error = error;
    t.sender_nics[0]->modify_errors = {error};
    EXPECT_EQ(t.send->FenceLane({0, 1}, true), FenceProgress::kGone);
    EXPECT_EQ(ViewOf(t.send.get(), 0).state, LaneState::kFenced);
    t.sender_nics[0]->destroy_qp_error = 0;
  }
}

TEST(Close, DeviceGone_Succeeds) {
  TwoEnds t(Shape(1, 1));
  t.sender_nics[0]->destroy_qp_error = EIO;
  EXPECT_TRUE(t.send->Close().ok());
  t.sender_nics[0]->destroy_qp_error = 0;
}

TEST(Close, DeviceRefuses_ErrorAndTriedAgain) {
  TwoEnds t(Shape(1, 1));
  t.sender_nics[0]->destroy_qp_error = EBUSY;
  EXPECT_FALSE(t.send->Close().ok());
  t.sender_nics[0]->destroy_qp_error = 0;
  EXPECT_TRUE(t.send->Close().ok());
}

TEST(Fence, MarkersDoNotFitYet_PostedOnceThereIsRoom) {
  TwoEnds t(Shape(1, 1));
  t.receiver_nics[0]->post_send_error = ENOMEM;
  EXPECT_EQ(t.recv->FenceLane({0, 1}, false), FenceProgress::kAgain);
  t.receiver_nics[0]->post_send_error = 0;
  EXPECT_EQ(t.recv->FenceLane({0, 1}, false), FenceProgress::kFenced);
}

// A call that hangs on one lane's device holds up neither another lane's fence, nor NCCL's calls;
// Close waits for it for a bounded time and may be called again.
TEST(Fence, CallThatHangs_OthersGoOnCloseIsBounded) {
  TwoEnds t(Shape(2, 2));
  Transfer* const receive = t.Receive(0, 10);
  t.Settle();
  std::atomic<bool> entered{false};
  std::atomic<bool> release{false};
  t.sender_nics[0]->before_destroy_qp = [&] {
    entered = true;
    while (!release) std::this_thread::yield();
  };
  std::thread worker([&] { t.send->FenceLane({0, 1}, false); });
  while (!entered) std::this_thread::yield();
  EXPECT_EQ(t.send->FenceLane({0, 1}, false), FenceProgress::kAgain);  // somebody is at it
  SendRequest* const sent = t.Send(0, 10);
  ASSERT_NE(sent, nullptr);
  t.Expect(0, 0, 10);
  ExpectDone(&t, receive, sent, 10);
  EXPECT_EQ(t.send->FenceLane({1, 1}, false), FenceProgress::kFenced);
  EXPECT_TRUE(absl::IsUnavailable(t.send->Close()));
  release = true;
  worker.join();
  EXPECT_TRUE(t.send->Close().ok());
  EXPECT_EQ(t.sender_nics[0]->qps + t.sender_nics[1]->qps, 0);
}

TEST(Fence, LateCompletionOfAnOldQueuePair_CountedAsStaleAndDropped) {
  TwoEnds t(Shape(1, 1));
  t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  const PostedSend old = t.PostedOn(true, 0)[0];
  ibv_wc late = {};
  late.wr_id = old.request.wr_id;
  ASSERT_EQ(t.Episode(Refs({0}), 2).stripes, 1u);
  t.sender_nics[0]->completions.push_back(late);  // fenced
  EXPECT_FALSE(t.IsSent(sent));
  t.AddLane(0, 0, 0, 3);
  t.SetRoutes({0});
  t.Up(3);
  t.Settle();
  SendRequest* const again = sent;
  ibv_wc later = {};
  later.wr_id = old.request.wr_id;
  later.status = IBV_WC_WR_FLUSH_ERR;  // of another generation: no fault of the new one
  t.sender_nics[0]->completions.push_back(later);
  EXPECT_TRUE(t.IsSent(again));
  t.send->Poll();
  EXPECT_EQ(t.send->stale_completions(), 2u);
  EXPECT_EQ(ViewOf(t.send.get(), 0).state, LaneState::kOpen);
  t.Expect(0, 0, 10);
  EXPECT_EQ(t.Check(), "");
}

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
  t.send->SetRoute({{1}});
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
  t.send->SetRoute({{1}});
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

// ---- Cover.

TEST(Cover, SendNotRegisteredOnOneDevice_OthersTakeItAndItIsAskedForOnce) {
  TwoEnds t(Shape(2, 2));
  t.from_keys.Drop(0);
  std::vector<Transfer*> receives;
  for (int i = 0; i < 3; ++i) receives.push_back(t.Receive(0, 10));
  t.Settle();
  for (int i = 0; i < 3; ++i) ASSERT_NE(t.Send(0, 10), nullptr);
  EXPECT_EQ(t.PostedOn(true, 1).size(), 3u);
  const std::vector<Fault> faults = t.send->TakeFaults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, Fault::Kind::kUncovered);
  EXPECT_EQ(faults[0].physical, 0);
  EXPECT_EQ(faults[0].memory, &t.from_keys);
}

TEST(Cover, SendRegisteredNowhere_NotNowUntilItIs) {
  TwoEnds t(Shape(1, 1));
  t.from_keys.Drop(0);
  t.Receive(0, 10);
  t.Settle();
  Request* request = nullptr;
  EXPECT_EQ(t.send->Send(t.from.data(), 10, 1, &t.from_keys, &request), Outcome::kFault);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(t.Send(0, 10), nullptr);
  EXPECT_EQ(t.send->TakeFaults().size(), 1u);
  EXPECT_NE(t.Send(0, 0), nullptr);  // nothing needs no key
  t.Receive(0, 10);
  t.Settle();
  EXPECT_EQ(t.Send(0, 10), nullptr);
  t.from_keys.Add(0, 0x1000, 1);
  EXPECT_NE(t.Send(0, 10), nullptr);
}

TEST(Cover, ReceiveNotRegisteredOnOneDevice_SenderUsesTheOther) {
  TwoEnds t(Shape(2, 2));
  t.to_keys.Drop(1);
  ASSERT_NE(t.Receive(0, 10), nullptr);
  ASSERT_NE(t.Receive(10, 10), nullptr);
  t.Settle();
  ASSERT_NE(t.Send(0, 10), nullptr);
  ASSERT_NE(t.Send(10, 10), nullptr);
  EXPECT_EQ(t.PostedOn(true, 0).size(), 2u);
  EXPECT_EQ(t.recv->TakeFaults().size(), 1u);
}

TEST(Cover, ReceiveRegisteredNowhere_NotNowUntilItIs) {
  TwoEnds t(Shape(1, 1));
  t.to_keys.Drop(0);
  EXPECT_EQ(t.Receive(0, 10), nullptr);
  const std::vector<Fault> faults = t.recv->TakeFaults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].memory, &t.to_keys);
  EXPECT_EQ(t.posted(false), 0u);
  t.to_keys.Add(0, 1, 0x2000);
  EXPECT_NE(t.Receive(0, 10), nullptr);
}

// A stripe waits since its memory is not registered on the only device that is left.
TEST(Cover, MissingStripe_WaitsForTheRegistration) {
  TwoEnds::Shape shape = Shape(1, 1);
  shape.cover_spares = false;
  TwoEnds t(shape);
  Transfer* const receive = t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  t.Episode(Refs({0}), 2);
  t.AddLane(1, 1, 1, 3);
  t.SetRoutes({1});
  t.Up(3);
  t.Settle();
  EXPECT_EQ(t.send->waiting(), 1u);
  EXPECT_FALSE(t.recv->TakeFaults().empty());
  t.to_keys.Add(1, 1, 0x2001);
  t.Up(3);
  t.Settle();
  EXPECT_EQ(t.send->waiting(), 1u);
  EXPECT_FALSE(t.send->TakeFaults().empty());
  t.from_keys.Add(1, 0x1001, 1);
  t.Expect(0, 0, 10);
  ExpectDone(&t, receive, sent, 10);
}

// ---- Places and slots.

TEST(Places, TakenOnlyOnceTheRecordsHaveBeenCompared) {
  TwoEnds t(Shape(1, 2));
  t.Receive(0, 10);
  t.Settle();
  t.Send(0, 10);
  Lane lane;
  lane.qp = verbs::QueuePair::Create(t.sender_nics[0]->context(), t.send->completion_queue(0), {})
                .value();
  lane.epoch = 2;
  EXPECT_FALSE(t.send->AddLane(0, &lane));  // in use
  t.Fence(true, {0, 1});
  EXPECT_FALSE(t.send->AddLane(0, &lane));  // fenced, and a stripe's place
  lane.local_device = 3;
  EXPECT_FALSE(t.send->AddLane(5, &lane));  // no such device
  lane.local_device = 0;
  EXPECT_FALSE(t.send->AddLane(128, &lane));
  t.Fence(false, {0, 1});
  EXPECT_EQ(t.send->Resume(t.recv->Record(), Refs({0})).status, Status::kResumed);
  EXPECT_TRUE(t.send->AddLane(0, &lane));
  EXPECT_EQ(lane.qp, nullptr);
  EXPECT_EQ(ViewOf(t.send.get(), 0).lane.epoch, 2u);
  EXPECT_EQ(t.send->lane_count(), 2u);
}

TEST(Places, ReceivesRefused_LaneIsNotTaken) {
  TwoEnds t(Shape(1, 1));
  Lane lane;
  lane.qp = verbs::QueuePair::Create(t.receiver_nics[0]->context(), t.recv->completion_queue(0), {})
                .value();
  lane.epoch = 2;
  t.receiver_nics[0]->post_receive_error = ENOMEM;
  EXPECT_FALSE(t.recv->AddLane(1, &lane));
  EXPECT_NE(lane.qp, nullptr);
  t.receiver_nics[0]->post_receive_error = 0;
  EXPECT_TRUE(t.recv->AddLane(1, &lane));
}

TEST(Slots, InUse_NotReplaced) {
  TwoEnds t(Shape(1, 1));
  ConnectionDevice device;
  device.cq = verbs::CompletionQueue::Create(t.receiver_nics[1]->context(), 10).value();
  device.physical = 1;
  EXPECT_FALSE(t.recv->AddDevice(0, &device));
  EXPECT_FALSE(t.recv->AddDevice(8, &device));
  EXPECT_TRUE(t.recv->AddDevice(1, &device));
  EXPECT_EQ(device.cq, nullptr);
  EXPECT_EQ(t.recv->physical(1), 1);
  EXPECT_EQ(t.recv->physical(2), -1);
}

// A slot goes to another device only once no entry with the old one's keys is about.
TEST(Slots, VacatedAtTheReceiver_ReplacedOnceEntriesAreRenewed) {
  TwoEnds t(Shape(2, 2));
  t.Receive(0, 10);
  t.Settle();
  t.recv->StopPosting(Refs({1}));
  t.send->StopPosting(Refs({1}));
  t.Fence(true, {1, 1});
  t.Fence(false, {1, 1});
  ConnectionDevice device;
  device.cq = verbs::CompletionQueue::Create(t.receiver_nics[2]->context(), 10).value();
  device.physical = 2;
  EXPECT_FALSE(t.recv->AddDevice(1, &device));
  t.recv->Resume(t.send->Record(), Refs({1}), 2);
  EXPECT_FALSE(t.recv->AddDevice(1, &device));  // the new entry is under way
  t.Settle();
  EXPECT_TRUE(t.recv->AddDevice(1, &device));
  ASSERT_NE(device.cq, nullptr);  // the old one, to be destroyed by the caller
  EXPECT_EQ(device.physical, 1);
}

// ---- Observe.

TEST(Observe, CountsAndWhatIsOwed) {
  TwoEnds t(Shape(1, 1));
  t.Receive(0, 10);
  EXPECT_FALSE(ViewOf(t.recv.get(), 0).owed);  // unsignalled: nothing would tell
  EXPECT_EQ(t.posted(false), 1u);
  EXPECT_TRUE(ViewOf(t.recv.get(), 0).owed);  // a second look without progress: a no-op behind it
  EXPECT_EQ(t.posted(false), 2u);
  ViewOf(t.recv.get(), 0);
  EXPECT_EQ(t.posted(false), 2u);
  t.Settle();
  LaneView view = ViewOf(t.recv.get(), 0);
  EXPECT_FALSE(view.owed);
  EXPECT_EQ(view.outstanding, 0u);
  EXPECT_EQ(view.posted, 2u);
  EXPECT_EQ(view.progressed, 2u);
  t.Send(0, 10);
  view = ViewOf(t.send.get(), 0);
  EXPECT_TRUE(view.owed);
  EXPECT_EQ(view.posted, 1u);
  EXPECT_EQ(view.progressed, 0u);
  EXPECT_EQ(view.physical, 0);
  t.Step(true, 0);
  EXPECT_EQ(ViewOf(t.recv.get(), 0).arrived, 1u);
  EXPECT_EQ(ViewOf(t.recv.get(), 0).progressed, 3u);
  t.Acknowledge(true, 0);
  EXPECT_FALSE(ViewOf(t.send.get(), 0).owed);
}

// ---- Confirmed receives.

TEST(Confirm, SentOnlyOnceConfirmed_ByAnEntryOrAWriteOfItsOwn) {
  TwoEnds::Shape shape = Shape(2, 2);
  shape.rules.confirm = true;
  TwoEnds t(shape);
  Transfer* const first = t.Receive(0, 10);
  t.Settle();
  SendRequest* sent = t.Send(0, 10);
  ASSERT_TRUE(t.Step(true, 0));
  ASSERT_TRUE(t.Acknowledge(true, 0));
  EXPECT_FALSE(t.IsSent(sent));
  EXPECT_EQ(t.posted(false), 0u);
  EXPECT_EQ(t.Received(first), std::vector<int>{10});
  EXPECT_EQ(t.posted(false), 1u);  // nothing else is open: at once
  EXPECT_FALSE(t.IsSent(sent));
  t.Settle();
  EXPECT_TRUE(t.IsSent(sent));
  // Two open: the confirmation of the first rides on the entry of the next.
  Transfer* const second = t.Receive(10, 10);
  Transfer* const third = t.Receive(20, 10);
  t.Settle();
  sent = t.Send(10, 10);
  SendRequest* const other = t.Send(20, 10);
  while (t.Step(true, 0) || t.Step(true, 1)) {
  }
  while (t.Acknowledge(true, 0) || t.Acknowledge(true, 1)) {
  }
  EXPECT_EQ(t.Received(second), std::vector<int>{10});
  Transfer* const fourth = t.Receive(30, 10);
  EXPECT_EQ(t.posted(false), 1u);
  while (t.Step(false, 0) || t.Step(false, 1)) {
  }
  EXPECT_TRUE(t.IsSent(sent));
  t.Settle();
  EXPECT_EQ(t.Received(third), std::vector<int>{10});
  t.Settle();
  EXPECT_TRUE(t.IsSent(other));
  (void)fourth;
}

TEST(Confirm, AcknowledgedNotDelivered_NeverLost) {
  TwoEnds::Shape shape = Shape(2, 2);
  shape.rules.confirm = true;
  TwoEnds t(shape);
  Transfer* const receive = t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  t.Step(true, 0, Fate::kOnlyConfirmed);
  EXPECT_FALSE(t.IsSent(sent));
  EXPECT_EQ(t.Episode(Refs({0}), 2).stripes, 1u);
  t.Expect(0, 0, 10);
  t.Settle();
  EXPECT_EQ(t.Received(receive), std::vector<int>{10});
  t.Settle();
  EXPECT_TRUE(t.IsSent(sent));
}

TEST(Confirm, ConfirmationLostWithItsLane_SaidAgainOrByTheRecord) {
  TwoEnds::Shape shape = Shape(2, 2);
  shape.rules.confirm = true;
  TwoEnds t(shape);
  Transfer* const receive = t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  ASSERT_TRUE(t.Step(true, 0));
  ASSERT_TRUE(t.Acknowledge(true, 0));
  ASSERT_EQ(t.Received(receive), std::vector<int>{10});
  ASSERT_EQ(t.posted(false), 1u);
  for (uint32_t lane : {0, 1}) {
    while (t.Step(false, lane, Fate::kLost)) {
    }
  }
  EXPECT_FALSE(t.IsSent(sent));
  t.Episode(Refs({0}), 2);
  t.Settle();
  EXPECT_TRUE(t.IsSent(sent));
}

TEST(Confirm, PeerConfirmsTheFuture_ProtocolFault) {
  TwoEnds::Shape shape = Shape(1, 1);
  shape.rules.confirm = true;
  TwoEnds t(shape);
  static_cast<SenderMemory*>(t.send->control_memory())->complete_below = 5;
  EXPECT_EQ(t.send->Poll(), Outcome::kFault);
  EXPECT_TRUE(t.send->TakeFaults().at(0).fatal);
}

// ---- Flushes.

class Flushes : public testing::Test {
 protected:
  Flushes() : t(WithFlush()) {}
  static TwoEnds::Shape WithFlush() {
    TwoEnds::Shape shape = Shape(2, 2);
    shape.flush = true;
    return shape;
  }
  // One transfer over this lane, given back to NCCL.
  void Transferred(uint8_t lane, size_t offset) {
    t.send->SetRoute({&lane, 1});
    Transfer* const receive = t.Receive(offset, 10);
    t.Settle();
    SendRequest* const sent = t.Send(0, 10);
    ASSERT_NE(sent, nullptr);
    t.Settle();
    EXPECT_EQ(t.Received(receive), std::vector<int>{10});
    EXPECT_TRUE(t.IsSent(sent));
  }
  Outcome Flush(size_t offset, Request** request) {
    void* data = t.to.data() + TwoEnds::kGuard + offset;
    const int size = 10;
    const MemoryKeys* keys = &t.to_keys;
    return t.recv->Flush(1, &data, &size, &keys, request);
  }
  size_t Reads(int nic) {
    size_t reads = 0;
    for (const PostedSend& packet : t.receiver_nics[nic]->sends) {
      reads += packet.request.opcode == IBV_WR_RDMA_READ ? 1 : 0;
    }
    return reads;
  }
  TwoEnds t;
};

TEST_F(Flushes, OnlyDevicesThatDelivered) {
  Transferred(1, 0);
  Request* request = nullptr;
  EXPECT_EQ(Flush(0, &request), Outcome::kOk);
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(Reads(0), 0u);
  EXPECT_EQ(Reads(1), 1u);
  int done = 0;
  EXPECT_EQ(t.recv->Test(static_cast<FlushRequest*>(request), &done), Outcome::kOk);
  EXPECT_EQ(done, 0);
  t.receiver_nics[1]->Complete(t.receiver_nics[1]->sends.back());
  t.receiver_nics[1]->sends.pop_back();
  EXPECT_EQ(t.recv->Test(static_cast<FlushRequest*>(request), &done), Outcome::kOk);
  EXPECT_EQ(done, 1);
}

TEST_F(Flushes, LaneFencedButDeviceAlive_StillFlushed) {
  Transferred(1, 0);
  t.Episode(Refs({1}), 2);
  Request* request = nullptr;
  EXPECT_EQ(Flush(0, &request), Outcome::kOk);
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(Reads(1), 1u);
  t.receiver_nics[1]->Complete(t.receiver_nics[1]->sends.back());
  t.receiver_nics[1]->sends.pop_back();
  int done = 0;
  EXPECT_EQ(t.recv->Test(static_cast<FlushRequest*>(request), &done), Outcome::kOk);
  EXPECT_EQ(done, 1);
}

TEST_F(Flushes, DeviceDied_OverUnlessItCanBeDoneWithout) {
  for (const bool without : {false, true}) {
    TwoEnds own(WithFlush());
    uint8_t lane = 1;
    own.send->SetRoute({&lane, 1});
    Transfer* const receive = own.Receive(0, 10);
    own.Settle();
    own.Send(0, 10);
    own.Settle();
    ASSERT_EQ(own.Received(receive), std::vector<int>{10});
    own.Episode(Refs({1}), 2);
    ConnectionDevice device;
    device.cq = verbs::CompletionQueue::Create(own.receiver_nics[2]->context(), 10).value();
    device.physical = 2;
    ASSERT_TRUE(own.recv->AddDevice(1, &device));
    EXPECT_NE(device.flush.qp, nullptr);
    if (without) own.recv->set_flush_without_nic([](void*) { return true; });
    void* data = own.to.data() + TwoEnds::kGuard;
    const int size = 10;
    const MemoryKeys* keys = &own.to_keys;
    Request* request = nullptr;
    const Outcome outcome = own.recv->Flush(1, &data, &size, &keys, &request);
    EXPECT_EQ(request, nullptr);
    if (without) {
      EXPECT_EQ(outcome, Outcome::kOk);
    } else {
      EXPECT_EQ(outcome, Outcome::kFault);
      const std::vector<Fault> faults = own.recv->TakeFaults();
      ASSERT_EQ(faults.size(), 1u);
      EXPECT_EQ(faults[0].kind, Fault::Kind::kLost);
      EXPECT_TRUE(faults[0].fatal);
    }
  }
}

TEST_F(Flushes, ReadEndsInError_Over) {
  Transferred(0, 0);
  Request* request = nullptr;
  EXPECT_EQ(Flush(0, &request), Outcome::kOk);
  t.receiver_nics[0]->Complete(t.receiver_nics[0]->sends.back(), IBV_WC_RETRY_EXC_ERR);
  t.receiver_nics[0]->sends.pop_back();
  int done = 0;
  EXPECT_EQ(t.recv->Test(static_cast<FlushRequest*>(request), &done), Outcome::kFault);
  EXPECT_TRUE(t.recv->TakeFaults().at(0).fatal);
  EXPECT_EQ(done, 0);
}

TEST_F(Flushes, UnknownBuffer_EveryDevice) {
  Request* request = nullptr;
  EXPECT_EQ(Flush(5000, &request), Outcome::kOk);
  ASSERT_NE(request, nullptr);
  EXPECT_EQ(Reads(0) + Reads(1), 2u);
}

// ---- Without failover.

TEST(NoFailover, FirstFault_EndsTheConnectionAsEver) {
  TwoEnds::Shape shape = Shape(2, 2);
  shape.rules.failover = false;
  TwoEnds t(shape);
  t.Receive(0, 10);
  t.Settle();
  SendRequest* const sent = t.Send(0, 10);
  t.Break(true, 0);
  int done = 0;
  EXPECT_EQ(t.send->Test(sent, &done, nullptr), Outcome::kRemote);
  EXPECT_EQ(t.send->TakeFault().code, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(t.send->TakeFaults().empty());
}

}  // namespace
}  // namespace railhop::datapath
