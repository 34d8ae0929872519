// Both ends over a NIC that does what the test says: order of arrival, faults, misuse.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "cc/base/prng.h"
#include "cc/datapath/fake_nic.h"
#include "cc/datapath/recv_connection.h"
#include "cc/datapath/send_connection.h"
#include "gtest/gtest.h"

namespace railhop::datapath {
namespace {

constexpr size_t kBytes = 1 << 20;

std::vector<ConnectionDevice> Devices(FakeNic* nic, int count, void* memory, size_t size) {
  std::vector<ConnectionDevice> devices(count);
  for (ConnectionDevice& device : devices) {
    device.cq = verbs::CompletionQueue::Create(nic->context(), 100).value();
    device.control = verbs::MemoryRegion::Register(nic->context(), memory, size, false).value();
  }
  return devices;
}

std::vector<Lane> Lanes(FakeNic* nic, std::vector<ConnectionDevice>* devices, int count) {
  std::vector<Lane> lanes(count);
  for (int i = 0; i < count; ++i) {
    const size_t device = i % devices->size();
    lanes[i].qp = verbs::QueuePair::Create(nic->context(), (*devices)[device].cq.get(), {}).value();
    lanes[i].local_device = lanes[i].remote_device = static_cast<uint8_t>(device);
    lanes[i].epoch = 1;
  }
  return lanes;
}

// A connection whose ends have a NIC each.
class ConnectionTest : public testing::Test {
 protected:
  void Make(int devices, int lanes, ConnectionRules rules) {
    auto sender_memory = std::make_unique<SenderMemory>();
    auto receiver_memory = std::make_unique<ReceiverMemory>();
    PeerMemory sender_peer = {reinterpret_cast<uintptr_t>(receiver_memory.get()), {}};
    PeerMemory receiver_peer = {reinterpret_cast<uintptr_t>(sender_memory.get()), {}};
    auto d = Devices(&sender_nic, devices, sender_memory.get(), sizeof(SenderMemory));
    auto l = Lanes(&sender_nic, &d, lanes);
    send = std::make_unique<SendConnection>(std::move(d), std::move(l), rules,
                                            std::move(sender_memory), sender_peer);
    d = Devices(&receiver_nic, devices, receiver_memory.get(), sizeof(ReceiverMemory));
    l = Lanes(&receiver_nic, &d, lanes);
    recv = std::make_unique<RecvConnection>(std::move(d), std::move(l), rules,
                                            std::move(receiver_memory), std::vector<FlushLane>());
    recv->SetPeer(receiver_peer);
    ASSERT_EQ(recv->PostReceives(), Outcome::kOk);
    from.resize(kBytes);
    to.resize(kBytes);
    for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
    const auto from_address = reinterpret_cast<uintptr_t>(from.data());
    from_keys.Start(from_address, from_address + kBytes);
    from_keys.Add(0, 11, 12);
    const auto to_address = reinterpret_cast<uintptr_t>(to.data());
    to_keys.Start(to_address, to_address + kBytes);
    to_keys.Add(0, 21, 22);
  }

  Transfer* Receive(size_t offset, size_t size, int tag = 1) {
    void* data = to.data() + offset;
    const MemoryKeys* keys = &to_keys;
    Request* request = nullptr;
    EXPECT_EQ(recv->Receive(1, &data, &size, &tag, &keys, &request), Outcome::kOk);
    return static_cast<Transfer*>(request);
  }
  SendRequest* Send(size_t offset, size_t size, int tag = 1) {
    Request* request = nullptr;
    EXPECT_EQ(send->Send(from.data() + offset, size, tag, &from_keys, &request), Outcome::kOk);
    return static_cast<SendRequest*>(request);
  }
  // The clear-to-send entries arrive.
  void DeliverCts() {
    for (const PostedSend& write : receiver_nic.sends) {
      FakeNic::CarryOut(write);
      if ((write.request.send_flags & IBV_SEND_SIGNALED) != 0) receiver_nic.Complete(write);
    }
    receiver_nic.sends.clear();
  }
  // One stripe arrives: bytes, then the receiver's completion, then the sender's. Lanes of both
  // ends have the same numbers.
  void DeliverData(const PostedSend& write) {
    FakeNic::CarryOut(write);
    if (write.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
      receiver_nic.completions.push_back(Arrival(write));
    }
    if ((write.request.send_flags & IBV_SEND_SIGNALED) != 0) sender_nic.Complete(write);
  }
  static ibv_wc Arrival(const PostedSend& write) {
    ibv_wc wc = {};
    wc.wr_id = PackWorkId({WorkKind::kReceive, UnpackWorkId(write.request.wr_id).lane, 0, 0, 1});
    wc.status = IBV_WC_SUCCESS;
    wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    wc.imm_data = write.request.imm_data;
    wc.byte_len = write.sge.length;
    return wc;
  }
  void DeliverAllInOrder(Prng* prng) {
    while (!sender_nic.sends.empty()) {
      const size_t i = prng == nullptr ? 0 : prng->Below(sender_nic.sends.size());
      const PostedSend write = sender_nic.sends[i];
      sender_nic.sends.erase(sender_nic.sends.begin() + static_cast<ptrdiff_t>(i));
      DeliverData(write);
    }
  }
  bool SendDone(SendRequest* request) {
    int done = 0;
    for (int i = 0; i < 50 && done == 0; ++i) {
      EXPECT_EQ(send->Test(request, &done, nullptr), Outcome::kOk);
    }
    return done != 0;
  }
  // The size, or -1 if it is not done.
  int ReceiveDone(Transfer* request) {
    int done = 0;
    int size = -1;
    for (int i = 0; i < 50 && done == 0; ++i) {
      EXPECT_EQ(recv->Test(request, &done, &size), Outcome::kOk);
    }
    return done != 0 ? size : -1;
  }

  FakeNic sender_nic, receiver_nic;
  std::unique_ptr<SendConnection> send;
  std::unique_ptr<RecvConnection> recv;
  std::vector<uint8_t> from, to;
  MemoryKeys from_keys, to_keys;
};

TEST_F(ConnectionTest, BeforeTheReceive_NoRequest) {
  Make(1, 1, {});
  EXPECT_EQ(Send(0, 100), nullptr);
  Transfer* const receive = Receive(0, 100);
  EXPECT_EQ(Send(0, 100), nullptr);  // announced, not arrived
  DeliverCts();
  SendRequest* const sent = Send(0, 100);
  ASSERT_NE(sent, nullptr);
  EXPECT_EQ(ReceiveDone(receive), -1);
  DeliverAllInOrder(nullptr);
  EXPECT_EQ(ReceiveDone(receive), 100);
  EXPECT_TRUE(SendDone(sent));
  EXPECT_EQ(memcmp(from.data(), to.data(), 100), 0);
}

// A stripe's bytes and completions in any order, over several devices and lanes.
TEST_F(ConnectionTest, StripesInAnyOrder_DoneOnlyWhenAllAreThere) {
  ConnectionRules rules;
  rules.lanes_per_send = 8;
  Make(4, 8, rules);
  Prng prng(5);
  for (int round = 0; round < 200; ++round) {
    const size_t size = prng.Below(100000);
    Transfer* const receive = Receive(0, 100000);
    DeliverCts();
    SendRequest* const sent = Send(0, size);
    ASSERT_NE(sent, nullptr);
    memset(to.data(), 0, 100001);
    while (!sender_nic.sends.empty()) {
      EXPECT_EQ(ReceiveDone(receive), -1);
      EXPECT_FALSE(SendDone(sent));
      const size_t i = prng.Below(sender_nic.sends.size());
      const PostedSend write = sender_nic.sends[i];
      sender_nic.sends.erase(sender_nic.sends.begin() + static_cast<ptrdiff_t>(i));
      DeliverData(write);
    }
    ASSERT_EQ(ReceiveDone(receive), static_cast<int>(size));
    ASSERT_TRUE(SendDone(sent));
    ASSERT_EQ(memcmp(from.data(), to.data(), size), 0);
    ASSERT_EQ(to[size], 0);
  }
}

TEST_F(ConnectionTest, AdaptiveRouting_AnnouncedByAWriteOfItsOwn) {
  ConnectionRules rules;
  rules.adaptive_routing = true;
  rules.ar_threshold = 1000;
  Make(1, 1, rules);
  for (const size_t size : {size_t{1000}, size_t{1001}, size_t{50000}}) {
    Transfer* const receive = Receive(0, 60000);
    DeliverCts();
    SendRequest* const sent = Send(0, size);
    ASSERT_NE(sent, nullptr);
    EXPECT_EQ(sender_nic.sends.size(), size > 1000 ? 2u : 1u);
    DeliverAllInOrder(nullptr);
    EXPECT_EQ(ReceiveDone(receive), static_cast<int>(size));
    EXPECT_TRUE(SendDone(sent));
  }
}

TEST_F(ConnectionTest, SlotWhoseSendIsNotAcknowledged_NextTransferWaits) {
  Make(1, 1, {});
  Transfer* const first = Receive(0, 10);
  DeliverCts();
  SendRequest* const sent = Send(0, 10);
  ASSERT_NE(sent, nullptr);
  const PostedSend unacknowledged = sender_nic.sends.front();
  sender_nic.sends.clear();
  FakeNic::CarryOut(unacknowledged);
  receiver_nic.completions.push_back(Arrival(unacknowledged));
  ASSERT_EQ(ReceiveDone(first), 10);
  // 31 transfers more, then the one that shares the first one's slot.
  for (uint32_t i = 1; i < kSlots; ++i) {
    Transfer* const receive = Receive(0, 10);
    DeliverCts();
    SendRequest* const other = Send(0, 10);
    ASSERT_NE(other, nullptr);
    DeliverAllInOrder(nullptr);
    ASSERT_EQ(ReceiveDone(receive), 10);
    ASSERT_TRUE(SendDone(other));
  }
  Transfer* const again = Receive(0, 10);
  ASSERT_NE(again, nullptr);
  DeliverCts();
  EXPECT_EQ(Send(0, 10), nullptr);
  sender_nic.Complete(unacknowledged);
  EXPECT_TRUE(SendDone(sent));
  SendRequest* const last = Send(0, 10);
  ASSERT_NE(last, nullptr);
  DeliverAllInOrder(nullptr);
  EXPECT_EQ(ReceiveDone(again), 10);
}

TEST_F(ConnectionTest, ThirtyTwoInFlight_NextReceiveWaits) {
  Make(1, 1, {});
  for (uint32_t i = 0; i < kSlots; ++i) ASSERT_NE(Receive(0, 10), nullptr);
  EXPECT_EQ(Receive(0, 10), nullptr);
}

TEST_F(ConnectionTest, CompletionInError_EveryCallFailsFaultOnce) {
  Make(1, 1, {});
  Receive(0, 10);
  DeliverCts();
  SendRequest* const sent = Send(0, 10);
  sender_nic.Complete(sender_nic.sends.front(), IBV_WC_RETRY_EXC_ERR);
  int done = 0;
  EXPECT_EQ(send->Test(sent, &done, nullptr), Outcome::kRemote);
  EXPECT_EQ(send->Test(sent, &done, nullptr), Outcome::kRemote);
  EXPECT_EQ(done, 0);
  Request* request = nullptr;
  EXPECT_EQ(send->Send(from.data(), 1, 1, &from_keys, &request), Outcome::kRemote);
  EXPECT_EQ(request, nullptr);
  const Fault fault = send->TakeFault();
  EXPECT_EQ(fault.kind, Fault::Kind::kCompletion);
  EXPECT_EQ(fault.code, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(fault.lane, 0);
  EXPECT_EQ(send->TakeFault().kind, Fault::Kind::kNone);
}

TEST_F(ConnectionTest, DoneBeforeTheFault_StillDone) {
  Make(1, 1, {});
  Receive(0, 10);
  Receive(0, 10);
  DeliverCts();
  SendRequest* const first = Send(0, 10);
  SendRequest* const second = Send(0, 10);
  sender_nic.Complete(sender_nic.sends[0]);
  sender_nic.Complete(sender_nic.sends[1], IBV_WC_WR_FLUSH_ERR);
  int done = 0;
  EXPECT_EQ(send->Test(second, &done, nullptr), Outcome::kRemote);
  EXPECT_EQ(send->Test(first, &done, nullptr), Outcome::kOk);
  EXPECT_EQ(done, 1);
}

TEST_F(ConnectionTest, PostRefused_SystemErrorWithItsNumber) {
  Make(1, 1, {});
  Receive(0, 10);
  DeliverCts();
  sender_nic.post_send_error = ENOMEM;
  Request* request = nullptr;
  EXPECT_EQ(send->Send(from.data(), 10, 1, &from_keys, &request), Outcome::kSystem);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(send->TakeFault().code, ENOMEM);
}

TEST_F(ConnectionTest, QueueThatCannotBePolled_SystemError) {
  Make(1, 1, {});
  Transfer* const receive = Receive(0, 10);
  receiver_nic.poll_result = -1;
  int done = 0;
  EXPECT_EQ(recv->Test(receive, &done, nullptr), Outcome::kSystem);
  EXPECT_EQ(recv->TakeFault().kind, Fault::Kind::kQueue);
}

// What the protocol does not allow ends the connection: never a second count, never a crash.
TEST_F(ConnectionTest, ImmediatesOutOfOrder_ProtocolFault) {
  const Immediate good = {.slot = SlotOf(kFirstSequence),
                          .receive = 0,
                          .stripe = 0,
                          .stripes = 2,
                          .has_record = false,
                          .epoch = 1};
  std::vector<std::vector<Immediate>> cases;
  cases.push_back({good, good});  // a stripe twice
  Immediate wrong = good;
  wrong.slot = SlotOf(kFirstSequence + 1);  // a slot that waits for nothing
  cases.push_back({wrong});
  wrong = good;
  wrong.receive = 1;  // beyond the group
  cases.push_back({wrong});
  wrong = good;
  wrong.epoch = 2;  // of other lanes
  cases.push_back({wrong});
  for (const std::vector<Immediate>& immediates : cases) {
    Make(1, 1, {});
    Transfer* const receive = Receive(0, 10);
    for (const Immediate& immediate : immediates) {
      ibv_wc wc = {};
      wc.wr_id = PackWorkId({WorkKind::kReceive, 0, 0, 0, 1});
      wc.imm_data = htonl(PackImmediate(immediate));
      receiver_nic.completions.push_back(wc);
    }
    int done = 0;
    EXPECT_EQ(recv->Test(receive, &done, nullptr), Outcome::kRemote);
    EXPECT_EQ(done, 0);
    EXPECT_EQ(recv->TakeFault().kind, Fault::Kind::kProtocol);
    send.reset();
    recv.reset();
  }
}

// Random immediates: never more than what one receive allows, never a crash.
TEST_F(ConnectionTest, AnyImmediate_NoCrash) {
  Prng prng(9);
  for (int round = 0; round < 300; ++round) {
    Make(1, 1, {});
    Receive(0, 10);
    for (int i = 0; i < 20; ++i) {
      ibv_wc wc = {};
      wc.wr_id = PackWorkId({WorkKind::kReceive, 0, 0, 0, 1});
      wc.imm_data = static_cast<uint32_t>(prng.Next());
      receiver_nic.completions.push_back(wc);
      recv->Poll();
    }
    send.reset();
    recv.reset();
  }
}

TEST_F(ConnectionTest, EntryWithNoOrTooManyReceives_ProtocolFault) {
  for (const uint8_t receives : {0, 9, 255}) {
    Make(1, 1, {});
    Receive(0, 10);
    reinterpret_cast<CtsEntry*>(receiver_nic.sends.front().sge.addr)->receives = receives;
    DeliverCts();
    Request* request = nullptr;
    EXPECT_EQ(send->Send(from.data(), 10, 1, &from_keys, &request), Outcome::kRemote);
    EXPECT_EQ(send->TakeFault().kind, Fault::Kind::kProtocol);
    send.reset();
    recv.reset();
  }
}

TEST_F(ConnectionTest, Misuse_SaidAndHarmless) {
  Make(1, 1, {});
  Transfer* const receive = Receive(0, 10);
  DeliverCts();
  Request* request = nullptr;
  EXPECT_EQ(send->Send(from.data(), 11, 1, &from_keys, &request), Outcome::kMisuse);  // too long
  EXPECT_EQ(send->Send(from.data(), 10, 1, nullptr, &request), Outcome::kMisuse);     // no keys
  EXPECT_EQ(send->Send(from.data() + kBytes - 9, 10, 1, &from_keys, &request),  // over the end
            Outcome::kMisuse);
  EXPECT_EQ(send->Send(from.data() - 1, 10, 1, &from_keys, &request), Outcome::kMisuse);
  void* data = to.data();
  size_t size = kBytes + 1;
  int tag = 1;
  const MemoryKeys* keys = &to_keys;
  EXPECT_EQ(recv->Receive(1, &data, &size, &tag, &keys, &request), Outcome::kMisuse);
  size = 1;
  EXPECT_EQ(recv->Receive(0, &data, &size, &tag, &keys, &request), Outcome::kMisuse);
  EXPECT_EQ(recv->Receive(9, &data, &size, &tag, &keys, &request), Outcome::kMisuse);
  SendRequest* const sent = Send(0, 10);
  ASSERT_NE(sent, nullptr);
  DeliverAllInOrder(nullptr);
  EXPECT_EQ(ReceiveDone(receive), 10);
  EXPECT_TRUE(SendDone(sent));
  int done = 0;
  EXPECT_EQ(send->Test(sent, &done, nullptr), Outcome::kMisuse);  // over
  EXPECT_EQ(recv->Test(receive, &done, nullptr), Outcome::kMisuse);
}

TEST_F(ConnectionTest, Close_NothingIsLeft) {
  Make(2, 4, {});
  Receive(0, 10);
  DeliverCts();
  SendRequest* const sent = Send(0, 10);
  EXPECT_TRUE(send->Close().ok());
  EXPECT_TRUE(recv->Close().ok());
  EXPECT_EQ(sender_nic.qps + sender_nic.cqs + sender_nic.mrs, 0);
  EXPECT_EQ(receiver_nic.qps + receiver_nic.cqs + receiver_nic.mrs, 0);
  int done = 0;
  EXPECT_EQ(send->Test(sent, &done, nullptr), Outcome::kMisuse);
}

TEST_F(ConnectionTest, QueuePairThatStays_CloseSaysSoAndMayBeRepeated) {
  Make(1, 1, {});
  sender_nic.destroy_qp_error = EBUSY;
  EXPECT_FALSE(send->Close().ok());
  EXPECT_EQ(sender_nic.mrs, 1);  // memory stays registered while the queue pair may write to it
  sender_nic.destroy_qp_error = 0;
  EXPECT_TRUE(send->Close().ok());
  EXPECT_EQ(sender_nic.qps + sender_nic.cqs + sender_nic.mrs, 0);
}

TEST_F(ConnectionTest, ReceivesUsed_PostedAgainInBatches) {
  Make(1, 1, {});
  EXPECT_EQ(receiver_nic.receives_posted, static_cast<int>(kReceivesPosted));
  for (uint32_t i = 0; i < 10 * kReceiveBatch; ++i) {
    Transfer* const receive = Receive(0, 10);
    DeliverCts();
    SendRequest* const sent = Send(0, 10);
    DeliverAllInOrder(nullptr);
    ASSERT_EQ(ReceiveDone(receive), 10);
    ASSERT_TRUE(SendDone(sent));
  }
  EXPECT_EQ(receiver_nic.receives_posted, static_cast<int>(kReceivesPosted + 10 * kReceiveBatch));
}

}  // namespace
}  // namespace railhop::datapath
