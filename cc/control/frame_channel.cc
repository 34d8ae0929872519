#include "cc/control/frame_channel.h"

namespace railhop::control {

void FrameChannel::Queue(std::vector<uint8_t> bytes) {
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
}

bool FrameChannel::Flush() {
  while (sent_ < outgoing_.size()) {
    size_t moved = 0;
    switch (socket_.Send(outgoing_.data() + sent_, outgoing_.size() - sent_, &moved)) {
      case TcpSocket::Progress::kMore:
        sent_ += moved;
        break;
      case TcpSocket::Progress::kBlocked:
        return true;
      case TcpSocket::Progress::kClosed:
        return false;
    }
  }
  return true;
}

FrameChannel::Event FrameChannel::Receive() {
  while (true) {
    const size_t taken = parser_.Take(incoming_);
    incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<ptrdiff_t>(taken));
    if (parser_.state() == FrameParser::State::kComplete) return Event::kFrame;
    if (parser_.state() == FrameParser::State::kJunk) return Event::kJunk;
    uint8_t buffer[4096];
    size_t moved = 0;
    switch (socket_.Receive(buffer, sizeof(buffer), &moved)) {
      case TcpSocket::Progress::kMore:
        incoming_.insert(incoming_.end(), buffer, buffer + moved);
        break;
      case TcpSocket::Progress::kBlocked:
        return Event::kNothing;
      case TcpSocket::Progress::kClosed:
        return Event::kClosed;
    }
  }
}

}  // namespace railhop::control
