#include "cc/runtime/stale_sockets.h"

#include <linux/magic.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace railhop::runtime {
namespace {

// One that nobody answers at may be about to listen: an old one is not.
constexpr int64_t kStaleAgeS = 60;

}  // namespace

sockaddr_un AddressOf(const admin::SocketName& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy(name.short_path().begin(), name.short_path().end(), address.sun_path);
  return address;
}

int64_t FileSystemOf(const std::string& directory) {
  struct statfs about = {};
  return statfs(directory.c_str(), &about) == 0 ? static_cast<int64_t>(about.f_type) : 0;
}

bool IsOfThisNode(int64_t file_system) {
  switch (file_system) {
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case EXT4_SUPER_MAGIC:  // ext2 and ext3 as well
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
      return true;
    default:
      return false;
  }
}

int ErrorOfConnecting(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  int error = 0;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    error = errno == EAGAIN ? 0 : errno;  // EAGAIN: others wait there to be let in
  }
  close(fd);
  return error;
}

void SweepStaleSockets(const std::string& directory, int64_t file_system) {
  if (!IsOfThisNode(file_system)) return;
  for (const admin::FoundSocket& socket : admin::FindSockets({directory})) {
    struct stat about = {};
    // Containers that share the folder count their processes each for itself: one that is not here
    // may listen all the same.
    if (socket.uid != geteuid() || lstat(socket.path.c_str(), &about) != 0 ||
        time(nullptr) - about.st_mtime < kStaleAgeS ||
        kill(static_cast<pid_t>(socket.pid), 0) == 0 || errno != ESRCH) {
      continue;
    }
    const admin::SocketName name(socket.path);
    if (name.short_path().empty()) continue;
    if (ErrorOfConnecting(AddressOf(name)) == ECONNREFUSED) unlink(socket.path.c_str());
  }
}

}  // namespace railhop::runtime
