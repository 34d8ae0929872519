// An open verbs device, and the list of what could be opened.
#ifndef RAILHOP_CC_VERBS_CONTEXT_H_
#define RAILHOP_CC_VERBS_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cc/verbs/table.h"

namespace railhop::verbs {

// Thread-safe. Outlives all that is made from it.
class Context {
 public:
  // Errors: Internal (cannot be opened).
  static absl::StatusOr<std::unique_ptr<Context>> Open(std::shared_ptr<const Table> table,
                                                       ibv_device* device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const std::string& name() const { return name_; }
  // As the device gives it, in host order.
  uint64_t guid() const { return guid_; }
  const Table& table() const { return *table_; }
  ibv_context* raw() const { return context_; }
  // Directory of the device in /sys, such as "/sys/class/infiniband/mlx5_0"; may not exist.
  const char* sysfs_path() const { return context_->device->ibdev_path; }

  absl::StatusOr<ibv_device_attr> QueryDevice() const;
  // port from 1.
  absl::StatusOr<ibv_port_attr> QueryPort(uint8_t port) const;
  absl::StatusOr<ibv_gid> QueryGid(uint8_t port, int index) const;

  // After a call has failed with `error_number`: whether the device is gone. One call that says so
  // is not enough: a query has to say it too.
  bool IsGone(int error_number) const;

  // The device's protection domain, made at the first call and kept.
  absl::StatusOr<ibv_pd*> ProtectionDomain();

  // What could not be destroyed and has no owner any more: it holds up what it was made from (a
  // queue pair its completion queue), so it is tried again later, and when the context ends.
  void Keep(ibv_qp* qp);
  void Keep(ibv_cq* cq);
  // Tries to destroy what is kept. Whether something was. Where calls may hang.
  bool EndKept();

 private:
  Context(std::shared_ptr<const Table> table, ibv_context* context, ibv_device* device);

  const std::shared_ptr<const Table> table_;
  ibv_context* const context_;
  const std::string name_;
  const uint64_t guid_;

  absl::Mutex mutex_;
  ibv_pd* pd_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<ibv_qp*> kept_qps_ ABSL_GUARDED_BY(mutex_);
  std::vector<ibv_cq*> kept_cqs_ ABSL_GUARDED_BY(mutex_);
};

// Calls `visit` for each device of the library, in its order. The device lives during the call
// only; what Context::Open made from it lives on. Errors: Internal (no list: usually no kernel
// support).
absl::Status ForEachDevice(const Table& table, const std::function<void(ibv_device*)>& visit);

}  // namespace railhop::verbs

#endif  // RAILHOP_CC_VERBS_CONTEXT_H_
