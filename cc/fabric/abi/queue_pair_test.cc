#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "cc/fabric/abi/test_fabric.h"

namespace railhop::fabric::abi {
namespace {

class QueuePairTest : public testing::Test {
 protected:
  QpPtr Create(ibv_qp_init_attr attr) { return QpPtr(ibv_create_qp(pd_.get(), &attr)); }
  static ibv_qp_attr InitAttr() {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    return attr;
  }
  static constexpr int kInitMask =
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

  ContextPtr context_ = Open("soft0");
  PdPtr pd_ = PdPtr(ibv_alloc_pd(context_.get()));
  CqPtr cq_ = CqPtr(ibv_create_cq(context_.get(), 64, nullptr, nullptr, 0));
};

TEST_F(QueuePairTest, CreateQp_GivesAtLeastWhatWasAskedFor) {
  ibv_qp_init_attr attr = QpInitAttr(cq_.get());
  attr.cap.max_recv_wr = 0;
  const QpPtr qp(ibv_create_qp(pd_.get(), &attr));
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(attr.cap.max_send_wr, 8u);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_NE(qp->qp_num, 0u);
  EXPECT_EQ(qp->send_cq, cq_.get());
  EXPECT_EQ(ibv_qp_to_qp_ex(qp.get()), nullptr);
}

TEST_F(QueuePairTest, CreateQp_OfTypesThatAreNotThere_FailsWithEopnotsupp) {
  for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET}) {
    EXPECT_EQ(Create(QpInitAttr(cq_.get(), type)), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST_F(QueuePairTest, CreateQp_AboveTheLimits_FailsWithEinval) {
  const ContextPtr context = Open("soft1");
  const PdPtr pd(ibv_alloc_pd(context.get()));
  const CqPtr cq(ibv_create_cq(context.get(), 64, nullptr, nullptr, 0));
  const ibv_qp_init_attr good = QpInitAttr(cq.get());
  for (int which = 0; which < 5; ++which) {
    ibv_qp_init_attr attr = good;
    if (which == 0) attr.cap.max_send_wr = kSmallMaxQpWr + 1;
    if (which == 1) attr.cap.max_recv_wr = kSmallMaxQpWr + 1;
    if (which == 2) attr.cap.max_send_sge = kSmallMaxSge + 1;
    if (which == 3) attr.cap.max_recv_sge = kSmallMaxSge + 1;
    if (which == 4) attr.send_cq = nullptr;
    EXPECT_EQ(ibv_create_qp(pd.get(), &attr), nullptr) << which;
    EXPECT_EQ(errno, EINVAL);
  }
  ibv_qp_init_attr attr = good;
  const QpPtr one(ibv_create_qp(pd.get(), &attr));
  const QpPtr two(ibv_create_qp(pd.get(), &attr));
  EXPECT_EQ(ibv_create_qp(pd.get(), &attr), nullptr);  // kSmallMaxQp is 2
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(QueuePairTest, CreateQp_WithoutUc_FailsWithEopnotsupp) {
  EXPECT_NE(Create(QpInitAttr(cq_.get(), IBV_QPT_UC)), nullptr);
  Fault("soft0 quirk no_uc");
  EXPECT_EQ(Create(QpInitAttr(cq_.get(), IBV_QPT_UC)), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  Fault("soft0 quirk no_uc off");
}

TEST_F(QueuePairTest, CreateQpEx_WithWhatIsNotThere_Fails) {
  ibv_qp_init_attr_ex attr = QpInitAttrEx(pd_.get(), cq_.get(), IBV_QP_EX_WITH_BIND_MW);
  EXPECT_EQ(ibv_create_qp_ex(context_.get(), &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr = QpInitAttrEx(pd_.get(), cq_.get(), IBV_QP_EX_WITH_RDMA_READ);
  attr.qp_type = IBV_QPT_UC;
  EXPECT_EQ(ibv_create_qp_ex(context_.get(), &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr = QpInitAttrEx(pd_.get(), cq_.get(), IBV_QP_EX_WITH_SEND);
  attr.comp_mask &= ~static_cast<uint32_t>(IBV_QP_INIT_ATTR_PD);
  EXPECT_EQ(ibv_create_qp_ex(context_.get(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(QueuePairTest, ModifyQp_WithBadAttributes_FailsWithEinval) {
  const QpPtr qp = Create(QpInitAttr(cq_.get()));
  ibv_qp_attr attr = InitAttr();
  attr.port_num = 2;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, kInitMask), EINVAL);
  attr = InitAttr();
  attr.qp_access_flags = 1 << 14;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, kInitMask), EINVAL);
  attr = InitAttr();
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, kInitMask | 1 << 27), EINVAL);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), EINVAL);
  attr.qp_state = static_cast<ibv_qp_state>(17);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, kInitMask), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  attr = InitAttr();
  EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, kInitMask), 0);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
}

TEST_F(QueuePairTest, QueryQp_GivesWhatWasSet) {
  const QpPtr qp = Create(QpInitAttr(cq_.get()));
  ASSERT_EQ(Connect(qp.get(), qp->qp_num), 0);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, 0, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.dest_qp_num, qp->qp_num);
  EXPECT_EQ(attr.timeout, 14);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.ah_attr.grh.sgid_index, 1);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_EQ(init.cap.max_send_sge, 2u);
  attr = {};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, 0, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(attr.timeout, 0);
}

TEST_F(QueuePairTest, Ece_IsNegotiatedBeforeRtr) {
  const QpPtr qp = Create(QpInitAttr(cq_.get()));
  ibv_ece ece = {};
  ASSERT_EQ(ibv_query_ece(qp.get(), &ece), 0);
  EXPECT_NE(ece.vendor_id, 0u);
  EXPECT_NE(ece.options, 0u);
  const ibv_ece ours = ece;
  ece.options = 0x1234;
  ASSERT_EQ(ibv_set_ece(qp.get(), &ece), 0);
  ASSERT_EQ(ibv_query_ece(qp.get(), &ece), 0);
  EXPECT_EQ(ece.options, 0x1234u);
  ece.vendor_id = ours.vendor_id + 1;
  EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EINVAL);
  ece = ours;
  ece.comp_mask = 1;
  EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EINVAL);
  ASSERT_EQ(Connect(qp.get(), qp->qp_num), 0);
  ece = ours;
  EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EINVAL);
}

TEST_F(QueuePairTest, DestroyQp_WaitsForAcknowledgedEvent) {
  QpPtr qp = Create(QpInitAttr(cq_.get()));
  ASSERT_EQ(Connect(qp.get(), qp->qp_num), 0);
  // A write with a bad key: the responder, which is this queue pair too, tells of an access error.
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_INLINE;
  char byte = 1;
  ibv_sge sge = {reinterpret_cast<uint64_t>(&byte), 1, 0};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.rkey = 0xbad;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp.get(), &wr, &bad), 0);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, qp.get());
  std::atomic<bool> acknowledged{false};
  std::atomic<bool> early{false};
  std::thread destroyer([&] {
    qp.reset();
    early = !acknowledged.load();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  acknowledged = true;
  ibv_ack_async_event(&event);
  destroyer.join();
  EXPECT_FALSE(early);
}

TEST_F(QueuePairTest, PortDown_IsToldAsAnEvent) {
  Fault("soft0 down");
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 1);
  ibv_ack_async_event(&event);
  ibv_port_attr port;
  ASSERT_EQ(ibv_query_port(context_.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  Fault("soft0 up");
  ASSERT_EQ(ibv_get_async_event(context_.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ACTIVE);
  ibv_ack_async_event(&event);
}

TEST_F(QueuePairTest, Sqd_TellsThatItIsDrainedOnlyWhenAsked) {
  const QpPtr qp = Create(QpInitAttr(cq_.get()));
  ASSERT_EQ(Connect(qp.get(), qp->qp_num), 0);
  pollfd events = {context_->async_fd, POLLIN, 0};
  for (const bool asked : {false, true}) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    const int mask = IBV_QP_STATE | (asked ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0);
    ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, mask), 0);
    EXPECT_EQ(poll(&events, 1, 0), asked ? 1 : 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
  }
  ibv_async_event event = {};
  ASSERT_EQ(ibv_get_async_event(context_.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
  ibv_ack_async_event(&event);
}

}  // namespace
}  // namespace railhop::fabric::abi
