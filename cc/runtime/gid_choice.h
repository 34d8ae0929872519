// Which entry of a port's GID table a connection uses.
//
// RoCE ports have an entry for each address and RoCE version; the wrong one means no route, or a
// protocol that the switches do not carry. The rule is NCCL's, entry by entry, so that a job gets
// the same address as before. Where it differs: an entry that cannot be read is passed over instead
// of ending the search, and a port without any address of the wanted family gets its best other
// one, where NCCL would end with the link-local entry 0 that reaches nobody beyond the first
// switch.
//
// Source of the rule: NCCL v2.30.7-1 src/transport/net_ib/connect.cc.
#ifndef RAILHOP_CC_RUNTIME_GID_CHOICE_H_
#define RAILHOP_CC_RUNTIME_GID_CHOICE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cc/config/nccl_values.h"

namespace railhop::runtime {

struct GidEntry {
  std::array<uint8_t, 16> raw{};  // network order; all zero if the entry is empty
  int roce_version = 0;           // 1 or 2; 0 if not known, or on InfiniBand
};

// Nothing if the entry cannot be read. `index` from 0.
using GidReader = std::function<std::optional<GidEntry>(int index)>;

struct GidRule {
  int64_t pinned_index = -1;        // NCCL_IB_GID_INDEX; RoCE; >= 0 is used unchecked
  int64_t routable_index = 1;       // NCCL_IB_ROUTABLE_FLID_GID_INDEX; InfiniBand
  int64_t roce_version = 2;         // NCCL_IB_ROCE_VERSION_NUM
  int family = 0;                   // AF_INET or AF_INET6: NCCL_IB_ADDR_FAMILY
  bool family_is_explicit = false;  // then no address of another family is fallen back on
  config::AddressRange range;       // NCCL_IB_ADDR_RANGE
};

struct GidChoice {
  int index = 0;
  // Empty, or a sentence for a person: why this entry will hardly work.
  std::string doubt;
};

// The rule from the option texts. *doubt: why a text is ignored, or empty; may be null.
GidRule MakeGidRule(int64_t pinned_index, int64_t routable_index, int64_t roce_version,
                    const std::string& family, const std::string& range, std::string* doubt);

// table_length: of the port's GID table.
GidChoice ChooseGid(const GidRule& rule, bool is_ethernet, int table_length, const GidReader& read);

// 10.0.0.1 or fe80::1, as people write the address.
std::string GidText(const std::array<uint8_t, 16>& raw);

// AF_INET for an IPv4 address in IPv6's clothes, else AF_INET6.
int GidFamily(const std::array<uint8_t, 16>& raw);
// Neither empty nor link-local.
bool GidIsRoutable(const std::array<uint8_t, 16>& raw);

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_GID_CHOICE_H_
