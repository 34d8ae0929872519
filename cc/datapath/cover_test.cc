// Keys by device, confirmed receives, flushes: what a lane's device has to do with it.
#include <vector>

#include "cc/datapath/testing/failover_cases.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

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

}  // namespace
}  // namespace railhop::datapath
