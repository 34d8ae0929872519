#include "cc/admin/sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "cc/base/clock.h"
#include "cc/config/settings.h"

namespace railhop::admin {
namespace {

constexpr std::string_view kSuffix = ".sock";
constexpr int64_t kRetryPauseMs = 5;  // while a listener's queue is full

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};

// Names in a folder; none if it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, DirCloser> dir(opendir(folder.c_str()));
  if (dir == nullptr) return names;
  while (const dirent* const entry = readdir(dir.get())) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

void AddOnce(std::string path, std::vector<std::string>* paths) {
  if (std::find(paths->begin(), paths->end(), path) == paths->end()) {
    paths->push_back(std::move(path));
  }
}

// The number in "<number>.sock"; 0 if it is none.
int64_t PidOf(std::string_view name) {
  if (name.size() <= kSuffix.size() || name.size() > kSuffix.size() + 10) return 0;
  if (name.substr(name.size() - kSuffix.size()) != kSuffix) return 0;
  int64_t pid = 0;
  for (const char c : name.substr(0, name.size() - kSuffix.size())) {
    if (c < '0' || c > '9') return 0;
    pid = pid * 10 + (c - '0');
  }
  return pid;
}

// In a user namespace the number may be one that stands for all users who are not known there.
std::string UserText(uid_t uid) { return "another user (" + std::to_string(uid) + ")"; }

Failure Fail(ErrorCode code, const std::string& path, const std::string& why) {
  return {.code = code, .message = path + ": " + why};
}

Failure OfOther(const std::string& path, uid_t owner) {
  return Fail(ErrorCode::kPermission, path,
              "belongs to " + UserText(owner) + ": only that user and root may ask it");
}

// Nobody listens: why, and what to do.
Failure Stale(const std::string& path) {
  const int64_t pid = PidOf(path.substr(path.rfind('/') + 1));
  std::string why = "nobody listens there";
  if (pid > 0) {
    const bool lives = kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
    why += lives ? "; process " + std::to_string(pid) +
                       " lives, but its Railhop has ended or is that of another process"
                 : "; process " + std::to_string(pid) + " has ended without removing it";
  }
  return Fail(ErrorCode::kStaleSocket, path, why + ": remove the file");
}

int64_t NowNs() { return RealClock().NowNs(); }

// What the file system says against it; true = nothing, as far as may be seen.
bool LooksRight(const std::string& path, Failure* failure) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0) {
    const int error = errno;
    const std::string folder = path.substr(0, path.rfind('/'));
    // Whether there is a socket at all is not known then.
    if (error == EACCES && stat(folder.c_str(), &about) == 0) {
      *failure = Fail(ErrorCode::kPermission, folder,
                      "may not be looked into: it belongs to " + UserText(about.st_uid));
    } else if (error == EACCES) {
      *failure = Fail(ErrorCode::kPermission, path, "is in another user's folder");
    } else if (error == ENOENT || error == ENOTDIR) {
      *failure = Fail(ErrorCode::kNotFound, path, "there is no such socket");
    } else {
      *failure = Fail(ErrorCode::kInternal, path, strerror(error));
    }
    return false;
  }
  if (!S_ISSOCK(about.st_mode)) {
    *failure = Fail(ErrorCode::kInvalid, path, "is no socket");
    return false;
  }
  if (geteuid() != 0 && about.st_uid != geteuid() && about.st_uid != 0) {
    *failure = OfOther(path, about.st_uid);
    return false;
  }
  return true;
}

// Who answers is the user's own, or root; root asks everybody.
bool PeerMayAnswer(int fd, const std::string& path, Failure* failure) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    *failure = Fail(ErrorCode::kInternal, path, strerror(errno));
    return false;
  }
  if (geteuid() == 0 || peer.uid == geteuid() || peer.uid == 0) return true;
  *failure = OfOther(path, peer.uid);
  return false;
}

std::string EnvironmentOf(int64_t pid, std::string_view name, const std::string& root) {
  const std::optional<std::string> text =
      config::ReadWholeFile(root + "/proc/" + std::to_string(pid) + "/environ");
  if (!text.has_value()) return "";
  std::string_view rest(*text);
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    if (entry.size() > name.size() && entry[name.size()] == '=' &&
        entry.substr(0, name.size()) == name) {
      return std::string(entry.substr(name.size() + 1));
    }
  }
  return "";
}

}  // namespace

Surroundings Surroundings::OfThisProcess() {
  const config::Settings settings = config::Settings::LoadForProcess();
  const auto value = [&settings](std::string_view name) {
    const config::Setting* const found = settings.Find(name);
    return found == nullptr ? std::string() : found->value;
  };
  return {.admin_dir = value("RAILHOP_ADMIN_DIR"),
          .xdg_runtime_dir = value("XDG_RUNTIME_DIR"),
          .uid = geteuid(),
          .root = ""};
}

std::vector<std::string> SocketDirectories(const Surroundings& surroundings) {
  if (!surroundings.admin_dir.empty()) return {surroundings.admin_dir};
  std::vector<std::string> directories;
  if (!surroundings.xdg_runtime_dir.empty()) {
    directories.push_back(surroundings.xdg_runtime_dir + "/railhop");
  }
  if (surroundings.uid == 0) directories.push_back(surroundings.root + "/run/railhop");
  directories.push_back(surroundings.root + "/tmp/railhop-" + std::to_string(surroundings.uid));
  return directories;
}

std::string SocketPath(const std::string& directory, int64_t pid) {
  return directory + "/" + std::to_string(pid) + std::string(kSuffix);
}

std::vector<std::string> SearchedDirectories(const Surroundings& surroundings) {
  std::vector<std::string> directories = SocketDirectories(surroundings);
  if (!surroundings.admin_dir.empty()) return directories;
  const std::string& root = surroundings.root;
  AddOnce(root + "/run/user/" + std::to_string(surroundings.uid) + "/railhop", &directories);
  if (surroundings.uid != 0) return directories;
  for (const std::string& name : NamesIn(root + "/run/user")) {
    if (name[0] != '.') AddOnce(root + "/run/user/" + name + "/railhop", &directories);
  }
  for (const std::string& name : NamesIn(root + "/tmp")) {
    if (name.rfind("railhop-", 0) == 0) AddOnce(root + "/tmp/" + name, &directories);
  }
  return directories;
}

std::vector<std::string> SearchedDirectoriesOf(int64_t pid, const Surroundings& surroundings) {
  Surroundings its = {.admin_dir = EnvironmentOf(pid, "RAILHOP_ADMIN_DIR", surroundings.root),
                      .xdg_runtime_dir = EnvironmentOf(pid, "XDG_RUNTIME_DIR", surroundings.root),
                      .uid = surroundings.uid,
                      .root = surroundings.root};
  struct stat about = {};
  if (stat((surroundings.root + "/proc/" + std::to_string(pid)).c_str(), &about) == 0) {
    its.uid = about.st_uid;
  }
  std::vector<std::string> directories = SocketDirectories(its);
  for (std::string& directory : SearchedDirectories(surroundings)) {
    AddOnce(std::move(directory), &directories);
  }
  return directories;
}

std::optional<Failure> FolderProblem(const std::string& directory) {
  const std::string name = "RAILHOP_ADMIN_DIR=" + directory;
  struct stat about = {};
  if (stat(directory.c_str(), &about) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return Fail(ErrorCode::kNotFound, name,
                  "the folder does not exist: misspelt, or no process with it runs here");
    }
    if (errno == EACCES) return Fail(ErrorCode::kPermission, name, "may not be looked into");
    return Fail(ErrorCode::kInternal, name, strerror(errno));
  }
  if (!S_ISDIR(about.st_mode)) return Fail(ErrorCode::kInvalid, name, "is no folder");
  if (access(directory.c_str(), R_OK | X_OK) == 0) return std::nullopt;
  return Fail(ErrorCode::kPermission, name,
              about.st_uid == geteuid()
                  ? "may not be looked into: its mode does not allow it"
                  : "may not be looked into: it belongs to " + UserText(about.st_uid));
}

std::vector<FoundSocket> FindSockets(const std::vector<std::string>& directories) {
  std::vector<FoundSocket> found;
  for (const std::string& directory : directories) {
    for (const std::string& name : NamesIn(directory)) {
      const int64_t pid = PidOf(name);
      struct stat about = {};
      const std::string path = directory + "/" + name;
      // Not through a link: root looks into folders of other users.
      if (pid == 0 || lstat(path.c_str(), &about) != 0 || !S_ISSOCK(about.st_mode)) continue;
      found.push_back({.path = path, .pid = pid, .uid = about.st_uid});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const FoundSocket& a, const FoundSocket& b) { return a.pid < b.pid; });
  return found;
}

SocketName::SocketName(const std::string& path) {
  constexpr size_t kRoom = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() <= kRoom) {
    short_path_ = path;
    return;
  }
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return;
  folder_ = open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) return;
  const std::string by_folder =
      "/proc/self/fd/" + std::to_string(folder_) + "/" + path.substr(slash + 1);
  if (by_folder.size() <= kRoom) short_path_ = by_folder;
}

SocketName::~SocketName() {
  if (folder_ >= 0) close(folder_);
}

Reply<int> ConnectSocket(const std::string& path, int64_t timeout_ns) {
  const int64_t deadline = NowNs() + timeout_ns;
  Failure failure;
  if (!LooksRight(path, &failure)) return failure;
  const SocketName name(path);
  if (name.short_path().empty()) {
    return Fail(ErrorCode::kInvalid, path, "the path is too long for a socket");
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy(name.short_path().begin(), name.short_path().end(), address.sun_path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Fail(ErrorCode::kInternal, path, strerror(errno));
  int error = 0;
  while (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    error = errno;
    // EAGAIN: many wait to be let in.
    if ((error != EAGAIN && error != EINTR) || NowNs() >= deadline) break;
    poll(nullptr, 0, kRetryPauseMs);
    error = 0;
  }
  if (error == 0 && PeerMayAnswer(fd, path, &failure)) return fd;
  close(fd);
  switch (error) {
    case 0:
      return failure;
    case ECONNREFUSED:
      return Stale(path);
    case EACCES:
    case EPERM: {
      struct stat about = {};
      if (stat(path.c_str(), &about) == 0) return OfOther(path, about.st_uid);
      return Fail(ErrorCode::kPermission, path, "belongs to another user");
    }
    case ENOENT:
      return Fail(ErrorCode::kNotFound, path, "there is no such socket");
    case EAGAIN:
    case EINTR:
      return Fail(ErrorCode::kTimeout, path,
                  "too many wait to be answered, or the process is stopped: try again");
    default:
      return Fail(ErrorCode::kInternal, path, strerror(error));
  }
}

}  // namespace railhop::admin
