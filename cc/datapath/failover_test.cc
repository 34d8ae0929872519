// Lanes that fail, are retired, fenced and replaced: each case by hand.
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "cc/datapath/testing/failover_cases.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

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
