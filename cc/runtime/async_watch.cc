#include "cc/runtime/async_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cc/base/blocked_signals.h"

namespace railhop::runtime {

bool IsFatal(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      return true;
    default:
      return false;
  }
}

const char* EventText(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_DEVICE_FATAL:
      return "the device has failed";
    case IBV_EVENT_CQ_ERR:
      return "a completion queue has failed";
    case IBV_EVENT_QP_FATAL:
      return "a queue pair has failed";
    case IBV_EVENT_QP_REQ_ERR:
      return "a queue pair got an invalid request";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "a queue pair got a request for memory that it may not reach";
    case IBV_EVENT_PORT_ERR:
      return "the port is down";
    case IBV_EVENT_PORT_ACTIVE:
      return "the port is up";
    case IBV_EVENT_LID_CHANGE:
      return "the port's LID has changed";
    case IBV_EVENT_PKEY_CHANGE:
      return "the port's P_Key table has changed";
    case IBV_EVENT_GID_CHANGE:
      return "the port's GID table has changed";
    case IBV_EVENT_SM_CHANGE:
      return "the port has another subnet manager";
    default:
      return "asynchronous event";
  }
}

AsyncWatch::AsyncWatch(std::function<void(const AsyncEvent&)> handle)
    : handle_(std::move(handle)), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { Run(); });
  }
  pthread_setname_np(thread_.native_handle(), "railhop-events");
}

AsyncWatch::~AsyncWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  close(wake_fd_);
}

void AsyncWatch::Wake() {
  const uint64_t one = 1;
  // Full means that it is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void AsyncWatch::Watch(verbs::Context* context) {
  {
    absl::MutexLock lock(&mutex_);
    if (std::count(contexts_.begin(), contexts_.end(), context) != 0) return;
    const int fd = context->raw()->async_fd;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    contexts_.push_back(context);
  }
  Wake();
}

void AsyncWatch::Run() {
  while (true) {
    std::vector<verbs::Context*> contexts;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      contexts = contexts_;
    }
    std::vector<pollfd> fds = {{.fd = wake_fd_, .events = POLLIN, .revents = 0}};
    for (verbs::Context* context : contexts) {
      fds.push_back({.fd = context->raw()->async_fd, .events = POLLIN, .revents = 0});
    }
    if (poll(fds.data(), fds.size(), -1) <= 0) continue;
    uint64_t count;
    [[maybe_unused]] const ssize_t taken = read(wake_fd_, &count, sizeof(count));
    for (size_t i = 0; i < contexts.size(); ++i) {
      const short seen = fds[i + 1].revents;
      if (seen == 0) continue;
      const bool took_any = Read(contexts[i]);
      // A device that is gone leaves a descriptor that is ready for ever.
      if (!took_any && (seen & (POLLERR | POLLHUP | POLLNVAL)) != 0) Drop(contexts[i]);
    }
  }
}

void AsyncWatch::Drop(verbs::Context* context) {
  {
    absl::MutexLock lock(&mutex_);
    contexts_.erase(std::remove(contexts_.begin(), contexts_.end(), context), contexts_.end());
  }
  handle_({.context = context, .type = IBV_EVENT_DEVICE_FATAL});
}

bool AsyncWatch::Read(verbs::Context* context) {
  ibv_async_event raw;
  bool took_any = false;
  while (context->table().get_async_event(context->raw(), &raw) == 0) {
    took_any = true;
    AsyncEvent event = {.context = context, .type = raw.event_type};
    switch (raw.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST:
      case IBV_EVENT_SQ_DRAINED:
        event.qp = raw.element.qp;
        break;
      case IBV_EVENT_CQ_ERR:
        event.cq = raw.element.cq;
        break;
      case IBV_EVENT_PORT_ACTIVE:
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_LID_CHANGE:
      case IBV_EVENT_PKEY_CHANGE:
      case IBV_EVENT_GID_CHANGE:
      case IBV_EVENT_SM_CHANGE:
      case IBV_EVENT_CLIENT_REREGISTER:
        event.port = static_cast<uint8_t>(raw.element.port_num);
        break;
      default:
        break;
    }
    // Before it is handled: whoever destroys the queue pair waits for this.
    context->table().ack_async_event(&raw);
    handle_(event);
  }
  return took_any;
}

}  // namespace railhop::runtime
