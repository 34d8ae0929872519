#include "cc/verbs/table.h"

#include <dlfcn.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace railhop::verbs {
namespace {

// A function that has been in the library under this version ever since.
template <typename F>
bool Find(void* library, const char* name, const char* version, F* function) {
  void* found = dlvsym(library, name, version);
  if (found == nullptr) found = dlsym(library, name);  // a drop-in without versions
  static_assert(sizeof(found) == sizeof(*function));
  memcpy(function, &found, sizeof(found));
  return found != nullptr;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Table>> LoadTable(const std::string& path) {
  const char* file = path.empty() ? kDefaultLibrary : path.c_str();
  // Never closed: providers leave threads and handlers behind.
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return absl::NotFoundError(why != nullptr ? why : absl::StrCat("cannot load ", file));
  }
  auto table = std::make_shared<Table>();
  const char* missing = nullptr;
  const auto must = [&](const char* name, auto* function) {
    if (!Find(library, name, "IBVERBS_1.1", function) && missing == nullptr) missing = name;
  };
  must("ibv_get_device_list", &table->get_device_list);
  must("ibv_free_device_list", &table->free_device_list);
  must("ibv_get_device_name", &table->get_device_name);
  must("ibv_get_device_guid", &table->get_device_guid);
  must("ibv_open_device", &table->open_device);
  must("ibv_close_device", &table->close_device);
  must("ibv_query_device", &table->query_device);
  must("ibv_query_port", &table->query_port);
  must("ibv_query_gid", &table->query_gid);
  must("ibv_query_pkey", &table->query_pkey);
  must("ibv_alloc_pd", &table->alloc_pd);
  must("ibv_dealloc_pd", &table->dealloc_pd);
  must("ibv_reg_mr", &table->reg_mr);
  must("ibv_dereg_mr", &table->dereg_mr);
  must("ibv_create_cq", &table->create_cq);
  must("ibv_destroy_cq", &table->destroy_cq);
  must("ibv_create_qp", &table->create_qp);
  must("ibv_modify_qp", &table->modify_qp);
  must("ibv_query_qp", &table->query_qp);
  must("ibv_destroy_qp", &table->destroy_qp);
  must("ibv_get_async_event", &table->get_async_event);
  must("ibv_ack_async_event", &table->ack_async_event);
  if (missing != nullptr) {
    return absl::UnimplementedError(absl::StrCat(file, " has no ", missing));
  }
  Find(library, "ibv_fork_init", "IBVERBS_1.1", &table->fork_init);
  Find(library, "ibv_reg_mr_iova2", "IBVERBS_1.8", &table->reg_mr_iova2);
  Find(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12", &table->reg_dmabuf_mr);
  Find(library, "ibv_query_ece", "IBVERBS_1.10", &table->query_ece);
  Find(library, "ibv_set_ece", "IBVERBS_1.10", &table->set_ece);
  Find(library, "_ibv_query_gid_ex", "IBVERBS_1.11", &table->query_gid_ex);
  Find(library, "ibv_query_port_speed", "IBVERBS_1.16", &table->query_port_speed);
  return std::shared_ptr<const Table>(std::move(table));
}

}  // namespace railhop::verbs
