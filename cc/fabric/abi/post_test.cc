#include <cerrno>
#include <cstring>

#include "cc/fabric/abi/test_fabric.h"

namespace railhop::fabric::abi {
namespace {

constexpr uint64_t kAllSendOps = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                 IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

// A list of writes, each of 8 bytes from offset 0 to offset 64, signalled, numbered from 0.
struct WriteList {
  WriteList(const Loopback& loop, int count) : sges(count, loop.Sge(0, 8)), wrs(count) {
    for (int i = 0; i < count; ++i) {
      wrs[i].wr_id = static_cast<uint64_t>(i);
      wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
      wrs[i].sg_list = &sges[i];
      wrs[i].num_sge = 1;
      wrs[i].opcode = IBV_WR_RDMA_WRITE;
      wrs[i].send_flags = IBV_SEND_SIGNALED;
      wrs[i].wr.rdma.remote_addr = loop.Address(64);
      wrs[i].wr.rdma.rkey = loop.mr->rkey;
    }
  }
  std::vector<ibv_sge> sges;
  std::vector<ibv_send_wr> wrs;
};

TEST(PostSend, InResetOrRtr_FailsWithEinval) {
  Loopback loop;
  ibv_qp_init_attr attr = QpInitAttr(loop.cq.get());
  const QpPtr qp(ibv_create_qp(loop.pd.get(), &attr));
  WriteList list(loop, 1);
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp.get(), list.wrs.data(), &bad), EINVAL);
  EXPECT_EQ(bad, list.wrs.data());
  ibv_recv_wr recv = {};
  ibv_recv_wr* bad_recv = nullptr;
  EXPECT_EQ(ibv_post_recv(qp.get(), &recv, &bad_recv), EINVAL);
  EXPECT_EQ(bad_recv, &recv);
}

TEST(PostSend, OfAListWithABadOne_PostsWhatCameBefore) {
  Loopback loop;
  WriteList list(loop, 4);
  list.wrs[2].num_sge = 3;  // max_send_sge is 2
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(loop.qp.get(), list.wrs.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &list.wrs[2]);
  const std::vector<ibv_wc> wc = Await(loop.cq.get(), 2);
  EXPECT_EQ(wc[1].wr_id, 1u);
  ibv_wc more;
  EXPECT_EQ(ibv_poll_cq(loop.cq.get(), 1, &more), 0);
}

TEST(PostSend, OfBadRequests_FailsWithEinval) {
  Loopback loop;
  for (int which = 0; which < 6; ++which) {
    WriteList list(loop, 1);
    ibv_send_wr& wr = list.wrs[0];
    if (which == 0) wr.opcode = IBV_WR_SEND_WITH_INV;
    if (which == 1) wr.opcode = static_cast<ibv_wr_opcode>(-1);
    if (which == 2) wr.num_sge = -1;
    if (which == 3) {
      wr.send_flags |= IBV_SEND_INLINE;
      list.sges[0].length = 65;  // max_inline_data is 64
    }
    if (which == 4) {
      wr.opcode = IBV_WR_RDMA_READ;
      wr.send_flags |= IBV_SEND_INLINE;
    }
    if (which == 5) {
      wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
      list.sges[0].length = 4;
    }
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(loop.qp.get(), &wr, &bad), EINVAL) << which;
    EXPECT_EQ(bad, &wr);
  }
}

TEST(PostSend, ReadOnUc_FailsWithEinval) {
  Loopback loop("soft0", IBV_QPT_UC);
  WriteList list(loop, 1);
  list.wrs[0].opcode = IBV_WR_RDMA_READ;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(loop.qp.get(), list.wrs.data(), &bad), EINVAL);
}

TEST(PostSend, ToAFullQueue_FailsWithEnomem) {
  Loopback loop;
  Fault("soft0 blackhole");
  WriteList list(loop, 9);  // max_send_wr is 8
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(loop.qp.get(), list.wrs.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &list.wrs[8]);
  Fault("soft0 clear");
  Await(loop.cq.get(), 8);
}

TEST(PostSend, Inline_TakesTheBytesAtOnce) {
  Loopback loop;
  char text[] = "hello";
  ibv_sge sges[2] = {{reinterpret_cast<uint64_t>(text), 2, 0},
                     {reinterpret_cast<uint64_t>(text) + 2, 3, 0}};
  WriteList list(loop, 1);
  list.wrs[0].sg_list = sges;
  list.wrs[0].num_sge = 2;
  list.wrs[0].send_flags |= IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(loop.qp.get(), list.wrs.data(), &bad), 0);
  EXPECT_EQ(Await(loop.cq.get(), 1)[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(loop.buffer + 64, "hello", 5), 0);
}

TEST(PostReceive, OfAListWithABadOne_PostsWhatCameBefore) {
  Loopback loop;
  ibv_sge sge = loop.Sge(512, 64);
  ibv_recv_wr wrs[3] = {};
  for (int i = 0; i < 3; ++i) {
    wrs[i].wr_id = static_cast<uint64_t>(i);
    wrs[i].sg_list = &sge;
    wrs[i].num_sge = 1;
    wrs[i].next = i < 2 ? &wrs[i + 1] : nullptr;
  }
  wrs[1].num_sge = 3;  // max_recv_sge is 2
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(loop.qp.get(), wrs, &bad), EINVAL);
  EXPECT_EQ(bad, &wrs[1]);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(loop.qp.get(), &attr, IBV_QP_STATE), 0);
  const std::vector<ibv_wc> wc = Await(loop.cq.get(), 1);
  EXPECT_EQ(wc[0].wr_id, 0u);
  EXPECT_EQ(wc[0].status, IBV_WC_WR_FLUSH_ERR);
}

class BuilderTest : public testing::Test {
 protected:
  BuilderTest() {
    ibv_qp_init_attr_ex attr = QpInitAttrEx(loop_.pd.get(), loop_.cq.get(), kAllSendOps);
    qp_ = QpPtr(ibv_create_qp_ex(loop_.context.get(), &attr));
    EXPECT_NE(qp_, nullptr);
    EXPECT_EQ(Connect(qp_.get(), qp_->qp_num), 0);
    ex_ = ibv_qp_to_qp_ex(qp_.get());
    EXPECT_NE(ex_, nullptr);
  }
  void Write(uint64_t wr_id, uint32_t length) {
    ex_->wr_id = wr_id;
    ex_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex_, loop_.mr->rkey, loop_.Address(64));
    ibv_wr_set_sge(ex_, loop_.mr->lkey, loop_.Address(0), length);
  }
  void ExpectNothing() {
    ibv_wc wc;
    EXPECT_EQ(ibv_poll_cq(loop_.cq.get(), 1, &wc), 0);
  }

  Loopback loop_;
  QpPtr qp_;
  ibv_qp_ex* ex_ = nullptr;
};

TEST_F(BuilderTest, Batch_IsPostedAsAWhole) {
  loop_.buffer[0] = 9;
  ibv_wr_start(ex_);
  Write(1, 8);
  Write(2, 8);
  ex_->wr_id = 3;
  ibv_wr_rdma_write(ex_, loop_.mr->rkey, loop_.Address(256));
  char text[] = "inline";
  ibv_wr_set_inline_data(ex_, text, 6);
  ExpectNothing();
  ASSERT_EQ(ibv_wr_complete(ex_), 0);
  const std::vector<ibv_wc> wc = Await(loop_.cq.get(), 3);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(wc[i].wr_id, i + 1);
    EXPECT_EQ(wc[i].status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(loop_.buffer[64], 9);
  EXPECT_EQ(std::memcmp(loop_.buffer + 256, "inline", 6), 0);
}

TEST_F(BuilderTest, BatchWithAnError_PostsNothing) {
  ibv_wr_start(ex_);
  Write(1, 8);
  ibv_wr_send_inv(ex_, 1);
  Write(2, 8);
  EXPECT_EQ(ibv_wr_complete(ex_), EOPNOTSUPP);
  ExpectNothing();
  ibv_wr_start(ex_);
  for (uint64_t i = 0; i < 9; ++i) Write(i, 8);  // max_send_wr is 8
  EXPECT_EQ(ibv_wr_complete(ex_), ENOMEM);
  ExpectNothing();
}

TEST_F(BuilderTest, Abort_PostsNothing) {
  ibv_wr_start(ex_);
  Write(1, 8);
  ibv_wr_abort(ex_);
  ExpectNothing();
  ibv_wr_start(ex_);
  Write(2, 8);
  ASSERT_EQ(ibv_wr_complete(ex_), 0);
  EXPECT_EQ(Await(loop_.cq.get(), 1)[0].wr_id, 2u);
}

TEST_F(BuilderTest, InReset_FailsAtTheEnd) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE), 0);
  ibv_wr_start(ex_);
  Write(1, 8);
  EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
  ibv_wr_start(ex_);
  ibv_wr_abort(ex_);
}

TEST_F(BuilderTest, ReadAndAtomics_Work) {
  auto* const words = reinterpret_cast<uint64_t*>(loop_.buffer);
  words[8] = 40;
  ibv_wr_start(ex_);
  ex_->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_fetch_add(ex_, loop_.mr->rkey, loop_.Address(64), 2);
  ibv_wr_set_sge(ex_, loop_.mr->lkey, loop_.Address(0), 8);
  ibv_wr_atomic_cmp_swp(ex_, loop_.mr->rkey, loop_.Address(64), 42, 50);
  ibv_wr_set_sge(ex_, loop_.mr->lkey, loop_.Address(8), 8);
  ibv_wr_rdma_read(ex_, loop_.mr->rkey, loop_.Address(64));
  ibv_wr_set_sge(ex_, loop_.mr->lkey, loop_.Address(16), 8);
  ASSERT_EQ(ibv_wr_complete(ex_), 0);
  for (const ibv_wc& wc : Await(loop_.cq.get(), 3)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(words[0], 40u);
  EXPECT_EQ(words[1], 42u);
  EXPECT_EQ(words[2], 50u);
}

TEST_F(BuilderTest, SendWithImmediate_IsReceived) {
  ibv_sge sge = loop_.Sge(512, 64);
  ibv_recv_wr recv = {};
  recv.sg_list = &sge;
  recv.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp_.get(), &recv, &bad), 0);
  ibv_wr_start(ex_);
  ex_->wr_flags = 0;
  ibv_wr_send_imm(ex_, 0x01020304);
  ibv_data_buf parts[2] = {{const_cast<char*>("ab"), 2}, {const_cast<char*>("cde"), 3}};
  ibv_wr_set_inline_data_list(ex_, 2, parts);
  ASSERT_EQ(ibv_wr_complete(ex_), 0);
  const ibv_wc wc = Await(loop_.cq.get(), 1)[0];
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.byte_len, 5u);
  EXPECT_EQ(wc.imm_data, 0x01020304u);
  EXPECT_EQ(std::memcmp(loop_.buffer + 512, "abcde", 5), 0);
}

}  // namespace
}  // namespace railhop::fabric::abi
