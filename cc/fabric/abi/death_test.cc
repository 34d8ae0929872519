// Peers that die at the worst instruction: the others go on and see what a wire would show them.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "cc/fabric/abi/test_fabric.h"
#include "cc/fabric/completion.h"
#include "cc/fabric/nic.h"

namespace railhop::fabric::abi {
namespace {

Segment& OurSegment() { return Nic::Get()->process().segment(); }

// Runs `act` in a process that shares this one's segment, and dies right after it.
pid_t DieAfter(const std::function<void()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    act();
    _exit(0);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  return child;
}

int PostRecv(const Loopback& loop, uint64_t wr_id) {
  ibv_sge sge = loop.Sge(0, 64);
  ibv_recv_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(loop.qp.get(), &wr, &bad);
}

int Reconnect(const Loopback& loop, uint32_t qpn) {
  ibv_qp_attr reset = {};
  if (const int error = ibv_modify_qp(loop.qp.get(), &reset, IBV_QP_STATE); error != 0)
    return error;
  return Connect(loop.qp.get(), qpn);
}

// Asks `target` for something; how that ends.
ibv_wc_status Do(const Loopback& loop, const Loopback& target, ibv_wr_opcode opcode) {
  ibv_sge sge = loop.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma = {target.Address(64), target.mr->rkey};
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
    wr.wr.atomic = {target.Address(64), 1, 0, target.mr->rkey};
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(loop.qp.get(), &wr, &bad), 0);
  const auto done = Await(loop.cq.get(), 1);
  return done.empty() ? IBV_WC_GENERAL_ERR : done[0].status;
}

TEST(Death, OfTheRequesterInsideAnError_IsFlushed) {
  Loopback loop;
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(PostRecv(loop, id), 0);
  QpShared& shared = OurSegment().qps[loop.qp->handle];
  DieAfter([&shared] {
    LockRobust(shared.lock);
    shared.responder.state.store(static_cast<uint8_t>(rdma::QpState::kErr));
  });
  const auto done = Await(loop.cq.get(), 3);
  ASSERT_EQ(done.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(done[i].wr_id, i + 1);
    EXPECT_EQ(done[i].status, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST(Death, OfTheRequesterBetweenCompletionAndEvent_StillGivesTheEvent) {
  Loopback loop;
  const ChannelPtr channel(ibv_create_comp_channel(loop.context.get()));
  const CqPtr cq(ibv_create_cq(loop.context.get(), 16, nullptr, channel.get(), 0));
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  Segment& segment = OurSegment();
  DieAfter([&segment, &cq] {
    bool notify = false;
    PushCompletion(segment, cq->handle, rdma::Completion(), 1, &notify);
  });
  pollfd ready = {channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, 10'000), 1);
  ibv_cq* fired = nullptr;
  void* user = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel.get(), &fired, &user), 0);
  ibv_ack_cq_events(fired, 1);
}

TEST(Death, OfTheResponderWhileItsMemoryIsWanted_IsSilence) {
  const ContextPtr context = Open("soft0");  // joins the fabric
  const pid_t dead = DieAfter([] {});
  const uint32_t pid = OurSegment().pid;
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Loopback loop;
    Loopback target;
    ASSERT_EQ(Reconnect(loop, target.qp->qp_num), 0);
    ASSERT_EQ(Reconnect(target, loop.qp->qp_num), 0);
    ASSERT_EQ(Do(loop, target, opcode), IBV_WC_SUCCESS);
    OurSegment().pid = static_cast<uint32_t>(dead);
    EXPECT_EQ(Do(loop, target, opcode), IBV_WC_RETRY_EXC_ERR) << opcode;
    OurSegment().pid = pid;
  }
}

TEST(Death, ByExec_WithAnotherFileInTheSegmentsPlace_IsSilence) {
  Loopback loop;
  int link[2];
  ASSERT_EQ(pipe2(link, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    Loopback theirs;  // joins the fabric anew
    const uint32_t qpn = theirs.qp->qp_num;
    const ProcessSlot& slot = TheFabric().dir().processes[Nic::Get()->process().slot().slot];
    const int place = static_cast<int>(slot.segment_fd.load());
    const int empty = memfd_create("empty", 0);
    if (dup2(empty, place) < 0) _exit(1);  // not closed by exec, unlike the segment
    if (write(link[1], &qpn, sizeof(qpn)) != sizeof(qpn)) _exit(1);
    execl("/bin/sleep", "sleep", "60", nullptr);
    _exit(1);
  }
  close(link[1]);
  uint32_t qpn = 0;
  ASSERT_EQ(read(link[0], &qpn, sizeof(qpn)), static_cast<ssize_t>(sizeof(qpn)));
  char none = 0;
  ASSERT_EQ(read(link[0], &none, 1), 0);  // exec has closed the other end
  close(link[0]);
  ASSERT_EQ(Reconnect(loop, qpn), 0);
  EXPECT_EQ(Do(loop, loop, IBV_WR_RDMA_WRITE), IBV_WC_RETRY_EXC_ERR);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace railhop::fabric::abi
