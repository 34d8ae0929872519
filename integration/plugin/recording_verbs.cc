// A verbs library that hands everything on to libibverbs.so.1 and writes down what an option should
// show in: queue pairs and their attributes, registrations, work requests. Loaded by
// RAILHOP_VERBS_LIBRARY; writes lines to the file that RAILHOP_TEST_RECORD names.
//
// Preloaded it also writes down the sizes of socket buffers.
//
// RAILHOP_TEST_FAIL_MODIFY=ERRNO:COUNT makes the first COUNT changes of a queue pair to RTR fail.
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace {

void* Real(const char* name) {
  static void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  return dlsym(library, name);
}

void Record(const char* format, ...) {
  static FILE* const file = std::fopen(std::getenv("RAILHOP_TEST_RECORD"), "ae");
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(file, format, arguments);
  va_end(arguments);
  std::fflush(file);
}

int FailureOfModify() {
  static int error = 0;
  static std::atomic<int> left = [] {
    int count = 0;
    const char* text = std::getenv("RAILHOP_TEST_FAIL_MODIFY");
    if (text != nullptr) std::sscanf(text, "%d:%d", &error, &count);
    return count;
  }();
  return left.fetch_sub(1) > 0 ? error : 0;
}

int (*real_post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;

int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  for (const ibv_send_wr* one = wr; one != nullptr; one = one->next) {
    uint32_t bytes = 0;
    for (int i = 0; i < one->num_sge; ++i) bytes += one->sg_list[i].length;
    Record("post qp=%u opcode=%s bytes=%u inline=%d\n", qp->qp_num,
           one->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? "write_imm"
           : one->opcode == IBV_WR_RDMA_WRITE        ? "write"
                                                     : "other",
           bytes, (one->send_flags & IBV_SEND_INLINE) != 0);
  }
  return real_post_send(qp, wr, bad);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define FORWARD(result, name, parameters, arguments)                              \
  EXPORT result name parameters {                                                 \
    static const auto real = reinterpret_cast<result(*) parameters>(Real(#name)); \
    return real arguments;                                                        \
  }

FORWARD(ibv_device**, ibv_get_device_list, (int* n), (n))
FORWARD(void, ibv_free_device_list, (ibv_device * *list), (list))
FORWARD(const char*, ibv_get_device_name, (ibv_device * device), (device))
FORWARD(__be64, ibv_get_device_guid, (ibv_device * device), (device))
FORWARD(int, ibv_close_device, (ibv_context * context), (context))
FORWARD(int, ibv_query_device, (ibv_context * context, ibv_device_attr* attr), (context, attr))
FORWARD(int, ibv_query_port, (ibv_context * context, uint8_t port, _compat_ibv_port_attr* attr),
        (context, port, attr))
FORWARD(int, ibv_query_gid, (ibv_context * context, uint8_t port, int index, ibv_gid* gid),
        (context, port, index, gid))
FORWARD(int, ibv_query_pkey, (ibv_context * context, uint8_t port, int index, __be16* pkey),
        (context, port, index, pkey))
FORWARD(ibv_pd*, ibv_alloc_pd, (ibv_context * context), (context))
FORWARD(int, ibv_dealloc_pd, (ibv_pd * pd), (pd))
FORWARD(int, ibv_dereg_mr, (ibv_mr * mr), (mr))
FORWARD(ibv_cq*, ibv_create_cq,
        (ibv_context * context, int cqe, void* user, ibv_comp_channel* channel, int vector),
        (context, cqe, user, channel, vector))
FORWARD(int, ibv_destroy_cq, (ibv_cq * cq), (cq))
FORWARD(int, ibv_query_qp, (ibv_qp * qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init),
        (qp, attr, mask, init))
FORWARD(int, ibv_destroy_qp, (ibv_qp * qp), (qp))
FORWARD(int, ibv_get_async_event, (ibv_context * context, ibv_async_event* event), (context, event))
FORWARD(void, ibv_ack_async_event, (ibv_async_event * event), (event))
FORWARD(ibv_mr*, ibv_reg_dmabuf_mr,
        (ibv_pd * pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access),
        (pd, offset, length, iova, fd, access))
FORWARD(int, _ibv_query_gid_ex,
        (ibv_context * context, uint32_t port, uint32_t index, ibv_gid_entry* entry, uint32_t flags,
         size_t size),
        (context, port, index, entry, flags, size))

EXPORT int ibv_fork_init() {
  static const auto real = reinterpret_cast<int (*)()>(Real("ibv_fork_init"));
  Record("fork_init\n");
  return real();
}

EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  static const auto real = reinterpret_cast<ibv_context* (*)(ibv_device*)>(Real("ibv_open_device"));
  ibv_context* context = real(device);
  if (context != nullptr && context->ops.post_send != PostSend) {
    real_post_send = context->ops.post_send;
    context->ops.post_send = PostSend;
  }
  return context;
}

EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  static const auto real =
      reinterpret_cast<ibv_mr* (*)(ibv_pd*, void*, size_t, int)>(Real("ibv_reg_mr"));
  Record("reg_mr bytes=%zu relaxed=0\n", length);
  return real(pd, addr, length, access);
}

EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                unsigned int access) {
  static const auto real =
      reinterpret_cast<ibv_mr* (*)(ibv_pd*, void*, size_t, uint64_t, unsigned int)>(
          Real("ibv_reg_mr_iova2"));
  Record("reg_mr bytes=%zu relaxed=%d\n", length, (access & IBV_ACCESS_RELAXED_ORDERING) != 0);
  return real(pd, addr, length, iova, access);
}

EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  static const auto real =
      reinterpret_cast<ibv_qp* (*)(ibv_pd*, ibv_qp_init_attr*)>(Real("ibv_create_qp"));
  ibv_qp* qp = real(pd, attr);
  if (qp != nullptr) Record("create_qp qp=%u\n", qp->qp_num);
  return qp;
}

EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  static const auto real =
      reinterpret_cast<int (*)(ibv_qp*, ibv_qp_attr*, int)>(Real("ibv_modify_qp"));
  // The step that resolves addresses, which is what times out in life.
  const int error = (mask & IBV_QP_AV) != 0 ? FailureOfModify() : 0;
  if (error != 0) {
    Record("modify_qp failed\n");
    return error;
  }
  if ((mask & IBV_QP_PKEY_INDEX) != 0) Record("init qp=%u pkey=%u\n", qp->qp_num, attr->pkey_index);
  if ((mask & IBV_QP_AV) != 0) {
    Record("rtr qp=%u sl=%u tc=%u gid=%u\n", qp->qp_num, attr->ah_attr.sl,
           attr->ah_attr.grh.traffic_class, attr->ah_attr.grh.sgid_index);
  }
  if ((mask & IBV_QP_RETRY_CNT) != 0) {
    Record("rts qp=%u timeout=%u retry=%u\n", qp->qp_num, attr->timeout, attr->retry_cnt);
  }
  return real(qp, attr, mask);
}

EXPORT int ibv_query_ece(ibv_qp* /*qp*/, ibv_ece* ece) {
  Record("query_ece\n");
  *ece = {.vendor_id = 0x15b3, .options = 0x30000002, .comp_mask = 0};
  return 0;
}

EXPORT int ibv_set_ece(ibv_qp* /*qp*/, ibv_ece* ece) {
  Record("set_ece options=%#x\n", ece->options);
  return 0;
}

EXPORT int setsockopt(int fd, int level, int name, const void* value, socklen_t length) noexcept {
  static const auto real = reinterpret_cast<int (*)(int, int, int, const void*, socklen_t)>(
      dlsym(RTLD_NEXT, "setsockopt"));
  if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) {
    Record("socket %s=%d\n", name == SO_RCVBUF ? "rcvbuf" : "sndbuf",
           *static_cast<const int*>(value));
  }
  return real(fd, level, name, value, length);
}
