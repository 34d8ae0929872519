// Completion queues and completion channels of this process.
#ifndef RAILHOP_CC_FABRIC_COMPLETION_H_
#define RAILHOP_CC_FABRIC_COMPLETION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "cc/fabric/context.h"
#include "cc/fabric/event_queue.h"
#include "cc/fabric/index_pool.h"
#include "cc/fabric/process.h"
#include "cc/rdma_model/completion_queue.h"

namespace railhop::fabric {

class Cq;

// A completion channel: the queues whose armed completion has come. `fd()` is what programs poll.
struct Channel {
  EventQueue<Cq*> events;
};

// Adds a completion to queue `index` of the process whose segment this is. False: overrun. `notify`
// is set when somebody must tell the queue's channel.
bool PushCompletion(Segment& segment, uint32_t index, const rdma::Completion& completion,
                    uint64_t token, bool* notify);
// Whether queue `index` has reported `token`.
bool HasCompletion(Segment& segment, uint32_t index, uint64_t token);

// A completion queue of this process. Thread-safe.
class Cq {
 public:
  // Takes an index and a ring for `capacity` completions. Null with errno ENOMEM.
  static std::unique_ptr<Cq> Create(Process* process, Context* context, uint32_t capacity,
                                    Channel* channel, void* user);
  ~Cq();
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;

  // Up to `max` completions, oldest first; -EIO after an overrun (as providers do; the queue is
  // broken).
  int Poll(int max, rdma::Completion* out);
  // The next completion (or the next solicited one or error) that comes after this call fires the
  // channel.
  void RequestNotify(bool solicited_only);
  // Adds a completion of this process's own send queues.
  void Push(const rdma::Completion& completion);
  // Forgets completions of a queue pair that nobody has polled.
  void Purge(uint32_t qp_num);
  // Tells the channel if the armed completion has come (NIC thread or pusher).
  void Fire();
  // Another ring, with what is in it; ENOMEM, or EINVAL when more than `capacity` wait to be
  // polled.
  int Resize(uint32_t capacity);

  uint32_t index() const { return index_; }
  uint32_t capacity() const { return shared_.state.capacity; }
  Channel* channel() const { return channel_; }
  Context* context() const { return context_; }
  void* user() const { return user_; }
  // Queue pairs attached; a queue in use cannot be destroyed.
  std::atomic<int> users{0};

 private:
  Cq(Process* process, Context* context, uint32_t index, IndexPool* indexes, Channel* channel,
     void* user);
  rdma::CompletionQueue Ring();  // for holders of a lock: Resize moves the entries
  rdma::CompletionQueue WithoutEntries();

  Process* const process_;
  Context* const context_;
  const uint32_t index_;
  IndexPool* const indexes_;
  Channel* const channel_;
  void* const user_;
  CqShared& shared_;
  std::mutex poll_mutex_;  // the consumer's lock
  std::atomic<bool> overrun_told_{false};
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_COMPLETION_H_
