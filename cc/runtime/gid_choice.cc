#include "cc/runtime/gid_choice.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>

namespace railhop::runtime {
namespace {

using Raw = std::array<uint8_t, 16>;

bool AllZero(const Raw& raw, size_t from, size_t to) {
  return std::all_of(raw.begin() + from, raw.begin() + to, [](uint8_t b) { return b == 0; });
}

bool IsLinkLocal(const Raw& raw) { return raw[0] == 0xfe && raw[1] == 0x80 && AllZero(raw, 2, 8); }

// The routing id of an InfiniBand GID: bytes 4 and 5.
int Flid(const Raw& raw) { return raw[4] << 8 | raw[5]; }

// The walk over the table: starts at entry 0 and takes each entry that is better.
int WalkTable(const GidRule& rule, int family, int table_length, const GidReader& read) {
  int best = 0;
  GidEntry current = read(0).value_or(GidEntry{});
  for (int i = 1; i < table_length; ++i) {
    const std::optional<GidEntry> candidate = read(i);
    if (!candidate.has_value()) continue;
    if (GidFamily(candidate->raw) != family || !rule.range.Contains(candidate->raw.data()))
      continue;
    bool better = GidFamily(current.raw) != family;
    if (!better && GidIsRoutable(candidate->raw)) {
      better = candidate->roce_version == rule.roce_version &&
               (current.roce_version != candidate->roce_version || !GidIsRoutable(current.raw));
    }
    if (!better) continue;
    best = i;
    current = *candidate;
  }
  return best;
}

// Whether the walk ended at an address that it wanted.
bool Fits(const GidRule& rule, int family, int index, const GidReader& read) {
  const std::optional<GidEntry> entry = read(index);
  return entry.has_value() && GidFamily(entry->raw) == family && GidIsRoutable(entry->raw) &&
         rule.range.Contains(entry->raw.data());
}

std::string Doubt(const GidRule& rule, int index, const GidReader& read) {
  const std::optional<GidEntry> entry = read(index);
  const std::string place = "GID index " + std::to_string(index);
  if (!entry.has_value()) return place + " cannot be read";
  if (AllZero(entry->raw, 0, 16)) return place + " is empty";
  const std::string shown = place + " (" + GidText(entry->raw) + ")";
  if (IsLinkLocal(entry->raw)) return shown + " is link-local: it reaches nobody beyond the switch";
  if (entry->roce_version != 0 && entry->roce_version != rule.roce_version) {
    return shown + " is RoCE v" + std::to_string(entry->roce_version);
  }
  return "";
}

}  // namespace

int GidFamily(const Raw& raw) {
  const bool mapped = AllZero(raw, 0, 10) && raw[10] == 0xff && raw[11] == 0xff;
  const bool mapped_multicast =
      raw[0] == 0xff && raw[1] == 0x0e && AllZero(raw, 2, 10) && raw[10] == 0xff && raw[11] == 0xff;
  return mapped || mapped_multicast ? AF_INET : AF_INET6;
}

bool GidIsRoutable(const Raw& raw) { return !AllZero(raw, 0, 16) && !IsLinkLocal(raw); }

std::string GidText(const Raw& raw) {
  char text[INET6_ADDRSTRLEN] = "";
  if (GidFamily(raw) == AF_INET && raw[0] == 0) {
    inet_ntop(AF_INET, raw.data() + 12, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, raw.data(), text, sizeof text);
  }
  return text;
}

GidRule MakeGidRule(int64_t pinned_index, int64_t routable_index, int64_t roce_version,
                    const std::string& family, const std::string& range, std::string* doubt) {
  GidRule rule;
  rule.pinned_index = pinned_index;
  rule.routable_index = routable_index;
  rule.roce_version = roce_version;
  rule.family = config::ParseAddressFamily(family, AF_INET);
  rule.family_is_explicit = family == "AF_INET" || family == "AF_INET6";
  rule.range = config::ParseAddressRange(range, rule.family, doubt);
  return rule;
}

GidChoice ChooseGid(const GidRule& rule, bool is_ethernet, int table_length,
                    const GidReader& read) {
  if (!is_ethernet) {
    const int64_t routable = rule.routable_index;
    if (routable >= 0 && routable < table_length) {
      const std::optional<GidEntry> entry = read(static_cast<int>(routable));
      if (entry.has_value() && Flid(entry->raw) != 0) return {static_cast<int>(routable), ""};
    }
    return {0, ""};
  }
  if (rule.pinned_index >= 0) {
    const int index = static_cast<int>(rule.pinned_index);
    return {index, Doubt(rule, index, read)};
  }
  int index = WalkTable(rule, rule.family, table_length, read);
  if (!Fits(rule, rule.family, index, read) && !rule.family_is_explicit &&
      rule.range.prefix_length == 0) {
    const int other_family = rule.family == AF_INET ? AF_INET6 : AF_INET;
    const int other = WalkTable(rule, other_family, table_length, read);
    if (Fits(rule, other_family, other, read)) return {other, Doubt(rule, other, read)};
  }
  return {index, Doubt(rule, index, read)};
}

}  // namespace railhop::runtime
