// What a program holds of a NIC that it has opened: domains, memory, queues, queue pairs, events.
//
// The calls are those of verbs without their C dress, errno values included, and they meet the same
// faults (`fail reg_mr ENOMEM`, `hang destroy_qp 60s`): a call that hangs lets virtual time pass.
// Objects that were destroyed stay in memory until the world ends, for packets and timers may still
// name them. One thread.
#ifndef RAILHOP_CC_SIM_CONTEXT_H_
#define RAILHOP_CC_SIM_CONTEXT_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cc/sim/cq.h"
#include "cc/sim/nic.h"
#include "cc/sim/queue_pair.h"

namespace railhop::sim {

struct AsyncRecord {
  rdma::AsyncEvent event = rdma::AsyncEvent::kCommEst;
  uint32_t port = 0;  // from 1; 0: not of a port
  QueuePair* qp = nullptr;
  Cq* cq = nullptr;
};

class ContextListener {
 public:
  virtual ~ContextListener() = default;
  // An event was queued. Called from inside the NIC: remember it or schedule something.
  virtual void OnAsyncEvent() = 0;
};

class Context final : public NicListener, public QpOwner {
 public:
  Context(Shared* shared, Nic* nic, Wire* wire);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Nic* nic() const { return nic_; }
  // The device went away while this was open; it stays gone for this context.
  bool gone() const { return gone_; }

  // What every call does first: 0, or the errno that the device or a fault gives it. `detail` is
  // QpState + 1 for modify_qp.
  int Enter(rdma::VerbCall call, uint32_t detail = 0);

  // 0 or an errno: ENOMEM (none left), EBUSY (in use), EINVAL, EIO (device gone), or a fault's.
  int AllocPd(uint32_t* pd);
  int DeallocPd(uint32_t pd);
  // `iova` is the address that requests name. A right to write from far needs the local one.
  int RegMr(uint32_t pd, void* addr, uint64_t length, uint64_t iova, uint32_t access,
            uint32_t* key);
  int DeregMr(uint32_t key);
  int CreateCq(uint32_t entries, void* user, Cq** cq);
  int DestroyCq(Cq* cq);
  // EOPNOTSUPP: a kind of queue pair that this device has not.
  int CreateQp(const QpInit& init, QueuePair** qp);
  int ModifyQp(QueuePair* qp, uint32_t mask, rdma::QpState to,
               const rdma::QpAttributes& attributes);
  int DestroyQp(QueuePair* qp);
  int PostSend(QueuePair* qp, const SendRequest& request);
  int PostReceive(QueuePair* qp, uint64_t wr_id, const rdma::Sge* sges, uint32_t count);
  // Completions taken, or -errno.
  int PollCq(Cq* cq, int max, rdma::Completion* out);

  bool NextEvent(AsyncRecord* record);
  bool HasEvents() const { return !events_.empty(); }
  void set_listener(ContextListener* listener) { listener_ = listener; }
  // The process that has it open dies: everything vanishes without a word.
  void Abandon();

  size_t qp_count() const { return live_qps_; }
  size_t cq_count() const { return live_cqs_; }
  size_t region_count() const { return regions_.size(); }

  // NicListener, QpOwner
  void OnNicEvent(rdma::AsyncEvent event, uint32_t port, QueuePair* qp) override;
  void OnNicRemoved() override;
  void OnQpEvent(rdma::AsyncEvent event, QueuePair* qp) override;
  void OnCqError(Cq* cq) override;

 private:
  struct Pd {
    int users = 0;
  };
  void Queue(const AsyncRecord& record);

  Shared* const shared_;
  Nic* const nic_;
  Wire* const wire_;
  bool gone_ = false;
  bool abandoned_ = false;
  std::map<uint32_t, Pd> pds_;
  std::map<uint32_t, uint32_t> regions_;  // key to domain
  std::vector<std::unique_ptr<Cq>> cqs_;  // destroyed ones too
  std::vector<std::unique_ptr<QueuePair>> qps_;
  size_t live_cqs_ = 0;
  size_t live_qps_ = 0;
  std::deque<AsyncRecord> events_;
  ContextListener* listener_ = nullptr;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_CONTEXT_H_
