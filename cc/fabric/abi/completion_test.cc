#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <set>
#include <thread>

#include "cc/fabric/abi/test_fabric.h"

namespace railhop::fabric::abi {
namespace {

// One 8-byte write of the loopback to itself.
int PostWrite(const Loopback& loop, uint64_t wr_id, uint32_t rkey, unsigned int flags) {
  ibv_sge sge = loop.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = flags;
  wr.wr.rdma.remote_addr = loop.Address(64);
  wr.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(loop.qp.get(), &wr, &bad);
}

TEST(CreateCq, WithBadArguments_FailsWithEinval) {
  const ContextPtr context = Open("soft1");
  for (const int cqe : {0, -1, static_cast<int>(kSmallMaxCqe) + 1}) {
    EXPECT_EQ(ibv_create_cq(context.get(), cqe, nullptr, nullptr, 0), nullptr) << cqe;
    EXPECT_EQ(errno, EINVAL);
  }
  EXPECT_EQ(ibv_create_cq(context.get(), 1, nullptr, nullptr, context->num_comp_vectors), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(CreateCq, Many_StopAtTheDevicesLimit) {
  const ContextPtr context = Open("soft1");
  const CqPtr one(ibv_create_cq(context.get(), 10, nullptr, nullptr, 0));
  const CqPtr two(ibv_create_cq(context.get(), kSmallMaxCqe, nullptr, nullptr, 0));
  ASSERT_NE(two, nullptr);
  EXPECT_GE(one->cqe, 10);
  EXPECT_EQ(two->cqe, static_cast<int>(kSmallMaxCqe));
  EXPECT_EQ(ibv_create_cq(context.get(), 1, nullptr, nullptr, 0), nullptr);  // kSmallMaxCq is 2
  EXPECT_EQ(errno, ENOMEM);
}

TEST(DestroyCq, InUse_FailsWithEbusy) {
  Loopback loop;
  EXPECT_EQ(ibv_destroy_cq(loop.cq.get()), EBUSY);
}

TEST(PollCq, ManyAtOnce_KeepsTheirOrder) {
  Loopback loop;
  ibv_resize_cq(loop.cq.get(), 128);
  for (uint64_t round = 0; round < 5; ++round) {
    for (uint64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(PostWrite(loop, round * 8 + i, loop.mr->rkey, IBV_SEND_SIGNALED), 0);
    }
  }
  ibv_wc wc[64];
  ASSERT_EQ(ibv_poll_cq(loop.cq.get(), 64, wc), 40);
  for (uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(wc[i].wr_id, i);
    EXPECT_EQ(wc[i].status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc[i].opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(wc[i].qp_num, loop.qp->qp_num);
  }
  EXPECT_EQ(ibv_poll_cq(loop.cq.get(), 64, wc), 0);
}

TEST(ResizeCq, BelowWhatWaits_FailsWithEinval) {
  Loopback loop;
  EXPECT_EQ(ibv_resize_cq(loop.cq.get(), 0), EINVAL);
  ASSERT_EQ(ibv_resize_cq(loop.cq.get(), 1000), 0);
  EXPECT_GE(loop.cq->cqe, 1000);
}

TEST(CqEx, PolledByParts_GivesTheCompletion) {
  Loopback loop;
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* const cq = ibv_create_cq_ex(loop.context.get(), &attr);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr init = QpInitAttr(ibv_cq_ex_to_cq(cq));
  ibv_qp* const qp = ibv_create_qp(loop.pd.get(), &init);
  ASSERT_EQ(Connect(qp, qp->qp_num), 0);
  ibv_poll_cq_attr poll_attr = {};
  EXPECT_EQ(ibv_start_poll(cq, &poll_attr), ENOENT);

  ibv_sge sge = loop.Sge(128, 32);
  ibv_recv_wr recv = {};
  recv.wr_id = 1;
  recv.sg_list = &sge;
  recv.num_sge = 1;
  ibv_recv_wr* bad_recv = nullptr;
  ASSERT_EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
  ibv_sge from = loop.Sge(0, 8);
  ibv_send_wr send = {};
  send.wr_id = 2;
  send.sg_list = &from;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND_WITH_IMM;
  send.imm_data = 77;
  send.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad_send = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &send, &bad_send), 0);

  ASSERT_EQ(ibv_start_poll(cq, &poll_attr), 0);
  EXPECT_EQ(cq->wr_id, 1u);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 8u);
  EXPECT_EQ(ibv_wc_read_imm_data(cq), 77u);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), static_cast<unsigned int>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ibv_wc_read_qp_num(cq), qp->qp_num);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 2u);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST(CqEx, WithWhatIsNotThere_Fails) {
  const ContextPtr context = Open("soft0");
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  EXPECT_EQ(ibv_create_cq_ex(context.get(), &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr.wc_flags = 0;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = 1u << 30;
  EXPECT_EQ(ibv_create_cq_ex(context.get(), &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

class ChannelTest : public testing::Test {
 protected:
  ChannelTest() {
    ibv_qp_init_attr init = QpInitAttr(cq_.get());
    loop_.qp = QpPtr(ibv_create_qp(loop_.pd.get(), &init));
    EXPECT_EQ(Connect(loop_.qp.get(), loop_.qp->qp_num), 0);
  }
  bool Readable() const {
    pollfd ready = {channel_->fd, POLLIN, 0};
    return poll(&ready, 1, 0) == 1;
  }
  void Complete() const { ASSERT_EQ(PostWrite(loop_, 0, loop_.mr->rkey, IBV_SEND_SIGNALED), 0); }

  int user_ = 0;
  Loopback loop_;
  ChannelPtr channel_ = ChannelPtr(ibv_create_comp_channel(loop_.context.get()));
  CqPtr cq_ = CqPtr(ibv_create_cq(loop_.context.get(), 64, &user_, channel_.get(), 0));
  // The queue pair goes first.
  struct Last {
    Loopback* loop;
    ~Last() { loop->qp.reset(); }
  } last_ = {&loop_};
};

TEST_F(ChannelTest, ArmedQueue_TellsOnce) {
  Complete();
  EXPECT_FALSE(Readable());
  ASSERT_EQ(ibv_req_notify_cq(cq_.get(), 0), 0);
  EXPECT_FALSE(Readable());
  Complete();
  Complete();
  EXPECT_TRUE(Readable());
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel_.get(), &cq, &user), 0);
  EXPECT_EQ(cq, cq_.get());
  EXPECT_EQ(user, &user_);
  EXPECT_FALSE(Readable());
  ibv_ack_cq_events(cq, 1);
}

TEST_F(ChannelTest, NonBlocking_GivesEagain) {
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  EXPECT_EQ(ibv_get_cq_event(channel_.get(), &cq, &user), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(ChannelTest, DestroyChannel_InUse_FailsWithEbusy) {
  EXPECT_EQ(ibv_destroy_comp_channel(channel_.get()), EBUSY);
}

TEST_F(ChannelTest, DestroyCq_WaitsForAcknowledgement) {
  ASSERT_EQ(ibv_req_notify_cq(cq_.get(), 0), 0);
  Complete();
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel_.get(), &cq, &user), 0);
  loop_.qp.reset();
  std::atomic<bool> acknowledged{false};
  std::atomic<bool> early{false};
  std::thread destroyer([&] {
    cq_.reset();
    early = !acknowledged.load();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  acknowledged = true;
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
  EXPECT_FALSE(early);
}

TEST_F(ChannelTest, DestroyCq_TakesBackWhatNobodyGot) {
  ASSERT_EQ(ibv_req_notify_cq(cq_.get(), 0), 0);
  Complete();
  EXPECT_TRUE(Readable());
  loop_.qp.reset();
  cq_.reset();
  EXPECT_FALSE(Readable());
}

TEST(Quirk, ShortCq_HoldsExactlyWhatWasAskedFor) {
  Fault("soft0 quirk short_cq");
  {
    const ContextPtr context = Open("soft0");
    const CqPtr cq(ibv_create_cq(context.get(), 7, nullptr, nullptr, 0));
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(cq->cqe, 7);
    EXPECT_EQ(ibv_create_cq(context.get(), 65, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_device_attr attr;
    ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
    EXPECT_EQ(attr.max_cqe, 64);
  }
  Fault("soft0 quirk short_cq off");
}

TEST(Quirk, RandomErrorFields_LeaveTheValidOnes) {
  Fault("soft0 quirk random_error_fields");
  {
    Loopback loop;
    ASSERT_EQ(PostWrite(loop, 5, loop.mr->rkey + 1, IBV_SEND_SIGNALED), 0);
    for (uint64_t i = 6; i < 12; ++i) {
      PostWrite(loop, i, loop.mr->rkey, IBV_SEND_SIGNALED);
    }
    const std::vector<ibv_wc> wc = Await(loop.cq.get(), 7);
    EXPECT_EQ(wc[0].status, IBV_WC_REM_ACCESS_ERR);
    std::set<int> opcodes;
    for (uint64_t i = 0; i < wc.size(); ++i) {
      EXPECT_EQ(wc[i].wr_id, i + 5);
      EXPECT_EQ(wc[i].qp_num, loop.qp->qp_num);
      opcodes.insert(wc[i].opcode);
    }
    EXPECT_GT(opcodes.size(), 1u);
  }
  Fault("soft0 quirk random_error_fields off");
}

}  // namespace
}  // namespace railhop::fabric::abi
