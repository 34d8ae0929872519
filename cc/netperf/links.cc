#include "cc/netperf/links.h"

#include <sched.h>

#include <cstdio>

#include "cc/base/clock.h"
#include "cc/netperf/plugin_loader.h"

namespace railhop::netperf {
namespace {

bool Fail(const std::string& call, NetResult result, std::string* error) {
  *error = call + ": " + NetResultName(result) + " (" + std::to_string(result) + ")";
  return false;
}

std::string Name(const char* call, const Link& link) {
  return std::string(call) + " of connection " + std::to_string(link.number);
}

}  // namespace

Links::Links(const SessionPlan& plan, int process, Board* board)
    : plan_(plan), process_(process), board_(board) {}

Links::~Links() = default;

bool Links::Open(std::string* error) {
  AddLinks();
  return Start(error) && Listen(error) && Connect(error) && Register(error);
}

// Numbers: those of process p's connections to the next start at p * connections; the backward
// ones of two processes are those of process 1.
void Links::AddLinks() {
  const bool ring = plan_.processes > 2;
  const int previous = (process_ + plan_.processes - 1) % plan_.processes;
  const bool sends = ring || process_ == 0 || plan_.backwards;
  const bool receives = ring || process_ == 1 || plan_.backwards;
  for (int i = 0; i < plan_.connections; ++i) {
    const auto add = [&](std::vector<Link>* links, int sender) {
      links->emplace_back(sender * plan_.connections + i, !ring && sender == 1,
                          Buffers(plan_.size_max, plan_.in_flight_max, plan_.group_max));
      if (plan_.touch_buffers) links->back().buffers.Touch();
    };
    if (sends) add(&sends_, process_);
    if (receives) add(&recvs_, previous);
  }
}

bool Links::Start(std::string* error) {
  plugin_ = LoadNetPlugin(plan_.plugin, plan_.api, error);
  if (plugin_ == nullptr) return false;
  facts_.api = plugin_->version();
  snprintf(facts_.name, sizeof(facts_.name), "%s", plugin_->name());
  NetResult result = plugin_->Init();
  if (result != kNetSuccess) return Fail("init", result, error);
  initialized_ = true;
  int count = 0;
  result = plugin_->Devices(&count);
  if (result != kNetSuccess) return Fail("devices", result, error);
  facts_.devices = count;
  if (count <= 0) {
    *error = "the plugin has no device";
    return false;
  }
  if (!ChooseDevices(count, error)) return false;
  resident_before_ = ReadResident();
  return true;
}

bool Links::ChooseDevices(int count, std::string* error) {
  for (const int device : plan_.devices) {
    if (device >= count) {
      *error = "no device " + std::to_string(device) + ": the plugin has " + std::to_string(count) +
               ", from 0";
      return false;
    }
  }
  devices_ = plan_.devices;
  if (plan_.fuse) {
    int fused = -1;
    const NetResult result = plugin_->Fuse(plan_.devices, &fused);
    if (result != kNetSuccess) return Fail("makeVDevice", result, error);
    devices_ = {fused};
  }
  for (const int device : devices_) {
    NetDevice properties;
    const NetResult result = plugin_->Properties(device, &properties);
    if (result != kNetSuccess) return Fail("getProperties", result, error);
    if (plan_.group_max > properties.max_recvs) {
      *error = "device " + properties.name + " groups " + std::to_string(properties.max_recvs) +
               " receives at most";
      return false;
    }
  }
  return true;
}

int Links::DeviceOf(const Link& link) const {
  return devices_[static_cast<size_t>(link.number % plan_.connections) % devices_.size()];
}

bool Links::Listen(std::string* error) {
  for (Link& link : recvs_) {
    void* listener = nullptr;
    uint8_t* handle = board_->Handle(process_, link.number % plan_.connections);
    const NetResult result = plugin_->Listen(DeviceOf(link), handle, &listener);
    if (result != kNetSuccess) return Fail(Name("listen", link), result, error);
    listeners_.push_back(listener);
  }
  if (board_->Barrier()) return true;
  *error = "given up while listening";
  return false;
}

bool Links::Step(int* missing, std::string* error) {
  *missing = 0;
  const int next = (process_ + 1) % plan_.processes;
  for (Link& link : sends_) {
    if (link.comm != nullptr) continue;
    // The plugin may keep its state in the handle: always the same memory.
    uint8_t* handle = board_->Handle(next, link.number % plan_.connections);
    const NetResult result = plugin_->Connect(DeviceOf(link), handle, &link.comm);
    if (result != kNetSuccess) return Fail(Name("connect", link), result, error);
    *missing += link.comm == nullptr;
  }
  for (size_t i = 0; i < recvs_.size(); ++i) {
    Link& link = recvs_[i];
    if (link.comm != nullptr) continue;
    const NetResult result = plugin_->Accept(listeners_[i], &link.comm);
    if (result != kNetSuccess) return Fail(Name("accept", link), result, error);
    *missing += link.comm == nullptr;
  }
  return true;
}

bool Links::Connect(std::string* error) {
  const RealClock clock;
  const int64_t deadline = clock.NowNs() + static_cast<int64_t>(plan_.timeout_s * 1e9);
  int missing = 1;
  while (missing > 0) {
    if (!Step(&missing, error)) return false;
    if (board_->given_up()) {
      *error = "given up while connecting";
      return false;
    }
    if (clock.NowNs() > deadline) {
      *error = std::to_string(missing) + " of " + std::to_string(sends_.size() + recvs_.size()) +
               " connection ends are not connected after " +
               std::to_string(static_cast<int>(plan_.timeout_s)) + " s";
      return false;
    }
    sched_yield();
  }
  return true;
}

bool Links::Register(std::string* error) {
  for (std::vector<Link>* links : {&sends_, &recvs_}) {
    for (Link& link : *links) {
      const NetResult result =
          plugin_->Register(link.comm, link.buffers.memory(), link.buffers.bytes(), &link.memory);
      if (result != kNetSuccess) return Fail(Name("regMr", link), result, error);
    }
  }
  return true;
}

bool Links::Close(std::string* error) {
  if (plugin_ == nullptr) return true;
  bool good = true;
  const auto check = [&](const char* call, NetResult result) {
    if (result == kNetSuccess || !good) return;
    good = Fail(call, result, error);
  };
  for (std::vector<Link>* links : {&sends_, &recvs_}) {
    for (Link& link : *links) {
      if (link.memory != nullptr) check("deregMr", plugin_->Deregister(link.comm, link.memory));
    }
  }
  for (Link& link : sends_) {
    if (link.comm != nullptr) check("closeSend", plugin_->CloseSend(link.comm));
  }
  for (Link& link : recvs_) {
    if (link.comm != nullptr) check("closeRecv", plugin_->CloseRecv(link.comm));
  }
  for (void* listener : listeners_) check("closeListen", plugin_->CloseListen(listener));
  if (initialized_) check("finalize", plugin_->Finalize());
  plugin_.reset();
  return good;
}

}  // namespace railhop::netperf
