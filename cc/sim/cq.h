// A completion queue of a simulated NIC: the model's ring, and whom it wakes.
#ifndef RAILHOP_CC_SIM_CQ_H_
#define RAILHOP_CC_SIM_CQ_H_

#include <cstdint>
#include <vector>

#include "cc/rdma_model/completion_queue.h"

namespace railhop::sim {

class Cq;

class CqListener {
 public:
  virtual ~CqListener() = default;
  // A completion was added; `notify`: the queue was armed for it. Called from inside the NIC, so do
  // no more than remember it or schedule an event.
  virtual void OnCompletion(Cq* cq, bool notify) = 0;
};

class Cq {
 public:
  // `capacity` entries, at least 1.
  explicit Cq(uint32_t capacity, void* user = nullptr);

  // False: no room; the queue is broken from now on and takes nothing more.
  bool Push(const rdma::Completion& completion, uint64_t token);
  int Poll(int max, rdma::Completion* out);
  // Asks for one call with notify = true.
  void Arm(bool solicited_only);
  void Purge(uint32_t qp_num) { ring_.Purge(qp_num); }
  bool Resize(uint32_t capacity);  // false: more entries are waiting than that

  bool Empty() const { return ring_.Empty(); }
  bool broken() const { return state_.overrun.load() != 0; }
  uint32_t capacity() const { return state_.capacity; }
  void set_listener(CqListener* listener) { listener_ = listener; }
  void* user() const { return user_; }
  int users = 0;  // queue pairs that name it

 private:
  rdma::CqState state_{};
  std::vector<rdma::CqEntry> entries_;
  rdma::CompletionQueue ring_;
  CqListener* listener_ = nullptr;
  void* const user_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_CQ_H_
