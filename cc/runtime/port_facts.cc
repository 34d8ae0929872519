#include "cc/runtime/port_facts.h"

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cc/base/status_macros.h"
#include "cc/runtime/device_place.h"
#include "cc/verbs/context.h"

namespace railhop::runtime {
namespace {

constexpr std::array<uint8_t, 16> kNoGid = {};

struct Address {
  int index = -1;
  std::array<uint8_t, 16> gid = {};
  std::string doubt;
};

Address Pinned(const PhysicalDevice& device, int index, const GidReader& read) {
  const std::optional<GidEntry> entry = read(index);
  if (entry.has_value() && entry->raw != kNoGid &&
      (device.gid == kNoGid || entry->raw == device.gid)) {
    return {index, entry->raw, ""};
  }
  return {-1, kNoGid,
          absl::StrCat("NCCL_IB_GID_INDEX=", index, " is pinned and has ",
                       !entry.has_value()     ? "no entry that can be read"
                       : entry->raw == kNoGid ? "no address"
                                              : absl::StrCat("the address ", GidText(entry->raw)),
                       " now", device.gid == kNoGid ? "" : ", not " + GidText(device.gid))};
}

// The same address of the same RoCE version, where it was or anywhere.
std::optional<int> SameAddress(const PhysicalDevice& device, const PortRules& rules,
                               int table_length, const GidReader& read) {
  const std::optional<GidEntry> there = read(device.gid_index);
  if (there.has_value() && there->raw == device.gid) return device.gid_index;
  std::optional<int> any;
  for (int i = 0; i < table_length; ++i) {
    const std::optional<GidEntry> entry = read(i);
    if (!entry.has_value() || entry->raw != device.gid) continue;
    // An address stands there once for each RoCE version.
    if (entry->roce_version == rules.gid.roce_version) return i;
    if (!any.has_value()) any = i;
  }
  return any;
}

Address FindAddress(const PhysicalDevice& device, const PortRules& rules, int table_length,
                    const GidReader& read) {
  if (device.is_ethernet && rules.gid.pinned_index >= 0) {
    return Pinned(device, static_cast<int>(rules.gid.pinned_index), read);
  }
  if (device.gid != kNoGid) {
    if (const std::optional<int> same = SameAddress(device, rules, table_length, read)) {
      return {*same, device.gid, ""};
    }
  }
  if (device.gid == kNoGid) {
    // Nobody has looked when it was found.
    const std::optional<GidEntry> there = read(device.gid_index);
    if (there.has_value() && there->raw != kNoGid) return {device.gid_index, there->raw, ""};
  }
  // Another address, by the rules; for a port that had a good one a poor one will not do.
  const GidChoice choice = ChooseGid(rules.gid, device.is_ethernet, table_length, read);
  const std::optional<GidEntry> entry = read(choice.index);
  const bool had_routable = device.is_ethernet && GidIsRoutable(device.gid);
  const bool usable =
      entry.has_value() && entry->raw != kNoGid && (!had_routable || GidIsRoutable(entry->raw));
  if (usable) return {choice.index, entry->raw, choice.doubt};
  return {-1, kNoGid,
          device.gid == kNoGid ? std::string("the port has no address")
                               : absl::StrCat("the port's address ", GidText(device.gid),
                                              " is not there now, and no other that would do")};
}

}  // namespace

GidReader GidsOf(const verbs::Context& context, uint8_t port, int table_length,
                 const std::string& root) {
  return [&context, port, table_length, root](int index) -> std::optional<GidEntry> {
    if (index < 0 || index >= table_length) return std::nullopt;
    const absl::StatusOr<ibv_gid> gid = context.QueryGid(port, index);
    if (!gid.ok()) return std::nullopt;
    GidEntry entry;
    std::memcpy(entry.raw.data(), gid->raw, entry.raw.size());
    const verbs::Table& table = context.table();
    ibv_gid_entry full = {};
    if (table.query_gid_ex != nullptr &&
        table.query_gid_ex(context.raw(), port, static_cast<uint32_t>(index), &full, 0,
                           sizeof full) == 0) {
      entry.roce_version = full.gid_type == IBV_GID_TYPE_ROCE_V2   ? 2
                           : full.gid_type == IBV_GID_TYPE_ROCE_V1 ? 1
                                                                   : 0;
    } else {
      entry.roce_version = RoceVersionFromSysfs(root + context.sysfs_path(), port, index);
    }
    return entry;
  };
}

absl::StatusOr<PortFacts> ReadPort(const PhysicalDevice& device, const PortRules& rules) {
  RAILHOP_ASSIGN_OR_RETURN(const ibv_port_attr attr, device.context->QueryPort(device.port));
  PortFacts facts;
  facts.active = attr.state == IBV_PORT_ACTIVE;
  facts.is_ethernet = device.is_ethernet;
  facts.mtu = static_cast<uint8_t>(attr.active_mtu);
  facts.lid = attr.lid;
  // The configured index is asked for whatever the port says of its table.
  const GidReader read = GidsOf(*device.context, device.port,
                                std::max(attr.gid_tbl_len, device.gid_index + 1), rules.root);
  Address address = FindAddress(device, rules, attr.gid_tbl_len, read);
  facts.gid_index = address.index;
  facts.gid = address.gid;
  facts.doubt = std::move(address.doubt);
  return facts;
}

absl::StatusOr<uint16_t> FindPkey(const PhysicalDevice& device, const PortRules& rules,
                                  uint16_t pkey) {
  if (pkey == 0) return static_cast<uint16_t>(rules.pkey_index);
  const verbs::Context& context = *device.context;
  const auto at = [&](int index) -> uint16_t {
    __be16 key = 0;
    if (context.table().query_pkey(context.raw(), device.port, index, &key) != 0) return 0;
    return be16toh(key);
  };
  if (at(rules.pkey_index) == pkey) return static_cast<uint16_t>(rules.pkey_index);
  RAILHOP_ASSIGN_OR_RETURN(const ibv_port_attr attr, context.QueryPort(device.port));
  for (int i = 0; i < attr.pkey_tbl_len; ++i) {
    if (at(i) == pkey) return static_cast<uint16_t>(i);
  }
  // The highest bit tells a full member from a limited one: the partition is the same.
  for (int i = 0; i < attr.pkey_tbl_len; ++i) {
    if ((at(i) & 0x7fff) == (pkey & 0x7fff)) return static_cast<uint16_t>(i);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(device.name, ":", device.port, " has no P_Key 0x", absl::Hex(pkey), " (index ",
                   rules.pkey_index, " has 0x", absl::Hex(at(rules.pkey_index)), ")"));
}

}  // namespace railhop::runtime
