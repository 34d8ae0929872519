#include "cc/admin/loaded_plugin.h"

#include <dlfcn.h>
#include <link.h>

#include <utility>
#include <vector>

#include "cc/admin/railhop_admin.h"

namespace railhop::admin {
namespace {

using CallFunction = decltype(&railhop_admin_call);
using FreeFunction = decltype(&railhop_admin_free);

class LoadedPlugin final : public Caller {
 public:
  // The library stays loaded (-z nodelete), so the functions stay good without a handle.
  LoadedPlugin(CallFunction call, FreeFunction free) : call_(call), free_(free) {}

  Reply<std::string> Call(const std::string& request, int64_t /*timeout_ns*/) override {
    void* response = nullptr;
    size_t size = 0;
    if (call_(request.data(), request.size(), &response, &size) != RAILHOP_ADMIN_OK) {
      return Failure{.code = ErrorCode::kInternal, .message = "the plugin has no memory left"};
    }
    std::string bytes(static_cast<const char*>(response), size);
    free_(response);
    return bytes;
  }

 private:
  const CallFunction call_;
  const FreeFunction free_;
};

std::vector<std::string> LoadedLibraries() {
  std::vector<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        static_cast<std::vector<std::string>*>(out)->emplace_back(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

template <typename Function>
Function Symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

Reply<std::unique_ptr<Caller>> FindLoadedPlugin() {
  for (const std::string& name : LoadedLibraries()) {
    // The program itself comes first and has no name.
    void* const library = dlopen(name.empty() ? nullptr : name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    const auto call = Symbol<CallFunction>(library, "railhop_admin_call");
    const auto free = Symbol<FreeFunction>(library, "railhop_admin_free");
    dlclose(library);
    if (call != nullptr && free != nullptr) {
      return std::unique_ptr<Caller>(std::make_unique<LoadedPlugin>(call, free));
    }
  }
  return Failure{.code = ErrorCode::kNotLoaded,
                 .message =
                     "NCCL has not loaded the Railhop plugin in this process: set "
                     "NCCL_NET_PLUGIN, and ask after the first communicator was made"};
}

}  // namespace railhop::admin
