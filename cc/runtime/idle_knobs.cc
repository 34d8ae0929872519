#include "cc/runtime/idle_knobs.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "cc/config/option_table.h"

namespace railhop::runtime {
namespace {

constexpr std::string_view kRoceOnly[] = {
    "NCCL_IB_GID_INDEX", "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE",
    "NCCL_IB_TC",        "NCCL_IB_FIFO_TC",
};
constexpr std::string_view kInfiniBandOnly[] = {"NCCL_IB_ROUTABLE_FLID_GID_INDEX"};

bool AdaptiveRouting(const config::Options& options, FoundLinks found) {
  return options.ib_adaptive_routing == -2 ? found.infiniband : options.ib_adaptive_routing != 0;
}

}  // namespace

std::vector<std::string> IdleKnobs(const config::LoadedOptions& loaded, FoundLinks found) {
  std::vector<std::string> notes;
  for (const config::EffectiveOption& option : loaded.effective) {
    if (!option.set) continue;
    const std::string_view name = option.row->name;
    const auto note = [&](std::string_view why) {
      notes.push_back(
          absl::StrCat(option.row->name, "=", option.value, " has no effect: ", std::string(why)));
    };
    for (const std::string_view only : kRoceOnly) {
      if (name == only && !found.roce) note("it is for RoCE, and all ports are InfiniBand");
    }
    for (const std::string_view only : kInfiniBandOnly) {
      if (name == only && !found.infiniband) note("it is for InfiniBand, and all ports are RoCE");
    }
    if (name == "NCCL_IB_AR_THRESHOLD" && !AdaptiveRouting(loaded.options, found)) {
      note("adaptive routing is off (NCCL_IB_ADAPTIVE_ROUTING)");
    }
  }
  return notes;
}

}  // namespace railhop::runtime
