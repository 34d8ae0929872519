// The transport's life over the software fabric: many connections, closing in any order, peers that
// die, memory of other kinds, calls that should not have been made.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/prng.h"
#include "cc/runtime/testing/pair.h"
#include "cc/runtime/transport.h"
#include "gtest/gtest.h"

namespace railhop::runtime {

// The other process: "serve MESSAGES BYTES" listens, gives its handle on standard output, receives
// and says for each message whether it was right. "hang" stays then; "post" announces one receive
// more before.
int RunChild(const std::vector<std::string>& words) {
  RunningTransport running(QuickFaults());
  char handle[kHandleBytes];
  absl::StatusOr<ListenComm*> listener = Transport::Listen(1, handle);
  if (!listener.ok()) return 2;
  if (write(STDOUT_FILENO, handle, sizeof(handle)) != sizeof(handle)) return 3;
  RecvComm* recv = nullptr;
  WaitFor([&] {
    absl::StatusOr<RecvComm*> step = Transport::Accept(*listener);
    if (step.ok()) recv = *step;
    return !step.ok() || recv != nullptr;
  });
  if (recv == nullptr) return 4;
  const int messages = atoi(words[1].c_str());
  const size_t bytes = atoi(words[2].c_str());
  {
    Buffer to(AsConnection(recv), bytes);
    for (int i = 0; i < messages; ++i) {
      to.Wipe();
      Outcome outcome;
      Request* const request = PostRecv(recv, {&to}, {0}, &outcome);
      if (request == nullptr || !Finish(request, nullptr, &outcome)) return 5;
      const char verdict = to.Check(i, bytes).empty() ? 'y' : 'n';
      if (write(STDOUT_FILENO, &verdict, 1) != 1) return 6;
    }
    if (words[0] == "post") {
      Outcome outcome;
      if (PostRecv(recv, {&to}, {0}, &outcome) == nullptr) return 8;
      if (write(STDOUT_FILENO, "p", 1) != 1) return 6;
    }
    if (words[0] != "serve") pause();
  }
  if (!Transport::CloseRecv(recv).ok() || !Transport::CloseListen(*listener).ok()) return 7;
  return 0;
}

namespace {

SendComm* ConnectTo(void* handle) {
  SendComm* send = nullptr;
  absl::Status failed;
  WaitFor([&] {
    absl::StatusOr<SendComm*> step = Transport::Connect({}, 0, handle);
    failed = step.status();
    if (step.ok()) send = *step;
    return !step.ok() || send != nullptr;
  });
  EXPECT_TRUE(failed.ok()) << failed;
  return send;
}

TEST(Processes, Two_EveryByte) {
  constexpr int kMessages = 200;
  constexpr size_t kBytes = 100001;
  Child child({"serve", std::to_string(kMessages), std::to_string(kBytes)});
  char handle[kHandleBytes];
  ASSERT_TRUE(child.Read(handle, sizeof(handle)));
  RunningTransport running;
  SendComm* const send = ConnectTo(handle);
  ASSERT_NE(send, nullptr);
  {
    Buffer from(AsConnection(send), kBytes);
    for (int i = 0; i < kMessages; ++i) {
      from.Fill(i);
      Outcome outcome;
      Request* const request = PostSend(send, &from, kBytes, 0, &outcome);
      ASSERT_NE(request, nullptr);
      ASSERT_TRUE(Finish(request, nullptr, &outcome));
      char verdict = 0;
      ASSERT_TRUE(child.Read(&verdict, 1));
      ASSERT_EQ(verdict, 'y') << i;
    }
  }
  EXPECT_TRUE(Transport::CloseSend(send).ok());
  EXPECT_EQ(child.Wait(), 0);
}

TEST(Processes, PeerKilled_RemoteErrorEveryTimeAndCloseWorks) {
  Child child({"hang", "1", "1000"});
  char handle[kHandleBytes];
  ASSERT_TRUE(child.Read(handle, sizeof(handle)));
  RunningTransport running(QuickFaults());
  SendComm* const send = ConnectTo(handle);
  ASSERT_NE(send, nullptr);
  {
    Buffer from(AsConnection(send), 1000);
    from.Fill(0);
    Outcome outcome;
    Request* const first = PostSend(send, &from, 1000, 0, &outcome);
    ASSERT_TRUE(Finish(first, nullptr, &outcome));
    char verdict = 0;
    ASSERT_TRUE(child.Read(&verdict, 1));
    child.Kill();
    EXPECT_EQ(child.Wait(), 128 + 9);
    // No receive was posted: a send has no request, and that is no error.
    Request* request = nullptr;
    EXPECT_EQ(Transport::ISend(send, from.data(), 1000, 0, from.memory(), &request), Outcome::kOk);
    EXPECT_EQ(request, nullptr);
  }
  EXPECT_TRUE(Transport::CloseSend(send).ok());
}

TEST(Processes, PeerKilledWithItsReceivePosted_RemoteErrorEveryTime) {
  Child child({"post", "1", "65536"});
  char handle[kHandleBytes];
  ASSERT_TRUE(child.Read(handle, sizeof(handle)));
  RunningTransport running(QuickFaults());
  SendComm* const send = ConnectTo(handle);
  ASSERT_NE(send, nullptr);
  {
    Buffer from(AsConnection(send), 65536);
    from.Fill(0);
    Outcome outcome;
    Request* request = PostSend(send, &from, 65536, 0, &outcome);
    ASSERT_TRUE(Finish(request, nullptr, &outcome));
    char verdict[2] = {};
    ASSERT_TRUE(child.Read(verdict, 2));
    ASSERT_EQ(verdict[0], 'y');
    child.Kill();
    child.Wait();
    request = PostSend(send, &from, 65536, 0, &outcome);
    ASSERT_NE(request, nullptr);
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(Finish(request, nullptr, &outcome));
      EXPECT_EQ(outcome, Outcome::kRemote);
    }
  }
  EXPECT_TRUE(Transport::CloseSend(send).ok());
}

TEST(Connections, Many_EachItsOwnBytes) {
  RunningTransport running;
  constexpr int kConnections = 256;
  std::vector<Pair> pairs;
  for (int i = 0; i < kConnections; ++i) {
    pairs.push_back(Pair::Make(i % 4, (i + 1) % 4));
    ASSERT_NE(pairs.back().send, nullptr);
  }
  {
    std::vector<std::unique_ptr<Buffer>> from, to;
    std::vector<Request*> sends, recvs;
    Outcome outcome;
    for (int i = 0; i < kConnections; ++i) {
      from.push_back(std::make_unique<Buffer>(AsConnection(pairs[i].send), 5000));
      to.push_back(std::make_unique<Buffer>(AsConnection(pairs[i].recv), 5000));
      from[i]->Fill(i);
      recvs.push_back(PostRecv(pairs[i].recv, {to[i].get()}, {i}, &outcome));
      ASSERT_NE(recvs.back(), nullptr);
    }
    for (int i = 0; i < kConnections; ++i) {
      sends.push_back(PostSend(pairs[i].send, from[i].get(), 5000, i, &outcome));
      ASSERT_NE(sends.back(), nullptr);
    }
    for (int i = 0; i < kConnections; ++i) {
      ASSERT_TRUE(Finish(recvs[i], nullptr, &outcome));
      ASSERT_TRUE(Finish(sends[i], nullptr, &outcome));
      EXPECT_EQ(to[i]->Check(i, 5000), "");
    }
  }
  for (Pair& pair : pairs) pair.Close();
}

TEST(Connections, OneListener_AcceptsSeveral) {
  RunningTransport running;
  char handle[kHandleBytes];
  ListenComm* const listener = Transport::Listen(0, handle).value();
  std::vector<SendComm*> sends(3);
  std::vector<std::vector<char>> handles(3, std::vector<char>(handle, handle + kHandleBytes));
  std::vector<RecvComm*> recvs;
  EXPECT_TRUE(WaitFor([&] {
    bool all = true;
    for (int i = 0; i < 3; ++i) {
      if (sends[i] == nullptr) sends[i] = Transport::Connect({}, 1, handles[i].data()).value();
      all = all && sends[i] != nullptr;
    }
    if (RecvComm* recv = Transport::Accept(listener).value()) recvs.push_back(recv);
    return all && recvs.size() == 3;
  }));
  EXPECT_TRUE(Transport::CloseListen(listener).ok());
  for (SendComm* send : sends) EXPECT_TRUE(Transport::CloseSend(send).ok());
  for (RecvComm* recv : recvs) EXPECT_TRUE(Transport::CloseRecv(recv).ok());
}

TEST(Connections, ThreadsOfTheirOwn_AllRight) {
  RunningTransport running;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      Pair pair = Pair::Make(t, (t + 1) % 4);
      {
        Buffer from(AsConnection(pair.send), 30000);
        Buffer to(AsConnection(pair.recv), 30000);
        for (int i = 0; i < 200; ++i) {
          from.Fill(i);
          to.Wipe();
          Outcome outcome;
          Request* const recv = PostRecv(pair.recv, {&to}, {1}, &outcome);
          Request* const send = PostSend(pair.send, &from, 30000, 1, &outcome);
          if (recv == nullptr || send == nullptr) return ADD_FAILURE() << "no request";
          EXPECT_TRUE(Finish(recv, nullptr, &outcome));
          EXPECT_TRUE(Finish(send, nullptr, &outcome));
          EXPECT_EQ(to.Check(i, 30000), "");
        }
      }
      pair.Close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Each of the six orders, with sends and receives that will never be tested.
TEST(Close, AnyOrderWithWorkOutstanding_Works) {
  RunningTransport running(QuickFaults());
  const std::vector<std::string> orders = {"srl", "slr", "rsl", "rls", "lsr", "lrs"};
  for (const std::string& order : orders) {
    SCOPED_TRACE(order);
    Pair pair = Pair::Make(0, 1);
    std::vector<uint8_t> from(100000), to(100000, 1);
    Memory* out =
        Transport::RegisterMemory(AsConnection(pair.send), from.data(), from.size(), kPointerHost)
            .value();
    Memory* in =
        Transport::RegisterMemory(AsConnection(pair.recv), to.data(), to.size(), kPointerHost)
            .value();
    std::vector<Request*> requests;
    for (int i = 0; i < 10; ++i) {
      void* data = to.data();
      const size_t size = to.size();
      const int tag = 1;
      Request* request = nullptr;
      ASSERT_EQ(Transport::IRecv(pair.recv, 1, &data, &size, &tag, &in, &request), Outcome::kOk);
      requests.push_back(request);
    }
    for (int i = 0; i < 5; ++i) {
      Request* request = nullptr;
      EXPECT_TRUE(WaitFor([&] {
        EXPECT_EQ(Transport::ISend(pair.send, from.data(), from.size(), 1, out, &request),
                  Outcome::kOk);
        return request != nullptr;
      }));
      requests.push_back(request);
    }
    for (const char c : order) {
      if (c == 's') {
        EXPECT_TRUE(Transport::CloseSend(pair.send).ok());
      }
      if (c == 'r') {
        EXPECT_TRUE(Transport::CloseRecv(pair.recv).ok());
      }
      if (c == 'l') {
        EXPECT_TRUE(Transport::CloseListen(pair.listener).ok());
      }
    }
    // Memory is deregistered after its connection too.
    EXPECT_TRUE(Transport::Deregister(nullptr, out).ok());
    EXPECT_TRUE(Transport::Deregister(nullptr, in).ok());
    for (Request* request : requests) {
      int done = 1;
      EXPECT_EQ(Transport::Test(request, &done, nullptr), Outcome::kMisuse);
      EXPECT_EQ(done, 0);
    }
  }
}

TEST(Close, ClosedHandles_MisuseNoCrash) {
  RunningTransport running;
  Pair pair = Pair::Make(0, 1);
  const Pair closed = pair;
  auto buffer = std::make_unique<Buffer>(AsConnection(pair.send), 10);
  Memory* const memory = buffer->memory();
  void* data = buffer->data();
  buffer.reset();
  pair.Close();
  Request* request = nullptr;
  EXPECT_EQ(Transport::ISend(closed.send, data, 10, 0, memory, &request), Outcome::kMisuse);
  const size_t size = 10;
  const int tag = 0;
  int flushed = 10;
  Memory* memories[] = {memory};
  EXPECT_EQ(Transport::IRecv(closed.recv, 1, &data, &size, &tag, memories, &request),
            Outcome::kMisuse);
  EXPECT_EQ(Transport::IFlush(closed.recv, 1, &data, &flushed, memories, &request),
            Outcome::kMisuse);
  int done = 0;
  EXPECT_EQ(Transport::Test(nullptr, &done, nullptr), Outcome::kMisuse);
  EXPECT_FALSE(Transport::CloseSend(closed.send).ok());
  EXPECT_FALSE(Transport::CloseRecv(closed.recv).ok());
  EXPECT_FALSE(Transport::CloseListen(closed.listener).ok());
  EXPECT_FALSE(Transport::CloseSend(nullptr).ok());
  EXPECT_FALSE(Transport::Accept(closed.listener).ok());
  EXPECT_FALSE(Transport::Deregister(AsConnection(closed.send), memory).ok());
  EXPECT_FALSE(
      Transport::RegisterMemory(AsConnection(closed.send), &flushed, 4, kPointerHost).ok());
  EXPECT_FALSE(Transport::Connect({}, 99, &flushed).ok());
  EXPECT_FALSE(Transport::Listen(-1, data).ok());
  EXPECT_FALSE(Transport::Listen(0, nullptr).ok());
}

TEST(Close, ReleaseWithAllOpen_NothingIsLeftAndStartsAgain) {
  for (int round = 0; round < 3; ++round) {
    RunningTransport running;
    Pair pair = Pair::Make(0, 1);
    std::vector<uint8_t> bytes(100);
    ASSERT_TRUE(
        Transport::RegisterMemory(AsConnection(pair.send), bytes.data(), bytes.size(), kPointerHost)
            .ok());
    char handle[kHandleBytes];
    ASSERT_TRUE(Transport::Listen(0, handle).ok());
    // A connect that has only begun.
    EXPECT_EQ(Transport::Connect({}, 1, handle).value(), nullptr);
  }
  EXPECT_FALSE(Transport::IsRunning());
}

TEST(Memory, NeverRegistered_Misuse) {
  RunningTransport running;
  Pair pair = Pair::Make(0, 1);
  {
    Buffer to(AsConnection(pair.recv), 10);
    Outcome outcome;
    ASSERT_NE(PostRecv(pair.recv, {&to}, {0}, &outcome), nullptr);
    std::vector<uint8_t> bytes(10);
    Request* request = nullptr;
    WaitFor([&] {
      outcome = Transport::ISend(pair.send, bytes.data(), 10, 0, nullptr, &request);
      return outcome != Outcome::kOk;
    });
    EXPECT_EQ(outcome, Outcome::kMisuse);
    // Registered, but not this memory.
    Buffer other(AsConnection(pair.send), 10);
    EXPECT_EQ(Transport::ISend(pair.send, bytes.data(), 10, 0, other.memory(), &request),
              Outcome::kMisuse);
  }
  pair.Close();
}

// A memfd stands in for a GPU's memory: the NIC reaches it through the descriptor alone.
TEST(Memory, DmaBuf_EveryByte) {
  RunningTransport::Settings settings;
  settings.ptr_support = kPointerHost | kPointerCuda | kPointerDmaBuf;
  RunningTransport running(settings);
  Pair pair = Pair::Make(0, 1);
  constexpr size_t kSize = 1 << 20;
  constexpr size_t kOffset = 8192;
  const int fd = memfd_create("stand-in", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kOffset + kSize), 0);
  auto* const mapped = static_cast<uint8_t*>(
      mmap(nullptr, kOffset + kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(mapped, MAP_FAILED);
  uint8_t* const data = mapped + kOffset;
  {
    Buffer from(AsConnection(pair.send), kSize);
    absl::StatusOr<Memory*> memory =
        Transport::RegisterDmaBuf(AsConnection(pair.recv), data, kSize, kPointerCuda, kOffset, fd);
    ASSERT_TRUE(memory.ok()) << memory.status();
    from.Fill(3);
    void* at = data;
    const size_t size = kSize;
    const int tag = 0;
    Memory* memories[] = {*memory};
    Request* recv = nullptr;
    ASSERT_EQ(Transport::IRecv(pair.recv, 1, &at, &size, &tag, memories, &recv), Outcome::kOk);
    Outcome outcome;
    Request* const send = PostSend(pair.send, &from, kSize, 0, &outcome);
    ASSERT_TRUE(Finish(recv, nullptr, &outcome));
    ASSERT_TRUE(Finish(send, nullptr, &outcome));
    // GPU memory is flushed before it is read.
    const int received = kSize;
    Request* flush = nullptr;
    ASSERT_EQ(Transport::IFlush(pair.recv, 1, &at, &received, memories, &flush), Outcome::kOk);
    ASSERT_NE(flush, nullptr);
    ASSERT_TRUE(Finish(flush, nullptr, &outcome));
    EXPECT_EQ(memcmp(data, from.data(), kSize), 0);
    for (size_t i = 0; i < kOffset; ++i) ASSERT_EQ(mapped[i], 0) << i;
    // And the other way.
    EXPECT_TRUE(Transport::Deregister(AsConnection(pair.recv), *memory).ok());
  }
  pair.Close();
  munmap(mapped, kOffset + kSize);
  close(fd);
}

TEST(Flush, NothingReceivedOrHostMemory_NoRequest) {
  RunningTransport running;
  Pair pair = Pair::Make(0, 1);
  {
    Buffer to(AsConnection(pair.recv), 100);
    void* data = to.data();
    int size = 100;
    Memory* memories[] = {to.memory()};
    Request* request = nullptr;
    EXPECT_EQ(Transport::IFlush(pair.recv, 1, &data, &size, memories, &request), Outcome::kOk);
    EXPECT_EQ(request, nullptr);  // host memory only: no flush lanes
  }
  pair.Close();
}

TEST(Flush, FusedDevicesManyInFlight_AllComplete) {
  RunningTransport::Settings settings;
  settings.ptr_support = kPointerHost | kPointerCuda;
  RunningTransport running(settings);
  const int device = Transport::MakeVirtualDevice({0, 1, 2}).value();
  Pair pair = Pair::Make(device, device);
  {
    Buffer to(AsConnection(pair.recv), 100);
    void* data = to.data();
    Memory* memories[] = {to.memory()};
    int size = 0;
    Request* request = nullptr;
    EXPECT_EQ(Transport::IFlush(pair.recv, 1, &data, &size, memories, &request), Outcome::kOk);
    EXPECT_EQ(request, nullptr);  // nothing received
    size = 100;
    std::vector<Request*> requests(32);
    for (Request*& one : requests) {
      ASSERT_EQ(Transport::IFlush(pair.recv, 1, &data, &size, memories, &one), Outcome::kOk);
      ASSERT_NE(one, nullptr);
    }
    Outcome outcome;
    for (Request* one : requests) EXPECT_TRUE(Finish(one, nullptr, &outcome));
  }
  pair.Close();
}

TEST(Flush, SwitchedOff_NoRequest) {
  RunningTransport::Settings settings;
  settings.ptr_support = kPointerHost | kPointerCuda;
  settings.datapath.gdr_flush_disable = true;
  RunningTransport running(settings);
  Pair pair = Pair::Make(0, 1);
  {
    Buffer to(AsConnection(pair.recv), 100);
    void* data = to.data();
    int size = 100;
    Memory* memories[] = {to.memory()};
    Request* request = nullptr;
    EXPECT_EQ(Transport::IFlush(pair.recv, 1, &data, &size, memories, &request), Outcome::kOk);
    EXPECT_EQ(request, nullptr);
  }
  pair.Close();
}

int Fabric(const std::string& words) {
  return system((std::string(getenv("RAILHOP_TEST_FABRIC_PROGRAM")) + " fault " + words).c_str());
}

// A device that dies is known to its connections before any queue says so; the others go on.
TEST(Events, DeviceFatal_ItsConnectionsEndOthersGoOn) {
  for (const bool returned : {true, false}) {
    RunningTransport::Settings settings = QuickFaults();
    settings.datapath.ib_return_async_events = returned;
    RunningTransport running(settings);
    Pair hit = Pair::Make(2, 1);
    Pair other = Pair::Make(0, 3);
    ASSERT_EQ(Fabric("soft2 event device_fatal"), 0);
    Buffer from(AsConnection(other.send), 10);
    Request* request = nullptr;
    Outcome outcome = Outcome::kOk;
    if (returned) {
      EXPECT_TRUE(WaitFor([&] {
        outcome = Transport::ISend(hit.send, nullptr, 0, 0, nullptr, &request);
        return outcome != Outcome::kOk;
      }));
      EXPECT_EQ(outcome, Outcome::kSystem);
    } else {
      EXPECT_EQ(Transport::ISend(hit.send, nullptr, 0, 0, nullptr, &request), Outcome::kOk);
    }
    EXPECT_EQ(Transport::ISend(other.send, from.data(), 10, 0, from.memory(), &request),
              Outcome::kOk);
    hit.Close();
    other.Close();
  }
}

// A connection needs room for all of its completions: less would overrun the queue.
TEST(Connect, CompletionQueuesAreTooShort_ErrorNamesTheLimit) {
  RunningTransport running(QuickFaults());
  ASSERT_EQ(Fabric("soft0 quirk short_cq"), 0);
  char handle[kHandleBytes];
  const absl::StatusOr<ListenComm*> listener = Transport::Listen(1, handle);
  ASSERT_TRUE(listener.ok()) << listener.status();
  absl::Status failed;
  EXPECT_TRUE(WaitFor([&] {
    failed = Transport::Connect({}, 0, handle).status();
    return !failed.ok();
  }));
  EXPECT_NE(failed.message().find("allows 64 in a completion queue (max_cqe)"), std::string::npos)
      << failed;
  EXPECT_TRUE(Transport::CloseListen(*listener).ok());
  EXPECT_EQ(Fabric("soft0 quirk short_cq off"), 0);
}

TEST(Init, NoInterface_SaysWhichVariable) {
  Hooks hooks;
  EXPECT_FALSE(Transport::Init(std::move(hooks)).ok());
  EXPECT_FALSE(Transport::IsRunning());
  EXPECT_EQ(Transport::DeviceCount(), 0);
  char handle[kHandleBytes];
  EXPECT_FALSE(Transport::Listen(0, handle).ok());
  Transport::Release();  // more often than Init: nothing
}

}  // namespace
}  // namespace railhop::runtime
