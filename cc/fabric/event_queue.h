// Events behind a file descriptor, as completion channels and asynchronous events need them.
//
// The descriptor is readable exactly while there are events; programs poll() it and may set
// O_NONBLOCK on it. The hard case is taking events back when their object is destroyed: a reader
// may be on its way, so readiness is only a hint and the queue under the lock is the truth.
#ifndef RAILHOP_CC_FABRIC_EVENT_QUEUE_H_
#define RAILHOP_CC_FABRIC_EVENT_QUEUE_H_

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <mutex>

namespace railhop::fabric {

// Thread-safe.
template <typename T>
class EventQueue {
 public:
  EventQueue() : fd_(eventfd(0, EFD_CLOEXEC)) {}
  ~EventQueue() {
    if (fd_ >= 0) close(fd_);
  }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  int fd() const { return fd_; }  // negative: could not be made

  void Put(const T& event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
    if (events_.size() == 1) Signal();
  }

  // Takes the oldest event; waits for one unless the descriptor is non-blocking. False with errno
  // EAGAIN, or with poll()'s errno (EINTR is retried). `on_take` gets the event under the lock, so
  // Remove() comes before or after both, never between.
  bool Get(T* event) {
    return Get(event, [](const T&) {});
  }
  template <typename OnTake>
  bool Get(T* event, OnTake on_take) {
    while (!TryTake(event, on_take)) {
      if ((fcntl(fd_, F_GETFL) & O_NONBLOCK) != 0) {
        errno = EAGAIN;
        return false;
      }
      pollfd ready = {fd_, POLLIN, 0};
      if (poll(&ready, 1, -1) < 0 && errno != EINTR) return false;
    }
    return true;
  }

  // Takes back all events for which `matches` holds; returns how many.
  template <typename Predicate>
  int Remove(Predicate matches) {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t before = events_.size();
    std::erase_if(events_, matches);
    if (before != 0 && events_.empty()) Unsignal();
    return static_cast<int>(before - events_.size());
  }

 private:
  template <typename OnTake>
  bool TryTake(T* event, OnTake& on_take) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (events_.empty()) return false;
    *event = events_.front();
    events_.pop_front();
    if (events_.empty()) Unsignal();
    on_take(*event);
    return true;
  }
  void Signal() {
    const uint64_t one = 1;
    while (write(fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }
  void Unsignal() {  // the count is above zero, so this does not block
    uint64_t count = 0;
    while (read(fd_, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
  }

  std::mutex mutex_;
  std::deque<T> events_;
  const int fd_;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_EVENT_QUEUE_H_
