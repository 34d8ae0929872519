#include "cc/runtime/testing/fabric_devices.h"

#include <cstdio>
#include <utility>

#include "cc/verbs/memory_region.h"

namespace railhop::runtime {

std::unique_ptr<FabricDevices> FabricDevices::Open(int ptr_support) {
  std::unique_ptr<FabricDevices> source(new FabricDevices());
  absl::StatusOr<std::shared_ptr<const verbs::Table>> table = verbs::LoadTable("");
  if (!table.ok()) {
    fprintf(stderr, "%s\n", std::string(table.status().message()).c_str());
    return source;
  }
  absl::MutexLock lock(&source->mutex_);
  verbs::ForEachDevice(**table, [&](ibv_device* found) {
    absl::StatusOr<std::unique_ptr<verbs::Context>> context = verbs::Context::Open(*table, found);
    if (!context.ok()) return;
    absl::StatusOr<ibv_port_attr> port = (*context)->QueryPort(1);
    if (!port.ok() || port->state != IBV_PORT_ACTIVE) return;
    auto part = std::make_unique<PhysicalDevice>();
    part->id = static_cast<int>(source->parts_.size());
    part->name = (*context)->name();
    part->context = context->get();
    part->is_ethernet = port->link_layer == IBV_LINK_LAYER_ETHERNET;
    part->ptr_support = ptr_support;
    part->relaxed_ordering = verbs::ProbeRelaxedOrdering(context->get());
    auto device = std::make_unique<NetDevice>();
    device->properties.name = part->name;
    device->properties.ptr_support = ptr_support;
    device->properties.fused = {part->id};
    device->parts = {part.get()};
    source->contexts_.push_back(*std::move(context));
    source->parts_.push_back(std::move(part));
    source->mutex_.AssertHeld();  // above; the analysis does not look into lambdas' callers
    source->devices_.push_back(std::move(device));
  }).IgnoreError();
  return source;
}

int FabricDevices::Count() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(devices_.size());
}

const NetDevice* FabricDevices::Get(int index) const {
  absl::MutexLock lock(&mutex_);
  if (index < 0 || index >= static_cast<int>(devices_.size())) return nullptr;
  return devices_[index].get();
}

std::vector<const PhysicalDevice*> FabricDevices::Physical() const {
  std::vector<const PhysicalDevice*> all;
  for (const auto& part : parts_) all.push_back(part.get());
  return all;
}

absl::StatusOr<int> FabricDevices::Fuse(absl::Span<const int> devices) {
  absl::MutexLock lock(&mutex_);
  auto fused = std::make_unique<NetDevice>();
  for (const int index : devices) {
    if (index < 0 || index >= static_cast<int>(parts_.size())) {
      return absl::InvalidArgumentError("no such device");
    }
    if (!fused->properties.name.empty()) fused->properties.name += "+";
    fused->properties.name += parts_[index]->name;
    fused->properties.ptr_support = devices_[index]->properties.ptr_support;
    fused->properties.fused.push_back(index);
    fused->parts.push_back(parts_[index].get());
  }
  devices_.push_back(std::move(fused));
  return static_cast<int>(devices_.size()) - 1;
}

}  // namespace railhop::runtime
