// The verbs structs that programs hold, each with the simulator's object behind it.
//
// Internal to verbs_*.cc. The public struct comes first or is found by name, so a pointer that a
// program hands in leads to the rest.
#ifndef RAILHOP_CC_SIM_VERBS_OBJECTS_H_
#define RAILHOP_CC_SIM_VERBS_OBJECTS_H_

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "cc/sim/context.h"
#include "cc/sim/verbs_table.h"
#include "cc/sim/world.h"

// <infiniband/verbs.h> makes macros of these names.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace railhop::sim {

struct SimDevice {
  ibv_device device{};  // first
  Nic* nic = nullptr;
};

struct SimContext {
  SimContext() = default;
  ~SimContext() {
    if (async_fd >= 0) close(async_fd);
  }
  SimContext(const SimContext&) = delete;
  SimContext& operator=(const SimContext&) = delete;

  verbs_context verbs{};  // ends with the ibv_context
  World* world = nullptr;
  Context* core = nullptr;
  int async_fd = -1;
  std::unique_ptr<ContextListener> listener;
};

struct SimPd {
  ibv_pd pd{};  // first
  uint32_t number = 0;
};

struct SimMr {
  ibv_mr mr{};  // first
};

struct SimCq;

struct SimChannel {
  SimChannel() = default;
  ~SimChannel() {
    if (channel.fd >= 0) close(channel.fd);
  }
  SimChannel(const SimChannel&) = delete;
  SimChannel& operator=(const SimChannel&) = delete;

  ibv_comp_channel channel{};  // first
  std::deque<SimCq*> events;
};

struct SimCq {
  ibv_cq cq{};  // first
  Cq* core = nullptr;
  std::unique_ptr<CqListener> listener;
  uint32_t comp_events = 0, async_events = 0;  // that the program got
};

struct SimQp {
  ibv_qp qp{};  // first
  QueuePair* core = nullptr;
  ibv_qp_attr attr{};  // as they were set
  ibv_qp_cap cap{};
  int signal_all = 0;
  uint32_t async_events = 0;
};

inline SimDevice* Of(ibv_device* device) { return reinterpret_cast<SimDevice*>(device); }
inline SimContext* Of(ibv_context* context) {
  static_assert(offsetof(SimContext, verbs) == 0);
  return reinterpret_cast<SimContext*>(reinterpret_cast<char*>(context) -
                                       offsetof(verbs_context, context));
}
inline SimPd* Of(ibv_pd* pd) { return reinterpret_cast<SimPd*>(pd); }
inline SimChannel* Of(ibv_comp_channel* channel) { return reinterpret_cast<SimChannel*>(channel); }
inline SimCq* Of(ibv_cq* cq) { return reinterpret_cast<SimCq*>(cq); }
inline SimQp* Of(ibv_qp* qp) { return reinterpret_cast<SimQp*>(qp); }

// The world of this thread's verbs, and the host whose devices it sees (null: of all).
World* VerbsWorld();
Host* VerbsHost();
VerbsActors* Actors();

// Makes poll(2) find `fd` readable or not.
void SetReadable(int fd, bool readable);
int NewEventFd();

// Lets virtual time pass until done(), for a call that waits. False with EAGAIN: `fd` does not
// block, or nothing can happen any more.
template <typename Done>
bool WaitFor(int fd, Done done);
bool Blocks(int fd);
void SetAgain();

template <typename Done>
bool WaitFor(int fd, Done done) {
  if (done()) return true;
  if (Blocks(fd) && VerbsWorld()->loop().RunUntilTrue(kNeverNs, done)) return true;
  SetAgain();
  return false;
}

// The hot path, which the context's ops name.
int SimPollCq(ibv_cq* cq, int count, ibv_wc* wc);
int SimReqNotifyCq(ibv_cq* cq, int solicited_only);
int SimPostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int SimPostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int SimQueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr);

struct VerbsFunctions;
// Each fills its part of the table.
void FillDeviceVerbs(VerbsFunctions* table);
void FillQueueVerbs(VerbsFunctions* table);
void FillQueuePairVerbs(VerbsFunctions* table);

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_VERBS_OBJECTS_H_
