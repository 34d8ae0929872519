// Bytes through the transport over the software fabric: sizes, groups, tags, fused devices.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/prng.h"
#include "cc/runtime/testing/pair.h"
#include "cc/runtime/transport.h"
#include "gtest/gtest.h"

namespace railhop::runtime {

int RunChild(const std::vector<std::string>&) { return 1; }

namespace {

// One send of send_size into a receive of recv_size, checked to the last byte.
void Exchange(const Pair& pair, Buffer* from, Buffer* to, size_t send_size, uint64_t pattern) {
  from->Fill(pattern);
  to->Wipe();
  Outcome outcome;
  Request* const recv = PostRecv(pair.recv, {to}, {7}, &outcome);
  ASSERT_NE(recv, nullptr);
  Request* const send = PostSend(pair.send, from, send_size, 7, &outcome);
  ASSERT_NE(send, nullptr);
  std::vector<int> sizes;
  ASSERT_TRUE(Finish(recv, &sizes, &outcome));
  EXPECT_EQ(sizes[0], static_cast<int>(send_size));
  ASSERT_TRUE(Finish(send, &sizes, &outcome));
  EXPECT_EQ(sizes[0], static_cast<int>(send_size));
  EXPECT_EQ(to->Check(pattern, send_size), "");
}

std::vector<size_t> Sizes() {
  std::vector<size_t> sizes = {0,    1,    2,    7,     8,     127,   128,    129,     255,    4095,
                               4096, 4097, 8191, 65535, 65536, 65537, 999999, 1 << 20, 4000003};
  return sizes;
}

struct Shape {
  const char* name;
  int from_devices;
  int to_devices;
  int qps;
  bool split;
  int adaptive_routing;
  bool inline_cts;
};

class Transfers : public testing::TestWithParam<Shape> {
 protected:
  static RunningTransport::Settings SettingsOf(const Shape& shape) {
    RunningTransport::Settings settings;
    settings.datapath.ib_qps_per_connection = shape.qps;
    settings.datapath.ib_split_data_on_qps = shape.split;
    settings.datapath.ib_adaptive_routing = shape.adaptive_routing;
    settings.datapath.ib_use_inline = shape.inline_cts;
    return settings;
  }
  static int Device(int count, int first) {
    if (count == 1) return first;
    std::vector<int> parts;
    for (int i = 0; i < count; ++i) parts.push_back((first + i) % 4);
    return Transport::MakeVirtualDevice(parts).value();
  }

  RunningTransport running_{SettingsOf(GetParam())};
};

TEST_P(Transfers, EachSize_EveryByteAndNoOther) {
  Pair pair = Pair::Make(Device(GetParam().from_devices, 0), Device(GetParam().to_devices, 1));
  {
    Buffer from(AsConnection(pair.send), 4 << 20);
    Buffer to(AsConnection(pair.recv), (4 << 20) + 64);
    uint64_t pattern = 0;
    for (const size_t size : Sizes()) {
      SCOPED_TRACE(size);
      Exchange(pair, &from, &to, size, ++pattern);
      if (HasFatalFailure()) break;
    }
  }
  pair.Close();
}

// Up to 32 transfers in flight, in a random mixture of sizes, over more turns than there are slots.
TEST_P(Transfers, ManyInFlight_InOrder) {
  Pair pair = Pair::Make(Device(GetParam().from_devices, 0), Device(GetParam().to_devices, 1));
  constexpr size_t kDepth = 32;
  constexpr size_t kTransfers = 500;
  struct Slot {
    std::unique_ptr<Buffer> from, to;
    Request* send = nullptr;
    Request* recv = nullptr;
    size_t size = 0;
    uint64_t pattern = 0;
  };
  std::vector<Slot> slots(kDepth);
  for (Slot& slot : slots) {
    slot.from = std::make_unique<Buffer>(AsConnection(pair.send), 40000);
    slot.to = std::make_unique<Buffer>(AsConnection(pair.recv), 40000);
  }
  Prng prng(7);
  Outcome outcome;
  for (size_t first = 0; first < kTransfers; first += kDepth) {
    for (Slot& slot : slots) {
      slot.size = prng.Below(40001);
      slot.pattern = prng.Next();
      slot.from->Fill(slot.pattern);
      slot.to->Wipe();
      slot.recv = PostRecv(pair.recv, {slot.to.get()}, {1}, &outcome);
      ASSERT_NE(slot.recv, nullptr);
    }
    for (Slot& slot : slots) {
      slot.send = PostSend(pair.send, slot.from.get(), slot.size, 1, &outcome);
      ASSERT_NE(slot.send, nullptr);
    }
    for (Slot& slot : slots) {
      std::vector<int> sizes;
      ASSERT_TRUE(Finish(slot.send, nullptr, &outcome));
      ASSERT_TRUE(Finish(slot.recv, &sizes, &outcome));
      EXPECT_EQ(sizes[0], static_cast<int>(slot.size));
      EXPECT_EQ(slot.to->Check(slot.pattern, slot.size), "");
    }
  }
  slots.clear();
  pair.Close();
}

// Eight receives in a group, sends in any order of tags, the same tag twice.
TEST_P(Transfers, Grouped_TagsSelect) {
  Pair pair = Pair::Make(Device(GetParam().from_devices, 0), Device(GetParam().to_devices, 1));
  {
    std::vector<std::unique_ptr<Buffer>> from;
    std::vector<std::unique_ptr<Buffer>> to;
    for (int i = 0; i < 8; ++i) {
      from.push_back(std::make_unique<Buffer>(AsConnection(pair.send), 20000));
      to.push_back(std::make_unique<Buffer>(AsConnection(pair.recv), 20000));
    }
    Prng prng(3);
    for (int round = 0; round < 100; ++round) {
      const int n = static_cast<int>(prng.Between(1, 8));
      std::vector<Buffer*> buffers;
      std::vector<int> tags;
      std::vector<int> order;
      std::vector<size_t> size(n);
      for (int i = 0; i < n; ++i) {
        to[i]->Wipe();
        buffers.push_back(to[i].get());
        // All different, but for the last, which has the first's.
        tags.push_back(i == 7 ? 1000 : 1000 + i);
        order.push_back(i);
      }
      Outcome outcome;
      Request* const recv = PostRecv(pair.recv, buffers, tags, &outcome);
      ASSERT_NE(recv, nullptr);
      for (int i = n - 1; i > 0; --i) std::swap(order[i], order[prng.Below(i + 1)]);
      std::vector<Request*> sends;
      std::vector<int> into(n);  // which receive a send has filled: the first free with its tag
      std::vector<bool> taken(n);
      for (const int i : order) {
        size[i] = prng.Below(20001);
        from[i]->Fill(round * 8 + i);
        int receive = 0;
        while (taken[receive] || tags[receive] != tags[i]) ++receive;
        taken[receive] = true;
        into[i] = receive;
        sends.push_back(PostSend(pair.send, from[i].get(), size[i], tags[i], &outcome));
        ASSERT_NE(sends.back(), nullptr);
      }
      std::vector<int> sizes;
      ASSERT_TRUE(Finish(recv, &sizes, &outcome));
      for (Request* send : sends) ASSERT_TRUE(Finish(send, nullptr, &outcome));
      for (int i = 0; i < n; ++i) {
        EXPECT_EQ(sizes[into[i]], static_cast<int>(size[i]));
        EXPECT_EQ(to[into[i]]->Check(round * 8 + i, size[i]), "");
      }
    }
  }
  pair.Close();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Transfers,
                         testing::Values(Shape{"OneDevice", 1, 1, 1, false, -2, false},
                                         Shape{"InlineCts", 1, 1, 1, false, -2, true},
                                         Shape{"AdaptiveRouting", 1, 1, 1, false, 1, false},
                                         Shape{"FourQps", 1, 1, 4, false, -2, false},
                                         Shape{"FourQpsSplit", 1, 1, 4, true, -2, false},
                                         Shape{"TwoDevices", 2, 2, 1, false, -2, false},
                                         Shape{"TwoToOne", 2, 1, 1, false, -2, false},
                                         Shape{"OneToFour", 1, 4, 1, false, -2, false},
                                         Shape{"FourDevicesSplitRouting", 4, 4, 2, true, 1, false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Transfer, LongSend_CutIntoPieces) {
  RunningTransport running;
  Pair pair = Pair::Make(0, 1);
  {
    Buffer from(AsConnection(pair.send), (64 << 20) + 3);
    Buffer to(AsConnection(pair.recv), (64 << 20) + 3);
    Exchange(pair, &from, &to, (64 << 20) + 3, 1);
    Exchange(pair, &from, &to, 64 << 20, 2);
  }
  pair.Close();
}

TEST(Transfer, SendLargerThanReceive_MisuseAndNothingWritten) {
  RunningTransport running;
  Pair pair = Pair::Make(0, 1);
  {
    Buffer from(AsConnection(pair.send), 1000);
    Buffer to(AsConnection(pair.recv), 999);
    Outcome outcome;
    Request* const recv = PostRecv(pair.recv, {&to}, {7}, &outcome);
    from.Fill(1);
    EXPECT_EQ(PostSend(pair.send, &from, 1000, 7, &outcome), nullptr);
    EXPECT_EQ(outcome, Outcome::kMisuse);
    // The receive is still there for a send that fits.
    Request* const send = PostSend(pair.send, &from, 999, 7, &outcome);
    ASSERT_NE(send, nullptr);
    ASSERT_TRUE(Finish(recv, nullptr, &outcome));
    ASSERT_TRUE(Finish(send, nullptr, &outcome));
    EXPECT_EQ(to.Check(1, 999), "");
  }
  pair.Close();
}

TEST(Transfer, TagThatMatchesNothing_NoRequest) {
  RunningTransport running;
  Pair pair = Pair::Make(0, 1);
  {
    Buffer from(AsConnection(pair.send), 10);
    Buffer to(AsConnection(pair.recv), 10);
    Outcome outcome;
    Request* const recv = PostRecv(pair.recv, {&to}, {7}, &outcome);
    for (int i = 0; i < 1000; ++i) {
      Request* request = nullptr;
      ASSERT_EQ(Transport::ISend(pair.send, from.data(), 10, 8, from.memory(), &request),
                Outcome::kOk);
      ASSERT_EQ(request, nullptr);
    }
    Request* const send = PostSend(pair.send, &from, 10, 7, &outcome);
    EXPECT_TRUE(Finish(recv, nullptr, &outcome));
    EXPECT_TRUE(Finish(send, nullptr, &outcome));
  }
  pair.Close();
}

TEST(Transfer, OverOfSlots_WaitsForOne) {
  RunningTransport running;
  Pair pair = Pair::Make(0, 1);
  {
    Buffer to(AsConnection(pair.recv), 10);
    void* data = to.data();
    const size_t size = 10;
    const int tag = 1;
    Memory* memory = to.memory();
    Request* request = nullptr;
    for (int i = 0; i < 32; ++i) {
      ASSERT_EQ(Transport::IRecv(pair.recv, 1, &data, &size, &tag, &memory, &request),
                Outcome::kOk);
      ASSERT_NE(request, nullptr) << i;
    }
    ASSERT_EQ(Transport::IRecv(pair.recv, 1, &data, &size, &tag, &memory, &request), Outcome::kOk);
    EXPECT_EQ(request, nullptr);
  }
  pair.Close();
}

}  // namespace
}  // namespace railhop::runtime
