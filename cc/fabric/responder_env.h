// The world of a responder in any process's segment, for whoever executes packets in it.
#ifndef RAILHOP_CC_FABRIC_RESPONDER_ENV_H_
#define RAILHOP_CC_FABRIC_RESPONDER_ENV_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "cc/fabric/process.h"
#include "cc/rdma_model/memory_region.h"
#include "cc/rdma_model/responder.h"

namespace railhop::fabric {

class Nic;

// The bytes of a train: pieces of this process's memory. Not owned.
struct Payload {
  const iovec* pieces = nullptr;
  size_t count = 0;
};

// Executes for queue pair `qp_index` of `segment`, whose process is `pid` in `slot`. The caller
// holds its lock.
class SegmentEnv final : public rdma::ResponderEnv {
 public:
  SegmentEnv(Nic* nic, Segment* segment, SlotRef slot, uint32_t qp_index, Payload payload)
      : nic_(nic), segment_(segment), slot_(slot), qp_index_(qp_index), payload_(payload) {}

  const rdma::MemoryRegion* FindRegion(uint32_t key) override;
  bool CopyIn(uint64_t va, uint32_t offset, uint32_t length) override;
  bool Atomic(const rdma::Train& train, uint64_t va, uint64_t* original) override;
  bool CompleteReceive(const rdma::Completion& completion, uint64_t token) override;
  bool ReceiveReported(uint64_t token) override;
  void RaiseEvent(rdma::AsyncEvent event) override;
  void EnteredError() override;

  // The process died while its memory was wanted: whatever the responder says, it says no more.
  bool process_gone() const { return process_gone_; }

 private:
  bool Moved(bool done);
  QpShared& qp() const { return segment_->qps[qp_index_]; }
  void MarkPending();

  Nic* const nic_;
  Segment* const segment_;
  const SlotRef slot_;
  const uint32_t qp_index_;
  const Payload payload_;
  rdma::MemoryRegion region_;
  bool process_gone_ = false;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_RESPONDER_ENV_H_
