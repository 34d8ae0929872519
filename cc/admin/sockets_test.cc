#include "cc/admin/sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "cc/admin/client.h"
#include "gtest/gtest.h"

namespace railhop::admin {
namespace {

class Sockets : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const base = std::getenv("TEST_TMPDIR");
    folder_ = std::string(base == nullptr ? "/tmp" : base) + "/sockets-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override {
    for (const int fd : fds_) close(fd);
    const std::string command = "rm -rf '" + folder_ + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT: our own folder
  }

  void Make(const std::string& path) {
    const std::string command = "mkdir -p '" + folder_ + path + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);  // NOLINT: our own folder
  }
  // A socket file; listening or not.
  std::string Put(const std::string& path, bool listening) {
    const std::string full = folder_ + path;
    const SocketName name(full);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.short_path().copy(address.sun_path, sizeof address.sun_path - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    if (listening) {
      EXPECT_EQ(listen(fd, 4), 0);
    }
    fds_.push_back(fd);
    return full;
  }
  static Failure Refused(const std::string& path) {
    const Reply<int> fd = ConnectSocket(path, 1'000'000'000);
    EXPECT_FALSE(fd.ok());
    return fd.ok() ? Failure{} : fd.failure();
  }

  std::string folder_;
  std::vector<int> fds_;
};

using Paths = std::vector<std::string>;

TEST_F(Sockets, Directories_FirstIsWhatWasAskedFor) {
  EXPECT_EQ(SocketDirectories({.admin_dir = "/a", .xdg_runtime_dir = "/x", .uid = 5}), Paths{"/a"});
  EXPECT_EQ(SocketDirectories({.xdg_runtime_dir = "/x", .uid = 5}),
            (Paths{"/x/railhop", "/tmp/railhop-5"}));
  EXPECT_EQ(SocketDirectories({.uid = 5}), Paths{"/tmp/railhop-5"});
  EXPECT_EQ(SocketDirectories({.uid = 0}), (Paths{"/run/railhop", "/tmp/railhop-0"}));
  EXPECT_EQ(SocketPath("/a", 17), "/a/17.sock");
}

TEST_F(Sockets, Searched_RootLooksInThoseOfAll) {
  Make("/run/user/1000");
  Make("/tmp/railhop-77");
  Surroundings root = {.uid = 0, .root = folder_};
  const Paths all = SearchedDirectories(root);
  const auto has = [&all](const std::string& path) {
    return std::find(all.begin(), all.end(), path) != all.end();
  };
  EXPECT_TRUE(has(folder_ + "/run/railhop"));
  EXPECT_TRUE(has(folder_ + "/run/user/1000/railhop"));
  EXPECT_TRUE(has(folder_ + "/tmp/railhop-77"));
  EXPECT_EQ(SearchedDirectories({.uid = 9, .root = folder_}),
            (Paths{folder_ + "/tmp/railhop-9", folder_ + "/run/user/9/railhop"}));
}

TEST_F(Sockets, SearchedWithAFolderSet_NoOther) {
  Make("/run/user/1000");
  Make("/tmp/railhop-77");
  EXPECT_EQ(SearchedDirectories({.admin_dir = "/a", .uid = 0, .root = folder_}), Paths{"/a"});
  EXPECT_EQ(SearchedDirectories({.admin_dir = "/a", .uid = 9, .root = folder_}), Paths{"/a"});
}

// Another process may have been told another folder.
TEST_F(Sockets, SearchedOfAProcess_ItsEnvironmentCounts) {
  Make("/proc/4711");
  std::ofstream(folder_ + "/proc/4711/environ", std::ios::binary)
      << std::string("A=b\0RAILHOP_ADMIN_DIR=/elsewhere\0RAILHOP_ADMIN=1\0", 48);
  EXPECT_EQ(SearchedDirectoriesOf(4711, {.uid = 9, .root = folder_}).front(), "/elsewhere");
}

TEST_F(Sockets, Find_OnlySocketsWithANumber_ByPid) {
  Make("/s");
  Put("/s/20.sock", true);
  Put("/s/3.sock", false);
  Put("/s/x.sock", true);
  std::ofstream(folder_ + "/s/44.sock") << "no socket";
  const std::vector<FoundSocket> found = FindSockets({folder_ + "/s", folder_ + "/none"});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].pid, 3);
  EXPECT_EQ(found[1].pid, 20);
  EXPECT_EQ(found[1].path, folder_ + "/s/20.sock");
  EXPECT_EQ(found[1].uid, geteuid());
}

TEST_F(Sockets, FolderProblem_MissingOrNoFolder_SaysSo) {
  Make("/s");
  EXPECT_FALSE(FolderProblem(folder_ + "/s").has_value());
  const std::optional<Failure> missing = FolderProblem(folder_ + "/none");
  ASSERT_TRUE(missing.has_value());
  EXPECT_EQ(missing->code, ErrorCode::kNotFound);
  EXPECT_NE(missing->message.find("/none: the folder does not exist"), std::string::npos);
  std::ofstream(folder_ + "/file") << "no folder";
  const std::optional<Failure> file = FolderProblem(folder_ + "/file");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->code, ErrorCode::kInvalid);
  EXPECT_NE(file->message.find("is no folder"), std::string::npos);
}

TEST_F(Sockets, Connect_Listening_Connects) {
  Make("/s");
  const Reply<int> fd = ConnectSocket(Put("/s/20.sock", true), 1'000'000'000);
  ASSERT_TRUE(fd.ok()) << fd.failure().message;
  close(*fd);
}

TEST_F(Sockets, Connect_PathLongerThanAnAddress_Connects) {
  const std::string deep = "/" + std::string(120, 'd');
  Make(deep);
  const std::string path = Put(deep + "/20.sock", true);
  const Reply<int> fd = ConnectSocket(path, 1'000'000'000);
  ASSERT_TRUE(fd.ok()) << fd.failure().message;
  close(*fd);
}

TEST_F(Sockets, Connect_NobodyListens_IsStaleAndSaysWhatToDo) {
  Make("/s");
  // Beyond the largest pid that Linux gives out.
  const Failure dead = Refused(Put("/s/99999999.sock", false));
  EXPECT_EQ(dead.code, ErrorCode::kStaleSocket);
  EXPECT_NE(dead.message.find("process 99999999 has ended"), std::string::npos) << dead.message;
  EXPECT_NE(dead.message.find("remove the file"), std::string::npos);
  const Failure lives = Refused(Put("/s/" + std::to_string(getpid()) + ".sock", false));
  EXPECT_EQ(lives.code, ErrorCode::kStaleSocket);
  EXPECT_NE(lives.message.find("lives, but"), std::string::npos) << lives.message;
}

TEST_F(Sockets, Connect_NoSocket_SaysSo) {
  Make("/s");
  EXPECT_EQ(Refused(folder_ + "/s/1.sock").code, ErrorCode::kNotFound);
  std::ofstream(folder_ + "/s/2.sock") << "text";
  EXPECT_EQ(Refused(folder_ + "/s/2.sock").code, ErrorCode::kInvalid);
}

// A process that is stopped takes connections and answers nothing.
TEST_F(Sockets, Client_NoAnswer_TimesOut) {
  Make("/s");
  const Reply<std::unique_ptr<Client>> client =
      Client::AtSocket(Put("/s/20.sock", true), 50'000'000);
  ASSERT_TRUE(client.ok());
  const Reply<Process> process = (*client)->GetProcess();
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.failure().code, ErrorCode::kTimeout);
}

TEST_F(Sockets, Client_ProcessWithoutThePlugin_SaysSo) {
  const Reply<std::unique_ptr<Client>> none = Client::ForPid(99999999);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.failure().code, ErrorCode::kNotFound);
  EXPECT_NE(none.failure().message.find("there is no process 99999999"), std::string::npos);
  const Reply<std::unique_ptr<Client>> self = Client::ForPid(getpid());
  ASSERT_FALSE(self.ok());
  EXPECT_EQ(self.failure().code, ErrorCode::kNotFound);
  EXPECT_NE(self.failure().message.find("has no Railhop that answers"), std::string::npos);
}

TEST_F(Sockets, Client_InAProcessWithoutThePlugin_NotLoaded) {
  const Reply<std::unique_ptr<Client>> client = Client::InProcess();
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.failure().code, ErrorCode::kNotLoaded);
}

}  // namespace
}  // namespace railhop::admin
