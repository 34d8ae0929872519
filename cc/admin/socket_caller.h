// Calls over a unix socket: one request, one response, with a deadline for both.
//
// Each call has a connection to itself, so that one that waits for events keeps nobody from
// reading; connections are kept for later calls.
#ifndef RAILHOP_CC_ADMIN_SOCKET_CALLER_H_
#define RAILHOP_CC_ADMIN_SOCKET_CALLER_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "cc/admin/client.h"
#include "cc/admin/reply.h"

namespace railhop::admin {

class SocketCaller final : public Caller {
 public:
  explicit SocketCaller(std::string path) : path_(std::move(path)) {}
  ~SocketCaller() override;
  SocketCaller(const SocketCaller&) = delete;
  SocketCaller& operator=(const SocketCaller&) = delete;

  // Makes the first connection. Errors: as ConnectSocket.
  Reply<int> Open(int64_t timeout_ns);
  Reply<std::string> Call(const std::string& request, int64_t timeout_ns) override;

 private:
  // A kept connection, or -1.
  int Take();
  void Keep(int fd);

  const std::string path_;
  std::mutex mutex_;
  std::vector<int> idle_;  // guarded by mutex_
};

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_SOCKET_CALLER_H_
