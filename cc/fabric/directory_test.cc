#include "cc/fabric/directory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "cc/rdma_model/topology_text.h"
#include "gtest/gtest.h"

namespace railhop::fabric {
namespace {

rdma::Topology Parsed(const std::string& text) {
  std::string error;
  const std::optional<rdma::Topology> topology = rdma::ParseTopology(text, "t", &error);
  EXPECT_TRUE(topology) << error;
  return topology.value_or(rdma::Topology{});
}

std::unique_ptr<DirectoryHandle> Make(const rdma::Topology& topology = rdma::DefaultTopology()) {
  std::string error;
  auto handle = DirectoryHandle::Create("", topology, 7, &error);
  EXPECT_NE(handle, nullptr) << error;
  return handle;
}

// Runs `body` in a child process and returns its exit status, or -signal.
int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// A child that says when it is ready and then sleeps until it is killed.
class Sleeper {
 public:
  explicit Sleeper(const std::function<void()>& first) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      first();
      if (write(ends[1], "x", 1) != 1) _exit(1);
      while (true) pause();
    }
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
  }
  ~Sleeper() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST(Directory, Created_HoldsTheTopology) {
  const auto handle = Make();
  const Directory& dir = handle->dir();
  EXPECT_EQ(dir.seed, 7u);
  EXPECT_EQ(dir.device_count, 4u);
  EXPECT_STREQ(dir.devices[2].name, "soft2");
  const PortEntry& port = dir.devices[2].ports[0];
  EXPECT_EQ(port.link_state, static_cast<uint32_t>(rdma::PortLinkState::kActive));
  EXPECT_EQ(port.rate_mbps, 100000u);
  EXPECT_EQ(rdma::FormatAddress(DirectoryHandle::ReadGid(port, 3).gid), "10.0.0.3");
  EXPECT_EQ(port.pkeys[0], 0xffffu);
  EXPECT_TRUE(handle->OwnerAlive());
}

TEST(Directory, Attached_SeesTheSameMemory) {
  const auto owner = Make();
  std::string error;
  const auto other = DirectoryHandle::Attach(owner->Reference(), &error);
  ASSERT_NE(other, nullptr) << error;
  EXPECT_EQ(other->Reference(), owner->Reference());
  owner->dir().devices[1].ports[0].lid = 77;
  EXPECT_EQ(other->dir().devices[1].ports[0].lid, 77u);
}

TEST(Directory, ByName_IsFoundByAChild) {
  const std::string name = "test-" + std::to_string(getpid());
  std::string error;
  const auto owner = DirectoryHandle::Create(name, rdma::DefaultTopology(), 1, &error);
  ASSERT_NE(owner, nullptr) << error;
  EXPECT_EQ(InChild([&] {
              std::string child_error;
              const auto found = DirectoryHandle::AttachByName(name, &child_error);
              return found != nullptr && found->dir().id == owner->dir().id ? 0 : 1;
            }),
            0);
  EXPECT_EQ(DirectoryHandle::Create(name, rdma::DefaultTopology(), 1, &error), nullptr);
  EXPECT_NE(error.find("has a fabric of that name already"), std::string::npos) << error;
}

TEST(Directory, UnknownName_ListsTheRunningOnes) {
  const auto owner = Make();
  std::string error;
  EXPECT_EQ(DirectoryHandle::AttachByName("nosuch", &error), nullptr);
  EXPECT_NE(error.find("nosuch: user "), std::string::npos);
  EXPECT_NE(error.find(owner->dir().name), std::string::npos) << error;
}

TEST(Directory, BadName_IsRefused) {
  std::string error;
  EXPECT_EQ(DirectoryHandle::Create("a/b", rdma::DefaultTopology(), 1, &error), nullptr);
  EXPECT_NE(error.find("a/b: not a name of a fabric; allowed:"), std::string::npos) << error;
}

TEST(Attach, MalformedReference_IsRefused) {
  for (const char* reference : {"", "x", "1:2", "1:2:", "-1:2:3", "1:2:zz", "1:2:3:4",
                                "99999999999999999999:2:3", "1 :2:3"}) {
    std::string error;
    EXPECT_EQ(DirectoryHandle::Attach(reference, &error), nullptr) << reference;
    EXPECT_NE(error.find(std::string("RAILHOP_FABRIC=") + reference + ":"), std::string::npos);
  }
}

TEST(Attach, StaleReference_IsRefused) {
  std::string reference;
  pid_t gone = 0;
  {
    const auto owner = Make();
    reference = owner->Reference();
    std::string error;
    // Another fabric in the same place: the id tells.
    std::string other = reference;
    other.back() = other.back() == '0' ? '1' : '0';
    EXPECT_EQ(DirectoryHandle::Attach(other, &error), nullptr);
    EXPECT_NE(error.find("the reference is stale"), std::string::npos) << error;
  }
  std::string error;
  EXPECT_EQ(DirectoryHandle::Attach(reference, &error), nullptr);
  EXPECT_NE(error.find("stale"), std::string::npos) << error;
  gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  EXPECT_EQ(DirectoryHandle::Attach(std::to_string(gone) + ":3:1", &error), nullptr);
  EXPECT_NE(error.find("has gone"), std::string::npos) << error;
}

TEST(Attach, NotAFabric_IsRefused) {
  std::string error;
  const std::string pid = std::to_string(getpid());
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(DirectoryHandle::Attach(pid + ":" + std::to_string(null) + ":1", &error), nullptr);
  EXPECT_NE(error.find("is not a fabric"), std::string::npos) << error;
  close(null);
  // The right name, and nothing of a directory in it.
  const int fake = memfd_create("railhop-fabric:fake", MFD_CLOEXEC);
  EXPECT_EQ(DirectoryHandle::Attach(pid + ":" + std::to_string(fake) + ":1", &error), nullptr);
  EXPECT_NE(error.find("another version"), std::string::npos) << error;
  ASSERT_EQ(ftruncate(fake, sizeof(Directory)), 0);
  EXPECT_EQ(DirectoryHandle::Attach(pid + ":" + std::to_string(fake) + ":1", &error), nullptr);
  EXPECT_NE(error.find("another version"), std::string::npos) << error;
  close(fake);
}

TEST(Attach, ClosedFabric_IsRefused) {
  const auto owner = Make();
  owner->dir().closed = 1;
  std::string error;
  EXPECT_EQ(DirectoryHandle::Attach(owner->Reference(), &error), nullptr);
  EXPECT_NE(error.find("it has ended"), std::string::npos) << error;
  EXPECT_FALSE(owner->OwnerAlive());
}

// Needs root to become another user; without it the uid in the directory stands in for that.
TEST(Attach, AnotherUsersFabric_IsRefused) {
  const auto owner = Make();
  if (geteuid() == 0) {
    EXPECT_EQ(InChild([&] {
                if (setgid(65534) != 0 || setuid(65534) != 0) return 2;
                std::string error;
                if (DirectoryHandle::Attach(owner->Reference(), &error) != nullptr) return 3;
                if (error.find("belongs to user 0, and this is user 65534") == error.npos) return 4;
                return DirectoryHandle::AttachByName(owner->dir().name, &error) == nullptr ? 0 : 5;
              }),
              0);
  }
  owner->dir().uid = geteuid() + 1;
  std::string error;
  EXPECT_EQ(DirectoryHandle::Attach(owner->Reference(), &error), nullptr);
  EXPECT_NE(error.find("a fabric is for one user"), std::string::npos) << error;
}

TEST(Owner, Killed_LeavesNothingAndIsNoticed) {
  std::string reference_file = "none";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string name = "killed-" + std::to_string(getpid());
  Sleeper owner([&] {
    std::string error;
    DirectoryHandle* const handle =
        DirectoryHandle::Create(name, rdma::DefaultTopology(), 1, &error).release();
    const std::string reference = handle->Reference();
    if (write(ends[1], reference.data(), reference.size()) < 0) _exit(1);
  });
  char text[64] = {};
  ASSERT_GT(read(ends[0], text, sizeof(text) - 1), 0);
  std::string error;
  const auto attached = DirectoryHandle::Attach(text, &error);
  ASSERT_NE(attached, nullptr) << error;
  EXPECT_TRUE(attached->OwnerAlive());
  owner.Kill();
  EXPECT_FALSE(attached->OwnerAlive());
  EXPECT_EQ(attached->dir().device_count, 4u);  // what was mapped stays
  EXPECT_EQ(DirectoryHandle::Attach(text, &error), nullptr);
  for (const char* place : {"/dev/shm/", "/tmp/"}) {
    struct stat st;
    EXPECT_NE(stat((std::string(place) + "railhop-fabric:" + name).c_str(), &st), 0);
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(Hosts, ByNameAndIndex) {
  const auto handle = Make(Parsed("host a device n port 1\nhost b device n port 1"));
  std::string error;
  EXPECT_EQ(handle->FindHost("", &error), 0u);
  EXPECT_EQ(handle->FindHost("b", &error), 1u);
  EXPECT_EQ(handle->FindHost("1", &error), 1u);
  EXPECT_FALSE(handle->FindHost("c", &error));
  EXPECT_EQ(error, "RAILHOP_FABRIC_HOST=c: no such host; allowed: a, b, or an index from 0 to 1");
  EXPECT_EQ(handle->DevicesOfHost(1), std::vector<uint32_t>{1});
  EXPECT_EQ(handle->FindDevice(1, "n"), 1u);
}

TEST(DevicePort, Words) {
  const auto handle =
      Make(Parsed("host a device n port 1 port 2 device m port 1\nhost b device n port 1"));
  std::string error;
  EXPECT_EQ(handle->FindDevicePort("m", &error), (PortRef{1, 0}));
  EXPECT_EQ(handle->FindDevicePort("a/n:2", &error), (PortRef{0, 2}));
  EXPECT_EQ(handle->FindDevicePort("1/n:1", &error), (PortRef{2, 1}));
  EXPECT_FALSE(handle->FindDevicePort("n", &error));
  EXPECT_EQ(error, "n: this name is on several hosts; allowed: a/n, a/m, b/n");
  EXPECT_FALSE(handle->FindDevicePort("q", &error));
  EXPECT_EQ(error, "q: no such device; allowed: a/n, a/m, b/n");
  EXPECT_FALSE(handle->FindDevicePort("m:2", &error));
  EXPECT_EQ(error, "m:2: no such port; allowed: 1");
}

// Same net: any GID. Through a router: RoCE v2, and not link-local. No route: the address is known,
// unreachable.
TEST(RouteByGid, NetsAndTypes) {
  const auto handle =
      Make(Parsed("nets a b c\nroute a b\n"
                  "device x port 1 net a address 10.0.0.1\n"
                  "device y port 1 net a address 10.0.0.2\n"
                  "device z port 1 net b address 10.0.0.3\n"
                  "device w port 1 net c address 10.0.0.4\n"));
  const auto route = [&](uint32_t sgid_index, const char* address) {
    return handle->RouteByGid({0, 1}, sgid_index, *rdma::ParseAddress(address));
  };
  EXPECT_EQ(route(3, "10.0.0.2").to, (PortRef{1, 1}));
  EXPECT_EQ(route(2, "10.0.0.2").to, (PortRef{1, 1}));
  EXPECT_EQ(route(3, "10.0.0.1").to, (PortRef{0, 1}));  // itself
  EXPECT_EQ(route(3, "10.0.0.3").to, (PortRef{2, 1}));
  EXPECT_EQ(route(2, "10.0.0.3").verdict, RouteVerdict::kUnreachable);
  EXPECT_EQ(route(3, "10.0.0.4").verdict, RouteVerdict::kUnreachable);
  EXPECT_EQ(route(3, "10.0.0.9").verdict, RouteVerdict::kUnknownAddress);
  EXPECT_EQ(route(9, "10.0.0.2").verdict, RouteVerdict::kUnknownAddress);  // no such source
  const rdma::Gid far_local = DirectoryHandle::ReadGid(handle->port({2, 1}), 1).gid;
  EXPECT_EQ(handle->RouteByGid({0, 1}, 1, far_local).verdict, RouteVerdict::kUnreachable);
  handle->dir().devices[1].removed = 1;
  EXPECT_EQ(route(3, "10.0.0.2").verdict, RouteVerdict::kUnknownAddress);
}

TEST(RouteByGid, SameAddressInTwoNets_TheNearOneWins) {
  const auto handle =
      Make(Parsed("nets a b\nroute a b\n"
                  "device far port 1 net b address 10.0.0.2\n"
                  "device x port 1 net a address 10.0.0.1\n"
                  "device near port 1 net a address 10.0.0.2\n"));
  EXPECT_EQ(handle->RouteByGid({1, 1}, 3, *rdma::ParseAddress("10.0.0.2")).to, (PortRef{2, 1}));
}

TEST(RouteByLid, OnlyInTheSubnet) {
  const auto handle =
      Make(Parsed("nets a b\n"
                  "device x port 1 link infiniband net a lid 1\n"
                  "device y port 1 link infiniband net a lid 2\n"
                  "device z port 1 link infiniband net b lid 3\n"));
  EXPECT_EQ(handle->RouteByLid({0, 1}, 2).to, (PortRef{1, 1}));
  EXPECT_EQ(handle->RouteByLid({0, 1}, 3).verdict, RouteVerdict::kUnknownAddress);
  EXPECT_EQ(handle->RouteByLid({0, 1}, 0).verdict, RouteVerdict::kUnknownAddress);
}

TEST(Slots, ManyProcesses_EachGetsItsOwn) {
  const auto handle = Make();
  constexpr int kProcesses = 32;
  constexpr int kNumbers = 256;
  std::vector<std::unique_ptr<Sleeper>> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(std::make_unique<Sleeper>([&] {
      const SlotRef slot = handle->ClaimSlot(0, 0);
      if (slot.slot == kNoSlot) _exit(1);
      for (uint32_t n = 0; n < kNumbers; ++n) {
        if (handle->AllocateQpn(slot, n) == 0) _exit(1);
      }
    }));
  }
  int live = 0;
  std::set<std::pair<uint32_t, uint32_t>> owners;
  for (uint32_t i = 0; i < 1u << kQpnIndexBits; ++i) {
    const uint32_t qpn = handle->dir().qpns[i].qpn;
    const std::optional<QpnOwner> owner = handle->LookupQpn(qpn);
    if (!owner) continue;
    ++live;
    EXPECT_TRUE(owners.insert({owner->slot, owner->index}).second);
  }
  EXPECT_EQ(live, kProcesses * kNumbers);
  EXPECT_EQ(handle->ReclaimDead(), 0u);
  children.resize(kProcesses / 2);  // the others are killed
  EXPECT_EQ(handle->ReclaimDead(), static_cast<uint32_t>(kProcesses / 2));
  live = 0;
  for (uint32_t i = 0; i < 1u << kQpnIndexBits; ++i) {
    live += handle->LookupQpn(handle->dir().qpns[i].qpn).has_value();
  }
  EXPECT_EQ(live, kProcesses / 2 * kNumbers);
}

TEST(Slots, DeadHolder_IsReplacedWithANewGeneration) {
  const auto handle = Make();
  SlotRef dead;
  uint32_t qpn = 0;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Sleeper child([&] {
    const SlotRef slot = handle->ClaimSlot(0, 0);
    const uint32_t number = handle->AllocateQpn(slot, 5);
    if (write(ends[1], &slot, sizeof(slot)) < 0 || write(ends[1], &number, sizeof(number)) < 0)
      _exit(1);
  });
  ASSERT_EQ(read(ends[0], &dead, sizeof(dead)), static_cast<ssize_t>(sizeof(dead)));
  ASSERT_EQ(read(ends[0], &qpn, sizeof(qpn)), static_cast<ssize_t>(sizeof(qpn)));
  close(ends[0]);
  close(ends[1]);
  EXPECT_TRUE(handle->SlotAlive(dead));
  EXPECT_TRUE(handle->LookupQpn(qpn));
  child.Kill();
  EXPECT_FALSE(handle->SlotAlive(dead));
  EXPECT_EQ(handle->OpenSegment(dead), -1);
  const SlotRef mine = handle->ClaimSlot(0, 0);
  EXPECT_EQ(mine.slot, dead.slot);
  EXPECT_NE(mine.generation, dead.generation);
  EXPECT_FALSE(handle->LookupQpn(qpn));
  handle->ReleaseSlot(dead);  // of an owner before: does nothing
  EXPECT_TRUE(handle->SlotAlive(mine));
  handle->ReleaseSlot(mine);
  EXPECT_FALSE(handle->SlotAlive(mine));
}

TEST(Slots, ZombieCounts_AsDead) {
  const auto handle = Make();
  const pid_t pid = fork();
  if (pid == 0) {
    handle->ClaimSlot(0, 0);
    _exit(0);
  }
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);  // dead, not reaped
  EXPECT_EQ(handle->ReclaimDead(), 1u);
  waitpid(pid, nullptr, 0);
}

TEST(Slots, SegmentOfALiveProcess_Opens) {
  const auto handle = Make();
  const int fd = memfd_create("segment", MFD_CLOEXEC);
  ASSERT_EQ(write(fd, "abc", 3), 3);
  const SlotRef slot = handle->ClaimSlot(0, static_cast<uint32_t>(fd));
  EXPECT_EQ(InChild([&] {
              const int segment = handle->OpenSegment(slot);
              char text[4] = {};
              return pread(segment, text, 3, 0) == 3 && std::string(text) == "abc" ? 0 : 1;
            }),
            0);
  close(fd);
}

// A process that died holding a lock does not stop the others.
TEST(SharedLock, HolderDied_NextOneGetsIt) {
  const auto handle = Make();
  EXPECT_EQ(InChild([&] {
              new SharedLock(handle->dir().claim_lock);
              return 0;
            }),
            0);
  EXPECT_NE(handle->ClaimSlot(0, 0).slot, kNoSlot);
  EXPECT_NE(handle->ClaimSlot(0, 0).slot, kNoSlot);
}

TEST(Qpn, Freed_ComesBackLateWithAnotherNumber) {
  const auto handle = Make();
  const SlotRef slot = handle->ClaimSlot(0, 0);
  std::set<uint32_t> seen;
  for (int i = 0; i < 600'000; ++i) {  // more than twice round
    const uint32_t qpn = handle->AllocateQpn(slot, 1);
    ASSERT_GE(qpn, 2u);
    ASSERT_LT(qpn, 1u << 24);
    ASSERT_TRUE(seen.insert(qpn).second) << qpn;
    handle->FreeQpn(qpn);
    ASSERT_FALSE(handle->LookupQpn(qpn));
  }
  EXPECT_FALSE(handle->LookupQpn(0));
  EXPECT_FALSE(handle->LookupQpn(1));
  EXPECT_FALSE(handle->LookupQpn(0xffffffff));
}

TEST(Qpn, AllTaken_Zero) {
  const auto handle = Make();
  const SlotRef slot = handle->ClaimSlot(0, 0);
  uint32_t last = 0;
  int count = 0;
  while (const uint32_t qpn = handle->AllocateQpn(slot, 1)) {
    last = qpn;
    ++count;
  }
  EXPECT_EQ(count, (1 << kQpnIndexBits) - 2);
  handle->FreeQpn(last);
  EXPECT_NE(handle->AllocateQpn(slot, 1), 0u);
}

TEST(Qpn, ManyThreads_NoNumberTwice) {
  const auto handle = Make();
  const SlotRef slot = handle->ClaimSlot(0, 0);
  std::mutex mutex;
  std::set<uint32_t> all;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::vector<uint32_t> mine;
      for (uint32_t i = 0; i < 2000; ++i) {
        const uint32_t qpn = handle->AllocateQpn(slot, i);
        EXPECT_EQ(handle->LookupQpn(qpn)->index, i);
        if (i % 3 == 0) {
          handle->FreeQpn(qpn);
        } else {
          mine.push_back(qpn);
        }
      }
      std::lock_guard<std::mutex> lock(mutex);
      for (const uint32_t qpn : mine) EXPECT_TRUE(all.insert(qpn).second);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PortEvents, WrittenAndReadInOrder) {
  const auto handle = Make();
  uint64_t cursor = 0;
  EXPECT_FALSE(handle->ReadPortEvent(&cursor));
  {
    SharedLock lock(handle->dir().control_lock);
    handle->PushPortEvent({1, 1}, rdma::AsyncEvent::kPortErr, 5);
    handle->PushPortEvent({1, 1}, rdma::AsyncEvent::kPortActive, 6);
  }
  const auto first = handle->ReadPortEvent(&cursor);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->device, 1u);
  EXPECT_EQ(first->due_ns, 5u);
  EXPECT_EQ(first->event, static_cast<uint32_t>(rdma::AsyncEvent::kPortErr));
  EXPECT_EQ(handle->ReadPortEvent(&cursor)->event,
            static_cast<uint32_t>(rdma::AsyncEvent::kPortActive));
  EXPECT_FALSE(handle->ReadPortEvent(&cursor));
}

TEST(PortEvents, SlowReader_GetsTheNewestThatAreThere) {
  const auto handle = Make();
  uint64_t cursor = 0;
  for (uint64_t i = 0; i < kMaxPortEvents + 10; ++i) {
    handle->PushPortEvent({0, 1}, rdma::AsyncEvent::kGidChange, i);
  }
  EXPECT_EQ(handle->ReadPortEvent(&cursor)->due_ns, 10u);
  EXPECT_EQ(cursor, 11u);
}

TEST(Log, ManyWriters_EveryLineOnce) {
  const auto handle = Make();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 5000; ++i) handle->Log({.device = t, .kind = 3, .message = i});
    });
  }
  uint64_t cursor = 0;
  std::vector<uint64_t> next(4, 0);
  int lines = 0;
  while (lines < 20000) {
    const std::optional<LogRecord> record = handle->ReadLog(&cursor);
    if (!record) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(record->message, next[record->device]++);
    EXPECT_EQ(record->kind, 3u);
    EXPECT_NE(record->time_ns, 0u);
    ++lines;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(handle->ReadLog(&cursor));
}

TEST(Log, WriterDiedInALine_ReaderGoesOn) {
  const auto handle = Make();
  handle->Log({.message = 1});
  handle->dir().log_head.fetch_add(1);  // its writer is no more
  handle->Log({.message = 2});
  uint64_t cursor = 0;
  EXPECT_EQ(handle->ReadLog(&cursor)->message, 1u);
  EXPECT_EQ(handle->ReadLog(&cursor)->message, 2u);
}

TEST(Change, Notified_WakesAnotherProcess) {
  const auto handle = Make();
  const uint32_t seen = handle->ChangeCount();
  const pid_t pid = fork();
  if (pid == 0) _exit(handle->WaitForChange(seen, 20'000'000'000) == seen + 1 ? 0 : 1);
  usleep(20'000);
  handle->NotifyChange();
  int status = 1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(handle->WaitForChange(seen + 1, 1'000'000), seen + 1);  // nothing: the time runs out
}

}  // namespace
}  // namespace railhop::fabric
