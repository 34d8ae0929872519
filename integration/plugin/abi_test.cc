// Loads the plugin as NCCL does and walks each table from init to finalize over the software
// fabric: every size, group, tag and misuse that the ABI knows, with every byte checked.
//
// Both ends are in this process. The plugin's path is in RAILHOP_TEST_PLUGIN.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "integration/plugin/net_api.h"

namespace railhop::integration {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr uint8_t kGuard = 0xa5;
constexpr size_t kGuardBytes = 4096;

// Calls until it gives true; false when patience is at its end.
bool Eventually(const std::function<bool()>& step) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!step()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

uint8_t PatternAt(size_t i, int seed) { return static_cast<uint8_t>(i * 131 + seed * 29 + 7); }

class AbiTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const char* path = std::getenv("RAILHOP_TEST_PLUGIN");
    ASSERT_NE(path, nullptr);
    std::string error;
    net_ = NetApi::Load(path, GetParam(), &error);
    ASSERT_NE(net_, nullptr) << error;
    ASSERT_EQ(net_->Init(nccl::kUndefined), nccl::kSuccess);
  }
  void TearDown() override {
    if (send_ != nullptr) {
      EXPECT_EQ(net_->CloseSend(send_), nccl::kSuccess);
    }
    if (recv_ != nullptr) {
      EXPECT_EQ(net_->CloseRecv(recv_), nccl::kSuccess);
    }
    if (listen_ != nullptr) {
      EXPECT_EQ(net_->CloseListen(listen_), nccl::kSuccess);
    }
    if (net_ != nullptr) {
      EXPECT_EQ(net_->Finalize(), nccl::kSuccess);
    }
  }

  void ConnectSelf(int dev = 0) {
    alignas(8) char handle[nccl::kHandleBytes] = {};
    ASSERT_EQ(net_->Listen(dev, handle, &listen_), nccl::kSuccess);
    ASSERT_NE(listen_, nullptr);
    ASSERT_TRUE(Eventually([&] {
      if (send_ == nullptr) {
        EXPECT_EQ(net_->Connect(dev, handle, &send_), nccl::kSuccess);
      }
      if (recv_ == nullptr) {
        EXPECT_EQ(net_->Accept(listen_, &recv_), nccl::kSuccess);
      }
      return HasFailure() || (send_ != nullptr && recv_ != nullptr);
    }));
    ASSERT_FALSE(HasFailure());
  }

  // Bytes with guards around them, registered with one end.
  struct Buffer {
    std::vector<uint8_t> bytes;
    void* memory = nullptr;
    size_t size = 0;
    uint8_t* data() { return bytes.data() + kGuardBytes; }
  };
  Buffer MakeBuffer(void* comm, size_t size) {
    Buffer buffer;
    buffer.size = size;
    buffer.bytes.assign(size + 2 * kGuardBytes, kGuard);
    EXPECT_EQ(
        net_->RegMr(comm, buffer.data(), std::max<size_t>(size, 1), nccl::kPtrHost, &buffer.memory),
        nccl::kSuccess);
    return buffer;
  }
  static void Fill(Buffer* buffer, int seed) {
    for (size_t i = 0; i < buffer->size; ++i) buffer->data()[i] = PatternAt(i, seed);
  }
  // The first `size` bytes are the pattern, all others are as they were.
  static void ExpectPattern(Buffer& buffer, size_t size, int seed) {
    for (size_t i = 0; i < buffer.bytes.size(); ++i) {
      const bool inside = i >= kGuardBytes && i < kGuardBytes + size;
      const uint8_t want = inside ? PatternAt(i - kGuardBytes, seed) : kGuard;
      ASSERT_EQ(buffer.bytes[i], want) << "byte " << i << " of " << size;
    }
  }

  void* StartReceive(std::vector<Buffer*> buffers, std::vector<int> tags, void* before = nullptr) {
    std::vector<void*> data;
    std::vector<size_t> sizes;
    std::vector<void*> memories;
    for (Buffer* buffer : buffers) {
      data.push_back(buffer->data());
      sizes.push_back(buffer->size);
      memories.push_back(buffer->memory);
    }
    void* request = nullptr;
    EXPECT_TRUE(Eventually([&] {
      request = before;
      EXPECT_EQ(net_->IRecv(recv_, static_cast<int>(buffers.size()), data.data(), sizes.data(),
                            tags.data(), memories.data(), &request),
                nccl::kSuccess);
      return HasFailure() || request != nullptr;
    }));
    return request;
  }
  void* StartSend(Buffer* buffer, size_t size, int tag) {
    void* request = nullptr;
    EXPECT_TRUE(Eventually([&] {
      request = reinterpret_cast<void*>(0xdead);
      EXPECT_EQ(net_->ISend(send_, buffer->data(), size, tag, buffer->memory, &request),
                nccl::kSuccess);
      return HasFailure() || request != nullptr;
    }));
    return request;
  }
  // The sizes that test gives when it is done.
  std::vector<int> Finish(void* request, size_t count) {
    std::vector<int> sizes(count + 1, -1);
    int done = 0;
    EXPECT_TRUE(Eventually([&] {
      EXPECT_EQ(net_->Test(request, &done, sizes.data()), nccl::kSuccess);
      return HasFailure() || done == 1;
    }));
    EXPECT_EQ(sizes[count], -1) << "wrote beyond the group";
    sizes.resize(count);
    return sizes;
  }

  std::unique_ptr<NetApi> net_;
  void* listen_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
};

TEST_P(AbiTest, Table_IsWholeAndNamed) {
  EXPECT_EQ(net_->name(), "Railhop");
  EXPECT_EQ(net_->MissingSlots(), std::vector<std::string>{});
}

TEST_P(AbiTest, Devices_HaveTruthfulProperties) {
  int count = 0;
  ASSERT_EQ(net_->Devices(&count), nccl::kSuccess);
  ASSERT_EQ(count, 4);
  for (int dev = 0; dev < count; ++dev) {
    Properties p;
    ASSERT_EQ(net_->GetProperties(dev, &p), nccl::kSuccess);
    EXPECT_EQ(p.name, "mlx5_" + std::to_string(dev));
    EXPECT_NE(p.guid, 0u);
    EXPECT_NE(p.ptr_support & nccl::kPtrHost, 0);
    EXPECT_EQ(p.speed_mbps, 200000);
    EXPECT_EQ(p.port, 1);
    EXPECT_GT(p.max_comms, 100);
    EXPECT_EQ(p.max_recvs, 8);
    if (GetParam() >= 8) {
      EXPECT_EQ(p.reg_is_global, 1);
    }
    if (GetParam() >= 9) {
      EXPECT_EQ(p.fused, std::vector<int>{dev});
    }
  }
  Properties p;
  EXPECT_NE(net_->GetProperties(count, &p), nccl::kSuccess);
  EXPECT_NE(net_->GetProperties(-1, &p), nccl::kSuccess);
}

TEST_P(AbiTest, EverySize_ArrivesWholeAndAlone) {
  ConnectSelf();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{129},
                            size_t{4096}, size_t{65537}, size_t{1} << 20}) {
    Buffer source = MakeBuffer(send_, size);
    Buffer target = MakeBuffer(recv_, size + 100);
    Fill(&source, static_cast<int>(size));
    void* receive = StartReceive({&target}, {1});
    void* send = StartSend(&source, size, 1);
    EXPECT_EQ(Finish(send, 1)[0], static_cast<int>(size));
    EXPECT_EQ(Finish(receive, 1)[0], static_cast<int>(size)) << "the true size";
    ExpectPattern(target, size, static_cast<int>(size));
    EXPECT_EQ(net_->DeregMr(send_, source.memory), nccl::kSuccess);
    EXPECT_EQ(net_->DeregMr(recv_, target.memory), nccl::kSuccess);
  }
}

TEST_P(AbiTest, GroupOfEight_MatchedByTag) {
  ConnectSelf();
  std::vector<Buffer> sources;
  std::vector<Buffer> targets;
  std::vector<Buffer*> group;
  std::vector<int> tags;
  for (int i = 0; i < 8; ++i) {
    sources.push_back(MakeBuffer(send_, 1000 + static_cast<size_t>(i)));
    targets.push_back(MakeBuffer(recv_, 2000));
    Fill(&sources.back(), i);
    tags.push_back(100 + i);
  }
  for (Buffer& target : targets) group.push_back(&target);
  void* receive = StartReceive(group, tags);
  std::vector<void*> sends;
  for (int i = 7; i >= 0; --i) {
    sends.push_back(
        StartSend(&sources[static_cast<size_t>(i)], 1000 + static_cast<size_t>(i), 100 + i));
  }
  for (void* send : sends) Finish(send, 1);
  const std::vector<int> sizes = Finish(receive, 8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(sizes[static_cast<size_t>(i)], 1000 + i);
    ExpectPattern(targets[static_cast<size_t>(i)], 1000 + static_cast<size_t>(i), i);
  }
}

TEST_P(AbiTest, SendBeforeTheReceive_GivesNoRequest) {
  ConnectSelf();
  Buffer source = MakeBuffer(send_, 64);
  void* request = reinterpret_cast<void*>(0xdead);
  ASSERT_EQ(net_->ISend(send_, source.data(), 64, 1, source.memory, &request), nccl::kSuccess);
  EXPECT_EQ(request, nullptr);
}

TEST_P(AbiTest, TagThatMatchesNothing_GivesNoRequest) {
  ConnectSelf();
  Buffer source = MakeBuffer(send_, 64);
  Buffer first = MakeBuffer(recv_, 64);
  Buffer second = MakeBuffer(recv_, 64);
  Fill(&source, 3);
  void* receive = StartReceive({&first, &second}, {1, 2});
  for (int i = 0; i < 1000; ++i) {
    void* request = reinterpret_cast<void*>(0xdead);
    ASSERT_EQ(net_->ISend(send_, source.data(), 64, 77, source.memory, &request), nccl::kSuccess);
    ASSERT_EQ(request, nullptr);
  }
  void* one = StartSend(&source, 64, 2);
  void* two = StartSend(&source, 64, 1);
  Finish(one, 1);
  Finish(two, 1);
  Finish(receive, 2);
  ExpectPattern(first, 64, 3);
  ExpectPattern(second, 64, 3);
}

TEST_P(AbiTest, OptionalCompletionHint_StillCompletesTruly) {
  ConnectSelf();
  Buffer source = MakeBuffer(send_, 512);
  Buffer target = MakeBuffer(recv_, 512);
  Fill(&source, 9);
  void* receive =
      StartReceive({&target}, {1}, reinterpret_cast<void*>(nccl::kOptionalReceiveCompletion));
  EXPECT_NE(receive, reinterpret_cast<void*>(nccl::kOptionalReceiveCompletion));
  Finish(StartSend(&source, 512, 1), 1);
  EXPECT_EQ(Finish(receive, 1)[0], 512);
  ExpectPattern(target, 512, 9);
}

TEST_P(AbiTest, ThirtyTwoOutstanding_ThenNoRequestUntilOneIsDone) {
  ConnectSelf();
  Buffer target = MakeBuffer(recv_, 64);
  std::vector<void*> receives;
  for (int i = 0; i < nccl::kRequestsMax; ++i) receives.push_back(StartReceive({&target}, {1}));
  Buffer source = MakeBuffer(send_, 64);
  Fill(&source, 1);
  for (void* receive : receives) {
    Finish(StartSend(&source, 64, 1), 1);
    Finish(receive, 1);
  }
}

TEST_P(AbiTest, DmaBuf_OfAMemoryFile) {
  ConnectSelf();
  const size_t size = 8192;
  const int fd = memfd_create("railhop-test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, size), 0);
  auto* mapped =
      static_cast<uint8_t*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(mapped, MAP_FAILED);
  void* memory = nullptr;
  ASSERT_EQ(net_->RegMrDmaBuf(recv_, mapped, size, nccl::kPtrHost, 0, fd, &memory), nccl::kSuccess);
  Buffer source = MakeBuffer(send_, size);
  Fill(&source, 5);
  void* data[] = {mapped};
  const size_t sizes[] = {size};
  int tags[] = {1};
  void* memories[] = {memory};
  void* receive = nullptr;
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(net_->IRecv(recv_, 1, data, sizes, tags, memories, &receive), nccl::kSuccess);
    return HasFailure() || receive != nullptr;
  }));
  Finish(StartSend(&source, size, 1), 1);
  Finish(receive, 1);
  EXPECT_EQ(std::memcmp(mapped, source.data(), size), 0);
  EXPECT_EQ(net_->DeregMr(recv_, memory), nccl::kSuccess);
  munmap(mapped, size);
  close(fd);
}

// Address space of `size` bytes over little memory: one small file, mapped again and again.
class WideMemory {
 public:
  explicit WideMemory(size_t size) : size_((size + kPiece - 1) / kPiece * kPiece) {
    const int fd = memfd_create("railhop-test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, kPiece), 0);
    start_ = static_cast<uint8_t*>(
        mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (size_t at = 0; at < size_; at += kPiece) {
      EXPECT_NE(mmap(start_ + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
                MAP_FAILED);
    }
    close(fd);
  }
  ~WideMemory() { munmap(start_, size_); }
  WideMemory(const WideMemory&) = delete;
  WideMemory& operator=(const WideMemory&) = delete;

  static constexpr size_t kPiece = size_t{16} << 20;
  uint8_t* data() const { return start_; }

 private:
  const size_t size_;
  uint8_t* start_ = nullptr;
};

TEST_P(AbiTest, MoreThanTwoGiB_Arrives) {
  // Versions before 9 have sizes of int; the oldest and the newest of the others are enough.
  if (GetParam() != 9 && GetParam() != 12) return;
  ConnectSelf();
  const size_t size = (size_t{2} << 30) + WideMemory::kPiece / 2 + 5;
  const WideMemory from(size);
  const WideMemory to(size);
  for (size_t i = 0; i < WideMemory::kPiece; ++i) from.data()[i] = PatternAt(i, 4);
  void* from_memory = nullptr;
  void* to_memory = nullptr;
  ASSERT_EQ(net_->RegMr(send_, from.data(), size, nccl::kPtrHost, &from_memory), nccl::kSuccess);
  ASSERT_EQ(net_->RegMr(recv_, to.data(), size, nccl::kPtrHost, &to_memory), nccl::kSuccess);
  void* data[] = {to.data()};
  int tags[] = {1};
  void* memories[] = {to_memory};
  void* receive = nullptr;
  void* send = nullptr;
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(net_->IRecv(recv_, 1, data, &size, tags, memories, &receive), nccl::kSuccess);
    return HasFailure() || receive != nullptr;
  }));
  ASSERT_TRUE(Eventually([&] {
    EXPECT_EQ(net_->ISend(send_, from.data(), size, 1, from_memory, &send), nccl::kSuccess);
    return HasFailure() || send != nullptr;
  }));
  Finish(send, 1);
  Finish(receive, 1);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), WideMemory::kPiece), 0);
}

TEST_P(AbiTest, VirtualDevice_CarriesData) {
  if (!net_->HasVirtualDevices()) {
    int dev = 0;
    EXPECT_NE(net_->MakeVDevice(&dev, {0, 1}), nccl::kSuccess);
    return;
  }
  int dev = -1;
  ASSERT_EQ(net_->MakeVDevice(&dev, {0, 1, 2, 3}), nccl::kSuccess);
  Properties p;
  ASSERT_EQ(net_->GetProperties(dev, &p), nccl::kSuccess);
  EXPECT_EQ(p.name, "mlx5_0+mlx5_1+mlx5_2+mlx5_3");
  EXPECT_EQ(p.speed_mbps, 800000);
  EXPECT_EQ(p.fused, (std::vector<int>{0, 1, 2, 3}));
  ConnectSelf(dev);
  Buffer source = MakeBuffer(send_, 1'000'001);
  Buffer target = MakeBuffer(recv_, 1'000'001);
  Fill(&source, 2);
  void* receive = StartReceive({&target}, {1});
  Finish(StartSend(&source, 1'000'001, 1), 1);
  EXPECT_EQ(Finish(receive, 1)[0], 1'000'001);
  ExpectPattern(target, 1'000'001, 2);
  for (const std::vector<int>& bad : {std::vector<int>{}, std::vector<int>{99},
                                      std::vector<int>{0, -1}, std::vector<int>(9, 0)}) {
    EXPECT_NE(net_->MakeVDevice(&dev, bad), nccl::kSuccess);
  }
}

TEST_P(AbiTest, Misuse_IsAnErrorAndNoCrash) {
  ConnectSelf();
  Buffer source = MakeBuffer(send_, 64);
  Buffer target = MakeBuffer(recv_, 64);
  void* request = nullptr;
  void* data[16] = {target.data()};
  size_t sizes[16] = {64};
  int tags[16] = {1};
  void* memories[16] = {target.memory};
  EXPECT_EQ(net_->IRecv(recv_, 0, data, sizes, tags, memories, &request), nccl::kInternalError);
  EXPECT_EQ(net_->IRecv(recv_, 9, data, sizes, tags, memories, &request), nccl::kInternalError);
  EXPECT_EQ(net_->IRecv(nullptr, 1, data, sizes, tags, memories, &request), nccl::kInternalError);
  EXPECT_EQ(net_->ISend(nullptr, source.data(), 64, 1, source.memory, &request),
            nccl::kInternalError);
  EXPECT_EQ(net_->ISend(recv_, source.data(), 64, 1, source.memory, &request), nccl::kInternalError)
      << "the other direction";
  int done = 5;
  EXPECT_EQ(net_->Test(nullptr, &done, nullptr), nccl::kInternalError);
  EXPECT_EQ(done, 0);
  void* memory = nullptr;
  EXPECT_NE(net_->RegMr(send_, source.data(), 0, nccl::kPtrHost, &memory), nccl::kSuccess);
  EXPECT_NE(net_->RegMr(send_, nullptr, 64, nccl::kPtrHost, &memory), nccl::kSuccess);
  EXPECT_NE(net_->RegMrDmaBuf(send_, source.data(), 64, nccl::kPtrHost, 0, -1, &memory),
            nccl::kSuccess);
  EXPECT_EQ(memory, nullptr);
  char handle[nccl::kHandleBytes] = {};
  void* comm = nullptr;
  EXPECT_NE(net_->Listen(99, handle, &comm), nccl::kSuccess);
  EXPECT_NE(net_->Listen(-1, handle, &comm), nccl::kSuccess);
  EXPECT_EQ(net_->CloseSend(nullptr), nccl::kSuccess);
}

TEST_P(AbiTest, ClosedConnection_IsAnErrorAndNoCrash) {
  ConnectSelf();
  Buffer source = MakeBuffer(send_, 64);
  void* closed = send_;
  ASSERT_EQ(net_->CloseSend(send_), nccl::kSuccess);
  send_ = nullptr;
  void* request = reinterpret_cast<void*>(0xdead);
  EXPECT_EQ(net_->ISend(closed, source.data(), 64, 1, source.memory, &request),
            nccl::kInternalError);
  EXPECT_EQ(request, nullptr);
  EXPECT_EQ(net_->CloseSend(closed), nccl::kInternalError);
}

TEST_P(AbiTest, CloseInAnyOrder_WithWorkOutstanding) {
  for (int order = 0; order < 6; ++order) {
    ConnectSelf();
    Buffer target = MakeBuffer(recv_, 64);
    StartReceive({&target}, {1});
    const auto close = [&](int which) {
      if (which == 0) {
        EXPECT_EQ(net_->CloseSend(send_), nccl::kSuccess);
      }
      if (which == 1) {
        EXPECT_EQ(net_->CloseRecv(recv_), nccl::kSuccess);
      }
      if (which == 2) {
        EXPECT_EQ(net_->CloseListen(listen_), nccl::kSuccess);
      }
    };
    const int first = order / 2;
    const int second = (first + 1 + order % 2) % 3;
    close(first);
    close(second);
    close(3 - first - second);
    send_ = recv_ = listen_ = nullptr;
  }
}

TEST_P(AbiTest, FinalizeAndInitAgain_Works) {
  for (int round = 0; round < 3; ++round) {
    ConnectSelf();
    EXPECT_EQ(net_->CloseSend(send_), nccl::kSuccess);
    EXPECT_EQ(net_->CloseRecv(recv_), nccl::kSuccess);
    EXPECT_EQ(net_->CloseListen(listen_), nccl::kSuccess);
    send_ = recv_ = listen_ = nullptr;
    ASSERT_EQ(net_->Finalize(), nccl::kSuccess);
    ASSERT_EQ(net_->Init(nccl::kUndefined), nccl::kSuccess);
  }
}

TEST_P(AbiTest, CloseAfterFinalize_IsNoCrash) {
  ConnectSelf();
  Buffer target = MakeBuffer(recv_, 64);
  void* receive = StartReceive({&target}, {1});
  ASSERT_EQ(net_->Finalize(), nccl::kSuccess);
  if (GetParam() >= 11) {
    int done = 0;
    EXPECT_NE(net_->Test(receive, &done, nullptr), nccl::kSuccess);
    EXPECT_NE(net_->CloseSend(send_), nccl::kSuccess);
    EXPECT_NE(net_->CloseRecv(recv_), nccl::kSuccess);
    EXPECT_NE(net_->CloseListen(listen_), nccl::kSuccess);
    EXPECT_NE(net_->Finalize(), nccl::kSuccess) << "twice";
    send_ = recv_ = listen_ = nullptr;
  }
  ASSERT_EQ(net_->Init(nccl::kUndefined), nccl::kSuccess);
}

INSTANTIATE_TEST_SUITE_P(Versions, AbiTest, testing::ValuesIn(kVersions),
                         [](const auto& info) { return "V" + std::to_string(info.param); });

}  // namespace
}  // namespace railhop::integration
