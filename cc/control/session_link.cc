#include "cc/control/session_link.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace railhop::control {
namespace {

constexpr size_t kReadBytes = 16384;
constexpr int kEventsMax = 256;

}  // namespace

PollSet::PollSet() : owner_(getpid()), fd_(epoll_create1(EPOLL_CLOEXEC)) {}

PollSet::~PollSet() {
  if (fd_ >= 0) close(fd_);
}

void PollSet::Add(int fd, SessionLink* link) {
  epoll_event event = {.events = EPOLLIN, .data = {.ptr = link}};
  epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event);
}

void PollSet::WantWrite(int fd, SessionLink* link, bool wanted) {
  epoll_event event = {.events = EPOLLIN, .data = {.ptr = link}};
  if (wanted) event.events |= EPOLLOUT;
  epoll_ctl(fd_, EPOLL_CTL_MOD, fd, &event);
}

void PollSet::Remove(int fd) {
  if (getpid() == owner_) epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr);
}

std::vector<SessionLink*> PollSet::Ready(bool* listener) {
  *listener = false;
  epoll_event events[kEventsMax];
  const int n = epoll_wait(fd_, events, kEventsMax, 0);
  std::vector<SessionLink*> ready;
  for (int i = 0; i < n; ++i) {
    auto* const link = static_cast<SessionLink*>(events[i].data.ptr);
    if (link == nullptr) {
      *listener = true;
    } else {
      ready.push_back(link);
    }
  }
  return ready;
}

SessionLink::SessionLink(std::unique_ptr<ByteStream> stream, PollSet* polls)
    : stream_(std::move(stream)), polls_(polls) {
  if (stream_->fd() >= 0) polls_->Add(stream_->fd(), this);
}

SessionLink::~SessionLink() {
  if (stream_->fd() >= 0) polls_->Remove(stream_->fd());
}

void SessionLink::Secure(const SessionKey& key, bool is_caller, size_t payload_bytes_max) {
  key_ = key;
  is_caller_ = is_caller;
  parser_.AllowMessages(payload_bytes_max);
}

void SessionLink::QueueMessages(absl::Span<const uint8_t> payload) {
  outgoing_ += EncodeMessages(payload, ++sent_counter_, key_, is_caller_);
}

bool SessionLink::Flush() {
  while (sent_ < outgoing_.size()) {
    size_t moved = 0;
    const auto* const data = reinterpret_cast<const uint8_t*>(outgoing_.data());
    const ByteStream::Progress progress =
        stream_->Send(data + sent_, outgoing_.size() - sent_, &moved);
    if (progress == ByteStream::Progress::kClosed) return false;
    sent_ += moved;
    if (progress == ByteStream::Progress::kBlocked) break;
  }
  if (sent_ == outgoing_.size()) {
    outgoing_.clear();
    sent_ = 0;
  } else if (sent_ > outgoing_.size() / 2) {
    outgoing_.erase(0, sent_);
    sent_ = 0;
  }
  UpdatePoll();
  return true;
}

void SessionLink::AwaitConnect() {
  if (stream_->fd() < 0) return;
  wants_write_ = true;
  polls_->WantWrite(stream_->fd(), this, true);
}

void SessionLink::UpdatePoll() {
  const bool wanted = sent_ < outgoing_.size();
  if (wanted == wants_write_ || stream_->fd() < 0) return;
  wants_write_ = wanted;
  polls_->WantWrite(stream_->fd(), this, wanted);
}

SessionLink::Event SessionLink::Receive() {
  parser_.Next();
  taken_ += parser_.Take(absl::MakeSpan(incoming_).subspan(taken_));
  while (true) {
    if (parser_.state() == SessionParser::State::kComplete) return Event::kFrame;
    if (parser_.state() == SessionParser::State::kJunk) return Event::kJunk;
    if (budget_ == 0) return Event::kNothing;
    uint8_t buffer[kReadBytes];
    size_t moved = 0;
    const ByteStream::Progress progress =
        stream_->Receive(buffer, std::min(budget_, kReadBytes), &moved);
    if (progress == ByteStream::Progress::kBlocked) return Event::kNothing;
    if (progress == ByteStream::Progress::kClosed) return Event::kClosed;
    budget_ -= moved;
    const size_t taken = parser_.Take({buffer, moved});
    incoming_.assign(buffer + taken, buffer + moved);
    taken_ = 0;
  }
}

const char* SessionLink::Reject() {
  if (!frame().IsAuthenticMessages(key_, !is_caller_)) return "a frame that is not authentic";
  if (frame().header.counter != received_counter_ + 1) return "a frame out of turn";
  ++received_counter_;
  return nullptr;
}

}  // namespace railhop::control
