// The plugin that is already in this process, by the calls of railhop_admin.h.
#ifndef RAILHOP_CC_ADMIN_LOADED_PLUGIN_H_
#define RAILHOP_CC_ADMIN_LOADED_PLUGIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "cc/admin/client.h"
#include "cc/admin/reply.h"

namespace railhop::admin {

// Loads nothing: of the libraries that are loaded, the first that exports the admin API. Calls wait
// in the calling thread; `timeout_ns` is not looked at, as only a wait for events takes time.
// Errors: kNotLoaded.
Reply<std::unique_ptr<Caller>> FindLoadedPlugin();

}  // namespace railhop::admin

#endif  // RAILHOP_CC_ADMIN_LOADED_PLUGIN_H_
