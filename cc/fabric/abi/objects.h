// The verbs objects that programs hold, each with the core's object behind it.
//
// A program sees the public struct, which comes first (or, for a context, where verbs_context puts
// it), so a pointer to the public struct is a pointer to ours. Programs built with older or newer
// headers see structs of other sizes: they must find every field that they know at its place and
// zeros behind what this library fills.
#ifndef RAILHOP_CC_FABRIC_ABI_OBJECTS_H_
#define RAILHOP_CC_FABRIC_ABI_OBJECTS_H_

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "cc/fabric/abi/verbs_header.h"
#include "cc/fabric/completion.h"
#include "cc/fabric/context.h"
#include "cc/fabric/nic.h"
#include "cc/fabric/queue_pair.h"

namespace railhop::fabric::abi {

// Lives for ever, as the list of devices may be freed while a device is open.
struct DeviceObject {
  ibv_device device;  // first
  // Provider libraries that a program links besides look behind ibv_device for the provider's
  // operations, and must find that the device is not theirs.
  char zeros[4096];
  uint32_t index;  // in the directory
};

struct ContextObject {
  verbs_context verbs;  // its last member is the ibv_context that programs hold
  Nic* nic;
  Context* core;
  DeviceEntry* device;
  uint32_t index;            // of the device in the directory
  uint32_t fork_generation;  // of the process that opened it (admission.h)
};

struct PdObject {
  ibv_pd pd;  // first
  uint32_t id;
  std::atomic<int> users;  // regions and queue pairs; in use it cannot be freed
};

struct MrObject {
  ibv_mr mr;  // first
  uint32_t access;
  void* mapping;  // of a DMA-BUF; null: the program's own memory
  size_t mapping_bytes;
};

struct ChannelObject {
  ibv_comp_channel channel;  // first
  Channel core;
};

struct CqObject {
  ibv_cq_ex cq;  // first; begins with the members of ibv_cq
  Cq* core;
  uint32_t comp_events;         // handed to the program; guarded by cq.mutex
  uint32_t async_events;        // same
  std::atomic<uint64_t> noise;  // state of the random fields of error completions (provider quirk)
  std::mutex poll_mutex;        // held from start_poll to end_poll
  ibv_wc current;               // the completion that read_* looks at; guarded by poll_mutex
};

// The request that ibv_wr_* calls are building; guarded by `mutex` from wr_start to wr_complete or
// wr_abort.
struct Builder {
  std::mutex mutex;
  rdma::SendWqe* wqe;  // reserved and not yet committed; null: none
  int error;           // of the first call that failed
  bool open;           // BeginPost succeeded
};

struct QpObject {
  ibv_qp_ex ex;  // first; begins with ibv_qp
  // The request functions of newer headers stand behind those of ours and must read as null.
  void* newer[8];
  std::shared_ptr<QueuePair> core;
  Builder builder;
  uint32_t async_events;  // handed to the program; guarded by ex.qp_base.mutex
  bool extended;          // made with send operations: ibv_qp_to_qp_ex gives it out
  ibv_qp_cap cap;
  int signal_all;
  std::mutex attr_mutex;  // guards what follows
  ibv_qp_attr attr;       // what ibv_modify_qp set
  ibv_ece ece;
};
static_assert(offsetof(QpObject, core) >= 408);

inline ContextObject* Of(ibv_context* context) {
  return reinterpret_cast<ContextObject*>(reinterpret_cast<char*>(context) -
                                          offsetof(verbs_context, context));
}
inline DeviceObject* Of(ibv_device* device) { return reinterpret_cast<DeviceObject*>(device); }
inline PdObject* Of(ibv_pd* pd) { return reinterpret_cast<PdObject*>(pd); }
inline MrObject* Of(ibv_mr* mr) { return reinterpret_cast<MrObject*>(mr); }
inline ChannelObject* Of(ibv_comp_channel* channel) {
  return reinterpret_cast<ChannelObject*>(channel);
}
inline CqObject* Of(ibv_cq* cq) { return reinterpret_cast<CqObject*>(cq); }
inline CqObject* Of(ibv_cq_ex* cq) { return reinterpret_cast<CqObject*>(cq); }
inline QpObject* Of(ibv_qp* qp) { return reinterpret_cast<QpObject*>(qp); }
inline QpObject* Of(ibv_qp_ex* qp) { return reinterpret_cast<QpObject*>(qp); }

inline ibv_cq* Public(CqObject* cq) { return reinterpret_cast<ibv_cq*>(&cq->cq); }
inline ibv_qp* Public(QpObject* qp) { return &qp->ex.qp_base; }

// What this process has of a device's objects, against the device's limits.
struct Usage {
  std::atomic<uint32_t> pds, mrs, cqs, qps;
};
Usage& UsageOf(const ContextObject& context);
// In a forked child, which has none of its parent's objects.
void ForgetUsage();
// Counts one more if fewer than `limit` are there.
bool TakeOne(std::atomic<uint32_t>& count, uint32_t limit);

// --- Operations that programs reach through a context instead of by name ---
int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t length);
int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, size_t size);
// Private to rdma-core's own programs: 0 for InfiniBand and RoCE v1, 1 for RoCE v2, as sysfs has
// it.
int QueryGidType(ibv_context* context, uint8_t port, unsigned int index, int* type);
int PollCq(ibv_cq* cq, int count, ibv_wc* wc);
int RequestNotifyCq(ibv_cq* cq, int solicited_only);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int PostReceive(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
// The ibv_wr_* functions of a queue pair.
void FillBuilder(ibv_qp_ex* qp);
// The operations that this NIC does not have: they fail with EOPNOTSUPP. Fills every operation of
// `context`.
void FillUnsupported(verbs_context* context);

}  // namespace railhop::fabric::abi

#endif  // RAILHOP_CC_FABRIC_ABI_OBJECTS_H_
