#include "cc/runtime/cover.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cc/base/log.h"
#include "cc/runtime/testing/manual_executor.h"
#include "cc/runtime/thread_executor.h"
#include "cc/verbs/context.h"
#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

// What the devices do; by name.
struct Nic {
  std::atomic<int> mrs{0};
  std::atomic<int> calls{0};
  std::atomic<int> reg_error{0};
  std::atomic<int> dereg_error{0};
  std::atomic<int> port_error{0};
  bool dmabuf_works = true;
  absl::Notification* hang_in_reg = nullptr;
  ibv_device device = {};
  absl::Mutex mutex;
  // All there have been: those of a device that is gone are never given back.
  std::vector<std::unique_ptr<ibv_mr>> made;
};
std::map<ibv_device*, Nic*> nics;
Nic* NicOf(const ibv_context* context) { return nics[context->device]; }

ibv_mr* Reg(ibv_pd* pd) {
  Nic* const nic = NicOf(pd->context);
  ++nic->calls;
  if (nic->hang_in_reg != nullptr) nic->hang_in_reg->WaitForNotification();
  if (nic->reg_error != 0) {
    errno = nic->reg_error;
    return nullptr;
  }
  ++nic->mrs;
  absl::MutexLock lock(&nic->mutex);
  ibv_mr* const mr = nic->made.emplace_back(std::make_unique<ibv_mr>()).get();
  mr->context = pd->context;
  mr->lkey = mr->rkey = static_cast<uint32_t>(100 + nic->calls);
  return mr;
}

std::shared_ptr<verbs::Table> MakeTable() {
  auto table = std::make_shared<verbs::Table>();
  table->get_device_name = [](ibv_device* device) -> const char* { return device->name; };
  table->get_device_guid = [](ibv_device*) -> __be64 { return 1; };
  table->open_device = [](ibv_device* device) {
    auto* context = new ibv_context();
    context->device = device;
    return context;
  };
  table->close_device = [](ibv_context* context) {
    delete context;
    return 0;
  };
  table->alloc_pd = [](ibv_context* context) {
    auto* pd = new ibv_pd();
    pd->context = context;
    return pd;
  };
  table->dealloc_pd = [](ibv_pd* pd) {
    delete pd;
    return 0;
  };
  table->query_port = [](ibv_context* context, uint8_t, ibv_port_attr*) {
    return NicOf(context)->port_error.load();
  };
  table->reg_mr = [](ibv_pd* pd, void*, size_t, int) { return Reg(pd); };
  table->reg_dmabuf_mr = [](ibv_pd* pd, uint64_t, size_t, uint64_t, int fd, int) -> ibv_mr* {
    if (!NicOf(pd->context)->dmabuf_works) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
    if (fcntl(fd, F_GETFD) < 0) return nullptr;
    return Reg(pd);
  };
  table->dereg_mr = [](ibv_mr* mr) {
    Nic* const nic = NicOf(mr->context);
    if (nic->dereg_error != 0) return nic->dereg_error.load();
    --nic->mrs;
    return 0;
  };
  return table;
}

class Source final : public DeviceSource {
 public:
  int Count() const override { return static_cast<int>(all.size()); }
  const NetDevice* Get(int) const override { return nullptr; }
  absl::StatusOr<int> Fuse(absl::Span<const int>) override { return 0; }
  std::vector<const PhysicalDevice*> Physical() const override { return all; }

  std::vector<const PhysicalDevice*> all;
};

int OpenDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int warnings = 0;

// Four devices: 0 and 1 behind one switch, 2 on their node, 3 on the other.
class CoverTest : public testing::Test {
 protected:
  CoverTest() {
    warnings = 0;
    SetLogSink({.write = [](void*, LogSeverity severity, const char*, int, const char*) {
      if (severity == LogSeverity::kWarning) ++warnings;
    }});
    const std::shared_ptr<verbs::Table> table = MakeTable();
    for (int i = 0; i < 4; ++i) {
      snprintf(nic_[i].device.name, sizeof(nic_[i].device.name), "nic%d", i);
      nics[&nic_[i].device] = &nic_[i];
      contexts_.push_back(verbs::Context::Open(table, &nic_[i].device).value());
      PhysicalDevice& device = devices_[i];
      device.id = i;
      device.name = nic_[i].device.name;
      device.context = contexts_.back().get();
      device.pci_path =
          i < 2 ? "/sys/devices/pci0000:15/0000:15:01.0/0000:17:0" + std::to_string(i) + ".0/x"
                : "/sys/devices/pci0000:1" + std::to_string(6 + i) + "/a/b/c";
      device.numa_node = i == 3 ? 1 : 0;
      source_.all.push_back(&device);
    }
    net_.parts = {&devices_[1]};
    comm_.device = &net_;
    comm_.is_protected = true;
  }
  ~CoverTest() override {
    cover_.reset();
    SetLogSink({});
    contexts_.clear();
    nics.clear();
  }

  void Make(Executor* executor, const CoverOptions& options = {.release_bound_ns = 20'000'000}) {
    cover_ = std::make_unique<Cover>(&source_, executor, options);
  }
  absl::Status Register(Memory* memory) {
    return cover_->Register(&comm_, memory, {.data = bytes_, .size = sizeof(bytes_)});
  }
  uint32_t Covered(const Memory& memory) { return memory.keys.covered.load(); }
  int Regions() { return nic_[0].mrs + nic_[1].mrs + nic_[2].mrs + nic_[3].mrs; }

  Nic nic_[4];
  std::vector<std::unique_ptr<verbs::Context>> contexts_;
  PhysicalDevice devices_[4];
  Source source_;
  NetDevice net_;
  SendComm comm_;
  alignas(4096) char bytes_[4096] = {};
  ManualExecutor executor_;
  std::unique_ptr<Cover> cover_;
};

TEST_F(CoverTest, Register_OwnDeviceAtOnceBackupsLater) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  EXPECT_EQ(Covered(memory), 0b0010u);
  EXPECT_FALSE(cover_->Covers(&comm_, 3));
  EXPECT_EQ(cover_->WhyNot(&comm_, 3), "memory is being registered");
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1111u);
  EXPECT_EQ(memory.keys.local[3], 101u);
  EXPECT_TRUE(cover_->Covers(&comm_, 3));
  int news = 0;
  for (const Cover::News& item : cover_->TakeNews()) news += item.physical == 3 && item.covers;
  EXPECT_EQ(news, 1);
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(Regions(), 0);
}

// One registration at a time for each device: a fence behind them would wait for all.
TEST_F(CoverTest, ManyMemories_OneJobForEachDeviceAtATime) {
  Make(&executor_);
  Memory memories[5];
  for (Memory& memory : memories) ASSERT_TRUE(Register(&memory).ok());
  EXPECT_EQ(executor_.queued(), 3u);
  executor_.RunAll();
  for (Memory& memory : memories) EXPECT_EQ(Covered(memory), 0b1111u);
  // The cache knows that they are the same.
  EXPECT_EQ(nic_[3].calls, 1);
  for (Memory& memory : memories) EXPECT_TRUE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(Regions(), 0);
}

TEST_F(CoverTest, BackupRefuses_NoCoverSaidOnceAndTriedAgain) {
  Make(&executor_, {.retry_ns = 1000});
  nic_[2].reg_error = ENOMEM;
  Memory memory;
  Memory other;
  ASSERT_TRUE(Register(&memory).ok());
  ASSERT_TRUE(Register(&other).ok());
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1011u);
  EXPECT_EQ(warnings, 1);
  EXPECT_FALSE(cover_->Covers(&comm_, 2));
  EXPECT_NE(cover_->WhyNot(&comm_, 2).find("Cannot allocate memory"), std::string::npos);
  ASSERT_EQ(cover_->Uncovered().size(), 1u);
  EXPECT_EQ(cover_->Uncovered()[0].substr(0, 7), "nic2:1:");
  // Not before its time.
  cover_->Poll(5000);
  executor_.RunAll();
  cover_->TakeNews();
  EXPECT_EQ(cover_->next_due(), 6000);
  nic_[2].reg_error = 0;
  cover_->Poll(5999);
  executor_.RunAll();
  EXPECT_FALSE(cover_->Covers(&comm_, 2));
  cover_->Poll(6000);
  executor_.RunAll();
  EXPECT_TRUE(cover_->Covers(&comm_, 2));
  EXPECT_TRUE(cover_->Uncovered().empty());
  EXPECT_EQ(warnings, 1);
}

TEST_F(CoverTest, Ensure_TriesAtOnce) {
  Make(&executor_);
  nic_[2].reg_error = ENOMEM;
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  nic_[2].reg_error = 0;
  cover_->Ensure(&comm_, 2);
  executor_.RunAll();
  EXPECT_TRUE(cover_->Covers(&comm_, 2));
}

TEST_F(CoverTest, EveryDeviceRefuses_ErrorAndNothingIsLeft) {
  Make(&executor_);
  for (Nic& nic : nic_) nic.reg_error = ENOMEM;
  Memory memory;
  EXPECT_FALSE(Register(&memory).ok());
  executor_.RunAll();
  EXPECT_EQ(Regions(), 0);
  EXPECT_TRUE(cover_->Covers(&comm_, 3));  // there is nothing to cover
}

// The connection can go on over another port: that is no reason to end the job.
TEST_F(CoverTest, OwnDeviceRefuses_NearestBackupAtOnceAndNoCoverHere) {
  Make(&executor_);
  nic_[1].reg_error = ENOMEM;
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  EXPECT_EQ(Covered(memory), 0b0001u);
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1101u);
  EXPECT_FALSE(cover_->Covers(&comm_, 1));
  EXPECT_EQ(warnings, 1);
}

TEST_F(CoverTest, OwnDeviceRefusesWithoutFailover_Error) {
  Make(nullptr);
  nic_[1].reg_error = ENOMEM;
  Memory memory;
  EXPECT_FALSE(Register(&memory).ok());
  EXPECT_EQ(Regions(), 0);
}

// It has died and nobody knows yet: a fault of the network is no error of a registration.
TEST_F(CoverTest, OwnDeviceHasJustDied_NearestBackupAtOnce) {
  Make(&executor_);
  nic_[1].reg_error = EIO;
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  EXPECT_EQ(Covered(memory), 0b0001u);
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
}

TEST_F(CoverTest, ConnectionHasMoved_PresentDeviceAtOnceDeadOneNot) {
  Make(&executor_);
  cover_->SetPresent(&comm_, 0b1000);
  cover_->SetInService(0b1101);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  EXPECT_EQ(Covered(memory), 0b1000u);
  EXPECT_EQ(nic_[1].calls, 0);
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1101u);
  cover_->SetInService(0b1111);
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1111u);
}

TEST_F(CoverTest, NoDeviceInService_CoveredWhenOneIsBack) {
  Make(&executor_);
  cover_->SetInService(0);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  EXPECT_EQ(Covered(memory), 0u);
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0u);
  cover_->SetInService(0b1000);
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1000u);
  ASSERT_TRUE(cover_->Deregister(&memory).ok());
}

TEST_F(CoverTest, Limit_NearestOnly) {
  Make(&executor_, {.backups = 2});
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b0111u);
  cover_->Ensure(&comm_, 3);
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1111u);
}

TEST_F(CoverTest, NoExecutor_OwnDevicesOnly) {
  Make(nullptr);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  EXPECT_EQ(Covered(memory), 0b0010u);
  EXPECT_TRUE(cover_->TakeNews().empty());
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(Regions(), 0);
}

TEST_F(CoverTest, DeregisteredBeforeItsTurn_NeverRegistered) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  executor_.RunAll();
  EXPECT_EQ(nic_[0].calls + nic_[2].calls + nic_[3].calls, 0);
  EXPECT_EQ(Regions(), 0);
}

TEST_F(CoverTest, DmaBuf_DuplicateLivesAsLongAsTheMemory) {
  Make(&executor_);
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int before = OpenDescriptors();
  Memory memory;
  ASSERT_TRUE(cover_
                  ->Register(&comm_, &memory,
                             {.data = bytes_, .size = sizeof(bytes_), .fd = fd, .offset = 0})
                  .ok());
  EXPECT_EQ(OpenDescriptors(), before + 1);
  close(fd);  // as NCCL does
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1111u);
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  executor_.RunAll();
  EXPECT_EQ(OpenDescriptors(), before - 1);
}

TEST_F(CoverTest, BackupWithoutDmaBuf_NoCover) {
  Make(&executor_);
  nic_[3].dmabuf_works = false;
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  Memory memory;
  ASSERT_TRUE(cover_
                  ->Register(&comm_, &memory,
                             {.data = bytes_, .size = sizeof(bytes_), .fd = fd, .offset = 0})
                  .ok());
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b0111u);
  EXPECT_FALSE(cover_->Covers(&comm_, 3));
  close(fd);
}

// deregMr succeeds though the device cannot be asked any more.
TEST_F(CoverTest, DeviceGone_ItsRegistrationsAreDroppedWithoutACall) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  nic_[1].dereg_error = EIO;
  cover_->DeviceGone(1);
  EXPECT_EQ(Covered(memory), 0b1101u);
  EXPECT_FALSE(cover_->Covers(&comm_, 1));
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(nic_[0].mrs + nic_[2].mrs + nic_[3].mrs, 0);
  Memory other;
  EXPECT_TRUE(Register(&other).ok());
}

// A device that says that it has failed may live on.
TEST_F(CoverTest, DeviceGoneAndItsLanesFenced_RegistrationsEnd) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  cover_->EndGone(1);  // it is not
  executor_.RunAll();
  ASSERT_EQ(nic_[1].mrs, 1);
  cover_->DeviceGone(1);
  executor_.RunAll();
  EXPECT_EQ(nic_[1].mrs, 1);
  cover_->EndGone(1);
  executor_.RunAll();
  EXPECT_EQ(nic_[1].mrs, 0);
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
}

TEST_F(CoverTest, DeviceSaysEio_GoneOnlyIfItsPortSaysSoToo) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  nic_[1].dereg_error = EIO;
  EXPECT_FALSE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(memory.mark, Memory::Mark::kLive);
  nic_[1].port_error = EIO;
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
}

TEST_F(CoverTest, DeregistrationRefused_PinnedUntilItWorks) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  nic_[2].dereg_error = EBUSY;
  const absl::Status refused = cover_->Deregister(&memory);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("nic2:1"), std::string::npos);
  EXPECT_EQ(Regions(), 1);
  nic_[2].dereg_error = 0;
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(Regions(), 0);
}

TEST_F(CoverTest, DeregistrationHangs_ErrorInBoundThenSuccess) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  executor_.hanging = {2};
  EXPECT_FALSE(cover_->Deregister(&memory).ok());
  executor_.hanging = {};
  executor_.RunAll();
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(Regions(), 0);
}

// A job has thousands of registrations: what hangs must not be waited for with each.
TEST_F(CoverTest, DeviceThatHangsForLong_WaitedForShortlyTheOthersAsEver) {
  constexpr int64_t kBoundNs = 5'000'000'000;
  Make(&executor_, {.release_bound_ns = kBoundNs});
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  executor_.hanging = {2};
  executor_.stuck_ns = kBoundNs;
  const absl::Status pinned = cover_->Deregister(&memory);
  EXPECT_NE(pinned.message().find("nic2:1: the call does not come back"), std::string::npos);
  EXPECT_EQ(pinned.message().find("nic1:1"), std::string::npos);
  EXPECT_EQ(executor_.bounds[2], 50'000'000);
  EXPECT_EQ(executor_.bounds[1], kBoundNs);
  executor_.hanging = {};
  executor_.RunAll();
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(Regions(), 0);
}

// A registration that hangs in the background: deregistering waits in bound, and it is let go of
// when it comes back.
TEST_F(CoverTest, BackgroundRegistrationHangs_LetGoOfWhenItComesBack) {
  absl::Notification come_back;
  nic_[3].hang_in_reg = &come_back;
  ThreadExecutor threads([] {});
  Make(&threads);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  while (nic_[3].calls == 0 || Covered(memory) != 0b0111u) usleep(1000);
  const absl::Status pinned = cover_->Deregister(&memory);
  EXPECT_FALSE(pinned.ok());
  EXPECT_NE(pinned.message().find("nic3:1: the call does not come back"), std::string::npos);
  come_back.Notify();
  absl::Status status = pinned;
  for (int i = 0; i < 1000 && !status.ok(); ++i) status = cover_->Deregister(&memory);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(Regions(), 0);
  cover_.reset();
  EXPECT_TRUE(threads.Stop(60'000'000'000));
}

TEST_F(CoverTest, Closed_MemoryLivesOnByItself) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  cover_->Closed(&comm_);
  executor_.RunAll();
  EXPECT_TRUE(cover_->TakeNews().empty());
  EXPECT_TRUE(cover_->Deregister(&memory).ok());
  EXPECT_EQ(Regions(), 0);
}

TEST_F(CoverTest, NewDevice_CoversWhatIsThere) {
  source_.all.pop_back();
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b0111u);
  source_.all.push_back(&devices_[3]);
  cover_->Poll(1);
  executor_.RunAll();
  EXPECT_EQ(Covered(memory), 0b1111u);
}

TEST_F(CoverTest, Ended_NothingIsLeft) {
  Make(&executor_);
  Memory memory;
  ASSERT_TRUE(Register(&memory).ok());
  executor_.RunAll();
  cover_.reset();
  EXPECT_EQ(Regions(), 0);
}

}  // namespace
}  // namespace railhop::runtime
