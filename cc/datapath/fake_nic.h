// A verbs library of one's own for tests: what is posted is kept, what completes is put in by hand.
//
// Both ends of a connection in one process may use it: writes are carried out when the test says
// so, in any order, or never.
#ifndef RAILHOP_CC_DATAPATH_FAKE_NIC_H_
#define RAILHOP_CC_DATAPATH_FAKE_NIC_H_

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "cc/verbs/context.h"

namespace railhop::datapath {

// One work request that was posted, with the data it named.
struct PostedSend {
  ibv_qp* qp = nullptr;
  ibv_send_wr request = {};
  ibv_sge sge = {};           // zeros if it has none
  std::vector<uint8_t> copy;  // of the data, if it was posted inline
  bool is_lost = false;       // on the wire: never acknowledged
};

// A queue pair that exists: what the NIC knows of it.
struct FakeQp : ibv_qp {
  bool is_error = false;
  std::deque<uint64_t> receives;  // ids of those that are posted and not used
};

// One step of a queue pair's way.
struct ModifiedQp {
  ibv_qp* qp = nullptr;
  ibv_qp_attr attr = {};
  int mask = 0;
};

class FakeNic {
 public:
  FakeNic();
  ~FakeNic();
  FakeNic(const FakeNic&) = delete;
  FakeNic& operator=(const FakeNic&) = delete;

  verbs::Context* context() { return context_.get(); }

  // In the order of posting; a test takes out what it has dealt with. What is still there, or in
  // `unacknowledged`, is flushed when its queue pair goes to ERR.
  std::deque<PostedSend> sends;
  // Put there by a test: carried out (or lost) and not completed.
  std::deque<PostedSend> unacknowledged;
  // What polling any queue of this NIC gives, oldest first.
  std::deque<ibv_wc> completions;
  int receives_posted = 0;
  int post_send_error = 0;     // what the next posts return, without posting
  int posts_before_error = 0;  // so many go well before post_send_error counts
  int post_receive_error = 0;
  bool is_silent = false;                   // queue pairs in ERR flush nothing
  std::function<void()> before_destroy_qp;  // on the thread that destroys
  int destroy_qp_error = 0;
  int poll_result = 0;  // if negative, what polling returns
  std::vector<ibv_qp_init_attr> created_qps;
  std::vector<ModifiedQp> modified;
  std::deque<int> modify_errors;  // what the next modify_qp return; then 0
  ibv_port_attr port = {};        // what query_port gives
  ibv_gid gid = {};               // what query_gid gives
  ibv_ece ece = {};               // what query_ece gives, and set_ece sets
  int ece_sets = 0;
  uint32_t first_key = 0;  // keys of registrations are above it
  int qps = 0;             // that exist
  uint32_t qps_created = 0;
  std::set<ibv_qp*> live_qps;
  int cqs = 0;
  int mrs = 0;

  // Copies what the request writes to where it writes it: the keys are not looked at.
  static void CarryOut(const PostedSend& send);
  // What `qp` was posted ends in error, oldest first, and so does what will be.
  void Flush(ibv_qp* qp);
  // The same without completions: it was destroyed.
  void Forget(ibv_qp* qp);
  // Puts in the completion of a request, for the one who posted it.
  void Complete(const PostedSend& send, ibv_wc_status status = IBV_WC_SUCCESS);

 private:
  std::shared_ptr<verbs::Table> table_;
  std::unique_ptr<verbs::Context> context_;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_FAKE_NIC_H_
