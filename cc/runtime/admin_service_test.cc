// The socket itself; what is told over it of a running job: integration/failover/admin_test.py.
#include "cc/runtime/admin_service.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "cc/admin/client.h"
#include "cc/admin/sockets.h"
#include "gtest/gtest.h"

namespace railhop::runtime {
namespace {

class AdminServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const base = std::getenv("TEST_TMPDIR");
    folder_ = std::string(base == nullptr ? "/tmp" : base) + "/admin-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    directory_ = folder_ + "/sockets";
    path_ = admin::SocketPath(directory_, getpid());
    config::LoadedOptions loaded = config::LoadOptions(config::Settings());
    AdminDesk::OfThisProcess().Open({.loaded = loaded, .job = "job 9"});
  }
  void TearDown() override {
    service_.reset();
    AdminDesk::OfThisProcess().Close();
    EXPECT_NE(access(directory_.c_str(), F_OK), 0) << "it was made, so it is removed";
    rmdir(folder_.c_str());
  }
  void Start(int64_t last_events_ns = AdminService::kLastEventsNs) {
    absl::StatusOr<std::unique_ptr<AdminService>> started =
        AdminService::Start(&AdminDesk::OfThisProcess(), {directory_}, last_events_ns);
    ASSERT_TRUE(started.ok()) << started.status();
    service_ = *std::move(started);
    EXPECT_EQ(service_->path(), path_);
  }
  std::unique_ptr<admin::Client> Connected() const {
    admin::Reply<std::unique_ptr<admin::Client>> client = admin::Client::AtSocket(path_);
    EXPECT_TRUE(client.ok()) << client.failure().message;
    return client.ok() ? std::move(*client) : nullptr;
  }
  std::string Refusal(const std::string& directory) const {
    const auto started = AdminService::Start(&AdminDesk::OfThisProcess(), {directory});
    return started.ok() ? "" : std::string(started.status().message());
  }

  std::string folder_;
  std::string directory_;
  std::string path_;
  std::unique_ptr<AdminService> service_;
};

TEST_F(AdminServiceTest, Ask_AnswersOverTheSocket) {
  Start();
  const std::unique_ptr<admin::Client> client = Connected();
  const admin::Reply<admin::Process> process = client->GetProcess();
  ASSERT_TRUE(process.ok()) << process.failure().message;
  EXPECT_EQ(process->pid, getpid());
  EXPECT_EQ(process->job, "job 9");
  EXPECT_EQ(process->api_version, admin::kApiVersion);
  EXPECT_FALSE(process->running);
  const admin::Reply<std::vector<admin::Option>> config = client->GetConfig();
  ASSERT_TRUE(config.ok());
  EXPECT_GT(config->size(), 50u);
  EXPECT_EQ(client->Hold("mlx5_0:1").failure().code, admin::ErrorCode::kRefused);
  EXPECT_EQ(client->SetOption("RAILHOP_X", "1").failure().code, admin::ErrorCode::kNotFound);
  EXPECT_EQ(client->SetOption("RAILHOP_LOG", "loud").failure().message,
            "RAILHOP_LOG=loud: wanted: trace, info, warn");
  const admin::Reply<admin::Option> set = client->SetOption("RAILHOP_LOG", "warn");
  ASSERT_TRUE(set.ok()) << set.failure().message;
  EXPECT_EQ(set->source, "command");
  EXPECT_TRUE(client->SetOption("RAILHOP_LOG", "info").ok());
}

TEST_F(AdminServiceTest, Files_ArePrivateAndGoWithIt) {
  Start();
  struct stat about = {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(directory_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  service_.reset();
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

// An earlier process of the same number was killed.
TEST_F(AdminServiceTest, StaleSocket_IsReplaced) {
  Start();
  const std::string kept = folder_ + "/kept";
  ASSERT_EQ(link(path_.c_str(), kept.c_str()), 0);
  service_.reset();
  ASSERT_EQ(mkdir(directory_.c_str(), 0700), 0);
  ASSERT_EQ(rename(kept.c_str(), path_.c_str()), 0);
  Start();
  EXPECT_TRUE(Connected()->GetProcess().ok());
  service_.reset();
  rmdir(directory_.c_str());
}

TEST_F(AdminServiceTest, SocketOfALivingProcess_IsLeftAlone) {
  Start();
  EXPECT_NE(Refusal(directory_).find("another process answers at"), std::string::npos);
  EXPECT_TRUE(Connected()->GetProcess().ok());
}

TEST_F(AdminServiceTest, Directory_NotOursAlone_Refused) {
  const std::string open = folder_ + "/open";
  ASSERT_EQ(mkdir(open.c_str(), 0700), 0);
  ASSERT_EQ(chmod(open.c_str(), 0777), 0);
  EXPECT_EQ(Refusal(open), open + ": others may write there");
  EXPECT_EQ(Refusal(folder_ + "/none/none"), folder_ + "/none/none: No such file or directory");
  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink("/", link.c_str()), 0);
  EXPECT_EQ(Refusal(link), link + ": is no directory");
  // Only root can give a folder away.
  const std::string given = folder_ + "/given";
  ASSERT_EQ(mkdir(given.c_str(), 0700), 0);
  if (chown(given.c_str(), 12345, 12345) == 0) {
    EXPECT_EQ(Refusal(given), given + ": belongs to another user (12345)");
  }
  // The next in line is taken.
  absl::StatusOr<std::unique_ptr<AdminService>> started =
      AdminService::Start(&AdminDesk::OfThisProcess(), {open, directory_});
  ASSERT_TRUE(started.ok());
  EXPECT_EQ((*started)->path(), path_);
  started->reset();
  unlink(link.c_str());
  rmdir(open.c_str());
  rmdir(given.c_str());
}

TEST_F(AdminServiceTest, ManyClientsAtOnce_AllAreAnswered) {
  Start();
  std::vector<std::thread> threads;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 2 * AdminService::kClientsMax; ++i) {
    threads.emplace_back([this, &answered] {
      for (int tries = 0; tries < 100; ++tries) {
        const auto client = admin::Client::AtSocket(path_);
        // When all places are taken by clients that are being answered, it comes again.
        if (client.ok() && (*client)->GetHealth().ok()) {
          ++answered;
          return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 2 * AdminService::kClientsMax);
}

// A child has the same descriptors; as long as it lives, its parent's socket must not look alive.
TEST_F(AdminServiceTest, ForkedChild_DoesNotAnswerForItsParent) {
  Start();
  const std::unique_ptr<admin::Client> before = Connected();
  int pipes[2];
  int started[2];
  ASSERT_EQ(pipe(pipes), 0);
  ASSERT_EQ(pipe(started), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(pipes[1]);
    char byte = 1;
    [[maybe_unused]] ssize_t n = write(started[1], &byte, 1);
    n = read(pipes[0], &byte, 1);
    _exit(0);
  }
  close(pipes[0]);
  // Until the child has left fork, it has the listener as well.
  char byte;
  ASSERT_EQ(read(started[0], &byte, 1), 1);
  close(started[0]);
  close(started[1]);
  EXPECT_TRUE(before->GetProcess().ok());
  // As if this process were killed: the file stays.
  const std::string kept = folder_ + "/kept";
  ASSERT_EQ(link(path_.c_str(), kept.c_str()), 0);
  service_.reset();
  const admin::Reply<int> fd = admin::ConnectSocket(kept, 1'000'000'000);
  ASSERT_FALSE(fd.ok());
  EXPECT_EQ(fd.failure().code, admin::ErrorCode::kStaleSocket);
  EXPECT_NE(before->GetProcess().failure().code, admin::ErrorCode::kTimeout);
  close(pipes[1]);
  waitpid(child, nullptr, 0);
  unlink(kept.c_str());
}

TEST_F(AdminServiceTest, ForkedChild_EndsWithoutWaiting) {
  Start();
  std::atomic<bool> asks = true;
  // Locks are held at most moments.
  std::thread asking([&asks] {
    while (asks) AdminDesk::OfThisProcess().Answer(admin::GetConfig());
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      const admin::Response response = AdminDesk::OfThisProcess().Answer(admin::GetProcess());
      const auto* const failure = std::get_if<admin::Failure>(&response);
      const bool refused = failure != nullptr && failure->code == admin::ErrorCode::kNotLoaded;
      AdminDesk::OfThisProcess().Close();
      service_.reset();
      _exit(refused ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  asks = false;
  asking.join();
  EXPECT_TRUE(Connected()->GetProcess().ok());
}

TEST_F(AdminServiceTest, FullOfHalfRequests_OneMoreIsServed) {
  Start();
  std::vector<int> halves;
  for (int i = 0; i < AdminService::kClientsMax; ++i) {
    const admin::Reply<int> fd = admin::ConnectSocket(path_, 1'000'000'000);
    ASSERT_TRUE(fd.ok());
    ASSERT_EQ(send(*fd, "\x10", 1, MSG_NOSIGNAL), 1);
    halves.push_back(*fd);
  }
  EXPECT_TRUE(Connected()->GetProcess().ok());
  for (const int fd : halves) close(fd);
}

// A socket's file without anybody behind it, two minutes old.
std::string LeftBehind(const std::string& directory, int64_t pid) {
  const std::string path = admin::SocketPath(directory, pid);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const admin::SocketName name(path);
  name.short_path().copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(fd);
  timespec times[2] = {};
  clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec -= 120;
  times[1] = times[0];
  EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  return path;
}

TEST_F(AdminServiceTest, SocketOfAKilledProcess_SweptAwayThoseOfOthersStay) {
  ASSERT_EQ(mkdir(directory_.c_str(), 0700), 0);
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  const std::string stale = LeftBehind(directory_, dead);
  const std::string alive = LeftBehind(directory_, getppid());
  const std::string no_socket = admin::SocketPath(directory_, dead + 1);
  close(open(no_socket.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  Start();
  for (int i = 0; i < 6000 && access(stale.c_str(), F_OK) == 0; ++i) usleep(10'000);
  EXPECT_NE(access(stale.c_str(), F_OK), 0);
  // The sweep is over before the first answer.
  EXPECT_TRUE(Connected()->GetProcess().ok());
  EXPECT_EQ(access(alive.c_str(), F_OK), 0);
  EXPECT_EQ(access(no_socket.c_str(), F_OK), 0);
  service_.reset();
  unlink(alive.c_str());
  unlink(no_socket.c_str());
  rmdir(directory_.c_str());
}

// Nobody who follows a job may be thrown out for another: it would take that for the job's end.
TEST_F(AdminServiceTest, FullOfWaiters_OneMoreIsToldSoAndTheyStay) {
  Start();
  std::vector<std::unique_ptr<admin::Client>> clients;
  std::vector<std::thread> waiting;
  std::atomic<int> through = 0;
  for (int i = 0; i < AdminService::kClientsMax; ++i) {
    clients.push_back(Connected());
    ASSERT_TRUE(clients.back()->GetProcess().ok());
    admin::Client* const client = clients.back().get();
    waiting.emplace_back([client, &through] {
      const admin::Reply<admin::EventList> list =
          client->GetEvents(uint64_t{1} << 40, 1, 5'000'000'000);
      EXPECT_TRUE(list.ok()) << list.failure().message;
      ++through;
    });
  }
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    const admin::Reply<std::unique_ptr<admin::Client>> more = admin::Client::AtSocket(path_);
    ASSERT_TRUE(more.ok()) << more.failure().message;
    const admin::Reply<admin::Process> process = (*more)->GetProcess();
    if (process.ok()) continue;  // they have waited to the end: the machine is slow
    ++refused;
    EXPECT_EQ(process.failure().code, admin::ErrorCode::kRefused) << process.failure().message;
    EXPECT_EQ(process.failure().message.substr(0, 17), "too many clients:");
  }
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(through, AdminService::kClientsMax);
  EXPECT_GT(refused, 0);
}

// What was idle for long makes room.
TEST_F(AdminServiceTest, FullOfIdle_OneMoreIsServed) {
  Start();
  std::vector<std::unique_ptr<admin::Client>> clients;
  for (int i = 0; i < AdminService::kClientsMax; ++i) clients.push_back(Connected());
  bool served = false;
  for (int i = 0; i < 6000 && !served; ++i) {
    served = Connected()->GetProcess().ok();
    if (!served) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(served);
  // Whose place was taken connects again.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_TRUE(clients.front()->GetProcess().ok());
}

TEST_F(AdminServiceTest, NotStarted_SaysSo) {
  Start();
  AdminDesk::OfThisProcess().Close();
  const admin::Reply<admin::Health> health = Connected()->GetHealth();
  ASSERT_FALSE(health.ok());
  EXPECT_EQ(health.failure().code, admin::ErrorCode::kNotLoaded);
}

TEST_F(AdminServiceTest, EndWhileSomebodyWaits_DoesNotWait) {
  Start();
  const std::unique_ptr<admin::Client> client = Connected();
  std::thread waiting([&client] { EXPECT_FALSE(client->GetEvents(0, 1, 60'000'000'000).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  service_.reset();
  waiting.join();
}

// Long enough for a test that waits for it to be told from one that does not.
constexpr int64_t kForEverNs = 3600 * int64_t{1'000'000'000};

// Between two questions of one that follows: it may ask until it has heard all, and then is let go.
TEST_F(AdminServiceTest, EndBetweenAFollowersQuestions_IsAnsweredUntilItHasHeardAll) {
  Start(kForEverNs);
  const std::unique_ptr<admin::Client> client = Connected();
  ASSERT_TRUE(client->GetEvents(0, 1, 1).ok());
  std::thread ending([this] { service_.reset(); });
  while (access(path_.c_str(), F_OK) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(client->GetEvents(0, 1).ok());
  EXPECT_TRUE(client->GetProcess().ok());
  EXPECT_FALSE(client->GetEvents(0, 1, kForEverNs).ok()) << "there are none, and it was told so";
  ending.join();
}

TEST_F(AdminServiceTest, EndWithOnesThatDoNotFollow_DoesNotWait) {
  Start(kForEverNs);
  const std::unique_ptr<admin::Client> asked = Connected();
  ASSERT_TRUE(asked->GetEvents(0, 1).ok());
  std::unique_ptr<admin::Client> gone = Connected();
  ASSERT_TRUE(gone->GetEvents(0, 1, 1).ok());
  gone.reset();
  service_.reset();
}

TEST_F(AdminServiceTest, EndWithAFollowerThatAsksNoMore_WaitsAMomentOnly) {
  Start();
  const std::unique_ptr<admin::Client> client = Connected();
  ASSERT_TRUE(client->GetEvents(0, 1, 1).ok());
  service_.reset();
  EXPECT_FALSE(client->GetEvents(0, 1, 1).ok());
}

}  // namespace
}  // namespace railhop::runtime
