#include "cc/netperf/plugin_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cc/netperf/net_adapter.h"

namespace railhop::netperf {
namespace {

// The level that NCCL_DEBUG names; VERSION and nothing print no message of a plugin.
// Source: NCCL v2.30.7-1 src/debug.cc (names), src/include/nccl_common.h (numbers).
int LogLevel() {
  const char* text = getenv("NCCL_DEBUG");
  if (text == nullptr) return 0;
  if (strcasecmp(text, "WARN") == 0) return nccl::kLogWarn;
  if (strcasecmp(text, "INFO") == 0) return nccl::kLogInfo;
  if (strcasecmp(text, "ABORT") == 0) return nccl::kLogInfo + 1;
  if (strcasecmp(text, "TRACE") == 0) return nccl::kLogTrace;
  return 0;
}

std::mutex g_warning_mutex;
// Never destroyed: a plugin's threads may log while the process ends.
std::string& LastWarning() {
  static std::string& text = *new std::string();
  return text;
}

// What NCCL's own logger does, to standard error: standard output is for results.
__attribute__((format(printf, 5, 6))) void Log(int level, unsigned long subsystems,
                                               const char* file, int line, const char* format,
                                               ...) {
  static const int level_max = LogLevel();
  static_cast<void>(subsystems);
  if (level > level_max && level != nccl::kLogWarn) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (level == nccl::kLogWarn) {
    const std::lock_guard<std::mutex> lock(g_warning_mutex);
    LastWarning() = text;
  }
  if (level > level_max) return;
  if (level == nccl::kLogWarn) {
    fprintf(stderr, "[%d] %s:%d NCCL WARN %s\n", getpid(), file == nullptr ? "" : file, line, text);
  } else {
    fprintf(stderr, "[%d] NCCL INFO %s\n", getpid(), text);
  }
}

template <int kVersion>
std::unique_ptr<NetPlugin> LoadVersion(void* library, int version) {
  if constexpr (kVersion < kApiMin) {
    return nullptr;
  } else {
    if (version == 0 || version == kVersion) {
      char symbol[32];
      snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", kVersion);
      if (const void* table = dlsym(library, symbol); table != nullptr) {
        return std::make_unique<NetAdapter<kVersion>>(library, table, &Log);
      }
    }
    return LoadVersion<kVersion - 1>(library, version);
  }
}

}  // namespace

std::string LastPluginWarning() {
  const std::lock_guard<std::mutex> lock(g_warning_mutex);
  return LastWarning();
}

std::unique_ptr<NetPlugin> LoadNetPlugin(const std::string& path, int version, std::string* error) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *error = std::string("cannot load the plugin: ") + dlerror();
    return nullptr;
  }
  std::unique_ptr<NetPlugin> plugin = LoadVersion<kApiMax>(library, version);
  if (plugin == nullptr) {
    *error = path + " exports no ncclNetPlugin_v" +
             (version == 0 ? "6 to _v12" : std::to_string(version));
    dlclose(library);
  }
  return plugin;
}

}  // namespace railhop::netperf
