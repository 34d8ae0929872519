#include "cc/fabric/nic.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <future>
#include <new>
#include <tuple>

namespace railhop::fabric {
namespace {

constexpr uint64_t kNever = ~uint64_t{0};
constexpr uint64_t kSweepNs = 500'000'000;
constexpr uint64_t kBacklogBytes = 256 << 10;  // a queue pair's turn in the NIC thread

// What a process knows of its fabric. Made once and never destroyed: programs use verbs until they
// exit.
struct Membership {
  std::unique_ptr<DirectoryHandle> directory;
  uint32_t host = 0;
  std::string why;
};

Membership* Join() {
  auto* m = new Membership;
  const char* reference = getenv(kFabricVariable);
  if (reference == nullptr || *reference == '\0') {
    m->why = std::string(kFabricVariable) +
             " is not set; start the program with: railhop-fabric run -- PROGRAM";
    return m;
  }
  m->directory = DirectoryHandle::Attach(reference, &m->why);
  if (m->directory == nullptr) return m;
  const char* host = getenv(kHostVariable);
  const auto index = m->directory->FindHost(host == nullptr ? "" : host, &m->why);
  if (index.has_value()) {
    m->host = *index;
  } else {
    m->directory.reset();
  }
  return m;
}

Membership& TheMembership() {
  static Membership* membership = Join();
  return *membership;
}

std::mutex g_nic_mutex;
Nic* g_nic = nullptr;

// In a forked child, before anything else runs there.
void LeaveParentsNic() {
  new (&g_nic_mutex) std::mutex;  // a thread that the child does not have may hold it
  g_nic = nullptr;
}

}  // namespace

DirectoryHandle* Nic::Fabric(std::string* why) {
  Membership& m = TheMembership();
  if (m.directory == nullptr && why != nullptr) *why = m.why;
  return m.directory.get();
}

uint32_t Nic::Host() { return TheMembership().host; }

Nic* Nic::Get() {
  std::lock_guard<std::mutex> lock(g_nic_mutex);
  if (g_nic != nullptr) return g_nic;
  DirectoryHandle* directory = Fabric(nullptr);
  if (directory == nullptr) {
    errno = ENODEV;
    return nullptr;
  }
  auto process = Process::Join(directory, Host());
  if (process == nullptr) return nullptr;
  static const int watching = pthread_atfork(nullptr, nullptr, LeaveParentsNic);
  (void)watching;
  g_nic = new Nic(std::move(process));
  return g_nic;
}

Nic::Nic(std::unique_ptr<Process> process)
    : process_(std::move(process)),
      regions_(&process_->segment()),
      qp_indexes_(kMaxQps),
      wire_(this) {
  std::promise<void> running;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);  // signals are the program's own threads' business
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this, &running] {
    LockRobust(process_->segment().alive);
    running.set_value();
    Run();
    pthread_mutex_unlock(&process_->segment().alive);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  running.get_future().wait();
}

Nic::~Nic() {
  stop_.store(true);
  Wake();
  thread_.join();
}

Context* Nic::OpenContext(uint32_t device) {
  DeviceEntry& entry = directory().device(device);
  if (entry.removed.load(std::memory_order_acquire) != 0) {
    errno = ENODEV;
    return nullptr;
  }
  auto context =
      std::make_shared<Context>(device, entry.generation.load(std::memory_order_acquire));
  if (context->events.fd() < 0) return nullptr;
  context->event_cursor = directory().EventHead();
  std::lock_guard<std::mutex> lock(objects_mutex_);
  contexts_.push_back(std::move(context));
  return contexts_.back().get();
}

void Nic::CloseContext(Context* context) {
  std::lock_guard<std::mutex> lock(objects_mutex_);
  std::erase_if(due_events_, [context](const DueEvent& due) { return due.context == context; });
  std::erase_if(contexts_, [context](const auto& each) { return each.get() == context; });
}

uint32_t Nic::AllocatePd(Context*) { return next_pd_.fetch_add(1, std::memory_order_relaxed); }

uint32_t Nic::Register(Context* context, const rdma::MemoryRegion& region) {
  if (context->removed.load(std::memory_order_acquire)) {
    errno = EIO;
    return 0;
  }
  const uint32_t key = regions_.Add(region);
  if (key == 0) errno = ENOMEM;
  return key;
}

int Nic::Deregister(uint32_t key) {
  regions_.Hide(key);
  Quiesce();
  regions_.Release(key);
  return 0;
}

void Nic::Quiesce() {
  // Bytes move only under a responder's lock of this process (its memory is the target) or under a
  // send lock (it is the source). Whoever takes such a lock after this looks the key up anew and
  // does not find it.
  std::vector<std::shared_ptr<QueuePair>> all;
  {
    std::lock_guard<std::mutex> lock(objects_mutex_);
    for (const auto& qp : qps_) {
      if (qp != nullptr) all.push_back(qp);
    }
  }
  for (const auto& qp : all) qp->Settle();
}

Cq* Nic::CreateCq(Context* context, uint32_t capacity, Channel* channel, void* user) {
  auto cq = Cq::Create(process_.get(), context, capacity, channel, user);
  if (cq == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(objects_mutex_);
  const uint32_t index = cq->index();
  if (cqs_.size() <= index) cqs_.resize(index + 1);
  cqs_[index] = std::move(cq);
  return cqs_[index].get();
}

int Nic::DestroyCq(Cq* cq) {
  std::unique_ptr<Cq> gone;
  std::lock_guard<std::mutex> lock(objects_mutex_);
  if (cq->users.load() != 0) return EBUSY;
  gone = std::move(cqs_[cq->index()]);
  if (Channel* channel = gone->channel(); channel != nullptr) {
    channel->events.Remove([cq](Cq* each) { return each == cq; });
  }
  return 0;
}

std::shared_ptr<QueuePair> Nic::CreateQp(Context* context, const QpInit& init) {
  if (context->removed.load(std::memory_order_acquire)) {
    errno = EIO;
    return nullptr;
  }
  const IndexPool::Lease lease = qp_indexes_.Take();
  const uint64_t ring_bytes = ReceiveRingBytes(init.max_recv_wr, init.max_recv_sge);
  const uint64_t ring = lease.index == IndexPool::kNone ? 0 : process_->AllocateRing(ring_bytes);
  if (ring == 0) {
    if (lease.index != IndexPool::kNone) qp_indexes_.Give(lease.index);
    errno = ENOMEM;
    return nullptr;
  }
  QpShared& shared = process_->segment().qps[lease.index];
  if (lease.uses == 0) InitRobust(shared.lock);  // later users inherit it: a late peer may hold it
  const uint32_t qpn = directory().AllocateQpn(process_->slot(), lease.index);
  if (qpn == 0) {
    process_->FreeRing(ring, ring_bytes);
    qp_indexes_.Give(lease.index);
    errno = ENOMEM;
    return nullptr;
  }
  LockRobust(shared.lock);
  shared.ring.head.store(0);
  shared.ring.tail.store(0);
  shared.ring.capacity = init.max_recv_wr + 1;
  shared.ring.max_sge = init.max_recv_sge;
  shared.ring_offset = ring;
  shared.recv_cq = init.recv_cq->index();
  shared.device = context->device;
  shared.port.store(1);
  shared.pkey.store(0xffff);
  shared.events.store(0);
  shared.flush_send.store(0);
  shared.wedged.store(0);
  shared.responder.qpn = qpn;
  shared.responder.type = init.type;
  shared.responder.pd = init.pd;
  shared.responder.state.store(static_cast<uint8_t>(rdma::QpState::kReset));
  shared.in_use.store(1, std::memory_order_release);
  pthread_mutex_unlock(&shared.lock);
  const uint32_t order = directory().device(context->device).qp_order.fetch_add(1);
  auto qp = std::make_shared<QueuePair>(this, context, init, lease.index, qpn, order);
  init.send_cq->users.fetch_add(1);
  init.recv_cq->users.fetch_add(1);
  std::lock_guard<std::mutex> lock(objects_mutex_);
  if (qps_.size() <= lease.index) qps_.resize(lease.index + 1);
  qps_[lease.index] = qp;
  return qp;
}

int Nic::DestroyQp(const std::shared_ptr<QueuePair>& qp) {
  qp->Retire();
  directory().FreeQpn(qp->qpn());
  QpShared& shared = process_->segment().qps[qp->index()];
  const uint64_t ring_bytes = ReceiveRingBytes(qp->init().max_recv_wr, qp->init().max_recv_sge);
  {
    std::lock_guard<std::mutex> lock(objects_mutex_);
    qps_[qp->index()].reset();
  }
  qp->context()->events.Remove(
      [&qp](const AsyncRecord& record) { return record.user == qp->user(); });
  process_->FreeRing(shared.ring_offset, ring_bytes);
  qp->init().send_cq->users.fetch_sub(1);
  qp->init().recv_cq->users.fetch_sub(1);
  qp_indexes_.Give(qp->index());
  return 0;
}

std::shared_ptr<QueuePair> Nic::FindQp(uint32_t index) {
  std::lock_guard<std::mutex> lock(objects_mutex_);
  return index < qps_.size() ? qps_[index] : nullptr;
}

void Nic::FireCq(uint32_t index) {
  std::lock_guard<std::mutex> lock(objects_mutex_);
  if (index < cqs_.size() && cqs_[index] != nullptr) cqs_[index]->Fire();
}

void Nic::Schedule(uint32_t qp_index, uint64_t before_ns, uint64_t deadline_ns) {
  bool wake = false;
  {
    std::lock_guard<std::mutex> lock(timers_mutex_);
    if (before_ns != 0) timers_.erase({before_ns, qp_index});
    if (deadline_ns == 0) return;
    timers_.emplace(deadline_ns, qp_index);
    wake = wake_ns_ != 0 && deadline_ns < wake_ns_;
  }
  if (wake) Wake();
}

size_t Nic::TimersSet() {
  std::lock_guard<std::mutex> lock(timers_mutex_);
  return timers_.size();
}

void Nic::AddBacklog(uint32_t qp_index) {
  {
    std::lock_guard<std::mutex> lock(timers_mutex_);
    if (std::find(backlog_.begin(), backlog_.end(), qp_index) == backlog_.end())
      backlog_.push_back(qp_index);
  }
  Wake();
}

void Nic::Run() {
  const ProcessSlot& slot = directory().dir().processes[process_->slot().slot];
  while (!stop_.load(std::memory_order_acquire)) {
    const uint32_t doorbell = slot.doorbell.load(std::memory_order_seq_cst);
    const uint64_t now_ns = MonotonicNs();
    {
      std::lock_guard<std::mutex> lock(timers_mutex_);
      wake_ns_ = 0;
    }
    RunPending();
    CheckRemovals();
    uint64_t next =
        std::min({RunTimers(now_ns), wire_.RunDue(now_ns), RunPortEvents(now_ns), Sweep(now_ns)});
    if (RunBacklog()) continue;
    {
      std::lock_guard<std::mutex> lock(timers_mutex_);
      if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
      if (!backlog_.empty()) continue;
      wake_ns_ = next;
    }
    Sleep(doorbell, next);
  }
}

void Nic::Sleep(uint32_t doorbell, uint64_t until_ns) {
  ProcessSlot& slot = directory().dir().processes[process_->slot().slot];
  slot.sleeping.store(1, std::memory_order_seq_cst);
  const timespec until = {static_cast<time_t>(until_ns / 1'000'000'000),
                          static_cast<long>(until_ns % 1'000'000'000)};
  // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC.
  syscall(SYS_futex, &slot.doorbell, FUTEX_WAIT_BITSET, doorbell,
          until_ns == kNever ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  slot.sleeping.store(0, std::memory_order_seq_cst);
}

uint64_t Nic::RunTimers(uint64_t now_ns) {
  for (;;) {
    uint64_t deadline = 0;
    uint32_t index = 0;
    {
      std::lock_guard<std::mutex> lock(timers_mutex_);
      if (timers_.empty()) return kNever;
      std::tie(deadline, index) = *timers_.begin();
      if (deadline > now_ns) return deadline;
      timers_.erase(timers_.begin());
    }
    if (const auto qp = FindQp(index); qp != nullptr) qp->OnTimer(deadline, now_ns);
  }
}

// One turn for each queue pair with a backlog; true if there is more.
bool Nic::RunBacklog() {
  std::vector<uint32_t> turn;
  {
    std::lock_guard<std::mutex> lock(timers_mutex_);
    turn.swap(backlog_);
  }
  std::vector<uint32_t> again;
  for (const uint32_t index : turn) {
    const auto qp = FindQp(index);
    if (qp != nullptr && qp->Drive(kBacklogBytes)) again.push_back(index);
  }
  std::lock_guard<std::mutex> lock(timers_mutex_);
  for (const uint32_t index : again) {
    if (std::find(backlog_.begin(), backlog_.end(), index) == backlog_.end())
      backlog_.push_back(index);
  }
  return !backlog_.empty();
}

void Nic::RunPending() {
  Segment& segment = process_->segment();
  for (uint32_t word = 0; word < kMaxQps / 64; ++word) {
    if (segment.pending_qps[word].load(std::memory_order_relaxed) == 0) continue;
    uint64_t bits = segment.pending_qps[word].exchange(0, std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      RunQpPending(word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits)));
    }
  }
  for (uint32_t word = 0; word < kMaxCqs / 64; ++word) {
    if (segment.pending_cqs[word].load(std::memory_order_relaxed) == 0) continue;
    uint64_t bits = segment.pending_cqs[word].exchange(0, std::memory_order_acquire);
    for (; bits != 0; bits &= bits - 1) {
      const uint32_t index = word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
      FireCq(index);
    }
  }
}

// Peers may die anywhere: in a responder here, or after they fired a queue and before they rang.
// Now and then all is looked through for what they left behind. When to come back.
uint64_t Nic::Sweep(uint64_t now_ns) {
  if (now_ns < sweep_ns_) return sweep_ns_;
  std::vector<std::shared_ptr<QueuePair>> all;
  {
    std::lock_guard<std::mutex> lock(objects_mutex_);
    all = qps_;
    for (const auto& cq : cqs_) {
      if (cq != nullptr) cq->Fire();
    }
  }
  for (const auto& qp : all) {
    if (qp == nullptr) continue;
    qp->MendOrphan();
    const QpShared& shared = process_->segment().qps[qp->index()];
    if (shared.events.load() != 0 || shared.flush_send.load() != 0) RunQpPending(qp->index());
  }
  process_->ForgetDeadPeers();
  return sweep_ns_ = now_ns + kSweepNs;
}

void Nic::RunQpPending(uint32_t index) {
  QpShared& shared = process_->segment().qps[index];
  const auto qp = FindQp(index);
  uint32_t events = shared.events.exchange(0, std::memory_order_acquire);
  const bool flush = shared.flush_send.exchange(0, std::memory_order_acquire) != 0;
  if (qp == nullptr) return;
  if (flush) qp->FlushSends();
  // Under the lock that DestroyQp takes: after it has returned, no event names the queue pair.
  std::lock_guard<std::mutex> lock(objects_mutex_);
  if (qps_[index] != qp) return;
  for (; events != 0; events &= events - 1) {
    const auto event = static_cast<rdma::AsyncEvent>(__builtin_ctz(events));
    qp->context()->events.Put({event, qp->user(), 0});
  }
}

uint64_t Nic::RunPortEvents(uint64_t now_ns) {
  std::lock_guard<std::mutex> lock(objects_mutex_);
  for (const auto& context : contexts_) {
    while (const auto record = directory().ReadPortEvent(&context->event_cursor)) {
      if (record->device != context->device || context->removed.load()) continue;
      AsyncRecord event;
      event.event = static_cast<rdma::AsyncEvent>(record->event);
      event.port = record->port;
      due_events_.push_back({record->due_ns, context.get(), event, record->qp});
    }
  }
  // In order of their time; those of one time in the order in which they were made.
  std::stable_sort(due_events_.begin(), due_events_.end(),
                   [](const DueEvent& a, const DueEvent& b) { return a.due_ns < b.due_ns; });
  auto it = due_events_.begin();
  for (; it != due_events_.end() && it->due_ns <= now_ns; ++it) Raise(*it);
  due_events_.erase(due_events_.begin(), it);
  return due_events_.empty() ? kNever : due_events_.front().due_ns;
}

std::vector<std::shared_ptr<QueuePair>> Nic::QpsOf(const Context* context) {
  std::vector<std::shared_ptr<QueuePair>> found;
  std::lock_guard<std::mutex> lock(objects_mutex_);
  for (const auto& qp : qps_) {
    if (qp != nullptr && qp->context() == context) found.push_back(qp);
  }
  return found;
}

void Nic::Raise(const DueEvent& event) {
  if (event.qp == 0) {
    event.context->events.Put(event.record);
    return;
  }
  for (const auto& qp : qps_) {
    if (qp == nullptr || qp->context() != event.context || qp->order() != event.qp - 1) continue;
    AsyncRecord record = event.record;
    const bool of_queue = record.event == rdma::AsyncEvent::kCqErr;
    record.user = of_queue ? qp->init().send_cq->user() : qp->user();
    event.context->events.Put(record);
  }
}

void Nic::CheckRemovals() {
  const uint32_t change = directory().ChangeCount();
  if (change == seen_change_) return;
  seen_change_ = change;
  std::vector<std::shared_ptr<Context>> gone;  // closed meanwhile or not
  {
    std::lock_guard<std::mutex> lock(objects_mutex_);
    for (const auto& context : contexts_) {
      const DeviceEntry& device = directory().device(context->device);
      const bool present = device.removed.load(std::memory_order_acquire) == 0 &&
                           device.generation.load(std::memory_order_acquire) == context->generation;
      if (!present && !context->removed.load()) gone.push_back(context);
    }
  }
  // The event that says so was sent before; it comes first, so that a program that is woken by
  // flushed work finds the reason.
  if (!gone.empty()) RunPortEvents(MonotonicNs());
  for (const auto& context : gone) {
    context->removed.store(true, std::memory_order_release);
    for (const auto& qp : QpsOf(context.get())) qp->DeviceGone();
  }
}

}  // namespace railhop::fabric
