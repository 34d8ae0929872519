#include "cc/control/tcp_socket.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace railhop::control {
namespace {

// A host that is gone is noticed after 5 + 3 * 3 s of silence.
constexpr int kKeepAliveIdleSeconds = 5;
constexpr int kKeepAliveIntervalSeconds = 3;
constexpr int kKeepAliveProbes = 3;
constexpr int kBacklog = 16384;  // the system cuts it to somaxconn

absl::Status SocketError(const char* call, const SocketAddress& address) {
  const int number = errno;
  return absl::InternalError(absl::StrCat(call, " for ", FormatAddress(address),
                                          " failed: ", std::generic_category().message(number)));
}

int NewSocket(const SocketAddress& address) {
  return socket(address.generic.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

}  // namespace

TcpSocket& TcpSocket::operator=(TcpSocket&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    error_ = other.error_;
  }
  return *this;
}

void TcpSocket::Configure(const SocketConfig& config) {
  const auto set = [this](int level, int name, int value) {
    setsockopt(fd_, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  if (config.socket_rcvbuf > 0) set(SOL_SOCKET, SO_RCVBUF, config.socket_rcvbuf);
  if (config.socket_sndbuf > 0) set(SOL_SOCKET, SO_SNDBUF, config.socket_sndbuf);
}

absl::StatusOr<TcpSocket> TcpSocket::Listen(const SocketAddress& address,
                                            const SocketConfig& config) {
  TcpSocket result(NewSocket(address));
  if (!result.open()) return SocketError("socket", address);
  result.Configure(config);
  SocketAddress any_port = address;
  if (address.generic.sa_family == AF_INET) {
    any_port.ipv4.sin_port = 0;
  } else {
    any_port.ipv6.sin6_port = 0;
    if (IN6_IS_ADDR_UNSPECIFIED(&any_port.ipv6.sin6_addr)) {
      const int off = 0;
      setsockopt(result.fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
  }
  if (bind(result.fd_, &any_port.generic, AddressLength(any_port)) != 0) {
    return SocketError("bind", any_port);
  }
  if (listen(result.fd_, kBacklog) != 0) return SocketError("listen", any_port);
  return result;
}

absl::StatusOr<TcpSocket> TcpSocket::Connect(const SocketAddress& address,
                                             const SocketConfig& config) {
  TcpSocket result(NewSocket(address));
  if (!result.open()) return SocketError("socket", address);
  result.Configure(config);
  if (connect(result.fd_, &address.generic, AddressLength(address)) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    result.error_ = errno;
  }
  return result;
}

TcpSocket TcpSocket::Accept(const SocketConfig& config) {
  TcpSocket result(accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (result.open()) result.Configure(config);
  return result;
}

TcpSocket::Progress TcpSocket::FinishConnect() {
  if (error_ != 0) return Progress::kClosed;
  pollfd wait = {.fd = fd_, .events = POLLOUT, .revents = 0};
  if (poll(&wait, 1, 0) <= 0) return Progress::kBlocked;
  socklen_t length = sizeof(error_);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error_, &length);
  return error_ == 0 ? Progress::kMore : Progress::kClosed;
}

TcpSocket::Progress TcpSocket::Send(const uint8_t* data, size_t size, size_t* moved) {
  *moved = 0;
  const ssize_t sent = send(fd_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) {
    *moved = static_cast<size_t>(sent);
    return Progress::kMore;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Progress::kBlocked;
  error_ = errno;
  return Progress::kClosed;
}

TcpSocket::Progress TcpSocket::Receive(uint8_t* data, size_t size, size_t* moved) {
  *moved = 0;
  const ssize_t received = recv(fd_, data, size, MSG_DONTWAIT);
  if (received > 0) {
    *moved = static_cast<size_t>(received);
    return Progress::kMore;
  }
  if (received == 0) return Progress::kClosed;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Progress::kBlocked;
  error_ = errno;
  return Progress::kClosed;
}

SocketAddress TcpSocket::LocalAddress() const {
  SocketAddress address = {};
  socklen_t length = sizeof(address);
  getsockname(fd_, &address.generic, &length);
  return address;
}

SocketAddress TcpSocket::PeerAddress() const {
  SocketAddress address = {};
  socklen_t length = sizeof(address);
  getpeername(fd_, &address.generic, &length);
  return address;
}

void TcpSocket::ShutdownWrite() { shutdown(fd_, SHUT_WR); }

void TcpSocket::ShutdownBoth() { shutdown(fd_, SHUT_RDWR); }

void TcpSocket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace railhop::control
