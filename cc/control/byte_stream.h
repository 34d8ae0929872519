// What carries a session's bytes: a TCP connection, or a lane's queue pair. Never waits.
#ifndef RAILHOP_CC_CONTROL_BYTE_STREAM_H_
#define RAILHOP_CC_CONTROL_BYTE_STREAM_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "cc/control/tcp_socket.h"

namespace railhop::control {

// Not thread-safe.
class ByteStream {
 public:
  using Progress = TcpSocket::Progress;

  virtual ~ByteStream() = default;

  // kMore: connected. kBlocked: not yet. kClosed: it never will be.
  virtual Progress FinishConnect() = 0;
  // As TcpSocket's.
  virtual Progress Send(const uint8_t* data, size_t size, size_t* moved) = 0;
  virtual Progress Receive(uint8_t* data, size_t size, size_t* moved) = 0;
  virtual void ShutdownWrite() = 0;
  // -1: there is nothing to poll; whoever made it knows when something has come.
  virtual int fd() const = 0;
  // Where the other end is, for a person.
  virtual std::string Where() const = 0;
  // Null if it has no address.
  virtual const SocketAddress* address() const { return nullptr; }
  // errno of what broke it; 0 if the other end closed in order.
  virtual int error() const = 0;
};

class TcpStream : public ByteStream {
 public:
  // `where` is the address that was called, or that called.
  TcpStream(TcpSocket socket, const SocketAddress& where)
      : socket_(std::move(socket)), where_(where) {}
  // The other end learns of it even if a child that was forked has the descriptor too; from such a
  // child it learns nothing.
  ~TcpStream() override {
    if (getpid() == owner_) socket_.ShutdownBoth();
  }
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  Progress FinishConnect() override { return socket_.FinishConnect(); }
  Progress Send(const uint8_t* data, size_t size, size_t* moved) override {
    return socket_.Send(data, size, moved);
  }
  Progress Receive(uint8_t* data, size_t size, size_t* moved) override {
    return socket_.Receive(data, size, moved);
  }
  void ShutdownWrite() override { socket_.ShutdownWrite(); }
  int fd() const override { return socket_.fd(); }
  std::string Where() const override { return FormatAddress(where_); }
  const SocketAddress* address() const override { return &where_; }
  int error() const override { return socket_.error(); }

 private:
  const pid_t owner_ = getpid();
  TcpSocket socket_;
  const SocketAddress where_;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_BYTE_STREAM_H_
