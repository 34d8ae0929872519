// Where the admin sockets of a node live, and how they are found.
//
// A process puts <pid>.sock into one directory: $RAILHOP_ADMIN_DIR if that is set, else the first
// that can be had of $XDG_RUNTIME_DIR/railhop (which batch systems often pass on from a node where
// it exists), /run/railhop (root), /tmp/railhop-<uid>. The directory belongs to the user and nobody
// else may write there, or it is not used: a name in a directory of others could be anybody's. Who
// looks for sockets looks in $RAILHOP_ADMIN_DIR alone if that is set, so that a command does not
// reach jobs that were not meant; else in all of these, root in those of all users.
#ifndef RAILHOP_CC_ADMIN_SOCKETS_H_
#define RAILHOP_CC_ADMIN_SOCKETS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/admin/records.h"
#include "cc/admin/reply.h"

namespace railhop::admin {

// What decides on directories.
struct Surroundings {
  std::string admin_dir;        // RAILHOP_ADMIN_DIR, of the environment or NCCL's files
  std::string xdg_runtime_dir;  // XDG_RUNTIME_DIR
  uid_t uid = 0;                // effective
  std::string root;             // before all paths that are not set: "" but in tests
  // Of this process.
  static Surroundings OfThisProcess();
};

// Where a process puts its socket: the first of these that there is or that it can make.
std::vector<std::string> SocketDirectories(const Surroundings& surroundings);
// "<directory>/<pid>.sock".
std::string SocketPath(const std::string& directory, int64_t pid);
// Where to look for sockets, each once, also those that do not exist.
std::vector<std::string> SearchedDirectories(const Surroundings& surroundings);
// As above for one process, whose own environment says more, where it may be read.
std::vector<std::string> SearchedDirectoriesOf(int64_t pid, const Surroundings& surroundings);

struct FoundSocket {
  std::string path;
  int64_t pid = 0;  // by its name
  uid_t uid = 0;    // its owner
};
// What is wrong with a folder that somebody has named (RAILHOP_ADMIN_DIR): kNotFound if there is
// none, kPermission if this user may not look into it, kInvalid if it is something else.
std::optional<Failure> FolderProblem(const std::string& directory);
// The sockets in these directories, by pid; none in one that is not there. Does not connect.
std::vector<FoundSocket> FindSockets(const std::vector<std::string>& directories);

// A descriptor connected to the socket, non-blocking, close-on-exec; the caller closes it.
// Errors: kNotFound (no such file), kPermission (of another user: says whose), kStaleSocket (nobody
// listens: says whether the process still lives, and the way out), kTimeout, kInternal.
Reply<int> ConnectSocket(const std::string& path, int64_t timeout_ns);

// A path as the system takes it for a socket, also if it is longer than an address has room for:
// then by way of its folder, which is kept open. Not copied.
class SocketName {
 public:
  explicit SocketName(const std::string& path);
  ~SocketName();
  SocketName(const SocketName&) = delete;
  SocketName& operator=(const SocketName&) = delete;
  // At most 107 characters; "" if the folder cannot be opened or the name alone is too long.
  const std::string& short_path() const { return short_path_; }

 private:
  int folder_ = -1;
  std::string short_path_;
};

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_SOCKETS_H_
