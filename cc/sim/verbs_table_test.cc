// What is the simulator's own in its verbs: time that passes in calls, waits without threads. That
// they are verbs at all is shown by the conformance suite (integration/verbs).
#include "cc/sim/verbs_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "cc/rdma_model/topology_text.h"

namespace railhop::sim {
namespace {

constexpr const char* kTopology = R"(
  host here
    device soft0
      port 1 address 10.0.0.1
    device soft1
      port 1 address 10.0.0.2
)";

struct End {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<uint8_t> memory = std::vector<uint8_t>(4096);
};

class VerbsTableTest : public testing::Test {
 protected:
  VerbsTableTest() : world(Topology(), Options()), v(SimVerbs()) {
    SetVerbsWorld(&world);
    ibv_device** list = v.get_device_list(nullptr);
    Open(list[0], &first);
    Open(list[1], &second);
    v.free_device_list(list);
  }
  ~VerbsTableTest() override {
    for (End* end : {&first, &second}) {
      EXPECT_EQ(v.destroy_qp(end->qp), 0);
      EXPECT_EQ(v.destroy_cq(end->cq), 0);
      EXPECT_EQ(v.destroy_comp_channel(end->channel), 0);
      EXPECT_EQ(v.dereg_mr(end->mr), 0);
      EXPECT_EQ(v.dealloc_pd(end->pd), 0);
      EXPECT_EQ(v.close_device(end->context), 0);
    }
    SetVerbsWorld(nullptr);
  }
  static rdma::Topology Topology() {
    std::string error;
    return *rdma::ParseTopology(kTopology, "test", &error);
  }
  void Open(ibv_device* device, End* end) {
    end->context = v.open_device(device);
    end->pd = v.alloc_pd(end->context);
    end->channel = v.create_comp_channel(end->context);
    end->cq = v.create_cq(end->context, 16, end, end->channel, 0);
    end->mr = v.reg_mr(end->pd, end->memory.data(), end->memory.size(), 15);
    ibv_qp_init_attr init = {};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = end->cq;
    init.cap = {16, 16, 1, 1, 0};
    end->qp = v.create_qp(end->pd, &init);
    ASSERT_NE(end->qp, nullptr);
  }
  void Connect(const End& mine, const End& peer, uint8_t timeout) {
    ibv_qp_attr a = {};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = 15;
    ASSERT_EQ(0, v.modify_qp(mine.qp, &a,
                             IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer.qp->qp_num;
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.sgid_index = 3;
    ASSERT_EQ(0, v.query_gid(peer.context, 1, 3, &a.ah_attr.grh.dgid));
    a.max_dest_rd_atomic = a.max_rd_atomic = 1;
    ASSERT_EQ(0, v.modify_qp(mine.qp, &a,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    a.qp_state = IBV_QPS_RTS;
    a.timeout = timeout;
    a.retry_cnt = a.rnr_retry = 7;
    ASSERT_EQ(0, v.modify_qp(mine.qp, &a,
                             IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
  }
  void ConnectBoth(uint8_t timeout) {
    Connect(first, second, timeout);
    Connect(second, first, timeout);
  }
  void Write(uint32_t length) {
    ibv_sge sge = {reinterpret_cast<uint64_t>(first.memory.data()), length, first.mr->lkey};
    ibv_send_wr wr = {};
    wr.wr_id = 7;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(second.memory.data());
    wr.wr.rdma.rkey = second.mr->rkey;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(0, ibv_post_send(first.qp, &wr, &bad)) << "the header's inline code works too";
  }
  ibv_wc Poll(ibv_cq* cq) {
    ibv_wc wc = {};
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    return wc;
  }
  static bool Readable(int fd) {
    pollfd state = {fd, POLLIN, 0};
    return poll(&state, 1, 0) == 1;
  }

  World world;
  const VerbsFunctions& v;
  End first, second;
};

TEST_F(VerbsTableTest, PollingAnEmptyQueue_LetsTimePassUntilItIsNot) {
  ConnectBoth(14);
  std::memset(first.memory.data(), 0x5a, 4096);
  const uint64_t before = VerbsNowNs();
  Write(4096);
  EXPECT_EQ(Poll(first.cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(second.memory, first.memory);
  EXPECT_GT(VerbsNowNs(), before);
  EXPECT_LT(VerbsNowNs(), before + 100'000);
}

TEST_F(VerbsTableTest, RetryBudgetOf34Seconds_PassesInVirtualTime) {
  ConnectBoth(20);  // 4.3 s for each of 8 sendings
  std::string error;
  ASSERT_TRUE(world.Fault("soft0 blackhole", &error)) << error;
  const uint64_t before = VerbsNowNs();
  Write(10);
  ASSERT_EQ(0, v.req_notify_cq(first.cq, 0));
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(0, v.get_cq_event(first.channel, &cq, &user));
  EXPECT_EQ(user, &first);
  v.ack_cq_events(cq, 1);
  EXPECT_GT(VerbsNowNs() - before, 34'000'000'000u);
  EXPECT_EQ(Poll(first.cq).status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(VerbsTableTest, AsyncEvent_ComesByDescriptorAndByWaiting) {
  std::string error;
  EXPECT_FALSE(Readable(first.context->async_fd));
  ASSERT_TRUE(world.Fault("soft0 down for 1s", &error)) << error;
  VerbsIdle();
  EXPECT_TRUE(Readable(first.context->async_fd));
  ibv_async_event event = {};
  ASSERT_EQ(0, v.get_async_event(first.context, &event));
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 1);
  v.ack_async_event(&event);
  EXPECT_FALSE(Readable(first.context->async_fd));
  ASSERT_EQ(0, v.get_async_event(first.context, &event)) << "waits for a virtual second";
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ACTIVE);
  v.ack_async_event(&event);
}

TEST_F(VerbsTableTest, WaitingForWhatCannotCome_FailsInsteadOfHanging) {
  ibv_async_event event = {};
  EXPECT_EQ(-1, v.get_async_event(first.context, &event));
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(VerbsTableTest, DevicesOfOneHost_AreListedForIt) {
  int count = 0;
  SetVerbsWorld(&world, world.hosts()[0].get());
  v.free_device_list(v.get_device_list(&count));
  EXPECT_EQ(count, 2);
  SetVerbsWorld(nullptr);
  v.free_device_list(v.get_device_list(&count));
  EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace railhop::sim
