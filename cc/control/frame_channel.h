// A socket that carries frames: sends what it was given as far as it goes, gives frames as they
// come. Not thread-safe; never waits.
#ifndef RAILHOP_CC_CONTROL_FRAME_CHANNEL_H_
#define RAILHOP_CC_CONTROL_FRAME_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cc/control/handshake.h"
#include "cc/control/tcp_socket.h"

namespace railhop::control {

class FrameChannel {
 public:
  enum class Event : uint8_t {
    kNothing,
    kFrame,   // frame() is whole; Next() makes room for the one after
    kJunk,    // what came is no frame; parser() has its first bytes
    kClosed,  // by the peer, or broken
  };

  FrameChannel() = default;
  explicit FrameChannel(TcpSocket socket) : socket_(std::move(socket)) {}

  TcpSocket& socket() { return socket_; }
  const Frame& frame() const { return parser_.frame(); }
  const FrameParser& parser() const { return parser_; }

  void Queue(std::vector<uint8_t> bytes);
  // Sends; false if the connection is broken. AllSent tells whether something is left.
  bool Flush();
  bool AllSent() const { return sent_ == outgoing_.size(); }

  Event Receive();
  void Next() { parser_.Reset(); }

 private:
  TcpSocket socket_;
  std::vector<uint8_t> outgoing_;
  size_t sent_ = 0;
  std::vector<uint8_t> incoming_;  // received, not yet taken by the parser
  FrameParser parser_;
};

}  // namespace railhop::control

#endif  // RAILHOP_CC_CONTROL_FRAME_CHANNEL_H_
