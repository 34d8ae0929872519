#include "cc/fabric/mount_namespace.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace railhop::fabric {
namespace {

bool Fail(const std::string& what, std::string* error) {
  *error = what + ": " + std::strerror(errno);
  return false;
}

bool WriteFile(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool good = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return good;
}

// The names in a folder, without "." and "..".
bool ListFolder(int fd, std::vector<std::string>* names) {
  const int copy = dup(fd);
  DIR* const dir = copy < 0 ? nullptr : fdopendir(copy);
  if (dir == nullptr) return false;
  while (const dirent* const entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
  }
  closedir(dir);
  return true;
}

// Puts entry `name` of the folder `from`, which is covered by now, into the new folder `to`.
bool BindEntry(int from, const std::string& to, const std::string& name) {
  struct stat st;
  if (fstatat(from, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return false;
  const std::string target = to + "/" + name;
  if (S_ISLNK(st.st_mode)) {
    char text[4096];
    const ssize_t n = readlinkat(from, name.c_str(), text, sizeof(text) - 1);
    if (n < 0) return false;
    text[n] = '\0';
    return symlink(text, target.c_str()) == 0;
  }
  if (S_ISDIR(st.st_mode)) {
    if (mkdir(target.c_str(), 0755) != 0) return false;
  } else {
    const int fd = open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    close(fd);
  }
  const std::string source = "/proc/self/fd/" + std::to_string(from) + "/" + name;
  return mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0;
}

}  // namespace

bool MountNamespace::Enter(Who who, std::string* error) {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (errno != EPERM || who == Who::kRootOnly) return Fail("unshare", error);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      return Fail("this system gives no user namespace to ordinary users", error);
    }
    user_namespace_ = true;
    const std::string user = std::to_string(uid) + " " + std::to_string(uid) + " 1";
    const std::string group = std::to_string(gid) + " " + std::to_string(gid) + " 1";
    if (!WriteFile("/proc/self/setgroups", "deny") || !WriteFile("/proc/self/uid_map", user) ||
        !WriteFile("/proc/self/gid_map", group)) {
      return Fail("cannot map the user into a user namespace", error);
    }
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return Fail("cannot make mounts private", error);
  }
  return true;
}

bool MountNamespace::DropRights(std::string* error) {
  if (!user_namespace_) return true;
  __user_cap_header_struct header{};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) return Fail("capset", error);
  // Changing credentials has made /proc/<pid> of this process root's; the command must find the
  // fabric there.
  if (prctl(PR_SET_DUMPABLE, 1) != 0) return Fail("prctl", error);
  return true;
}

bool MountNamespace::Cover(const std::string& path, const std::set<std::string>& without,
                           std::string* error) {
  const int from = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  std::vector<std::string> names;
  if (from < 0 || !ListFolder(from, &names)) {
    if (from >= 0) close(from);
    return Fail("cannot read " + path, error);
  }
  bool good =
      mount("railhop", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755") == 0;
  if (good) {
    covered_.push_back(path);
  } else {
    Fail("cannot mount on " + path, error);
  }
  std::string lost;
  for (const std::string& name : names) {
    if (!good || without.count(name) != 0) continue;
    good = BindEntry(from, path, name);
    lost = name;
  }
  if (!good && !lost.empty()) Fail("cannot keep " + lost + " of " + path, error);
  close(from);
  return good;
}

bool MountNamespace::Bind(const std::string& from, const std::string& to, std::string* error) {
  if (mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return Fail("cannot show " + from + " at " + to, error);
  }
  covered_.push_back(to);
  return true;
}

void MountNamespace::Undo() {
  for (; !covered_.empty(); covered_.pop_back()) umount2(covered_.back().c_str(), MNT_DETACH);
  writable_.clear();
}

bool MountNamespace::MakeWritable(const std::string& path, const std::set<std::string>& without,
                                  std::string* error) {
  if (writable_.count(path) != 0) return true;
  struct stat st;
  if (stat(path.c_str(), &st) == 0) {
    if (!Cover(path, without, error)) return false;
  } else {
    const std::string parent = path.substr(0, path.rfind('/'));
    if (parent.empty()) return Fail(path, error);
    if (!MakeWritable(parent, {}, error)) return false;
    if (mkdir(path.c_str(), 0755) != 0) return Fail("cannot make " + path, error);
  }
  writable_.insert(path);
  return true;
}

}  // namespace railhop::fabric
