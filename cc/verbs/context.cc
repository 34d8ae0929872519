#include "cc/verbs/context.h"

#include <endian.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cc/verbs/verbs_error.h"

namespace railhop::verbs {

absl::StatusOr<std::unique_ptr<Context>> Context::Open(std::shared_ptr<const Table> table,
                                                       ibv_device* device) {
  errno = 0;
  ibv_context* context = table->open_device(device);
  if (context == nullptr) {
    return VerbsError(table->get_device_name(device), "ibv_open_device", errno);
  }
  return std::unique_ptr<Context>(new Context(std::move(table), context, device));
}

Context::Context(std::shared_ptr<const Table> table, ibv_context* context, ibv_device* device)
    : table_(std::move(table)),
      context_(context),
      name_(table_->get_device_name(device)),
      guid_(be64toh(table_->get_device_guid(device))) {}

Context::~Context() {
  EndKept();
  if (pd_ != nullptr) table_->dealloc_pd(pd_);
  table_->close_device(context_);
}

absl::StatusOr<ibv_device_attr> Context::QueryDevice() const {
  ibv_device_attr attr = {};
  const int error = table_->query_device(context_, &attr);
  if (error != 0) return VerbsError(name_, "ibv_query_device", error);
  return attr;
}

absl::StatusOr<ibv_port_attr> Context::QueryPort(uint8_t port) const {
  ibv_port_attr attr = {};
  const int error = table_->query_port(context_, port, &attr);
  if (error != 0) {
    return VerbsError(absl::StrCat(name_, ":", port), "ibv_query_port", error);
  }
  return attr;
}

bool Context::IsGone(int error_number) const {
  return verbs::IsGone(error_number) && SaysGone(QueryPort(1).status());
}

absl::StatusOr<ibv_gid> Context::QueryGid(uint8_t port, int index) const {
  ibv_gid gid = {};
  errno = 0;
  // Returns -1 and may set errno.
  if (table_->query_gid(context_, port, index, &gid) != 0) {
    return VerbsError(absl::StrCat(name_, ":", port), absl::StrCat("ibv_query_gid ", index), errno);
  }
  return gid;
}

absl::StatusOr<ibv_pd*> Context::ProtectionDomain() {
  absl::MutexLock lock(&mutex_);
  if (pd_ == nullptr) {
    errno = 0;
    pd_ = table_->alloc_pd(context_);
    if (pd_ == nullptr) return VerbsError(name_, "ibv_alloc_pd", errno);
  }
  return pd_;
}

void Context::Keep(ibv_qp* qp) {
  absl::MutexLock lock(&mutex_);
  kept_qps_.push_back(qp);
}

void Context::Keep(ibv_cq* cq) {
  absl::MutexLock lock(&mutex_);
  kept_cqs_.push_back(cq);
}

bool Context::EndKept() {
  std::vector<ibv_qp*> qps;
  std::vector<ibv_cq*> cqs;
  {
    absl::MutexLock lock(&mutex_);
    qps.swap(kept_qps_);
    cqs.swap(kept_cqs_);
  }
  const size_t count = qps.size() + cqs.size();
  if (count == 0) return false;
  std::erase_if(qps, [this](ibv_qp* qp) { return table_->destroy_qp(qp) == 0; });
  std::erase_if(cqs, [this](ibv_cq* cq) { return table_->destroy_cq(cq) == 0; });
  absl::MutexLock lock(&mutex_);
  kept_qps_.insert(kept_qps_.end(), qps.begin(), qps.end());
  kept_cqs_.insert(kept_cqs_.end(), cqs.begin(), cqs.end());
  return qps.size() + cqs.size() < count;
}

absl::Status ForEachDevice(const Table& table, const std::function<void(ibv_device*)>& visit) {
  int count = 0;
  errno = 0;
  ibv_device** list = table.get_device_list(&count);
  if (list == nullptr) return VerbsError("verbs", "ibv_get_device_list", errno);
  for (int i = 0; i < count; ++i) visit(list[i]);
  table.free_device_list(list);
  return absl::OkStatus();
}

}  // namespace railhop::verbs
