#include "cc/runtime/handshake_rules.h"

#include <arpa/inet.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace railhop::runtime {
namespace {

// Queue pair numbers named in a line; a fused net device may have 128.
constexpr size_t kNumbersShown = 4;

std::string DescribeEnd(const control::EndDescription& end) {
  std::vector<std::string> devices;
  for (const control::DeviceDescription& d : end.devices) {
    devices.push_back(d.is_ethernet ? absl::StrCat(d.name, ":", d.port, " gid ", FormatGid(d.gid))
                                    : absl::StrCat(d.name, ":", d.port, " lid ", d.lid));
  }
  std::vector<std::string> numbers;
  for (size_t i = 0; i < std::min(end.lanes.size(), kNumbersShown); ++i) {
    numbers.push_back(absl::StrCat("0x", absl::Hex(end.lanes[i].qp_number)));
  }
  if (end.lanes.size() > kNumbersShown) {
    numbers.push_back(absl::StrCat("... (", end.lanes.size(), ")"));
  }
  return absl::StrCat(absl::StrJoin(devices, "+"), " qp ", absl::StrJoin(numbers, ","));
}

}  // namespace

std::string VersionMismatch(const std::string& ours, uint16_t our_protocol,
                            const std::string& theirs, uint16_t their_protocol) {
  return absl::StrCat("this end has Railhop ", ours, " (protocol ", our_protocol,
                      "), the peer Railhop ", theirs, " (protocol ", their_protocol,
                      "): install the same version on every host");
}

void DescribeProcess(const Identity& identity, control::EndDescription* end) {
  end->plugin_version = identity.plugin_version;
  end->instance_id = identity.instance_id;
  end->host = identity.host;
  end->failover = identity.failover;
  end->confirm = identity.confirm;
  if (identity.failover) end->control_addresses = identity.control_addresses;
}

std::string DescribeConnection(const char* direction, const control::EndDescription& local,
                               const control::EndDescription& peer) {
  return absl::StrCat(direction, " ", peer.host, ": ", DescribeEnd(local), " / ",
                      DescribeEnd(peer));
}

std::string FormatGid(const std::array<uint8_t, 16>& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(std::begin(kMapped), std::end(kMapped), gid.begin())) {
    inet_ntop(AF_INET, gid.data() + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, gid.data(), text, sizeof(text));
  }
  return text;
}

}  // namespace railhop::runtime
