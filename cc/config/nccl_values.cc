#include "cc/config/nccl_values.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cc/base/strings.h"

namespace railhop::config {
namespace {

constexpr size_t kNameBytesMax = 63;      // of a list item; NCCL keeps 64 bytes with the end
constexpr size_t kAddressBytesMax = 127;  // of NCCL_IB_ADDR_RANGE

// atoi of one field of a list item; -1 if there is none.
int ItemNumber(const std::vector<std::string_view>& fields, size_t index) {
  if (index >= fields.size() || fields[index].empty()) return -1;
  return std::atoi(std::string(fields[index]).c_str());
}

bool BitsEqual(const uint8_t* a, const uint8_t* b, int bits) {
  const int whole = bits / 8;
  if (std::memcmp(a, b, static_cast<size_t>(whole)) != 0) return false;
  if (bits % 8 == 0) return true;
  const int mask = 0xff << (8 - bits % 8) & 0xff;
  return ((a[whole] ^ b[whole]) & mask) == 0;
}

}  // namespace

NcclInt ParseNcclInt(std::string_view text, int64_t default_value) {
  if (text.empty()) return {default_value, false, true};
  const std::string copy(text);
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(copy.c_str(), &end, 0);
  if (errno != 0) return {default_value, true, false};
  return {value, true, end != copy.c_str() && *end == '\0'};
}

std::optional<uint64_t> ParseSocketMagic(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const unsigned long long value = std::strtoull(copy.c_str(), &end, 0);
  if (end == copy.c_str() || *end != '\0') return std::nullopt;
  return value;
}

int ParseAddressFamily(std::string_view text, int default_family) {
  if (text == "AF_INET") return AF_INET;
  if (text == "AF_INET6") return AF_INET6;
  return default_family;
}

NameFilter NameFilter::Parse(std::string_view text, int items_max) {
  NameFilter filter;
  if (!text.empty() && text.front() == '^') {
    filter.exclude_ = true;
    text.remove_prefix(1);
  }
  if (!text.empty() && text.front() == '=') {
    filter.exact_ = true;
    text.remove_prefix(1);
  }
  for (const std::string_view entry : Split(text, ',')) {
    if (entry.empty()) continue;
    const std::vector<std::string_view> fields = Split(entry, ':');
    if (fields[0].empty() || filter.items_.size() >= static_cast<size_t>(items_max)) {
      ++filter.dropped_;
      continue;
    }
    filter.items_.push_back({std::string(fields[0].substr(0, kNameBytesMax)), ItemNumber(fields, 1),
                             ItemNumber(fields, 2), ItemNumber(fields, 3)});
  }
  return filter;
}

NameFilter::Match NameFilter::Find(std::string_view name, int port) const {
  if (items_.empty()) return {!exclude_, -1, -1};
  for (const NameFilterItem& item : items_) {
    const bool name_fits = exact_ ? name == item.name : name.starts_with(item.name);
    const bool port_fits = port == -1 || item.port == -1 || port == item.port;
    if (!name_fits || !port_fits) continue;
    if (exclude_) return {false, -1, -1};
    return {true, item.rail, item.plane};
  }
  return {exclude_, -1, -1};
}

bool AddressRange::Contains(const uint8_t* gid) const {
  if (prefix_length == 0) return true;
  if (prefix_length < 0) return false;
  return BitsEqual(address.data(), family == AF_INET ? gid + 12 : gid, prefix_length);
}

AddressRange ParseAddressRange(std::string_view text, int family, std::string* why_ignored) {
  AddressRange range;
  range.family = family;
  const auto ignored = [&](const std::string& why) {
    if (why_ignored != nullptr) *why_ignored = why;
    AddressRange all;
    all.family = family;
    return all;
  };
  if (text.empty()) return range;
  text = text.substr(0, kAddressBytesMax);
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    return ignored("no '/' in " + Quote(text) + " (wanted: address/bits)");
  }
  const std::string address(text.substr(0, slash));
  const int bits_max = family == AF_INET ? 32 : 128;
  const char* family_name = family == AF_INET ? "AF_INET" : "AF_INET6";
  if (inet_pton(family, address.c_str(), range.address.data()) != 1) {
    return ignored(Quote(address) + " is no address of " + family_name);
  }
  const std::string bits(text.substr(slash + 1));
  const long length = std::strtol(bits.c_str(), nullptr, 10);
  if (length > bits_max) {
    return ignored("prefix length " + Quote(bits) + " is over " + std::to_string(bits_max));
  }
  // Kept small: cut to 32 bits, a large negative number would become a positive one.
  range.prefix_length = static_cast<int>(std::max(length, -1L));
  return range;
}

}  // namespace railhop::config
