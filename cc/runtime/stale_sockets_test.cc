#include "cc/runtime/stale_sockets.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

class StaleSocketsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const base = std::getenv("TEST_TMPDIR");
    folder_ = std::string(base == nullptr ? "/tmp" : base) + "/stale-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    dead_ = fork();
    if (dead_ == 0) _exit(0);
    waitpid(dead_, nullptr, 0);
    path_ = admin::SocketPath(folder_, dead_);
  }
  void TearDown() override {
    if (fd_ >= 0) close(fd_);
    unlink(path_.c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0);
  }
  // Named for a process that is not here, two minutes old.
  void Bind(int type) {
    fd_ = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    const admin::SocketName name(path_);
    const sockaddr_un address = AddressOf(name);
    ASSERT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    timespec times[2] = {};
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= 120;
    times[1] = times[0];
    ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  }
  int Error() const { return ErrorOfConnecting(AddressOf(admin::SocketName(path_))); }
  bool IsThere() const { return access(path_.c_str(), F_OK) == 0; }

  std::string folder_;
  std::string path_;
  pid_t dead_ = 0;
  int fd_ = -1;
};

TEST_F(StaleSocketsTest, NobodyListens_SweptAwayOnThisNodesFileSystemsAlone) {
  Bind(SOCK_STREAM);
  EXPECT_EQ(Error(), ECONNREFUSED);
  for (const int64_t shared : {int64_t{NFS_SUPER_MAGIC}, int64_t{0x0BD00BD0}, int64_t{0}}) {
    SweepStaleSockets(folder_, shared);
    EXPECT_TRUE(IsThere()) << shared;
  }
  SweepStaleSockets(folder_, TMPFS_MAGIC);
  EXPECT_FALSE(IsThere());
}

// As of a container that shares the folder.
TEST_F(StaleSocketsTest, SomebodyListens_Stays) {
  Bind(SOCK_STREAM);
  ASSERT_EQ(listen(fd_, 0), 0);
  // Also once nobody else is let in.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Error(), 0);
    SweepStaleSockets(folder_, TMPFS_MAGIC);
    EXPECT_TRUE(IsThere());
  }
}

TEST_F(StaleSocketsTest, CannotBeTold_Stays) {
  Bind(SOCK_DGRAM);
  EXPECT_EQ(Error(), EPROTOTYPE);
  SweepStaleSockets(folder_, TMPFS_MAGIC);
  EXPECT_TRUE(IsThere());
}

TEST_F(StaleSocketsTest, NoDescriptorsLeft_IsNotNobody) {
  Bind(SOCK_STREAM);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const sockaddr_un address = AddressOf(admin::SocketName(path_));
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const int error = ErrorOfConnecting(address);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error, EMFILE);
}

TEST(StaleSockets, FileSystems_ThoseOfTheSystemItselfAreLocal) {
  EXPECT_TRUE(IsOfThisNode(FileSystemOf("/dev/shm")));
  EXPECT_FALSE(IsOfThisNode(FileSystemOf("/proc")));
  EXPECT_FALSE(IsOfThisNode(FileSystemOf("/none")));
}

}  // namespace
}  // namespace railhop::runtime
