#include "cc/sim/plugin_judge.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cc/datapath/wire_format.h"

namespace railhop::sim {
namespace {

uint64_t AddressOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

uint64_t SequenceOf(const uint8_t* entry) {
  uint64_t sequence = 0;
  std::memcpy(&sequence, entry + offsetof(datapath::CtsEntry, sequence), sizeof(sequence));
  return sequence;
}

}  // namespace

void WriteJudge::Add(const void* data, size_t size, const std::string& name) {
  Place& place = places_[AddressOf(data)];
  place = Place();
  place.end = AddressOf(data) + size;
  place.name = name;
}

void WriteJudge::Remove(const void* data) { places_.erase(AddressOf(data)); }

void WriteJudge::Open(const void* data) {
  Place& place = places_.at(AddressOf(data));
  place.open = true;
  place.complained = false;
  place.posted.clear();
}

void WriteJudge::Close(const void* data) {
  Place& place = places_.at(AddressOf(data));
  place.open = false;
  place.posted.clear();
}

void WriteJudge::AddFifo(const void* data, size_t size, const std::string& name) {
  fifos_[AddressOf(data)] = {AddressOf(data) + size, name};
}

void WriteJudge::RemoveFifo(const void* data) { fifos_.erase(AddressOf(data)); }

WriteJudge::Place* WriteJudge::Find(uint64_t address) {
  auto next = places_.upper_bound(address);
  if (next == places_.begin()) return nullptr;
  --next;
  return address < next->second.end ? &next->second : nullptr;
}

void WriteJudge::OnPostWrite(const QueuePair& qp, uint64_t address, uint64_t length) {
  Place* place = Find(address);
  if (place == nullptr || !place->open || length == 0) return;
  const Part part{address, address + length, qp.qpn(), qp.attributes().dest_qpn};
  const bool again = std::any_of(place->posted.begin(), place->posted.end(), [&](const Part& p) {
    return p.begin < part.end && part.begin < p.end;
  });
  if (again) ++resent_;
  place->posted.push_back(part);
}

void WriteJudge::OnWrite(const QueuePair& qp, uint64_t address, const uint8_t* bytes,
                         uint32_t length) {
  auto next = fifos_.upper_bound(address);
  if (next != fifos_.begin()) {
    const Fifo& fifo = std::prev(next)->second;
    if (address < fifo.end) {
      constexpr uint32_t kEntry = sizeof(datapath::CtsEntry);
      for (uint32_t at = 0; at + kEntry <= length; at += kEntry) {
        const uint64_t old = SequenceOf(reinterpret_cast<const uint8_t*>(address + at));
        const uint64_t fresh = SequenceOf(bytes + at);
        if (fresh >= old) continue;
        violations_->Add(
            absl::StrCat(fifo.name, ": announcement ", fresh, " lands over announcement ", old));
      }
      return;
    }
  }
  Place* place = Find(address);
  if (place == nullptr || place->complained || length == 0) return;
  if (!place->open) {
    place->complained = true;
    violations_->Add(
        absl::StrCat(place->name, ": ", length, " bytes land in a buffer that waits for nothing"));
    return;
  }
  // The last that was posted for this byte.
  const auto last = std::find_if(place->posted.rbegin(), place->posted.rend(), [&](const Part& p) {
    return p.begin < address + length && address < p.end;
  });
  if (last == place->posted.rend()) return;  // posted before it was announced: content tells
  if (last->source_qpn == qp.attributes().dest_qpn && last->target_qpn == qp.qpn()) return;
  place->complained = true;
  violations_->Add(absl::StrCat(place->name, ": ", length, " bytes land over queue pair ", qp.qpn(),
                                " after they were sent again over ", last->target_qpn));
}

}  // namespace railhop::sim
