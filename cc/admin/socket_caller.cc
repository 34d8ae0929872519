#include "cc/admin/socket_caller.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cc/admin/frame.h"
#include "cc/admin/requests.h"
#include "cc/admin/sockets.h"
#include "cc/base/clock.h"

namespace railhop::admin {
namespace {

constexpr size_t kIdleMax = 4;

int64_t NowNs() { return RealClock().NowNs(); }

// "10 s", "0.2 s".
std::string Seconds(int64_t ns) {
  char text[32];
  snprintf(text, sizeof(text), "%.3g s", static_cast<double>(ns) / 1e9);
  return text;
}

enum class End { kDone, kTimeout, kClosed };

// Waits until the descriptor is ready or the time has come.
bool WaitFor(int fd, short events, int64_t deadline) {
  for (;;) {
    const int64_t left = deadline - NowNs();
    if (left <= 0) return false;
    pollfd one = {.fd = fd, .events = events, .revents = 0};
    const int64_t ms = std::min<int64_t>(left / 1'000'000 + 1, 60'000);
    if (poll(&one, 1, static_cast<int>(ms)) > 0) return true;
  }
}

End WriteAll(int fd, const std::string& bytes, int64_t deadline) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!WaitFor(fd, POLLOUT, deadline)) return End::kTimeout;
    } else {
      return End::kClosed;
    }
  }
  return End::kDone;
}

End ReadAll(int fd, char* bytes, size_t size, int64_t deadline) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = recv(fd, bytes + done, size - done, 0);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!WaitFor(fd, POLLIN, deadline)) return End::kTimeout;
    } else {
      return End::kClosed;
    }
  }
  return End::kDone;
}

struct Exchange {
  End end = End::kDone;
  bool any = false;  // something has come back
  std::string response;
};

Exchange Converse(int fd, const std::string& request, int64_t deadline) {
  Exchange exchange;
  exchange.end = WriteAll(fd, Framed(request), deadline);
  // One that is closed may have been answered before it was asked: who is not let in is told why.
  if (exchange.end == End::kTimeout) return exchange;
  std::string length(kLengthBytes, '\0');
  exchange.end = ReadAll(fd, length.data(), length.size(), deadline);
  if (exchange.end != End::kDone) return exchange;
  exchange.any = true;
  const size_t size = LengthAt(length);
  if (size > kMessageBytesMax) {
    exchange.end = End::kClosed;
    return exchange;
  }
  exchange.response.resize(size);
  exchange.end = ReadAll(fd, exchange.response.data(), size, deadline);
  return exchange;
}

}  // namespace

SocketCaller::~SocketCaller() {
  for (const int fd : idle_) close(fd);
}

int SocketCaller::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (idle_.empty()) return -1;
  const int fd = idle_.back();
  idle_.pop_back();
  return fd;
}

void SocketCaller::Keep(int fd) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.size() < kIdleMax) {
      idle_.push_back(fd);
      return;
    }
  }
  close(fd);
}

Reply<int> SocketCaller::Open(int64_t timeout_ns) {
  Reply<int> fd = ConnectSocket(path_, timeout_ns);
  if (fd.ok()) Keep(*fd);
  return fd;
}

Reply<std::string> SocketCaller::Call(const std::string& request, int64_t timeout_ns) {
  const int64_t deadline = NowNs() + timeout_ns;
  int fd = Take();
  Exchange exchange;
  if (fd >= 0) {
    exchange = Converse(fd, request, deadline);
    // One that was kept may have been closed for having been idle: not a word of the request was
    // looked at then.
    if (exchange.end == End::kClosed && !exchange.any) {
      close(fd);
      fd = -1;
    }
  }
  if (fd < 0) {
    const Reply<int> opened = ConnectSocket(path_, std::max<int64_t>(deadline - NowNs(), 0));
    if (!opened.ok()) return opened.failure();
    fd = *opened;
    exchange = Converse(fd, request, deadline);
  }
  if (exchange.end == End::kDone) {
    Keep(fd);
    return std::move(exchange.response);
  }
  close(fd);
  if (exchange.end == End::kTimeout) {
    return Failure{.code = ErrorCode::kTimeout,
                   .message = path_ + ": no answer within " + Seconds(timeout_ns) +
                              "; is the process stopped?"};
  }
  return Failure{.code = ErrorCode::kStaleSocket,
                 .message = path_ +
                            ": closed without an answer: the process is ending, refuses "
                            "more clients, or has been killed"};
}

}  // namespace railhop::admin
