// How NCCL reads the text of its own variables, so that a tuned job means the same here.
//
// NCCL is lenient, and jobs rely on it: text that is no number is 0, `010` is octal, an empty value
// is unset, a list item with an empty name vanishes. Each rule is carried over as it is; what looks
// like a mistake is reported beside the value (`NcclInt::clean`, `why_ignored`), never mended in
// silence.
//
// Source for all rules: NCCL v2.30.7-1: src/misc/param.cc, src/misc/utils.cc (lists),
// src/transport/net_ib/connect.cc (addresses), src/misc/socket.cc (magic, family).
#ifndef RAILHOP_CC_CONFIG_NCCL_VALUES_H_
#define RAILHOP_CC_CONFIG_NCCL_VALUES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace railhop::config {

// An integer as strtoll(base 0) reads it.
struct NcclInt {
  int64_t value = 0;
  bool set = false;   // the text was not empty; otherwise value is the default
  bool clean = true;  // the whole text was a number in range; otherwise a person should look at it
};

// "" gives the default. Leading digits count ("7 " is 7), no digits give 0, out of range gives the
// default.
NcclInt ParseNcclInt(std::string_view text, int64_t default_value);

// NCCL_SOCKET_MAGIC: 64 bits, the whole text must be a number of base 0; else nothing.
std::optional<uint64_t> ParseSocketMagic(std::string_view text);

// AF_INET or AF_INET6 if the text is one of these words; else `default_family`.
int ParseAddressFamily(std::string_view text, int default_family);

// One item of NCCL_IB_HCA or NCCL_SOCKET_IFNAME: name[:port[:rail[:plane]]]. -1 means any port, or
// no rail or plane.
struct NameFilterItem {
  std::string name;  // at most 63 bytes, as in NCCL
  int port = -1;
  int rail = -1;
  int plane = -1;
};

// The syntax of both: an optional '^' (all but these), then an optional '=' (whole names; without
// it an item matches each name that begins with it), then items between commas.
class NameFilter {
 public:
  static constexpr int kDevicesMax = 32;     // items that NCCL takes from NCCL_IB_HCA
  static constexpr int kInterfacesMax = 16;  // and from NCCL_SOCKET_IFNAME

  // Lets every name through.
  NameFilter() = default;

  // Items beyond items_max are dropped, as are those with an empty name; see dropped().
  static NameFilter Parse(std::string_view text, int items_max);

  struct Match {
    bool selected = false;
    int rail = -1;  // of the item that matched; -1 from a list of exclusions
    int plane = -1;
  };

  // port: of the device, or -1 for any. The first item that matches counts. A filter with no items
  // lets everything through, or with '^' nothing.
  Match Find(std::string_view name, int port) const;

  bool exclude() const { return exclude_; }
  bool exact() const { return exact_; }
  const std::vector<NameFilterItem>& items() const { return items_; }
  // Items that were left out: too many, or without a name.
  int dropped() const { return dropped_; }

 private:
  bool exclude_ = false;
  bool exact_ = false;
  int dropped_ = 0;
  std::vector<NameFilterItem> items_;
};

// NCCL_IB_ADDR_RANGE. prefix_length 0 takes every address, also one of another family.
struct AddressRange {
  int family = 0;                     // AF_INET or AF_INET6
  std::array<uint8_t, 16> address{};  // network order; IPv4 in the first 4 bytes
  int prefix_length = 0;              // bits; a negative one matches nothing, as in NCCL

  // gid: 16 bytes in network order; an IPv4 address is in its last 4.
  bool Contains(const uint8_t* gid) const;
};

// Text that NCCL ignores gives a range with prefix_length 0 and a sentence in *why_ignored (which
// may be null); "" does so without one.
AddressRange ParseAddressRange(std::string_view text, int family, std::string* why_ignored);

}  // namespace railhop::config

#endif  // RAILHOP_CC_CONFIG_NCCL_VALUES_H_
