// The software NIC of one process: its devices' objects and the thread that keeps time for them.
//
// Requests are executed by the thread that posts them. The NIC thread does what is left: timers,
// packets under way with a delay, long backlogs, flushes that a peer asked for, completion channels
// and asynchronous events. It sleeps on a futex and never spins.
#ifndef RAILHOP_CC_FABRIC_NIC_H_
#define RAILHOP_CC_FABRIC_NIC_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/fabric/completion.h"
#include "cc/fabric/context.h"
#include "cc/fabric/directory.h"
#include "cc/fabric/index_pool.h"
#include "cc/fabric/process.h"
#include "cc/fabric/queue_pair.h"
#include "cc/fabric/region_table.h"
#include "cc/fabric/wire.h"

namespace railhop::fabric {

class Nic {
 public:
  // The fabric that RAILHOP_FABRIC names, read once. Null and *why (one line) when there is none or
  // it is refused.
  static DirectoryHandle* Fabric(std::string* why);
  // The host that this process is on (RAILHOP_FABRIC_HOST); valid when Fabric() is not null.
  static uint32_t Host();
  // This process's NIC; joins the fabric at the first call. Null with errno: ENODEV (no fabric),
  // ENOMEM, EPIPE (the fabric has ended). A forked child joins anew: its copy of the parent's NIC,
  // and of all that belongs to it, must not be used.
  static Nic* Get();

  explicit Nic(std::unique_ptr<Process> process);
  ~Nic();
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  Process& process() { return *process_; }
  DirectoryHandle& directory() { return process_->directory(); }
  RegionTable& regions() { return regions_; }
  Wire& wire() { return wire_; }

  // --- Objects. All return null with errno, or an errno. ---
  Context* OpenContext(uint32_t device);
  void CloseContext(Context* context);
  uint32_t AllocatePd(Context* context);
  uint32_t Register(Context* context, const rdma::MemoryRegion& region);  // the key; 0 with errno
  int Deregister(uint32_t key);  // returns when nobody uses the memory any more
  Cq* CreateCq(Context* context, uint32_t capacity, Channel* channel, void* user);
  int DestroyCq(Cq* cq);  // EBUSY while queue pairs use it
  std::shared_ptr<QueuePair> CreateQp(Context* context, const QpInit& init);
  int DestroyQp(const std::shared_ptr<QueuePair>& qp);

  // --- For queue pairs and the wire ---
  // Sets the timer of a queue pair, which has one: it was set to `before_ns` (0: to no time) and is
  // set to `deadline_ns` (0: to no time) from now on.
  void Schedule(uint32_t qp_index, uint64_t before_ns, uint64_t deadline_ns);
  size_t TimersSet();
  void AddBacklog(uint32_t qp_index);
  std::shared_ptr<QueuePair> FindQp(uint32_t index);
  // A completion fired queue `index` of this process.
  void FireCq(uint32_t index);
  void Wake() { process_->Ring(process_->slot()); }
  // Waits until nothing that began before this call is still moving bytes of this process's memory.
  void Quiesce();

 private:
  struct DueEvent {
    uint64_t due_ns;
    Context* context;
    AsyncRecord record;
    uint32_t qp;  // as PortEventRecord::qp
  };

  void Run();
  void Sleep(uint32_t doorbell, uint64_t until_ns);
  uint64_t RunTimers(uint64_t now_ns);
  bool RunBacklog();
  void RunPending();
  void RunQpPending(uint32_t index);
  uint64_t RunPortEvents(uint64_t now_ns);
  void Raise(const DueEvent& event);  // with objects_mutex_ held
  void CheckRemovals();
  uint64_t Sweep(uint64_t now_ns);
  std::vector<std::shared_ptr<QueuePair>> QpsOf(const Context* context);

  std::unique_ptr<Process> process_;
  RegionTable regions_;
  IndexPool qp_indexes_;
  Wire wire_;
  std::atomic<uint32_t> next_pd_{1};
  std::atomic<bool> stop_{false};

  std::mutex objects_mutex_;
  std::vector<std::shared_ptr<QueuePair>> qps_;  // by index; as long as was needed so far
  std::vector<std::unique_ptr<Cq>> cqs_;         // by index; as long as was needed so far
  std::vector<std::shared_ptr<Context>> contexts_;
  std::vector<DueEvent> due_events_;  // NIC thread under objects_mutex_

  std::mutex timers_mutex_;
  std::set<std::pair<uint64_t, uint32_t>> timers_;  // deadline (ns) and queue pair
  uint64_t wake_ns_ = 0;           // when the NIC thread wakes by itself; 0: it is awake
  std::vector<uint32_t> backlog_;  // queue pairs with more to send

  uint32_t seen_change_ = 0;  // NIC thread only
  uint64_t sweep_ns_ = 0;     // when the next sweep is due; NIC thread only
  std::thread thread_;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_NIC_H_
