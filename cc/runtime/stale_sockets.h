// Sockets of the admin API that killed processes have left behind: which are they, and away with
// them. The hard case is a socket that only looks left: that of a process of another node or
// container that shares the folder. So nothing goes unless the kernel itself says that nobody
// listens, in a file system that no other node sees.
#ifndef RAILHOP_CC_RUNTIME_STALE_SOCKETS_H_
#define RAILHOP_CC_RUNTIME_STALE_SOCKETS_H_

#include <sys/un.h>

#include <cstdint>
#include <string>

#include "cc/admin/sockets.h"

namespace railhop::runtime {

// As bind and connect take it; the name must not be empty.
sockaddr_un AddressOf(const admin::SocketName& name);

// statfs's f_type of what `directory` is in; 0 if it cannot be told.
int64_t FileSystemOf(const std::string& directory);

// Whether no other node can have sockets there. By the file system's number in <linux/magic.h>;
// those that are not known may be shared (NFS, Lustre, GPFS, FUSE, 9p, ...).
bool IsOfThisNode(int64_t file_system);

// Asks at a socket's file whether somebody listens on this node: 0 = yes, ECONNREFUSED = nobody
// does, any other error (EMFILE, EACCES, ...) = it cannot be told.
int ErrorOfConnecting(const sockaddr_un& address);

// Takes away what killed processes of this user have left in `directory`, which is in a file system
// of this kind, once it is a minute old; elsewhere than on this node's own ones, nothing.
void SweepStaleSockets(const std::string& directory, int64_t file_system);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_STALE_SOCKETS_H_
