#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "cc/fabric/abi/test_fabric.h"

namespace railhop::fabric::abi {
namespace {

TEST(Faults, FailingCall_GivesItsErrno) {
  const ContextPtr context = Open("soft0");
  Fault("soft0 fail alloc_pd ENOMEM count 1");
  EXPECT_EQ(ibv_alloc_pd(context.get()), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  const PdPtr pd(ibv_alloc_pd(context.get()));
  ASSERT_NE(pd, nullptr);
  const CqPtr cq(ibv_create_cq(context.get(), 8, nullptr, nullptr, 0));
  ibv_qp_init_attr attr = QpInitAttr(cq.get());
  const QpPtr qp(ibv_create_qp(pd.get(), &attr));

  Fault("soft0 fail modify_qp rtr ETIMEDOUT count 1");
  EXPECT_EQ(Connect(qp.get(), qp->qp_num), ETIMEDOUT);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  Fault("soft0 fail query_gid EIO count 1");
  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(context.get(), 1, 0, &gid), -1);
  EXPECT_EQ(errno, EIO);
  Fault("soft0 fail post_send ENOMEM count 1");
  ibv_send_wr wr = {};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(qp.get(), &wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
  Fault("soft0 fail open_device EMFILE count 1");
  EXPECT_EQ(Open("soft0"), nullptr);
  EXPECT_EQ(errno, EMFILE);
  Fault("soft0 clear");
}

TEST(Faults, HangingCall_ReturnsLate) {
  const ContextPtr context = Open("soft0");
  Fault("soft0 hang query_port 100ms count 1");
  const auto start = std::chrono::steady_clock::now();
  ibv_port_attr port;
  EXPECT_EQ(ibv_query_port(context.get(), 1, &port), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(100));
  Fault("soft0 clear");
}

TEST(RemovedDevice, Calls_FailWithEio) {
  Loopback loop;
  Fault("soft0 remove");
  ibv_port_attr port;
  EXPECT_EQ(ibv_query_port(loop.context.get(), 1, &port), EIO);
  EXPECT_EQ(ibv_alloc_pd(loop.context.get()), nullptr);
  EXPECT_EQ(errno, EIO);
  ibv_send_wr wr = {};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(loop.qp.get(), &wr, &bad), EIO);
  EXPECT_EQ(Open("soft0"), nullptr);  // not in the list any more
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(loop.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
  Fault("soft0 return");
  EXPECT_EQ(ibv_query_port(loop.context.get(), 1, &port), EIO);  // never again for this context
  EXPECT_NE(Open("soft0"), nullptr);
}

// Events of its later removals are for those who opened it later.
TEST(RemovedDevice, OldContext_HearsOfItOnce) {
  const ContextPtr old = Open("soft0");
  Fault("soft0 remove");
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(old.get(), &event), 0);
  ibv_ack_async_event(&event);
  Fault("soft0 return");
  const ContextPtr fresh = Open("soft0");
  Fault("soft0 remove");
  ASSERT_EQ(ibv_get_async_event(fresh.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
  Fault("soft0 return");
  fcntl(old->async_fd, F_SETFL, O_NONBLOCK);
  EXPECT_EQ(ibv_get_async_event(old.get(), &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Faults, EventOfAQueuePair_ReachesItsOwner) {
  const uint32_t order = TheFabric().device(0).qp_order;
  Loopback loop;
  Loopback other;
  const std::string qp = " qp " + std::to_string(order);
  Fault("soft0 event qp_fatal" + qp);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(loop.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.element.qp, loop.qp.get());
  ibv_ack_async_event(&event);
  Fault("soft0 event cq_err" + qp);
  ASSERT_EQ(ibv_get_async_event(loop.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, loop.cq.get());
  ibv_ack_async_event(&event);
  fcntl(other.context->async_fd, F_SETFL, O_NONBLOCK);
  EXPECT_EQ(ibv_get_async_event(other.context.get(), &event), -1);
}

TEST(RemovedDevice, WithEioQuirk_DestroyFailsToo) {
  Loopback loop;
  Fault("soft0 quirk eio_after_removal");
  Fault("soft0 remove");
  EXPECT_EQ(ibv_destroy_qp(loop.qp.get()), EIO);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(loop.cq.get(), 1, &wc), -EIO);
  EXPECT_EQ(ibv_dereg_mr(loop.mr.get()), EIO);
  Fault("soft0 quirk eio_after_removal off");
  Fault("soft0 return");
}

// What the child finds wrong, as a bit each.
int CallsOfAChild(const Loopback& loop) {
  int wrong = 0;
  ibv_send_wr wr = {};
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(loop.qp.get(), &wr, &bad) != EPERM) wrong |= 1;
  ibv_wc wc;
  if (ibv_poll_cq(loop.cq.get(), 1, &wc) != -EPERM) wrong |= 2;
  if (ibv_alloc_pd(loop.context.get()) != nullptr || errno != EPERM) wrong |= 4;
  if (ibv_destroy_qp(loop.qp.get()) != EPERM) wrong |= 8;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  if (ibv_modify_qp(loop.qp.get(), &attr, IBV_QP_STATE) != EPERM) wrong |= 16;
  ibv_async_event event;
  if (ibv_get_async_event(loop.context.get(), &event) != -1 || errno != EPERM) wrong |= 32;
  return wrong;
}

TEST(ForkedChild, ItsOwnDevices_Work) {
  Loopback parents;
  const pid_t child = fork();
  if (child == 0) {
    Loopback own;
    ibv_sge sge = own.Sge(0, 8);
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = own.Address(64);
    wr.wr.rdma.rkey = own.mr->rkey;
    ibv_send_wr* bad = nullptr;
    own.buffer[0] = 7;
    const bool sent = ibv_post_send(own.qp.get(), &wr, &bad) == 0 &&
                      Await(own.cq.get(), 1)[0].status == IBV_WC_SUCCESS;
    _exit(sent && own.buffer[64] == 7 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ForkedChild, CallsOnItsParents_FailWithEperm) {
  EXPECT_EQ(ibv_fork_init(), 0);
  Loopback loop;
  const pid_t child = fork();
  if (child == 0) _exit(CallsOfAChild(loop));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // The parent's objects work as before.
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(loop.qp.get(), &attr, 0, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
}

}  // namespace
}  // namespace railhop::fabric::abi
