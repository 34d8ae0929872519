// A reliable queue pair and its way through the states, RESET to RTS and to ERR.
//
// Timing and path attributes are plain numbers here; the rules that choose them are the
// transport's. Not thread-safe, but Destroy and ToError may hang on a dying device for long, so
// they may run on another thread while nobody posts.
#ifndef RAILHOP_CC_VERBS_QUEUE_PAIR_H_
#define RAILHOP_CC_VERBS_QUEUE_PAIR_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cc/verbs/completion_queue.h"
#include "cc/verbs/context.h"

namespace railhop::verbs {

struct QueuePairSize {
  uint32_t send_requests = 1;
  uint32_t receive_requests = 1;
  uint32_t inline_bytes = 0;
};

// Attributes of RESET -> INIT.
struct InitAttributes {
  uint8_t port = 1;
  uint16_t pkey_index = 0;
  int access = 0;  // IBV_ACCESS_*, what the peer may do
};

// Attributes of INIT -> RTR and RTR -> RTS.
struct PathAttributes {
  uint8_t port = 1;
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t remote_qp_number = 0;
  uint32_t remote_psn = 0;  // 24 bits; the first that the peer sends
  uint32_t local_psn = 0;   // 24 bits; the first that this end sends
  bool is_global = true;    // with a GRH: `gid`, `gid_index` and `traffic_class` count
  ibv_gid gid = {};
  uint8_t gid_index = 0;
  uint8_t traffic_class = 0;
  uint16_t lid = 0;
  uint8_t service_level = 0;
  uint8_t timeout = 20;     // 4.096 us * 2^timeout; 0 = for ever
  uint8_t retry_count = 7;  // 0..7
};

class QueuePair {
 public:
  // Errors: Internal (no resources, or more asked than the device has; the message has the
  // numbers).
  static absl::StatusOr<std::unique_ptr<QueuePair>> Create(Context* context, CompletionQueue* cq,
                                                           const QueuePairSize& size);
  // What cannot be destroyed is left to the context: call Destroy where that matters.
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  uint32_t number() const { return qp_->qp_num; }
  ibv_qp* raw() const { return qp_; }
  Context* context() const { return context_; }

  // Errors: DeadlineExceeded (ETIMEDOUT of modify_qp: worth another try), Internal.
  absl::Status ToInit(const InitAttributes& attributes);
  absl::Status ToReadyToReceive(const PathAttributes& path);
  absl::Status ToReadyToSend(const PathAttributes& path);
  absl::Status ToError();

  // Congestion control options; zeros if the device or the library has none.
  ibv_ece QueryEce() const;
  // Before ToReadyToReceive. Options of zeros are not set.
  absl::Status SetEce(ibv_ece ece);

  // Hot path: 0 or an errno.
  int PostSend(ibv_send_wr* first) {
    ibv_send_wr* bad;
    return ibv_post_send(qp_, first, &bad);
  }
  int PostReceive(ibv_recv_wr* first) {
    ibv_recv_wr* bad;
    return ibv_post_recv(qp_, first, &bad);
  }

  // Nothing reaches memory over it after success. Errors: Internal (it still exists).
  absl::Status Destroy();
  // The last Destroy has failed since there is no device any more (EIO, ENODEV): the same as
  // success for whoever owns the memory.
  bool device_is_gone() const { return gone_; }

 private:
  QueuePair(Context* context, ibv_qp* qp) : context_(context), qp_(qp) {}
  absl::Status Modify(ibv_qp_attr* attr, int mask, const char* state);

  Context* const context_;
  ibv_qp* qp_;  // null once destroyed
  bool gone_ = false;
};

}  // namespace railhop::verbs

#endif  // RAILHOP_CC_VERBS_QUEUE_PAIR_H_
