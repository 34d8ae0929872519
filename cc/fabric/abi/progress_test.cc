// Nothing stands still that could go on: queue pairs with more to send than one turn takes, and
// with packets under way that are lost.
#include <chrono>
#include <thread>
#include <vector>

#include "cc/fabric/abi/test_fabric.h"
#include "cc/fabric/nic.h"

namespace railhop::fabric::abi {
namespace {

constexpr uint32_t kMessage = 256 << 10;  // bytes
constexpr int kDepth = 64;

class ProgressTest : public testing::Test {
 protected:
  // A queue pair connected to itself that never times out: only the fabric keeps it going.
  void Make(ibv_qp_type type) {
    ibv_qp_init_attr attr = QpInitAttr(cq_.get(), type);
    attr.cap.max_send_wr = kDepth;
    qp_ = QpPtr(ibv_create_qp(pd_.get(), &attr));
    ASSERT_NE(qp_, nullptr);
    ASSERT_EQ(Connect(qp_.get(), qp_->qp_num), 0);
    if (type != IBV_QPT_RC) return;
    To(IBV_QPS_SQD);
    ibv_qp_attr never = {};
    never.qp_state = IBV_QPS_SQD;
    ASSERT_EQ(ibv_modify_qp(qp_.get(), &never, IBV_QP_STATE | IBV_QP_TIMEOUT), 0);
  }
  void To(ibv_qp_state state) {
    ibv_qp_attr attr = {};
    attr.qp_state = state;
    ASSERT_EQ(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE), 0);
  }
  void Post(ibv_wr_opcode opcode, uint32_t length, int count) {
    ibv_sge sge = {reinterpret_cast<uint64_t>(buffer_.data()), length, mr_->lkey};
    ibv_send_wr wr = {};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {sge.addr + kMessage, mr_->rkey};
    ibv_send_wr* bad = nullptr;
    for (int i = 0; i < count; ++i) ASSERT_EQ(ibv_post_send(qp_.get(), &wr, &bad), 0);
  }
  void ExpectAllDone(size_t count) {
    for (const ibv_wc& wc : Await(cq_.get(), count)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }

  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(2 * kMessage);
  ContextPtr context_ = Open("soft0");
  PdPtr pd_ = PdPtr(ibv_alloc_pd(context_.get()));
  MrPtr mr_ = MrPtr(ibv_reg_mr(pd_.get(), buffer_.data(), buffer_.size(),
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  CqPtr cq_ = CqPtr(ibv_create_cq(context_.get(), 2 * kDepth, nullptr, nullptr, 0));
  QpPtr qp_;
};

TEST_F(ProgressTest, ResumedQueue_SendsMoreThanOneTurnTakes) {
  Make(IBV_QPT_RC);
  Post(IBV_WR_RDMA_WRITE, kMessage, kDepth);  // SQD: they wait
  To(IBV_QPS_RTS);
  ExpectAllDone(kDepth);
}

TEST_F(ProgressTest, BacklogBehindDelayedPackets_GoesOnWhenTheDelayEnds) {
  Make(IBV_QPT_RC);
  To(IBV_QPS_RTS);
  Fault("soft0 delay 50ms");
  Post(IBV_WR_RDMA_WRITE, kMessage, kDepth);
  Fault("soft0 clear");
  ExpectAllDone(kDepth);
}

TEST_F(ProgressTest, UnreliableQueue_GoesOnWhenPacketsUnderWayAreLost) {
  Make(IBV_QPT_UC);
  Fault("soft0 delay 50ms");
  Post(IBV_WR_RDMA_WRITE, kMessage, kDepth);
  Fault("soft0 down");
  ExpectAllDone(kDepth);  // nobody acknowledges: what has left is done
  Fault("soft0 up");
  Fault("soft0 clear");
}

TEST_F(ProgressTest, PacketsOfTheLifeBeforeReset_DoNotHoldBackTheNext) {
  Make(IBV_QPT_RC);
  To(IBV_QPS_RTS);
  Fault("soft0 delay 60s");
  Post(IBV_WR_RDMA_WRITE, kMessage, kDepth);
  Fault("soft0 clear");
  To(IBV_QPS_RESET);
  ASSERT_EQ(Connect(qp_.get(), qp_->qp_num), 0);
  Post(IBV_WR_RDMA_WRITE, 8, 1);
  ExpectAllDone(1);
}

TEST_F(ProgressTest, ReceiverThatIsNotReady_LeavesOneTimer) {
  Make(IBV_QPT_RC);
  To(IBV_QPS_RTS);
  Post(IBV_WR_SEND, 8, 1);  // no receive is posted; it is tried again every 0.64 ms
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LE(Nic::Get()->TimersSet(), 1u);
  To(IBV_QPS_RESET);
  qp_.reset();
  EXPECT_EQ(Nic::Get()->TimersSet(), 0u);
}

}  // namespace
}  // namespace railhop::fabric::abi
