// Scripted scenarios: what happens to one connection when something goes wrong at the worst time.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/rdma_model/topology_text.h"
#include "cc/sim/endpoint.h"
#include "cc/sim/memory.h"
#include "cc/sim/world.h"

namespace railhop::sim {
namespace {

using rdma::AsyncEvent;
using rdma::Opcode;
using rdma::QpState;
using rdma::WcStatus;

constexpr const char* kTwoHosts = R"(
  host alpha
    device mlx5_0
      port 1 address 10.0.0.1
  host beta
    device mlx5_0
      port 1 address 10.0.0.2
)";
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint32_t kPsn = 0xfffff0;

// Two connected queue pairs with a buffer each: `alpha` sends, `beta` receives.
class Pair {
 public:
  explicit Pair(rdma::QpType type = rdma::QpType::kRc, ConnectOptions connect = {},
                Options options = {})
      : world(Topology(), options), connect_options(connect) {
    world.recorder().Keep();
    endpoint_options.type = type;
    EXPECT_TRUE(alpha.Open(&world, world.FindNic("alpha/mlx5_0"), endpoint_options));
    EXPECT_TRUE(beta.Open(&world, world.FindNic("beta/mlx5_0"), endpoint_options));
    source = memory.Allocate(1 << 16);
    target = memory.Allocate(1 << 16);
    source.Fill(kSourcePattern);
    target.Fill(kTargetPattern);
    EXPECT_EQ(0, alpha.context->RegMr(alpha.pd, source.data(), source.size(), source.addr(), 15,
                                      &source_key));
    EXPECT_EQ(0, beta.context->RegMr(beta.pd, target.data(), target.size(), target.addr(), 15,
                                     &target_key));
    ConnectBoth(kPsn);
  }
  static rdma::Topology Topology() {
    std::string error;
    const auto topology = rdma::ParseTopology(kTwoHosts, "test", &error);
    EXPECT_TRUE(topology.has_value()) << error;
    return *topology;
  }
  void ConnectBoth(uint32_t psn) {
    EXPECT_EQ(0, Connect(alpha, beta, connect_options, psn, psn + 7));
    EXPECT_EQ(0, Connect(beta, alpha, connect_options, psn + 7, psn));
  }
  // Back to RESET and up again, both ends.
  void Reconnect(uint32_t psn) {
    EXPECT_EQ(0, alpha.context->ModifyQp(alpha.qp, rdma::kAttrState, QpState::kReset, {}));
    EXPECT_EQ(0, beta.context->ModifyQp(beta.qp, rdma::kAttrState, QpState::kReset, {}));
    ConnectBoth(psn);
  }
  void Fault(const std::string& text) {
    std::string error;
    EXPECT_TRUE(world.Fault(text, &error)) << error;
  }
  void Send(uint64_t wr_id, Opcode opcode, uint32_t length, uint32_t flags = rdma::kSendSignaled) {
    const rdma::Sge sge{source.addr(), length, source_key};
    SendRequest request;
    request.wr_id = wr_id;
    request.opcode = opcode;
    request.flags = flags;
    request.imm_data = static_cast<uint32_t>(wr_id);
    request.remote_addr = target.addr();
    request.rkey = target_key;
    request.compare_add = 1;
    request.sges = &sge;
    request.sge_count = 1;
    EXPECT_EQ(0, alpha.context->PostSend(alpha.qp, request));
  }
  void Receive(uint64_t wr_id, uint32_t length) {
    const rdma::Sge sge{target.addr(), length, target_key};
    EXPECT_EQ(0, beta.context->PostReceive(beta.qp, wr_id, &sge, 1));
  }
  void RunFor(uint64_t ns) { world.loop().RunUntil(world.loop().now_ns() + ns); }
  // Statuses of all completions that wait in `cq`.
  static std::vector<WcStatus> Statuses(Cq* cq) {
    std::vector<WcStatus> statuses;
    rdma::Completion c;
    while (cq->Poll(1, &c) == 1) statuses.push_back(c.status);
    return statuses;
  }
  std::vector<WcStatus> Sent() { return Statuses(alpha.send_cq); }
  std::vector<WcStatus> Received() { return Statuses(beta.recv_cq); }
  std::vector<AsyncEvent> Events(Context* context) {
    std::vector<AsyncEvent> events;
    AsyncRecord record;
    while (context->NextEvent(&record)) events.push_back(record.event);
    return events;
  }
  bool TargetHasSource(size_t bytes) const { return target.Holds(kSourcePattern, 0, bytes); }
  bool TargetUntouched(size_t from = 0) const {
    return target.Holds(kTargetPattern, from, target.size() - from);
  }

  static constexpr uint64_t kSourcePattern = 0x1111111111111111;
  static constexpr uint64_t kTargetPattern = 0x2222222222222222;
  World world;
  ConnectOptions connect_options;
  EndpointOptions endpoint_options;
  Endpoint alpha, beta;
  Memory memory;
  Buffer source, target;
  uint32_t source_key = 0, target_key = 0;
};

using Statuses = std::vector<WcStatus>;
using Events = std::vector<AsyncEvent>;
constexpr WcStatus kOk = WcStatus::kSuccess;
constexpr WcStatus kFlushed = WcStatus::kWrFlushErr;
constexpr WcStatus kRetryExc = WcStatus::kRetryExcErr;

TEST(Rc, NoFault_EveryKindOfRequestArrivesInTimeOfTheWire) {
  Pair pair;
  pair.Receive(1, 10'000);
  pair.Send(1, Opcode::kSendImm, 10'000);
  pair.RunFor(10'000);
  EXPECT_EQ(pair.Received(), (Statuses{kOk}));
  EXPECT_EQ(pair.Sent(), (Statuses{kOk}));
  EXPECT_TRUE(pair.TargetHasSource(10'000));
  EXPECT_TRUE(pair.TargetUntouched(10'000));
  pair.Send(2, Opcode::kWrite, 50'000);
  pair.Send(3, Opcode::kRead, 50'000);
  pair.Send(4, Opcode::kFetchAdd, 8);
  pair.RunFor(100'000);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk, kOk, kOk}));
  EXPECT_TRUE(pair.memory.Damaged().empty());
}

TEST(Rc, WriteAckLostForEver_SenderGetsStatus12AndReceiverHasData) {
  Pair pair;
  pair.Fault("beta/mlx5_0 blackhole tx acks");
  pair.Receive(1, 0);
  pair.Send(1, Opcode::kWriteImm, 1000);
  pair.RunFor(kSecond);  // 8 sendings, 67 ms each
  EXPECT_EQ(pair.Sent(), (Statuses{kRetryExc}));
  EXPECT_EQ(pair.Received(), (Statuses{kOk})) << "once, however often it was sent";
  EXPECT_TRUE(pair.TargetHasSource(1000));
  EXPECT_EQ(pair.alpha.qp->state(), QpState::kErr);
  EXPECT_EQ(pair.beta.qp->state(), QpState::kRts) << "nobody told the receiver";
}

TEST(Rc, OneAckLost_NobodyNotices) {
  Pair pair;
  pair.Fault("beta/mlx5_0 loss packet 1 tx acks");
  pair.Send(1, Opcode::kWrite, 1000);
  pair.Send(2, Opcode::kWrite, 1000);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk, kOk})) << "the next acknowledgement covers it";
}

TEST(Rc, UnwrittenMessages_CompleteAtTheSenderAlone) {
  Pair pair;
  pair.Fault("beta/mlx5_0 unwritten rx after 1 messages");
  for (uint64_t i = 1; i <= 3; ++i) pair.Receive(i, 1000);
  for (uint64_t i = 1; i <= 3; ++i) pair.Send(i, Opcode::kSend, 1000);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk, kOk, kOk}));
  EXPECT_EQ(pair.Received(), (Statuses{kOk}));
  // A new life of the queue pair has its memory back.
  pair.Reconnect(kPsn + 1000);
  pair.Fault("beta/mlx5_0 clear");
  pair.Receive(4, 1000);
  pair.Send(4, Opcode::kSend, 1000);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Received(), (Statuses{kOk}));
}

TEST(Rc, LatePacketAfterTheSenderGaveUp_StillLandsUntilTheReceiverIsFenced) {
  for (const bool fence : {false, true}) {
    Pair pair(rdma::QpType::kRc, {.timeout = 5, .retry_cnt = 0});
    pair.Fault("alpha/mlx5_0 hold packet 1 tx");
    pair.Receive(1, 1000);
    pair.Send(1, Opcode::kSend, 1000);
    pair.RunFor(kMs);
    EXPECT_EQ(pair.Sent(), (Statuses{kRetryExc}));
    pair.source.Fill(77);  // the sender uses its buffer for something else
    if (fence) {
      EXPECT_EQ(0, pair.beta.context->ModifyQp(pair.beta.qp, rdma::kAttrState, QpState::kErr, {}));
    }
    pair.Fault("alpha/mlx5_0 release");
    pair.RunFor(kMs);
    EXPECT_EQ(pair.Received(), (Statuses{fence ? kFlushed : kOk}));
    EXPECT_EQ(pair.TargetHasSource(1000), !fence) << "the bytes are those of the time of sending";
    EXPECT_EQ(pair.TargetUntouched(), fence);
  }
}

TEST(Rc, PacketOfAnOldIncarnation_ChangesNothing) {
  Pair pair(rdma::QpType::kRc, {.timeout = 5, .retry_cnt = 0});
  pair.Fault("alpha/mlx5_0 hold packet 1 tx");
  pair.Send(1, Opcode::kWrite, 1000);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Sent(), (Statuses{kRetryExc}));
  pair.Reconnect(kPsn + 1000);
  pair.source.Fill(77);
  pair.Fault("alpha/mlx5_0 release");
  pair.RunFor(kMs);
  EXPECT_TRUE(pair.TargetUntouched());
  pair.source.Fill(Pair::kSourcePattern);
  pair.Send(2, Opcode::kWrite, 1000);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk}));
  EXPECT_TRUE(pair.TargetHasSource(1000));
}

TEST(Rc, SamePsnsAgainAfterReset_LetAnOldPacketIn) {
  // Why new lanes start at random packet numbers: this is what happens when they do not.
  Pair pair(rdma::QpType::kRc, {.timeout = 5, .retry_cnt = 0});
  pair.Fault("alpha/mlx5_0 hold packet 1 tx");
  pair.Send(1, Opcode::kWrite, 1000);
  pair.RunFor(kMs);
  pair.Reconnect(kPsn);
  pair.Fault("alpha/mlx5_0 release");
  pair.RunFor(kMs);
  EXPECT_TRUE(pair.TargetHasSource(1000));
}

TEST(Rc, PacketLostInTheMiddleOfALongWrite_IsSentAgainOnce) {
  Pair pair;
  pair.Fault("alpha/mlx5_0 loss packet 20 tx data");
  pair.Send(1, Opcode::kWrite, 60'000);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk})) << "a NAK brings it back long before the timer";
  EXPECT_TRUE(pair.TargetHasSource(60'000));
  EXPECT_EQ(pair.alpha.qp->requester().timeouts(), 0u);
}

TEST(Rc, ReadAnswerLosesAPacket_AsksAgainFromThere) {
  Pair pair;
  pair.Fault("beta/mlx5_0 loss packet 3 tx data");
  pair.Send(1, Opcode::kRead, 60'000);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk}));
  EXPECT_TRUE(pair.source.Holds(Pair::kTargetPattern, 0, 60'000));
}

TEST(Rc, AtomicAnswerLost_AddsOnce) {
  Pair pair;
  const uint64_t before = *reinterpret_cast<uint64_t*>(pair.target.data());
  pair.Fault("beta/mlx5_0 loss packet 1 tx acks");
  pair.Send(1, Opcode::kFetchAdd, 8);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk}));
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(pair.target.data()), before + 1);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(pair.source.data()), before);
}

TEST(Rc, ReorderedPackets_AreTakenInOrder) {
  Pair pair(rdma::QpType::kRc, {}, {.seed = 3, .train_packets = 1});
  pair.Fault("alpha/mlx5_0 reorder by 2 30% tx");
  for (uint64_t i = 0; i < 20; ++i) pair.Send(i, Opcode::kWrite, 3000);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Sent(), Statuses(20, kOk));
  EXPECT_TRUE(pair.TargetHasSource(3000));
}

TEST(Rc, DoubledPackets_AreExecutedOnce) {
  Pair pair;
  pair.Fault("alpha/mlx5_0 duplicate");
  pair.Fault("beta/mlx5_0 duplicate");
  for (uint64_t i = 0; i < 10; ++i) pair.Receive(i, 100);
  for (uint64_t i = 0; i < 10; ++i) pair.Send(i, Opcode::kSend, 100);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Sent(), Statuses(10, kOk));
  EXPECT_EQ(pair.Received(), Statuses(10, kOk));
}

TEST(Rc, NoReceivePosted_WaitsAndArrivesLate) {
  Pair pair;
  pair.Send(1, Opcode::kSend, 100);
  pair.RunFor(kMs);
  EXPECT_TRUE(pair.Sent().empty());
  pair.Receive(1, 100);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk}));
}

TEST(Rc, NoReceivePostedAndFewRnrRetries_Status13) {
  Pair pair(rdma::QpType::kRc, {.rnr_retry = 2});
  pair.Send(1, Opcode::kSend, 100);
  pair.Send(2, Opcode::kSend, 100);
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Sent(), (Statuses{WcStatus::kRnrRetryExcErr, kFlushed}));
}

TEST(Port, CableOutAndIn_EventsAtBothTimesAndNothingLostWithinTheRetries) {
  Pair pair;
  pair.Fault("alpha/mlx5_0 down for 100ms");
  pair.Send(1, Opcode::kWrite, 1000);
  pair.RunFor(50 * kMs);
  EXPECT_EQ(pair.Events(pair.alpha.context), (Events{AsyncEvent::kPortErr}));
  EXPECT_TRUE(pair.Sent().empty());
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Events(pair.alpha.context), (Events{AsyncEvent::kPortActive}));
  EXPECT_EQ(pair.Sent(), (Statuses{kOk}));
}

TEST(Port, DownAfterThreeMessages_ExactlyThreeArrive) {
  Pair pair(rdma::QpType::kRc, {.timeout = 5, .retry_cnt = 1});
  for (uint64_t i = 0; i < 6; ++i) pair.Receive(i, 100);
  pair.Fault("alpha/mlx5_0 down after 3 messages");
  for (uint64_t i = 0; i < 6; ++i) pair.Send(i, Opcode::kSend, 100);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Received(), (Statuses{kOk, kOk, kOk}));
  EXPECT_EQ(pair.alpha.context->nic()->port(1)->link, rdma::PortLinkState::kDown);
}

TEST(Port, EventLostLateOrDoubled_AsSaid) {
  Pair pair;
  pair.Fault("alpha/mlx5_0 down for 10ms event lost");
  pair.RunFor(20 * kMs);
  EXPECT_TRUE(pair.Events(pair.alpha.context).empty());
  pair.Fault("alpha/mlx5_0 down event doubled");
  pair.RunFor(kMs);
  EXPECT_EQ(pair.Events(pair.alpha.context), (Events{AsyncEvent::kPortErr, AsyncEvent::kPortErr}));
  pair.Fault("alpha/mlx5_0 up event late 2s");
  pair.RunFor(kSecond);
  EXPECT_TRUE(pair.Events(pair.alpha.context).empty());
  pair.RunFor(2 * kSecond);
  EXPECT_EQ(pair.Events(pair.alpha.context), (Events{AsyncEvent::kPortActive}));
}

TEST(Port, AddressMovesToAnotherIndex_OldQueuePairGoesSilentAndANewOneFindsIt) {
  Pair pair(rdma::QpType::kRc, {.timeout = 5, .retry_cnt = 1});
  const auto at = static_cast<uint32_t>(BestGid(*pair.beta.context->nic()->port(1)));
  pair.Fault("alpha/mlx5_0 gid move " + std::to_string(at) + " 9");
  pair.Send(1, Opcode::kWrite, 10);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Sent(), (Statuses{kRetryExc}));
  EXPECT_EQ(pair.Events(pair.alpha.context), (Events{AsyncEvent::kGidChange}));
  EXPECT_EQ(BestGid(*pair.alpha.context->nic()->port(1)), 9);
  pair.Reconnect(kPsn + 1000);
  pair.Send(2, Opcode::kWrite, 10);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk}));
}

TEST(Device, Removed_FlushesTellsAndRefusesUntilOpenedAnew) {
  Pair pair;
  pair.Send(1, Opcode::kSend, 100);  // waits for a receive
  pair.RunFor(kMs);
  pair.Fault("alpha/mlx5_0 remove for 1s");
  EXPECT_EQ(pair.Sent(), (Statuses{kFlushed}));
  EXPECT_EQ(pair.Events(pair.alpha.context), (Events{AsyncEvent::kDeviceFatal}));
  uint32_t pd = 0;
  EXPECT_EQ(pair.alpha.context->AllocPd(&pd), EIO);
  EXPECT_EQ(pair.world.Open(pair.alpha.context->nic()), nullptr);
  pair.RunFor(2 * kSecond);
  EXPECT_EQ(pair.alpha.context->AllocPd(&pd), EIO) << "the old context stays dead";
  EXPECT_NE(pair.world.Open(pair.alpha.context->nic()), nullptr);
}

TEST(QueuePair, Wedged_SaysNothingAndTheOtherEndTimesOut) {
  Pair pair;
  pair.Fault("beta/mlx5_0 wedge rx");
  pair.Receive(1, 100);
  pair.Send(1, Opcode::kSend, 100);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Sent(), (Statuses{kRetryExc}));
  EXPECT_EQ(0, pair.beta.context->ModifyQp(pair.beta.qp, rdma::kAttrState, QpState::kErr, {}));
  pair.RunFor(kSecond);
  EXPECT_TRUE(pair.Received().empty()) << "not even a flush";
}

TEST(QueuePair, CompletionOfAChosenStatus_FailsTheNextRequest) {
  Pair pair;
  pair.Fault("alpha/mlx5_0 complete status 19 vendor 7 tx after 1 messages");
  for (uint64_t i = 0; i < 3; ++i) pair.Send(i, Opcode::kWrite, 10);
  pair.RunFor(kSecond);
  const Statuses sent = pair.Sent();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[2], kFlushed);
  EXPECT_TRUE(sent[1] == WcStatus::kFatalErr || sent[0] == WcStatus::kFatalErr);
}

TEST(Host, KilledWhenAPacketArrives_PeerTimesOutAndNothingIsWritten) {
  Pair pair;
  pair.Fault("beta/mlx5_0 kill rx");
  pair.Send(1, Opcode::kWrite, 1000);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Sent(), (Statuses{kRetryExc}));
  EXPECT_TRUE(pair.TargetUntouched());
  EXPECT_FALSE(pair.world.hosts()[1]->alive);
}

TEST(Uc, PacketLost_MessageIsNotReportedAndTheNextIs) {
  Pair pair(rdma::QpType::kUc);
  pair.Fault("alpha/mlx5_0 loss packet 2 tx");
  pair.Receive(1, 5000);
  pair.Send(1, Opcode::kSend, 5000);
  pair.Send(2, Opcode::kSend, 5000);
  pair.RunFor(kSecond);
  EXPECT_EQ(pair.Sent(), (Statuses{kOk, kOk}));
  EXPECT_EQ(pair.Received(), (Statuses{kOk}));
  EXPECT_TRUE(pair.TargetHasSource(5000));
}

TEST(Verbs, CallThatHangs_LetsVirtualTimePass) {
  Pair pair;
  pair.Fault("alpha/mlx5_0 hang modify_qp err 60s");
  const uint64_t before = pair.world.loop().now_ns();
  EXPECT_EQ(0, pair.alpha.context->ModifyQp(pair.alpha.qp, rdma::kAttrState, QpState::kErr, {}));
  EXPECT_EQ(pair.world.loop().now_ns() - before, 60 * kSecond);
}

TEST(Verbs, CallThatFails_GivesTheChosenErrno) {
  Pair pair;
  pair.Fault("alpha/mlx5_0 fail reg_mr ENOMEM count 1");
  uint32_t key = 0;
  EXPECT_EQ(
      pair.alpha.context->RegMr(pair.alpha.pd, pair.source.data(), 8, pair.source.addr(), 1, &key),
      ENOMEM);
  EXPECT_EQ(0, pair.alpha.context->RegMr(pair.alpha.pd, pair.source.data(), 8, pair.source.addr(),
                                         1, &key));
}

TEST(World, SameSeed_SameRecord) {
  const auto record = [](uint64_t seed) {
    Pair pair(rdma::QpType::kRc, {}, {.seed = seed});
    pair.Fault("alpha/mlx5_0 loss 10%");
    pair.Fault("alpha/mlx5_0 flap every 300us for 2ms");
    for (uint64_t i = 0; i < 30; ++i) pair.Receive(i, 100);
    for (uint64_t i = 0; i < 30; ++i) pair.Send(i, Opcode::kSend, 100);
    pair.RunFor(5 * kSecond);
    return pair.world.RecordText();
  };
  EXPECT_EQ(record(1), record(1));
  EXPECT_NE(record(1), record(2));
}

TEST(World, UnknownDevice_ErrorNamesItAndTheOthers) {
  Pair pair;
  std::string error;
  EXPECT_FALSE(pair.world.Fault("gamma/mlx5_0 down", &error));
  EXPECT_NE(error.find("gamma/mlx5_0"), std::string::npos) << error;
  EXPECT_NE(error.find("alpha/mlx5_0"), std::string::npos) << error;
  EXPECT_FALSE(pair.world.Fault("mlx5_0 down", &error)) << "two hosts have that";
  EXPECT_FALSE(pair.world.Fault("alpha/mlx5_0:3 down", &error));
}

}  // namespace
}  // namespace railhop::sim
