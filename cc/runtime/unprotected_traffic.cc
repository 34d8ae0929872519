#include "cc/runtime/unprotected_traffic.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace railhop::runtime {

std::string UnprotectedTraffic(const config::Settings& settings,
                               const std::vector<std::string>& loaded_libraries) {
  std::vector<std::string> signs;
  for (const char* name : {"NCCL_GIN_PLUGIN", "NCCL_GIN_TYPE", "NCCL_RMA_PLUGIN"}) {
    const config::Setting* setting = settings.Find(name);
    if (setting != nullptr && !setting->value.empty()) {
      signs.push_back(absl::StrCat(name, "=", setting->value));
    }
  }
  for (const std::string& path : loaded_libraries) {
    const std::string base = path.substr(path.rfind('/') + 1);
    if (absl::StrContains(base, "deep_ep") || absl::StartsWith(base, "libnccl-gin") ||
        absl::StartsWith(base, "libnccl-rma")) {
      signs.push_back(base);
    }
  }
  if (signs.empty()) return "";
  return absl::StrCat("this process may use NCCL's device-initiated communication (GIN or RMA: ",
                      absl::StrJoin(signs, ", "),
                      "), which does not pass through a net plugin: that traffic is not protected");
}

}  // namespace railhop::runtime
