#include "cc/runtime/port_monitor.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cc/verbs/context.h"
#include "cc/verbs/verbs_error.h"

namespace railhop::runtime {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Port {
  const PhysicalDevice* device = nullptr;
  PortFacts facts;
  bool known = false;   // read at least once
  bool active = false;  // as told to the driver
  bool failed = false;
  bool reading = false;
  bool overdue = false;    // the reading under way has been out for too long, and that was told
  bool again = false;      // an event came while it was being read
  bool went_down = false;  // an event said so since the last reading
  std::string event;       // text of the last one, until a reading explains it
  std::string told;        // why it is not active, as last told
  uint32_t serial = 0;     // of the reading
  int64_t read_since = 0;
  int64_t next_read = 0;
};

struct Reading {
  int physical;
  uint32_t serial;
  absl::StatusOr<PortFacts> facts;
};

std::string NameOf(const PhysicalDevice& device) {
  return absl::StrCat(device.name, ":", device.port);
}

}  // namespace

class PortMonitor::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(DeviceSource* devices, const PortRules* rules, Executor* executor,
       const PortMonitorOptions& options)
      : devices_(devices), rules_(*rules), executor_(executor), options_(options) {}

  void Take(const AsyncEvent& event, int64_t now_ns);
  void ReadNow(int physical, int64_t now_ns) {
    const auto port = ports_.find(physical);
    if (port != ports_.end()) Hurry(&port->second, now_ns);
  }
  void SetInterval(int64_t interval_ns, int64_t now_ns) {
    options_.interval_ns = interval_ns;
    for (auto& [id, port] : ports_) port.next_read = std::min(port.next_read, now_ns + interval_ns);
  }
  std::vector<PortNews> Poll(int64_t now_ns);
  int64_t next_due() const;
  const Port* Find(int physical) const {
    const auto port = ports_.find(physical);
    return port == ports_.end() ? nullptr : &port->second;
  }

 private:
  void LookForPorts();
  void Hurry(Port* port, int64_t now_ns);
  void StartReading(Port* port, int64_t now_ns);
  void TakeReading(const Reading& reading, int64_t now_ns);
  void TakeFacts(Port* port, const PortFacts& facts);
  void Fail(Port* port, const std::string& why, int64_t now_ns);
  void SetInactive(Port* port, const std::string& why);
  void Rescan(int64_t now_ns);
  void CheckOverdue(Port* port);
  // When a reading under way is news; kNever if it has been told.
  int64_t OverdueAt(const Port& port) const {
    if (!port.reading || (!port.active && port.known)) return kNever;
    if (port.went_down) return port.read_since + options_.read_bound_after_error_ns;
    return port.overdue ? kNever : port.read_since + options_.read_bound_ns;
  }
  PortNews& Tell(const Port& port, PortNews::Kind kind, std::string text) {
    return news_.emplace_back(PortNews{
        .physical = port.device->id, .kind = kind, .facts = port.facts, .text = std::move(text)});
  }

  DeviceSource* const devices_;
  const PortRules rules_;
  Executor* const executor_;
  PortMonitorOptions options_;
  std::map<int, Port> ports_;
  std::vector<Reading> readings_;  // that have ended
  std::vector<PortNews> news_;
  bool looked_ = false;
  bool rescanning_ = false;
  bool rescanned_ = false;  // one has ended
  int64_t next_rescan_ = kNever;
  int64_t rescan_pause_ = 0;
};

void PortMonitor::Impl::LookForPorts() {
  for (const PhysicalDevice* device : devices_->Physical()) {
    Port& port = ports_[device->id];
    if (port.device != nullptr) continue;
    port.device = device;
    if (!looked_) continue;
    Tell(port, PortNews::Kind::kJoined,
         device->replaces < 0 ? absl::StrCat(NameOf(*device), " has joined")
                              : absl::StrCat(NameOf(*device), " is back"))
        .replaces = device->replaces;
  }
  looked_ = true;
}

void PortMonitor::Impl::Hurry(Port* port, int64_t now_ns) {
  if (port->failed) return;
  port->next_read = now_ns;
  if (port->reading) port->again = true;
}

void PortMonitor::Impl::StartReading(Port* port, int64_t now_ns) {
  port->reading = true;
  port->overdue = false;
  port->again = false;
  port->read_since = now_ns;
  port->next_read = now_ns + options_.interval_ns;
  struct Box {
    absl::StatusOr<PortFacts> facts = absl::UnknownError("not read");
  };
  const auto box = std::make_shared<Box>();
  const PhysicalDevice* const device = port->device;
  const uint32_t serial = ++port->serial;
  executor_->Run(
      device->id, Executor::Queue::kReading,
      [box, device, rules = rules_] { box->facts = ReadPort(*device, rules); },
      [box, serial, id = device->id, weak = weak_from_this()] {
        if (const std::shared_ptr<Impl> self = weak.lock()) {
          self->readings_.push_back({id, serial, std::move(box->facts)});
        }
      });
}

void PortMonitor::Impl::SetInactive(Port* port, const std::string& why) {
  // A port that is up and of no use all the same is news: somebody has to do something about it.
  const bool is_doubt = !port->facts.doubt.empty() && port->told != why;
  const bool was = port->active || !port->known;
  port->known = true;
  port->active = false;
  port->facts.active = false;
  if (was || is_doubt) Tell(*port, PortNews::Kind::kNotActive, why);
  port->told = why;
}

void PortMonitor::Impl::Fail(Port* port, const std::string& why, int64_t now_ns) {
  if (port->failed) return;
  port->failed = true;
  port->known = true;
  port->active = false;
  port->facts.active = false;
  Tell(*port, PortNews::Kind::kFatal, why);
  rescan_pause_ = options_.rescan_ns;
  next_rescan_ = std::min(next_rescan_, now_ns + rescan_pause_);
}

// The answer, if it still comes, is a reading as any other.
void PortMonitor::Impl::CheckOverdue(Port* port) {
  const std::string text =
      absl::StrCat(NameOf(*port->device), " does not answer when it is read",
                   port->event.empty() ? "" : absl::StrCat(" (", port->event, ")"));
  if (port->went_down || !port->known) {
    SetInactive(port, text);
    return;
  }
  // Nothing else says that it is down: a busy machine reads late, and so does a driver whose
  // command queue is full, while data goes on. Probes decide.
  port->overdue = true;
  Tell(*port, PortNews::Kind::kDoubt, text);
}

void PortMonitor::Impl::TakeFacts(Port* port, const PortFacts& facts) {
  const PortFacts before = std::exchange(port->facts, facts);
  const std::string name = NameOf(*port->device);
  const std::string event = std::exchange(port->event, "");
  const bool went_down = std::exchange(port->went_down, false);
  if (!facts.active || facts.gid_index < 0) {
    SetInactive(port, facts.active    ? absl::StrCat(name, " is up, but ", facts.doubt)
                      : event.empty() ? absl::StrCat(name, " is not active")
                                      : event);
    return;
  }
  const bool first = !port->known;
  const bool was_active = port->active;
  port->known = port->active = true;
  if (!was_active) {
    port->told.clear();
    Tell(*port, PortNews::Kind::kActive, absl::StrCat(name, " is active"));
    if (first && !went_down) return;
  }
  const bool moved = facts.gid != before.gid || facts.gid_index != before.gid_index ||
                     facts.lid != before.lid || facts.mtu < before.mtu;
  if (was_active && (moved || facts.mtu != before.mtu)) {
    Tell(*port, PortNews::Kind::kAddress,
         absl::StrCat(name, " has GID index ", facts.gid_index, " (", GidText(facts.gid), "), LID ",
                      facts.lid, ", MTU code ", facts.mtu, " now"))
        .moved = moved;
  } else if (first || (was_active && (went_down || !event.empty()))) {
    Tell(*port, PortNews::Kind::kDoubt, absl::StrCat(event, ", and it reads as active")).was_down =
        went_down;
  }
}

void PortMonitor::Impl::TakeReading(const Reading& reading, int64_t now_ns) {
  const auto found = ports_.find(reading.physical);
  if (found == ports_.end()) return;
  Port* const port = &found->second;
  if (port->serial != reading.serial || port->failed) return;
  port->reading = false;
  if (port->again) port->next_read = now_ns;
  if (reading.facts.ok()) {
    TakeFacts(port, *reading.facts);
  } else if (verbs::SaysGone(reading.facts.status())) {
    Fail(port, std::string(reading.facts.status().message()), now_ns);
  } else {
    SetInactive(port, std::string(reading.facts.status().message()));
  }
}

void PortMonitor::Impl::Take(const AsyncEvent& event, int64_t now_ns) {
  if (!looked_) LookForPorts();
  const std::string text = EventText(event.type);
  bool known = false;
  for (auto& [id, port] : ports_) {
    const PhysicalDevice& device = *port.device;
    if (device.context != event.context) continue;
    const std::string line = absl::StrCat(NameOf(device), ": ", text, " (event ", event.type, ")");
    switch (event.type) {
      case IBV_EVENT_DEVICE_FATAL:
        known = true;
        Fail(&port, line, now_ns);
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_CQ_ERR:
        // Which port it is on the driver knows; one is enough to name the device.
        if (!known) {
          const bool queue = event.type == IBV_EVENT_CQ_ERR;
          Tell(port, queue ? PortNews::Kind::kQueue : PortNews::Kind::kQueuePair, line).object =
              queue ? static_cast<const void*>(event.cq) : event.qp;
        }
        known = true;
        break;
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_PORT_ACTIVE:
      case IBV_EVENT_LID_CHANGE:
      case IBV_EVENT_GID_CHANGE:
      case IBV_EVENT_PKEY_CHANGE:
      case IBV_EVENT_SM_CHANGE:
      case IBV_EVENT_CLIENT_REREGISTER:
        if (event.port != device.port) break;
        known = true;
        if (event.type == IBV_EVENT_PORT_ERR) port.went_down = true;
        // The others are news only if reading finds something; a port that was up all the time by
        // our reading has been down in between.
        if (event.type == IBV_EVENT_PORT_ERR || event.type == IBV_EVENT_PORT_ACTIVE ||
            event.type == IBV_EVENT_PKEY_CHANGE) {
          port.event = line;
        }
        Hurry(&port, now_ns);
        break;
      default:
        known = true;
        break;
    }
  }
  // A port that is not ours yet, or a device that is new.
  if (!known && event.type == IBV_EVENT_PORT_ACTIVE) next_rescan_ = now_ns;
}

void PortMonitor::Impl::Rescan(int64_t now_ns) {
  std::vector<int> gone;
  for (const auto& [id, port] : ports_) {
    if (port.failed) gone.push_back(id);
  }
  rescanning_ = true;
  rescan_pause_ = std::clamp(2 * rescan_pause_, options_.rescan_ns, options_.rescan_max_ns);
  next_rescan_ = now_ns + rescan_pause_;
  executor_->Run(
      Executor::kNoDevice, [devices = devices_, gone] { devices->Rescan(gone); },
      [weak = weak_from_this()] {
        if (const std::shared_ptr<Impl> self = weak.lock()) self->rescanned_ = true;
      });
}

std::vector<PortNews> PortMonitor::Impl::Poll(int64_t now_ns) {
  // Others look for ports that come up as well: what they have found is here without a rescan.
  LookForPorts();
  if (rescanned_) {
    rescanned_ = rescanning_ = false;
    const auto waits = [this](const auto& entry) {
      if (!entry.second.failed) return false;
      return std::none_of(ports_.begin(), ports_.end(), [&](const auto& other) {
        return other.second.device->replaces == entry.first;
      });
    };
    if (std::none_of(ports_.begin(), ports_.end(), waits)) next_rescan_ = kNever;
  }
  for (const Reading& reading : std::exchange(readings_, {})) TakeReading(reading, now_ns);
  for (auto& [id, port] : ports_) {
    if (port.failed) continue;
    if (!port.reading && now_ns >= port.next_read) StartReading(&port, now_ns);
    if (now_ns >= OverdueAt(port)) CheckOverdue(&port);
  }
  if (!rescanning_ && now_ns >= next_rescan_) Rescan(now_ns);
  return std::exchange(news_, {});
}

int64_t PortMonitor::Impl::next_due() const {
  if (!looked_ || rescanned_ || !readings_.empty() || !news_.empty()) return 0;
  int64_t due = rescanning_ ? kNever : next_rescan_;
  for (const auto& [id, port] : ports_) {
    if (port.failed) continue;
    due = std::min(due, port.reading ? OverdueAt(port) : port.next_read);
  }
  return due;
}

PortMonitor::PortMonitor(DeviceSource* devices, const PortRules* rules, Executor* executor,
                         const PortMonitorOptions& options)
    : impl_(std::make_shared<Impl>(devices, rules, executor, options)) {}

PortMonitor::~PortMonitor() = default;

void PortMonitor::Take(const AsyncEvent& event, int64_t now_ns) { impl_->Take(event, now_ns); }

void PortMonitor::ReadNow(int physical, int64_t now_ns) { impl_->ReadNow(physical, now_ns); }

void PortMonitor::SetInterval(int64_t interval_ns, int64_t now_ns) {
  impl_->SetInterval(interval_ns, now_ns);
}

std::vector<PortNews> PortMonitor::Poll(int64_t now_ns) { return impl_->Poll(now_ns); }

int64_t PortMonitor::next_due() const { return impl_->next_due(); }

const PortFacts& PortMonitor::facts(int physical) const {
  static const PortFacts kNone;
  const Port* const port = impl_->Find(physical);
  return port == nullptr ? kNone : port->facts;
}

bool PortMonitor::active(int physical) const {
  const Port* const port = impl_->Find(physical);
  return port != nullptr && port->active;
}

bool PortMonitor::known(int physical) const {
  const Port* const port = impl_->Find(physical);
  return port != nullptr && port->known;
}

bool PortMonitor::failed(int physical) const {
  const Port* const port = impl_->Find(physical);
  return port != nullptr && port->failed;
}

}  // namespace railhop::runtime
