// A completion queue's ring: many producers under a lock, one consumer at a time under another.
//
// The producers of a receive queue's completions may be other processes, and any of them may die
// between two instructions. So an entry is written first and published by one store of `tail`; a
// producer that dies before that store has changed nothing. `token` tells a successor whether a
// given receive was already reported (Responder::Recover).
#ifndef RAILHOP_CC_RDMA_MODEL_COMPLETION_QUEUE_H_
#define RAILHOP_CC_RDMA_MODEL_COMPLETION_QUEUE_H_

#include <atomic>
#include <cstdint>

#include "cc/rdma_model/types.h"

namespace railhop::rdma {

struct CqEntry {
  Completion completion;
  uint64_t token = 0;
};

enum class CqArm : uint32_t { kNone = 0, kNext = 1, kSolicited = 2 };
// Beside a CqArm in CqState::armed: the completion that the queue was armed for has come, and the
// consumer's channel has not been told. In the same word, so that no producer can die between
// taking the arm and leaving this.
inline constexpr uint32_t kCqFired = 1u << 8;

struct CqState {
  std::atomic<uint64_t> head;     // written by the consumer
  std::atomic<uint64_t> tail;     // written by a producer, released after its entry
  std::atomic<uint32_t> armed;    // CqArm, and kCqFired
  std::atomic<uint32_t> overrun;  // set once, when a completion found no room
  uint32_t capacity;              // entries; constant while in use
};

enum class CqPush : uint8_t { kStored, kStoredNotify, kOverrun };

// A view of a ring; holds no state of its own.
class CompletionQueue {
 public:
  CompletionQueue(CqState* state, CqEntry* entries) : state_(state), entries_(entries) {}

  // Adds one completion. The caller holds the producers' lock. kStoredNotify: the queue was armed
  // for this one and is armed no longer. kOverrun: nothing was stored and the queue is broken for
  // good.
  CqPush Push(const Completion& completion, uint64_t token);

  // Takes up to `max` completions, oldest first. The caller holds the consumer's lock.
  int Poll(int max, Completion* out);

  // Arms the queue for the next completion, or for the next solicited one or error. Any thread of
  // the consumer's.
  void Arm(CqArm arm);
  // Whether the queue has fired since the last call: then its channel is to be told.
  bool TakeFired();

  // Whether a completion with this token was published among the newest `capacity` ones.
  bool HasToken(uint64_t token) const;

  // Drops the completions of queue pair `qp_num` that nobody has polled (destroy and RESET do so).
  // The caller holds both locks.
  void Purge(uint32_t qp_num);

  bool Empty() const {
    return state_->head.load(std::memory_order_relaxed) ==
           state_->tail.load(std::memory_order_acquire);
  }

 private:
  CqEntry& At(uint64_t index) const { return entries_[index % state_->capacity]; }
  CqState* state_;
  CqEntry* entries_;
};

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_COMPLETION_QUEUE_H_
