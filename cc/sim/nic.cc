#include "cc/sim/nic.h"

#include <algorithm>

#include "cc/rdma_model/fault_words.h"

namespace railhop::sim {

rdma::TopologyGid Port::GidAt(uint32_t entry) const {
  if (entry >= now.gids.size() || ((hidden_gids >> entry) & 1) != 0) return {};
  return now.gids[entry];
}

Nic::Nic(Shared* shared, Host* host, const rdma::TopologyDevice& config, uint32_t index,
         uint32_t first_port)
    : shared_(shared), host_(host), config_(config), index_(index) {
  for (const rdma::TopologyPort& port : config.ports) {
    auto made = std::make_unique<Port>();
    made->nic = this;
    made->index = first_port++;
    made->number = static_cast<uint32_t>(ports_.size()) + 1;
    made->now = port;
    made->link = port.up ? rdma::PortLinkState::kActive : rdma::PortLinkState::kDown;
    ports_.push_back(std::move(made));
  }
  for (const std::string& name : config.quirks) {
    if (const rdma::NamedValue* row = rdma::FindName(rdma::QuirkRows(), name)) {
      quirks_ |= row->value;
    }
  }
  next_qpn_ = 0x100 + static_cast<uint32_t>(shared->chance.Below(1 << 20));
  key_tag_ = static_cast<uint32_t>(shared->chance.Below(200));
}

Port* Nic::port(uint32_t number) {
  return number == 0 || number > ports_.size() ? nullptr : ports_[number - 1].get();
}

void Nic::SetRemoved(bool removed) {
  removed_ = removed;
  ++shared_->address_generation;
  if (!removed) return;
  const std::vector<NicListener*> listeners = listeners_;  // they leave while they hear it
  for (NicListener* listener : listeners) listener->OnNicRemoved();
}

uint32_t Nic::AddRegion(rdma::MemoryRegion region) {
  if (region_count_ >= config_.caps.max_mr) return 0;
  uint32_t index = 0;
  if (free_regions_.empty()) {
    index = static_cast<uint32_t>(regions_.size()) + 1;
    regions_.emplace_back();
  } else {
    index = free_regions_.back();
    free_regions_.pop_back();
  }
  // The tag makes an old key of the same place miss.
  key_tag_ = key_tag_ % 251 + 1;
  region.key = index << 8 | key_tag_;
  regions_[index - 1] = region;
  ++region_count_;
  return region.key;
}

void Nic::RemoveRegion(uint32_t key) {
  if (FindRegion(key) == nullptr) return;
  regions_[(key >> 8) - 1] = {};
  free_regions_.insert(free_regions_.begin(), key >> 8);
  --region_count_;
}

const rdma::MemoryRegion* Nic::FindRegion(uint32_t key) const {
  const uint32_t index = key >> 8;
  if (index == 0 || index > regions_.size()) return nullptr;
  const rdma::MemoryRegion& region = regions_[index - 1];
  return region.key == key ? &region : nullptr;
}

uint32_t Nic::NewQpn() {
  next_qpn_ += 1 + static_cast<uint32_t>(shared_->chance.Below(7));
  return next_qpn_ & 0xffffff;
}

QueuePair* Nic::FindQp(uint32_t qpn) const {
  const auto it = qps_.find(qpn);
  return it == qps_.end() ? nullptr : it->second;
}

void Nic::RemoveListener(NicListener* listener) {
  listeners_.erase(std::remove(listeners_.begin(), listeners_.end(), listener), listeners_.end());
}

}  // namespace railhop::sim
