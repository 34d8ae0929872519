#include "cc/runtime/port_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "cc/base/blocked_signals.h"
#include "cc/base/units.h"
#include "cc/runtime/device_table.h"

namespace railhop::runtime {
namespace {

// Takes what is there; the descriptor does not block.
void DrainEvents(const verbs::Context& context) {
  ibv_async_event event;
  while (context.table().get_async_event(context.raw(), &event) == 0) {
    context.table().ack_async_event(&event);
  }
}

}  // namespace

PortWatch::PortWatch(DeviceTable* table, int64_t interval_ns)
    : table_(table),
      interval_ms_(static_cast<int>(std::max<int64_t>(interval_ns / kNsPerMs, 1))),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  if (table_->WaitingPorts().empty()) return;
  const BlockedSignals blocked;
  thread_ = std::thread([this] { Run(); });
}

PortWatch::~PortWatch() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  close(stop_fd_);
}

void PortWatch::Run() {
  pthread_setname_np(pthread_self(), "railhop-ports");
  while (Wait()) {
    table_->JoinPorts();
    if (table_->WaitingPorts().empty()) return;
  }
}

bool PortWatch::Wait() {
  const std::vector<const verbs::Context*> idle = table_->IdleContexts();
  std::vector<pollfd> fds = {{stop_fd_, POLLIN, 0}};
  for (const verbs::Context* context : idle) {
    const int fd = context->raw()->async_fd;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fds.push_back({fd, POLLIN, 0});
  }
  poll(fds.data(), fds.size(), interval_ms_);
  for (size_t i = 0; i < idle.size(); ++i) {
    if ((fds[i + 1].revents & POLLIN) != 0) DrainEvents(*idle[i]);
  }
  return fds[0].revents == 0;
}

}  // namespace railhop::runtime
