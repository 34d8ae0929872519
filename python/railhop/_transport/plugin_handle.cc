#include "python/railhop/_transport/plugin_handle.h"

#include "cc/netperf/plugin_loader.h"
#include "python/railhop/_transport/failure.h"

namespace railhop::transport {

std::unique_ptr<netperf::NetPlugin> StartPlugin(const std::string& path, int version) {
  std::string error;
  std::unique_ptr<netperf::NetPlugin> plugin = netperf::LoadNetPlugin(path, version, &error);
  if (plugin == nullptr) throw Failure(FailureKind::kLoad, error);
  if (const auto result = plugin->Init(); result != netperf::kNetSuccess) {
    throw Failure(FailureKind::kLoad, CallProblem("init of " + path, result), result);
  }
  int count = 0;
  const auto result = plugin->Devices(&count);
  if (result == netperf::kNetSuccess && count > 0) return plugin;
  plugin->Finalize();
  if (result != netperf::kNetSuccess) {
    throw Failure(FailureKind::kLoad, CallProblem("devices of " + path, result), result);
  }
  throw Failure(FailureKind::kLoad, path + " finds no device");
}

std::string CallProblem(const std::string& call, netperf::NetResult result) {
  std::string text =
      call + ": " + netperf::NetResultName(result) + " (" + std::to_string(result) + ")";
  const std::string said = netperf::LastPluginWarning();
  if (!said.empty()) text += "; the plugin said: " + said;
  return text;
}

void CheckCall(const std::string& call, netperf::NetResult result) {
  if (result == netperf::kNetSuccess) return;
  throw Failure(FailureKind::kPlugin, CallProblem(call, result), result);
}

}  // namespace railhop::transport
