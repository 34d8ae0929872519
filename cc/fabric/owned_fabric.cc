#include "cc/fabric/owned_fabric.h"

#include <csignal>
#include <cstdint>
#include <utility>

namespace railhop::fabric {
namespace {

// A deadline that does not pass must not eat a core.
constexpr uint64_t kShortestWaitNs = 1'000'000;

}  // namespace

std::unique_ptr<OwnedFabric> OwnedFabric::Create(const FabricOptions& options, std::string* error) {
  auto control = Control::Create(options, error);
  if (control == nullptr) return nullptr;
  return std::unique_ptr<OwnedFabric>(new OwnedFabric(std::move(control)));
}

OwnedFabric::OwnedFabric(std::unique_ptr<Control> control) : control_(std::move(control)) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);  // signals are the program's own threads' business
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

OwnedFabric::~OwnedFabric() {
  stop_.store(true);
  control_->directory().NotifyChange();
  thread_.join();
}

void OwnedFabric::Run() {
  while (!stop_.load()) {
    const uint32_t seen = control_->directory().ChangeCount();
    const uint64_t next = control_->RunDue();
    if (stop_.load()) return;
    int64_t wait = -1;
    if (next != UINT64_MAX) {
      const uint64_t now = MonotonicNs();
      wait = static_cast<int64_t>(next > now + kShortestWaitNs ? next - now : kShortestWaitNs);
    }
    control_->directory().WaitForChange(seen, wait);
  }
}

}  // namespace railhop::fabric
