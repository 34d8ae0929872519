#include "integration/verbs/verbs_table.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

namespace railhop::conformance {
namespace {

int PollCq(ibv_cq* cq, int count, ibv_wc* wc) { return cq->context->ops.poll_cq(cq, count, wc); }
int ReqNotifyCq(ibv_cq* cq, int solicited) { return cq->context->ops.req_notify_cq(cq, solicited); }
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return qp->context->ops.post_send(qp, wr, bad);
}
int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return qp->context->ops.post_recv(qp, wr, bad);
}
int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return srq->context->ops.post_srq_recv(srq, wr, bad);
}

int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  *attr = {};
  verbs_context* extended = verbs_get_ctx_op(context, query_port);
  if (extended == nullptr) return EOPNOTSUPP;
  return extended->query_port(context, port, attr, sizeof *attr);
}

int QueryDeviceEx(ibv_context* context, ibv_device_attr_ex* attr) {
  verbs_context* extended = verbs_get_ctx_op(context, query_device_ex);
  if (extended == nullptr) return EOPNOTSUPP;
  return extended->query_device_ex(context, nullptr, attr, sizeof *attr);
}

ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  verbs_context* extended = verbs_get_ctx_op(context, create_qp_ex);
  if (extended == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return extended->create_qp_ex(context, attr);
}

ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  verbs_context* extended = verbs_get_ctx_op(context, create_cq_ex);
  if (extended == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return extended->create_cq_ex(context, attr);
}

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

void FillInlineVerbs(VerbsTable* table) {
  table->poll_cq = PollCq;
  table->req_notify_cq = ReqNotifyCq;
  table->post_send = PostSend;
  table->post_recv = PostRecv;
  table->post_srq_recv = PostSrqRecv;
  table->query_port = QueryPort;
  table->query_device_ex = QueryDeviceEx;
  table->create_qp_ex = CreateQpEx;
  table->create_cq_ex = CreateCqEx;
  table->now_ns = NowNs;
  table->idle = [] { sched_yield(); };
}

bool LoadVerbsTable(const std::string& path, VerbsTable* table, std::string* error) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    *error = "cannot load " + path + ": " + dlerror();
    return false;
  }
  bool complete = true;
  auto look_up = [&](const char* symbol, const char* version, bool required) {
    void* address = dlvsym(library, symbol, version);
    if (address == nullptr && required && complete) {
      *error = path + " has no " + symbol + " of version " + version;
      complete = false;
    }
    return address;
  };
#define RAILHOP_VERBS_LOOK_UP(field, symbol, version, required) \
  table->field = reinterpret_cast<decltype(table->field)>(look_up(#symbol, version, required));
  RAILHOP_VERBS_SYMBOLS(RAILHOP_VERBS_LOOK_UP)
#undef RAILHOP_VERBS_LOOK_UP
  FillInlineVerbs(table);
  return complete;
}

}  // namespace railhop::conformance
