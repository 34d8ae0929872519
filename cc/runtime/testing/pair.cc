#include "cc/runtime/testing/pair.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/prng.h"
#include "cc/runtime/testing/fabric_devices.h"
#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr uint8_t kWiped = 0xa5;

uint64_t Word(uint64_t pattern, size_t index) {
  uint64_t seed = pattern * 0x10001 + index;
  return SplitMix64(&seed);
}

}  // namespace

bool WaitFor(const std::function<bool()>& step) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!step()) {
    if (std::chrono::steady_clock::now() > end) return false;
    sched_yield();
  }
  return true;
}

RunningTransport::RunningTransport(const Settings& settings) {
  Hooks hooks;
  hooks.devices = FabricDevices::Open(settings.ptr_support);
  hooks.datapath = settings.datapath;
  hooks.sockets = settings.sockets;
  hooks.sockets.socket_ifname = "lo";
  const absl::Status started = Transport::Init(std::move(hooks));
  if (!started.ok()) {
    ADD_FAILURE() << started;
    abort();
  }
}

RunningTransport::~RunningTransport() { Transport::Release(); }

RunningTransport::Settings QuickFaults() {
  RunningTransport::Settings settings;
  settings.datapath.ib_timeout = 14;  // 67 ms
  settings.datapath.ib_retry_cnt = 3;
  return settings;
}

Pair Pair::Make(int from, int to) {
  Pair pair;
  char handle[kHandleBytes];
  absl::StatusOr<ListenComm*> listener = Transport::Listen(to, handle);
  if (!listener.ok()) {
    ADD_FAILURE() << listener.status();
    return pair;
  }
  pair.listener = *listener;
  absl::Status failed;
  const bool made = WaitFor([&] {
    if (pair.send == nullptr) {
      absl::StatusOr<SendComm*> send = Transport::Connect({}, from, handle);
      if (!send.ok()) failed = send.status();
      if (send.ok()) pair.send = *send;
    }
    if (pair.recv == nullptr) {
      absl::StatusOr<RecvComm*> recv = Transport::Accept(pair.listener);
      if (!recv.ok()) failed = recv.status();
      if (recv.ok()) pair.recv = *recv;
    }
    return !failed.ok() || (pair.send != nullptr && pair.recv != nullptr);
  });
  EXPECT_TRUE(made) << "not connected in time";
  EXPECT_TRUE(failed.ok()) << failed;
  return pair;
}

void Pair::Close() {
  if (send != nullptr) {
    EXPECT_TRUE(Transport::CloseSend(send).ok());
  }
  if (recv != nullptr) {
    EXPECT_TRUE(Transport::CloseRecv(recv).ok());
  }
  if (listener != nullptr) {
    EXPECT_TRUE(Transport::CloseListen(listener).ok());
  }
  *this = {};
}

Buffer::Buffer(ConnectionComm* comm, size_t size)
    : size_(size), comm_(comm), bytes_(size + 2 * kGuard) {
  absl::StatusOr<Memory*> memory =
      Transport::RegisterMemory(comm, data(), size == 0 ? 1 : size, kPointerHost);
  EXPECT_TRUE(memory.ok()) << memory.status();
  if (memory.ok()) memory_ = *memory;
  Wipe();
}

Buffer::~Buffer() {
  if (memory_ != nullptr) {
    EXPECT_TRUE(Transport::Deregister(comm_, memory_).ok());
  }
}

void Buffer::Fill(uint64_t pattern) {
  for (size_t i = 0; i < size_; i += 8) {
    const uint64_t word = Word(pattern, i);
    memcpy(data() + i, &word, std::min<size_t>(8, size_ - i));
  }
}

void Buffer::Wipe() { memset(bytes_.data(), kWiped, bytes_.size()); }

std::string Buffer::Check(uint64_t pattern, size_t size) const {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    uint8_t expected = kWiped;
    if (i >= kGuard && i < kGuard + size) {
      const size_t at = i - kGuard;
      const uint64_t word = Word(pattern, at & ~size_t{7});
      // Whole words are compared at once: buffers may be long.
      if (at % 8 == 0 && at + 8 <= size && memcmp(&bytes_[i], &word, 8) == 0) {
        i += 7;
        continue;
      }
      expected = static_cast<uint8_t>(word >> at % 8 * 8);
    }
    if (bytes_[i] != expected) {
      return absl::StrCat("byte ", static_cast<int64_t>(i) - static_cast<int64_t>(kGuard), " of ",
                          size, " is ", bytes_[i], ", not ", expected);
    }
  }
  return "";
}

Request* PostSend(SendComm* comm, Buffer* buffer, size_t size, int tag, Outcome* outcome) {
  Request* request = nullptr;
  WaitFor([&] {
    *outcome = Transport::ISend(comm, buffer->data(), size, tag, buffer->memory(), &request);
    return *outcome != Outcome::kOk || request != nullptr;
  });
  return request;
}

Request* PostRecv(RecvComm* comm, const std::vector<Buffer*>& buffers, const std::vector<int>& tags,
                  Outcome* outcome) {
  std::vector<void*> data;
  std::vector<size_t> sizes;
  std::vector<Memory*> memories;
  for (Buffer* buffer : buffers) {
    data.push_back(buffer->data());
    sizes.push_back(buffer->size());
    memories.push_back(buffer->memory());
  }
  Request* request = nullptr;
  WaitFor([&] {
    *outcome = Transport::IRecv(comm, static_cast<int>(buffers.size()), data.data(), sizes.data(),
                                tags.data(), memories.data(), &request);
    return *outcome != Outcome::kOk || request != nullptr;
  });
  return request;
}

bool Finish(Request* request, std::vector<int>* sizes, Outcome* outcome) {
  int done = 0;
  int all[kGroupedReceivesMax] = {};
  WaitFor([&] {
    *outcome = Transport::Test(request, &done, all);
    return *outcome != Outcome::kOk || done != 0;
  });
  if (sizes != nullptr) sizes->assign(all, all + kGroupedReceivesMax);
  return done != 0;
}

Child::Child(const std::vector<std::string>& words) {
  int in[2];
  int out[2];
  EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
  std::vector<std::string> all = {"/proc/self/exe", "--child"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> raw;
  for (std::string& word : all) raw.push_back(word.data());
  raw.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execv(raw[0], raw.data());
    _exit(125);
  }
  close(in[0]);
  close(out[1]);
  in_ = in[1];
  out_ = out[0];
}

Child::~Child() {
  if (pid_ > 0) {
    Kill();
    Wait();
  }
  close(in_);
  close(out_);
}

void Child::Write(const void* data, size_t size) {
  EXPECT_EQ(write(in_, data, size), static_cast<ssize_t>(size));
}

bool Child::Read(void* data, size_t size) {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = read(out_, at, size);
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

void Child::Kill() { kill(pid_, SIGKILL); }

int Child::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace railhop::runtime
