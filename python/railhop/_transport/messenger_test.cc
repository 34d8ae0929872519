// Messengers of several ranks as threads of this process, over the plugin of cc/netperf/testdata.
#include "python/railhop/_transport/messenger.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "python/railhop/_transport/failure.h"
#include "python/railhop/_transport/plugin_handle.h"

namespace railhop::transport {
namespace {

constexpr char kPlugin[] = "cc/netperf/testdata/libnccl-net-loopback.so";
constexpr double kPatienceS = 60;

// Ranks that are connected with each other.
std::vector<std::unique_ptr<Messenger>> Connected(int size, int lanes) {
  std::vector<std::unique_ptr<Messenger>> ranks;
  std::vector<std::vector<std::string>> handles(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<Messenger>(StartPlugin(kPlugin, 0), rank, size, lanes,
                                                std::vector<std::string>{"talk", "sing"}));
  }
  for (int to = 0; to < size; ++to) {
    for (int from = 0; from < size; ++from) {
      handles[static_cast<size_t>(from)].push_back(
          to == from ? "" : ranks[static_cast<size_t>(to)]->Listen(from));
    }
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_TRUE(ranks[static_cast<size_t>(rank)]->Connect(handles[static_cast<size_t>(rank)],
                                                            kPatienceS));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

void CloseAll(std::vector<std::unique_ptr<Messenger>>* ranks) {
  std::vector<std::thread> threads;
  for (auto& rank : *ranks) threads.emplace_back([&rank] { rank->Close(30); });
  for (std::thread& thread : threads) thread.join();
}

std::vector<uint8_t> Bytes(size_t size, uint8_t start) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(start + i * 7);
  return bytes;
}

TEST(Messenger, MessagesOfAllSizes_ComeWhole) {
  auto ranks = Connected(2, 3);
  for (const size_t size : {0, 1, 4095, 16384, 16385, 131008, 131009, 3000001}) {
    const std::vector<uint8_t> sent = Bytes(size, 3);
    std::vector<uint8_t> received(size);
    const auto send = ranks[0]->Send(1, 0, 5, sent.data(), size);
    const auto receive = ranks[1]->Receive(0, 0, 5, received.data(), size);
    ASSERT_TRUE(ranks[1]->Wait(*receive, kPatienceS)) << size;
    ASSERT_TRUE(ranks[0]->Wait(*send, kPatienceS)) << size;
    EXPECT_EQ(sent, received) << size;
    EXPECT_EQ(receive->source, 0);
  }
  CloseAll(&ranks);
}

TEST(Messenger, SendsBeforeTheirReceives_InAnyOrderOfTags) {
  auto ranks = Connected(2, 2);
  std::vector<std::vector<uint8_t>> sent;
  std::vector<std::shared_ptr<Operation>> sends;
  for (uint8_t tag = 0; tag < 6; ++tag) {
    sent.push_back(Bytes(50'000u * tag, tag));
    sends.push_back(ranks[0]->Send(1, 0, tag, sent.back().data(), sent.back().size()));
  }
  for (uint8_t tag = 6; tag-- > 0;) {
    std::vector<uint8_t> received(sent[tag].size());
    const auto receive = ranks[1]->Receive(-1, 0, tag, received.data(), received.size());
    ASSERT_TRUE(ranks[1]->Wait(*receive, kPatienceS)) << int{tag};
    EXPECT_EQ(received, sent[tag]);
  }
  for (const auto& send : sends) EXPECT_TRUE(ranks[0]->Wait(*send, kPatienceS));
  CloseAll(&ranks);
}

TEST(Messenger, SameTagTwice_MatchesInOrder) {
  auto ranks = Connected(2, 4);
  const std::vector<uint8_t> first = Bytes(400'000, 1);
  const std::vector<uint8_t> second = Bytes(400'000, 2);
  const auto send_first = ranks[0]->Send(1, 0, 9, first.data(), first.size());
  const auto send_second = ranks[0]->Send(1, 0, 9, second.data(), second.size());
  std::vector<uint8_t> a(first.size());
  std::vector<uint8_t> b(second.size());
  const auto receive_a = ranks[1]->Receive(0, 0, 9, a.data(), a.size());
  const auto receive_b = ranks[1]->Receive(0, 0, 9, b.data(), b.size());
  EXPECT_TRUE(ranks[1]->Wait(*receive_b, kPatienceS));
  EXPECT_TRUE(ranks[1]->Wait(*receive_a, kPatienceS));
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
  CloseAll(&ranks);
}

TEST(Messenger, EverybodyWithEverybody_AtOnce) {
  constexpr int kRanks = 4;
  auto ranks = Connected(kRanks, 2);
  const std::vector<uint8_t> sent = Bytes(200'000, 1);
  std::vector<std::vector<uint8_t>> received(kRanks * kRanks, std::vector<uint8_t>(sent.size()));
  std::vector<std::pair<int, std::shared_ptr<Operation>>> all;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      auto& into = received[static_cast<size_t>(from) * kRanks + static_cast<size_t>(to)];
      all.emplace_back(from,
                       ranks[static_cast<size_t>(from)]->Send(to, 0, 1, sent.data(), sent.size()));
      all.emplace_back(
          to, ranks[static_cast<size_t>(to)]->Receive(from, 0, 1, into.data(), into.size()));
    }
  }
  for (const auto& [rank, operation] : all) {
    EXPECT_TRUE(ranks[static_cast<size_t>(rank)]->Wait(*operation, kPatienceS));
  }
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      EXPECT_EQ(received[static_cast<size_t>(from * kRanks + to)], sent);
    }
  }
  CloseAll(&ranks);
}

std::string ProblemOf(Messenger& messenger, const Operation& operation, FailureKind* kind) {
  try {
    if (!messenger.Wait(operation, kPatienceS)) return "not done";
  } catch (const Failure& failure) {
    *kind = failure.kind();
    return failure.what();
  }
  return "";
}

TEST(Messenger, DifferentCalls_AreNamed) {
  auto ranks = Connected(2, 1);
  const std::vector<uint8_t> sent = Bytes(40, 1);
  std::vector<uint8_t> received(80);
  const auto send = ranks[0]->Send(1, 0, 1, sent.data(), sent.size());
  const auto receive = ranks[1]->Receive(0, 1, 1, received.data(), received.size());
  FailureKind kind = FailureKind::kLoad;
  const std::string problem = ProblemOf(*ranks[1], *receive, &kind);
  EXPECT_EQ(kind, FailureKind::kMismatch);
  EXPECT_NE(problem.find("rank 0 sent 40 bytes in talk, where rank 1 expects 80 in sing"),
            std::string::npos)
      << problem;
  EXPECT_TRUE(ranks[0]->Wait(*send, kPatienceS));
  CloseAll(&ranks);
}

TEST(Messenger, PeerThatCloses_EndsWhatWaitsForIt) {
  auto ranks = Connected(2, 1);
  std::vector<uint8_t> received(80);
  const auto receive = ranks[1]->Receive(0, 0, 1, received.data(), received.size());
  ranks[0]->Close(0.2);
  FailureKind kind = FailureKind::kLoad;
  EXPECT_NE(ProblemOf(*ranks[1], *receive, &kind), "");
  EXPECT_EQ(kind, FailureKind::kPeer);
  CloseAll(&ranks);
}

TEST(Messenger, WaitThatIsTooShort_GivesFalse_AndCancelFreesTheMemory) {
  auto ranks = Connected(2, 1);
  std::vector<uint8_t> received(80);
  const auto receive = ranks[1]->Receive(0, 0, 1, received.data(), received.size());
  EXPECT_FALSE(ranks[1]->Wait(*receive, 0.01));
  ranks[1]->Cancel(receive);
  EXPECT_TRUE(receive->done);
  // What then comes for that tag waits for the next who asks.
  const std::vector<uint8_t> sent = Bytes(80, 1);
  const auto send = ranks[0]->Send(1, 0, 1, sent.data(), sent.size());
  const auto again = ranks[1]->Receive(0, 0, 1, received.data(), received.size());
  EXPECT_TRUE(ranks[1]->Wait(*again, kPatienceS));
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(ranks[0]->Wait(*send, kPatienceS));
  CloseAll(&ranks);
}

TEST(Messenger, AfterClose_EveryCallSaysSo) {
  auto ranks = Connected(2, 1);
  uint8_t byte = 0;
  const auto receive = ranks[0]->Receive(1, 0, 1, &byte, 1);
  CloseAll(&ranks);
  FailureKind kind = FailureKind::kLoad;
  EXPECT_NE(ProblemOf(*ranks[0], *receive, &kind), "");
  EXPECT_THROW(ranks[0]->Send(1, 0, 1, &byte, 1), Failure);
  ranks[0]->Cancel(receive);
}

TEST(Messenger, WrongRank_IsRefused) {
  auto ranks = Connected(2, 1);
  uint8_t byte = 0;
  EXPECT_THROW(ranks[0]->Send(0, 0, 1, &byte, 1), Failure);
  EXPECT_THROW(ranks[0]->Send(2, 0, 1, &byte, 1), Failure);
  EXPECT_THROW(ranks[0]->Receive(-2, 0, 1, &byte, 1), Failure);
  EXPECT_THROW(ranks[0]->Listen(0), Failure);
  CloseAll(&ranks);
}

TEST(Messenger, MissingPlugin_IsNamed) {
  try {
    StartPlugin("/nonexistent/plugin.so", 0);
    FAIL() << "it was loaded";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.kind(), FailureKind::kLoad);
    EXPECT_NE(std::string(failure.what()).find("/nonexistent/plugin.so"), std::string::npos);
  }
}

TEST(Messenger, LanesShareTheBytes) {
  auto ranks = Connected(2, 4);
  const std::vector<uint8_t> sent = Bytes(1 << 20, 1);
  std::vector<uint8_t> received(sent.size());
  const auto send = ranks[0]->Send(1, 0, 1, sent.data(), sent.size());
  const auto receive = ranks[1]->Receive(0, 0, 1, received.data(), received.size());
  EXPECT_TRUE(ranks[1]->Wait(*receive, kPatienceS));
  EXPECT_TRUE(ranks[0]->Wait(*send, kPatienceS));
  CloseAll(&ranks);
  uint64_t total = 0;
  for (const LaneReport& lane : ranks[0]->Report()) {
    EXPECT_GT(lane.sent.bytes, 0u) << lane.lane;
    total += lane.sent.bytes;
  }
  EXPECT_EQ(total, sent.size());
}

}  // namespace
}  // namespace railhop::transport
