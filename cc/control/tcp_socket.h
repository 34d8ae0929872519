// A TCP socket that never waits. Not thread-safe.
#ifndef RAILHOP_CC_CONTROL_TCP_SOCKET_H_
#define RAILHOP_CC_CONTROL_TCP_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "cc/control/socket_address.h"
#include "cc/control/socket_config.h"

namespace railhop::control {

class TcpSocket {
 public:
  enum class Progress : uint8_t {
    kMore,     // something was done, there may be more to do
    kBlocked,  // call again later
    kClosed,   // the peer has closed, or the connection is broken: error() tells
  };

  TcpSocket() = default;
  ~TcpSocket() { Close(); }
  TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), error_(other.error_) {}
  TcpSocket& operator=(TcpSocket&& other) noexcept;

  // Listens on a port that the system chooses, at `address`; at the IPv6 wildcard address for IPv4
  // too. Errors: Internal.
  static absl::StatusOr<TcpSocket> Listen(const SocketAddress& address, const SocketConfig& config);
  // Begins to connect. Errors: Internal (no socket).
  static absl::StatusOr<TcpSocket> Connect(const SocketAddress& address,
                                           const SocketConfig& config);

  // Of a listener: the next connection, or a socket that is not open() if there is none.
  TcpSocket Accept(const SocketConfig& config);
  // Of Connect: kMore = connected.
  Progress FinishConnect();

  // *moved bytes were sent or received; kMore if > 0.
  Progress Send(const uint8_t* data, size_t size, size_t* moved);
  Progress Receive(uint8_t* data, size_t size, size_t* moved);

  bool open() const { return fd_ >= 0; }
  // errno of what broke it; 0 if the peer closed in order.
  int error() const { return error_; }
  // For poll and epoll; stays this object's.
  int fd() const { return fd_; }
  // No more is sent; what was sent still goes.
  void ShutdownWrite();
  // Nor is anything taken in: as Close, but for every process that has the descriptor.
  void ShutdownBoth();
  SocketAddress LocalAddress() const;
  SocketAddress PeerAddress() const;
  void Close();

 private:
  explicit TcpSocket(int fd) : fd_(fd) {}
  void Configure(const SocketConfig& config);

  int fd_ = -1;
  int error_ = 0;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_TCP_SOCKET_H_
