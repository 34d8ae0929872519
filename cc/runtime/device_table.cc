#include "cc/runtime/device_table.h"

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/base/log.h"
#include "cc/base/status_macros.h"
#include "cc/runtime/device_place.h"
#include "cc/runtime/port_watch.h"
#include "cc/verbs/memory_region.h"

namespace railhop::runtime {
namespace {

constexpr uint64_t kMaxP2pBytes = uint64_t{1} << 40;   // NCCL_MAX_NET_SIZE_BYTES
constexpr uint64_t kMaxCollBytes = uint64_t{1} << 29;  // NCCL's MAX_COLLNET_SIZE

// A fused device's plane is made of bits, one for each plane that it spans, and one that no plane
// of a user has. Source: NCCL v2.30.7-1 init.cc NCCL_IB_PLANE_*.
constexpr int kPlanesMax = 13;
constexpr int kFusedPlaneBit = 1 << 14;

std::string PortName(const verbs::Context& context, int port) {
  return absl::StrCat(context.name(), ":", port);
}

bool LinkIsUsable(const ibv_port_attr& attr) {
  return attr.link_layer == IBV_LINK_LAYER_INFINIBAND || attr.link_layer == IBV_LINK_LAYER_ETHERNET;
}

const char* LinkName(bool is_ethernet) { return is_ethernet ? "RoCE" : "IB"; }

}  // namespace

DeviceRules DeviceRules::From(const config::Options& options, std::vector<std::string>* notes) {
  DeviceRules rules;
  rules.filter = config::NameFilter::Parse(options.ib_hca, config::NameFilter::kDevicesMax);
  if (rules.filter.dropped() > 0) {
    notes->push_back(absl::StrCat("NCCL_IB_HCA: ", rules.filter.dropped(),
                                  " items have no name or are beyond the first 32; as in NCCL they "
                                  "are left out"));
  }
  std::string doubt;
  rules.gid = MakeGidRule(options.ib_gid_index, options.ib_routable_flid_gid_index,
                          options.ib_roce_version_num, options.ib_addr_family,
                          options.ib_addr_range, &doubt);
  if (!doubt.empty()) notes->push_back("NCCL_IB_ADDR_RANGE is ignored: " + doubt);
  if (!options.ib_addr_family.empty() && !rules.gid.family_is_explicit) {
    notes->push_back(
        absl::StrCat("NCCL_IB_ADDR_FAMILY='", options.ib_addr_family,
                     "' is neither AF_INET nor AF_INET6; as in NCCL it means AF_INET"));
  }
  rules.pci_order = options.ib_device_pci_order != 0;
  rules.merge_virtual = options.ib_merge_vfs != 0;
  rules.may_fuse = options.ib_merge_nics != 0;
  rules.ask_speed = options.ib_query_port_speed != 0;
  rules.relaxed_ordering =
      options.ib_pci_relaxed_ordering == 1 || options.ib_pci_relaxed_ordering == 2;
  rules.pkey_index = static_cast<int>(options.ib_pkey);
  return rules;
}

DeviceTable::DeviceTable(std::shared_ptr<const verbs::Table> table, DeviceRules rules)
    : table_(std::move(table)),
      rules_(std::move(rules)),
      peer_memory_(HasPeerMemory(rules_.root)) {}

DeviceTable::~DeviceTable() = default;

absl::StatusOr<std::unique_ptr<DeviceTable>> DeviceTable::Discover(
    std::shared_ptr<const verbs::Table> table, const DeviceRules& rules) {
  std::unique_ptr<DeviceTable> self(new DeviceTable(std::move(table), rules));
  std::vector<Candidate> up;
  int listed = 0;
  RAILHOP_RETURN_IF_ERROR(verbs::ForEachDevice(*self->table_, [&](ibv_device* device) {
    ++listed;
    self->LookAt(device, &up);
  }));
  self->SortByPlace(&up);
  {
    absl::MutexLock lock(&self->mutex_);
    self->planes_ = {-1};
    for (const Candidate& candidate : up) {
      const absl::StatusOr<ibv_port_attr> attr = candidate.context->QueryPort(candidate.port);
      if (attr.ok()) RAILHOP_RETURN_IF_ERROR(self->Add(candidate, *attr));
    }
  }
  if (!self->closed_.empty()) {
    self->Complain(
        absl::StrCat("devices that cannot be opened: ", absl::StrJoin(self->closed_, ", ")));
  }
  if (self->Count() == 0) self->ExplainNoDevice(listed);
  return self;
}

void DeviceTable::LookAt(ibv_device* device, std::vector<Candidate>* up) {
  const char* name = table_->get_device_name(device);
  // NCCL opens a device before it asks the filter; a device that nobody wants is left alone here,
  // so that it cannot complain.
  if (!rules_.filter.Find(name, 1).selected && !rules_.filter.Find(name, 2).selected) return;
  absl::StatusOr<std::unique_ptr<verbs::Context>> context = verbs::Context::Open(table_, device);
  if (!context.ok()) {
    closed_.push_back(std::string(context.status().message()));
    return;
  }
  const absl::StatusOr<ibv_device_attr> attr = (*context)->QueryDevice();
  if (!attr.ok()) {
    closed_.push_back(std::string(attr.status().message()));
    return;
  }
  bool wanted = false;
  for (int port = 1; port <= attr->phys_port_cnt; ++port) {
    LookAtPort(context->get(), *attr, static_cast<uint8_t>(port), up, &wanted);
  }
  if (!wanted) return;
  absl::MutexLock lock(&mutex_);
  contexts_.push_back(*std::move(context));
}

void DeviceTable::LookAtPort(verbs::Context* context, const ibv_device_attr& attr, uint8_t port,
                             std::vector<Candidate>* up, bool* wanted) {
  const config::NameFilter::Match match = rules_.filter.Find(context->name(), port);
  if (!match.selected) return;
  const absl::StatusOr<ibv_port_attr> state = context->QueryPort(port);
  if (!state.ok()) {
    Complain(std::string(state.status().message()));
    return;
  }
  if (!LinkIsUsable(*state)) return;
  if (Pkey(*context, port) == 0) {
    Complain(absl::StrCat(PortName(*context, port), " is left out: NCCL_IB_PKEY=",
                          rules_.pkey_index, " is no entry of its P_Key table"));
    return;
  }
  Candidate candidate{context,
                      port,
                      match.rail,
                      match.plane,
                      RealPciPath(rules_.root + context->sysfs_path()),
                      attr.sys_image_guid,
                      attr.max_qp};
  *wanted = true;
  if (state->state == IBV_PORT_ACTIVE) {
    up->push_back(std::move(candidate));
  } else {
    absl::MutexLock lock(&mutex_);
    waiting_.push_back(std::move(candidate));
  }
}

uint16_t DeviceTable::Pkey(const verbs::Context& context, uint8_t port) const {
  __be16 key = 0;
  if (table_->query_pkey(context.raw(), port, rules_.pkey_index, &key) != 0) return 0;
  // 0x7fff of a key is its number; 0 is an unused entry.
  return (be16toh(key) & 0x7fff) == 0 ? 0 : be16toh(key);
}

void DeviceTable::SortByPlace(std::vector<Candidate>* candidates) const {
  if (!rules_.pci_order) return;
  std::vector<std::string> paths;
  for (const Candidate& candidate : *candidates) paths.push_back(candidate.full_path);
  std::vector<Candidate> sorted;
  for (const int index : PciSortedOrder(paths)) {
    sorted.push_back(std::move((*candidates)[static_cast<size_t>(index)]));
  }
  *candidates = std::move(sorted);
}

std::unique_ptr<PhysicalDevice> DeviceTable::MakePhysical(const Candidate& candidate,
                                                          const ibv_port_attr& attr) const {
  verbs::Context* const context = candidate.context;
  auto device = std::make_unique<PhysicalDevice>();
  device->id = static_cast<int>(physical_.size());
  device->name = context->name();
  device->context = context;
  device->port = candidate.port;
  device->is_ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
  device->ptr_support = PointerSupport(context);
  device->relaxed_ordering = rules_.relaxed_ordering && verbs::ProbeRelaxedOrdering(context);
  device->rail_id = candidate.rail;
  device->plane_id = candidate.plane;
  device->pkey = Pkey(*context, candidate.port);
  device->guid = context->guid();
  device->pci_path = candidate.full_path;
  device->numa_node = NumaNode(candidate.full_path);
  device->speed_mbps = Speed(*context, attr, candidate.port);
  return device;
}

absl::Status DeviceTable::Add(const Candidate& candidate, const ibv_port_attr& attr) {
  if (physical_.size() >= kPhysicalMax || net_devices_.size() >= kNetDevicesMax) {
    return absl::OkStatus();
  }
  RAILHOP_RETURN_IF_ERROR(PlaneIndex(candidate.plane));
  verbs::Context* const context = candidate.context;
  std::unique_ptr<PhysicalDevice> device = MakePhysical(candidate, attr);
  const GidChoice gid = FindGid(*context, attr, candidate.port);
  device->gid_index = gid.index;
  if (!gid.doubt.empty()) {
    complaints_.push_back(absl::StrCat(PortName(*context, candidate.port), ": ", gid.doubt));
  }

  auto net = std::make_unique<NetDevice>();
  DeviceProperties& properties = net->properties;
  properties.name = device->name;
  properties.pci_path = MergedPciPath(candidate.full_path, rules_.merge_virtual);
  properties.guid = candidate.guid;
  properties.ptr_support = device->ptr_support;
  properties.speed_mbps = device->speed_mbps;
  properties.port = candidate.port;
  for (const auto& other : net_devices_) {
    // Ports of a card are told apart by how many of its functions come before.
    if (other->parts.size() == 1 &&
        SameCard(properties.pci_path, other->properties.pci_path, rules_.merge_virtual)) {
      ++properties.port;
    }
  }
  properties.max_comms = candidate.max_qp;
  properties.rail_id = candidate.rail;
  properties.plane_id = candidate.plane;
  properties.fused = {static_cast<int>(net_devices_.size())};
  properties.max_p2p_bytes = kMaxP2pBytes;
  properties.max_coll_bytes = kMaxCollBytes;
  net->parts = {device.get()};
  if (const absl::StatusOr<ibv_gid> raw = context->QueryGid(candidate.port, gid.index); raw.ok()) {
    std::memcpy(device->gid.data(), raw->raw, device->gid.size());
    gid_text_[device->id] = GidText(device->gid);
  }
  physical_.push_back(std::move(device));
  net_devices_.push_back(std::move(net));
  return absl::OkStatus();
}

absl::StatusOr<int> DeviceTable::PlaneIndex(int plane) {
  const auto found = std::find(planes_.begin(), planes_.end(), plane);
  if (found != planes_.end()) return static_cast<int>(found - planes_.begin());
  if (static_cast<int>(planes_.size()) >= kPlanesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL_IB_HCA names more than ", kPlanesMax - 1, " planes"));
  }
  if (plane != -1 && (plane & kFusedPlaneBit) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("NCCL_IB_HCA: ", plane, " cannot be a plane"));
  }
  planes_.push_back(plane);
  return static_cast<int>(planes_.size()) - 1;
}

GidChoice DeviceTable::FindGid(const verbs::Context& context, const ibv_port_attr& attr,
                               uint8_t port) const {
  const GidReader read = GidsOf(context, port, attr.gid_tbl_len, rules_.root);
  return ChooseGid(rules_.gid, attr.link_layer == IBV_LINK_LAYER_ETHERNET, attr.gid_tbl_len, read);
}

int DeviceTable::Speed(const verbs::Context& context, const ibv_port_attr& attr,
                       uint8_t port) const {
  uint64_t hundred_mbps = 0;
  if (rules_.ask_speed && table_->query_port_speed != nullptr &&
      table_->query_port_speed(context.raw(), port, &hundred_mbps) == 0) {
    return static_cast<int>(hundred_mbps * 100);
  }
  return SpeedMbpsFromCodes(attr.active_width, attr.active_speed);
}

int DeviceTable::PointerSupport(verbs::Context* context) const {
  return kPointerHost | (peer_memory_ ? kPointerCuda : 0) |
         (verbs::ProbeDmaBuf(context) ? kPointerDmaBuf : 0);
}

void DeviceTable::Complain(std::string text) {
  absl::MutexLock lock(&mutex_);
  complaints_.push_back(std::move(text));
}

std::vector<std::string> DeviceTable::Complaints() const {
  absl::ReaderMutexLock lock(&mutex_);
  return complaints_;
}

void DeviceTable::ExplainNoDevice(int listed) {
  const std::vector<std::string> waiting = WaitingPorts();
  bool opened;
  {
    absl::ReaderMutexLock lock(&mutex_);
    opened = !contexts_.empty();
  }
  if (listed == 0) {
    Complain("libibverbs lists no RDMA device");
  } else if (!waiting.empty()) {
    Complain(absl::StrCat("no port is up (waiting: ", absl::StrJoin(waiting, ", "), ")"));
  } else if (!opened && closed_.empty() && Complaints().empty()) {
    Complain(absl::StrCat("NCCL_IB_HCA selects none of the ", listed,
                          " devices, or none has a usable port"));
  }
}

int DeviceTable::Count() const {
  absl::ReaderMutexLock lock(&mutex_);
  return static_cast<int>(net_devices_.size());
}

const NetDevice* DeviceTable::Get(int index) const {
  absl::ReaderMutexLock lock(&mutex_);
  if (index < 0 || index >= static_cast<int>(net_devices_.size())) return nullptr;
  return net_devices_[static_cast<size_t>(index)].get();
}

std::vector<const PhysicalDevice*> DeviceTable::Physical() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<const PhysicalDevice*> all;
  for (const auto& device : physical_) all.push_back(device.get());
  return all;
}

absl::StatusOr<int> DeviceTable::Fuse(absl::Span<const int> devices) {
  absl::MutexLock lock(&mutex_);
  if (devices.size() > 1 && !rules_.may_fuse) {
    return absl::FailedPreconditionError("devices are not fused: NCCL_IB_MERGE_NICS=0");
  }
  if (devices.empty() || devices.size() > kFusedDevicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a net device is made of 1 to ", kFusedDevicesMax, ", not ", devices.size()));
  }
  if (net_devices_.size() >= kNetDevicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", kNetDevicesMax, " net devices already"));
  }
  auto net = std::make_unique<NetDevice>();
  DeviceProperties& properties = net->properties;
  int planes = kFusedPlaneBit;
  for (const int index : devices) {
    if (index < 0 || index >= static_cast<int>(net_devices_.size()) ||
        net_devices_[static_cast<size_t>(index)]->parts.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("net device ", index, " is no physical one"));
    }
    const NetDevice& part = *net_devices_[static_cast<size_t>(index)];
    if (net->parts.empty()) {
      properties = part.properties;
      properties.fused.clear();
    } else {
      const PhysicalDevice& first = *net->parts[0];
      if (part.parts[0]->is_ethernet != first.is_ethernet) {
        return absl::InvalidArgumentError(
            absl::StrCat("cannot fuse ", first.name, " (", LinkName(first.is_ethernet), ") and ",
                         part.parts[0]->name, " (", LinkName(!first.is_ethernet),
                         "); select one kind with NCCL_IB_HCA"));
      }
      absl::StrAppend(&properties.name, "+", part.properties.name);
      properties.speed_mbps += part.properties.speed_mbps;
      properties.ptr_support &= part.properties.ptr_support;
      properties.max_comms = std::min(properties.max_comms, part.properties.max_comms);
      if (properties.rail_id != part.properties.rail_id) properties.rail_id = -1;
    }
    if (std::find(net->parts.begin(), net->parts.end(), part.parts[0]) != net->parts.end()) {
      return absl::InvalidArgumentError(absl::StrCat("net device ", index, " is named twice"));
    }
    RAILHOP_ASSIGN_OR_RETURN(const int plane, PlaneIndex(part.properties.plane_id));
    planes |= 1 << plane;
    properties.fused.push_back(index);
    net->parts.push_back(part.parts[0]);
  }
  if (devices.size() > 1) properties.plane_id = planes;
  net_devices_.push_back(std::move(net));
  return static_cast<int>(net_devices_.size()) - 1;
}

std::vector<std::string> DeviceTable::Describe() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<std::string> lines;
  for (size_t i = 0; i < net_devices_.size(); ++i) {
    const DeviceProperties& properties = net_devices_[i]->properties;
    const PhysicalDevice& first = *net_devices_[i]->parts[0];
    const auto gid = gid_text_.find(first.id);
    std::string line =
        absl::StrCat("device [", i, "] ", properties.name, ":", first.port, " ",
                     LinkName(first.is_ethernet), " speed ", properties.speed_mbps, " Mb/s, GID ",
                     first.gid_index, " ", gid == gid_text_.end() ? "?" : gid->second, ", PCI ",
                     properties.pci_path.empty()
                         ? "unknown"
                         : properties.pci_path.substr(properties.pci_path.rfind('/') + 1),
                     ", memory host", (properties.ptr_support & kPointerCuda) != 0 ? "+peer" : "",
                     (properties.ptr_support & kPointerDmaBuf) != 0 ? "+dmabuf" : "",
                     first.relaxed_ordering ? ", relaxed ordering" : "");
    if (properties.rail_id != -1) absl::StrAppend(&line, ", rail ", properties.rail_id);
    if (properties.plane_id != -1) absl::StrAppend(&line, ", plane ", properties.plane_id);
    lines.push_back(std::move(line));
  }
  return lines;
}

void DeviceTable::StartWatching(int64_t interval_ns) {
  if (watch_ == nullptr) watch_ = std::make_unique<PortWatch>(this, interval_ns);
}

void DeviceTable::StopWatching() { watch_.reset(); }

int DeviceTable::JoinPorts() {
  std::vector<Candidate> waiting;
  {
    absl::ReaderMutexLock lock(&mutex_);
    waiting = waiting_;
  }
  int joined = 0;
  for (const Candidate& candidate : waiting) {
    // Without the lock: a sick device may take its time to answer.
    const absl::StatusOr<ibv_port_attr> attr = candidate.context->QueryPort(candidate.port);
    if (!attr.ok() || attr->state != IBV_PORT_ACTIVE || !LinkIsUsable(*attr)) continue;
    absl::MutexLock lock(&mutex_);
    const auto same = [&](const Candidate& other) {
      return other.context == candidate.context && other.port == candidate.port;
    };
    const auto place = std::find_if(waiting_.begin(), waiting_.end(), same);
    if (place == waiting_.end()) continue;  // another caller was faster
    waiting_.erase(place);
    if (const absl::Status status = Add(candidate, *attr); !status.ok()) continue;
    ++joined;
    RAILHOP_LOG(kInfo, "port %s:%d has come up and joins as net device %d",
                candidate.context->name().c_str(), candidate.port,
                static_cast<int>(net_devices_.size()) - 1);
  }
  return joined;
}

void DeviceTable::Readopt(const PhysicalDevice& lost, verbs::Context* context,
                          const ibv_port_attr& attr) {
  const Candidate candidate{.context = context,
                            .port = lost.port,
                            .rail = lost.rail_id,
                            .plane = lost.plane_id,
                            .full_path = RealPciPath(rules_.root + context->sysfs_path())};
  std::unique_ptr<PhysicalDevice> device = MakePhysical(candidate, attr);
  device->replaces = lost.id;
  device->gid_index = FindGid(*context, attr, lost.port).index;
  // Known again by the address that it had; it may come later than the device.
  device->gid = lost.gid;
  if (device->pkey == 0) device->pkey = lost.pkey;
  if (const auto text = gid_text_.find(lost.id); text != gid_text_.end()) {
    gid_text_[device->id] = text->second;
  }
  for (std::unique_ptr<NetDevice>& net : net_devices_) {
    const auto part = std::find(net->parts.begin(), net->parts.end(), &lost);
    if (part == net->parts.end()) continue;
    auto renewed = std::make_unique<NetDevice>(*net);
    renewed->parts[static_cast<size_t>(part - net->parts.begin())] = device.get();
    retired_.push_back(std::exchange(net, std::move(renewed)));
  }
  RAILHOP_LOG(kInfo, "%s:%d is back as %s: new connections use it", lost.name.c_str(), lost.port,
              device->name.c_str());
  physical_.push_back(std::move(device));
}

int DeviceTable::Rescan(absl::Span<const int> gone) {
  int added = JoinPorts();
  std::vector<const PhysicalDevice*> lost;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& device : physical_) {
      const bool renewed = std::any_of(physical_.begin(), physical_.end(), [&](const auto& other) {
        return other->replaces == device->id;
      });
      const bool is_gone = std::find(gone.begin(), gone.end(), device->id) != gone.end();
      if (is_gone && !renewed && device->guid != 0) lost.push_back(device.get());
    }
  }
  if (lost.empty()) return added;
  verbs::ForEachDevice(*table_, [&](ibv_device* found) {
    const uint64_t guid = be64toh(table_->get_device_guid(found));
    const auto same = [guid](const PhysicalDevice* device) { return device->guid == guid; };
    if (std::none_of(lost.begin(), lost.end(), same)) return;
    absl::StatusOr<std::unique_ptr<verbs::Context>> context = verbs::Context::Open(table_, found);
    if (!context.ok()) return;
    bool used = false;
    for (const PhysicalDevice*& device : lost) {
      if (device->guid != guid) continue;
      const absl::StatusOr<ibv_port_attr> attr = (*context)->QueryPort(device->port);
      if (!attr.ok() || !LinkIsUsable(*attr)) continue;
      absl::MutexLock lock(&mutex_);
      if (physical_.size() >= kPhysicalMax) continue;
      Readopt(*device, context->get(), *attr);
      // A second device of this GUID is another one.
      static const PhysicalDevice kFound;
      device = &kFound;
      used = true;
      ++added;
    }
    if (!used) return;
    absl::MutexLock lock(&mutex_);
    contexts_.push_back(*std::move(context));
  }).IgnoreError();
  return added;
}

std::vector<std::string> DeviceTable::WaitingPorts() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<std::string> names;
  for (const Candidate& candidate : waiting_) {
    names.push_back(PortName(*candidate.context, candidate.port));
  }
  return names;
}

std::vector<const verbs::Context*> DeviceTable::IdleContexts() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<const verbs::Context*> idle;
  for (const auto& context : contexts_) {
    const bool used = std::any_of(physical_.begin(), physical_.end(), [&](const auto& device) {
      return device->context == context.get();
    });
    if (!used) idle.push_back(context.get());
  }
  return idle;
}

}  // namespace railhop::runtime
