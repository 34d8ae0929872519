// A verbs library of one's own for tests: what is posted is kept, what completes is put in by hand.
//
// Both ends of a connection in one process may use it: writes are carried out when the test says
// so, in any order, or never.
#ifndef RAILHOP_CC_DATAPATH_FAKE_NIC_H_
#define RAILHOP_CC_DATAPATH_FAKE_NIC_H_

#include <deque>
#include <memory>
#include <vector>

#include "cc/verbs/context.h"

namespace railhop::datapath {

// One work request that was posted, with the data it named.
struct PostedSend {
  ibv_qp* qp = nullptr;
  ibv_send_wr request = {};
  ibv_sge sge = {};  // zeros if it has none
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

  // In the order of posting; a test takes out what it has dealt with.
  std::deque<PostedSend> sends;
  // What polling any queue of this NIC gives, oldest first.
  std::deque<ibv_wc> completions;
  int receives_posted = 0;
  int post_send_error = 0;  // what the next posts return, without posting
  int destroy_qp_error = 0;
  int poll_result = 0;  // if negative, what polling returns
  std::vector<ibv_qp_init_attr> created_qps;
  std::vector<ModifiedQp> modified;
  std::deque<int> modify_errors;  // what the next modify_qp return; then 0
  ibv_port_attr port = {};        // what query_port gives
  ibv_gid gid = {};               // what query_gid gives
  ibv_ece ece = {};               // what query_ece gives, and set_ece sets
  int ece_sets = 0;
  int qps = 0;  // that exist
  int cqs = 0;
  int mrs = 0;

  // Copies what the request writes to where it writes it: the keys are not looked at.
  static void CarryOut(const PostedSend& send);
  // Puts in the completion of a request, for the one who posted it.
  void Complete(const PostedSend& send, ibv_wc_status status = IBV_WC_SUCCESS);

 private:
  std::shared_ptr<verbs::Table> table_;
  std::unique_ptr<verbs::Context> context_;
};

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_FAKE_NIC_H_
