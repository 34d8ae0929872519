#include "cc/runtime/failover_service.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/base/blocked_signals.h"
#include "cc/base/status_macros.h"
#include "cc/base/units.h"
#include "cc/control/handshake.h"

namespace railhop::runtime {
namespace {

constexpr int64_t kLookNs = 200'000;

}  // namespace

FailoverService::FailoverService(DeviceSource* devices, const Setting& setting)
    : kept_(std::make_unique<Kept>(setting)), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  executor_ = std::make_unique<ThreadExecutor>([this] { Wake(); });
  uint64_t seed;
  control::FillRandom(&seed, sizeof(seed));
  const FailoverConfig& config = setting.failover;
  ProberOptions prober;
  prober.self = setting.self;
  prober.stall_ns = config.health.stall;
  prober.seed = seed;
  prober_ = std::make_unique<Prober>(devices, &kept_->maker, executor_.get(), prober);
  CoverOptions cover;
  cover.backups = config.cover_backups;
  cover.relaxed_ordering = setting.datapath.ib_pci_relaxed_ordering != 0;
  cover_ = std::make_unique<Cover>(devices, executor_.get(), cover);
  PortMonitorOptions ports;
  ports.interval_ns = config.port_poll_interval_ns;
  ports_ = std::make_unique<PortMonitor>(devices, &kept_->maker.rules(), executor_.get(), ports);
}

absl::StatusOr<std::unique_ptr<FailoverService>> FailoverService::Start(DeviceSource* devices,
                                                                        const Setting& setting) {
  std::unique_ptr<FailoverService> service(new FailoverService(devices, setting));
  if (service->wake_fd_ < 0) return absl::InternalError("failover: no event descriptor");
  control::SessionHubOptions hub;
  hub.self = setting.self;
  hub.sockets = setting.sockets;
  hub.addresses = control::ControlAddresses(control::ListInterfaces(setting.sockets.socket_family),
                                            setting.interface, setting.sockets);
  control::FillRandom(&hub.seed, sizeof(hub.seed));
  hub.carrier = service->prober_->carrier();
  service->hub_ = std::make_unique<control::SessionHub>(hub);
  RAILHOP_ASSIGN_OR_RETURN(service->addresses_, service->hub_->Addresses());
  DriverOptions options;
  options.health = setting.failover.health;
  options.give_up = setting.failover.give_up_ns;
  options.seed = hub.seed ^ 1;
  FailoverService* const raw = service.get();
  service->driver_ = std::make_unique<Driver>(Driver::Parts{.self = setting.self,
                                                            .channel = service->hub_.get(),
                                                            .executor = service->executor_.get(),
                                                            .devices = devices,
                                                            .maker = &service->kept_->maker,
                                                            .prober = service->prober_.get(),
                                                            .cover = service->cover_.get(),
                                                            .ports = service->ports_.get(),
                                                            .journal = &service->journal_,
                                                            .wake = [raw] { raw->Wake(); }},
                                              options);
  {
    const BlockedSignals blocked;
    service->thread_ = std::thread([raw] { raw->Run(); });
  }
  pthread_setname_np(service->thread_.native_handle(), "railhop-engine");
  return service;
}

FailoverService::~FailoverService() {
  stopping_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
  driver_.reset();
  hub_.reset();
  prober_.reset();
  cover_.reset();
  ports_.reset();
  if (!executor_->Stop(ThreadExecutor::kStopNs)) {
    // A call hangs in a device: its thread and all that it uses are left behind.
    [[maybe_unused]] const ThreadExecutor* const left = executor_.release();
    [[maybe_unused]] const Kept* const kept = kept_.release();
    return;
  }
  executor_.reset();
  close(wake_fd_);
}

void FailoverService::Wake() {
  const uint64_t one = 1;
  // Full means that it is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

void FailoverService::Run() {
  while (!stopping_) {
    driver_->Step(clock_.NowNs());
    const int64_t longest = executor_->IsHeldUp() ? Executor::kStuckNs : kNsPerSecond;
    const int64_t wait = std::clamp<int64_t>(driver_->next_due() - clock_.NowNs(), 0, longest);
    pollfd fds[] = {{.fd = wake_fd_, .events = POLLIN, .revents = 0},
                    {.fd = hub_->wait_fd(), .events = POLLIN, .revents = 0}};
    const timespec timeout = {.tv_sec = wait / kNsPerSecond, .tv_nsec = wait % kNsPerSecond};
    ppoll(fds, std::size(fds), &timeout, nullptr);
    uint64_t count;
    [[maybe_unused]] const ssize_t taken = read(wake_fd_, &count, sizeof(count));
  }
}

absl::Status FailoverService::Remove(engine::EndId id, int64_t bound_ns) {
  const int64_t until = clock_.NowNs() + bound_ns;
  while (!driver_->Remove(id)) {
    if (clock_.NowNs() >= until) {
      return absl::UnavailableError(
          "a call on a device that uses the connection does not return; it stays as it is");
    }
    const timespec pause = {.tv_sec = 0, .tv_nsec = kLookNs};
    nanosleep(&pause, nullptr);
  }
  return absl::OkStatus();
}

}  // namespace railhop::runtime
