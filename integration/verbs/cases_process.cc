// Both ends in processes of their own: plain traffic, death at any moment, fork.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

// What the two ends tell each other.
struct Card {
  uint32_t qpn;
  uint32_t rkey;
  uint64_t addr;
  ibv_gid gid;
  uint16_t lid;
};

// A process that runs the other end, joined by a socket. Killed when this goes.
class Peer {
 public:
  // Call before anything of the library is open: the child starts from nothing.
  explicit Peer(const std::function<void(int fd)>& body) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) Fail("socketpair");
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      int status = 0;
      try {
        body(ends[1]);
      } catch (const CaseFailure& failure) {
        fprintf(stderr, "peer: %s\n", failure.text.c_str());
        status = 1;
      }
      _exit(status);
    }
    close(ends[1]);
    fd = ends[0];
  }
  ~Peer() { Kill(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Waits for its own end and returns the status.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int fd = -1;

 private:
  pid_t pid_ = -1;
};

template <typename T>
void Put(int fd, const T& value) {
  if (write(fd, &value, sizeof value) != sizeof value) Fail("the other process is gone");
}
template <typename T>
T Get(int fd) {
  pollfd wait = {fd, POLLIN, 0};
  T value;
  if (poll(&wait, 1, 20000) != 1 || read(fd, &value, sizeof value) != sizeof value) {
    Fail("no word from the other process");
  }
  return value;
}

// Exchanges cards and connects; returns the peer's.
Card Meet(Side& side, const Region& region, int fd, const ConnectOptions& options) {
  Put(fd, Card{side.qp->qp_num, region.mr->rkey, region.addr(), side.device->gid,
               side.device->port_attr.lid});
  const Card peer = Get<Card>(fd);
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange(peer.qpn, peer.gid, peer.lid, options, 1));
  side.MustModify(side.RtsChange(options, 1));
  Put(fd, char{1});
  Get<char>(fd);
  return peer;
}

constexpr size_t kBytes = 100000;

// Answers messages until it is told to stop: 's' sends one back, 'q' quits.
void Echo(World& world, int fd, const ConnectOptions& options) {
  Side side(world, world.second_device());
  Region region = side.NewRegion(kBytes);
  side.MustModify(side.InitChange());  // Meet() does it once more, which is allowed
  for (uint64_t i = 0; i < 32; ++i) side.MustRecv(i, {region.Sge(0, kBytes)});
  Meet(side, region, fd, options);
  std::vector<ibv_sge> list = {region.Sge(0, kBytes)};
  for (;;) {
    const char word = Get<char>(fd);
    if (word == 'q') return;
    ExpectEq(+PollOne(world, side.recv_cq).status, +IBV_WC_SUCCESS, "receive of the echo");
    side.MustSend(SendWr(IBV_WR_SEND, 9, list));
    ExpectCompletion(world, side.send_cq, 9, IBV_WC_SUCCESS);
    side.MustRecv(1, {region.Sge(0, kBytes)});
  }
}

void PingPong(World& world) {
  const ConnectOptions options = {};
  Peer peer([&](int fd) { Echo(world, fd, options); });
  Side side(world, world.first_device());
  Region out = side.NewRegion(kBytes), in = side.NewRegion(kBytes);
  Meet(side, in, peer.fd, options);
  std::vector<ibv_sge> list = {out.Sge(0, kBytes)};
  for (uint32_t i = 0; i < 20; ++i) {
    out.buffer->Fill(i);
    memset(in.data(), 0, kBytes);
    side.MustRecv(i, {in.Sge(0, kBytes)});
    side.MustSend(SendWr(IBV_WR_SEND, i, list));
    ExpectCompletion(world, side.send_cq, i, IBV_WC_SUCCESS);
    Put(peer.fd, 's');
    ExpectCompletion(world, side.recv_cq, i, IBV_WC_SUCCESS);
    in.buffer->ExpectPattern(0, kBytes, i);
  }
  Put(peer.fd, 'q');
  ExpectEq(peer.Wait(), 0, "status of the other process");
}

// One-sided traffic needs nothing of the process at the other end, which sleeps in a system call.
void OneSided(World& world) {
  const ConnectOptions options = {};
  Peer peer([&](int fd) { Echo(world, fd, options); });
  Side side(world, world.first_device());
  Region out = side.NewRegion(kBytes), in = side.NewRegion(kBytes);
  const Card card = Meet(side, in, peer.fd, options);
  std::vector<ibv_sge> list = {out.Sge(0, kBytes)}, back = {in.Sge(0, kBytes)};
  for (uint32_t i = 0; i < 20; ++i) {
    out.buffer->Fill(i);
    side.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, card.addr, card.rkey));
    side.MustSend(RdmaWr(IBV_WR_RDMA_READ, 2, back, card.addr, card.rkey));
    ExpectCompletion(world, side.send_cq, 1, IBV_WC_SUCCESS);
    ExpectCompletion(world, side.send_cq, 2, IBV_WC_SUCCESS);
    in.buffer->ExpectPattern(0, kBytes, i);
  }
  Put(peer.fd, 'q');
  ExpectEq(peer.Wait(), 0, "status of the other process");
}

// The peer dies at a random point of the traffic: successes, then 12 or nothing worse, then
// flushes.
void KilledPeer(World& world, uint32_t seed) {
  std::minstd_rand random(seed);
  const ConnectOptions options = {.retry_count = 1};
  Peer peer([&](int fd) { Echo(world, fd, options); });
  Side side(world, world.first_device());
  Region out = side.NewRegion(kBytes);
  const Card card = Meet(side, out, peer.fd, options);
  std::vector<ibv_sge> list = {out.Sge(0, kBytes)};
  const double death = world.Now() + 0.001 * static_cast<double>(random() % 60);
  bool dead = false;
  uint64_t posted = 0, completed = 0;
  bool failed = false;
  const double end = world.Now() + 20 * world.options.time_factor;
  while (!failed || completed < posted) {
    ExpectTrue(world.Now() < end, "the end of the requests, in time");
    if (!dead && world.Now() > death) {
      peer.Kill();
      dead = true;
    }
    if (!failed && posted - completed < 8) {
      side.MustSend(RdmaWr(posted % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, posted, list,
                           card.addr, card.rkey));
      ++posted;
    }
    ibv_wc wc = {};
    if (world.v.poll_cq(side.send_cq, 1, &wc) != 1) {
      world.v.idle();
      continue;
    }
    ExpectEq(wc.wr_id, completed++, "order");
    const int expected = failed                        ? IBV_WC_WR_FLUSH_ERR
                         : wc.status == IBV_WC_SUCCESS ? IBV_WC_SUCCESS
                                                       : IBV_WC_RETRY_EXC_ERR;
    ExpectEq(static_cast<int>(wc.status), expected, "status");
    failed = wc.status != IBV_WC_SUCCESS;
  }
  ExpectTrue(dead, "the peer was dead by then");
}

// Survivors meet again: after a death the device works as before.
void NewPeerAfterDeath(World& world) {
  const ConnectOptions options = {.retry_count = 1};
  Peer first_peer([&](int fd) { Echo(world, fd, options); });
  Peer second_peer([&](int fd) { Echo(world, fd, options); });
  Side side(world, world.first_device());
  Region out = side.NewRegion(kBytes);
  const Card card = Meet(side, out, first_peer.fd, options);
  first_peer.Kill();
  std::vector<ibv_sge> list = {out.Sge(0, kBytes)};
  side.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, card.addr, card.rkey));
  ExpectCompletion(world, side.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
  side.MoveTo(IBV_QPS_RESET);
  const Card other = Meet(side, out, second_peer.fd, options);
  side.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 2, list, other.addr, other.rkey));
  ExpectCompletion(world, side.send_cq, 2, IBV_WC_SUCCESS);
  Put(second_peer.fd, 'q');
  ExpectEq(second_peer.Wait(), 0, "status of the second peer");
}

// A process that has ended on its own is as silent as a killed one.
void PeerExitsCleanly(World& world) {
  const ConnectOptions options = {.retry_count = 1};
  Peer peer([&](int fd) { Echo(world, fd, options); });
  Side side(world, world.first_device());
  Region out = side.NewRegion(kBytes);
  const Card card = Meet(side, out, peer.fd, options);
  Put(peer.fd, 'q');
  ExpectEq(peer.Wait(), 0, "status of the other process");
  std::vector<ibv_sge> list = {out.Sge(0, kBytes)};
  side.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, card.addr, card.rkey));
  ExpectCompletion(world, side.send_cq, 1, IBV_WC_RETRY_EXC_ERR);
}

// After ibv_fork_init a child that uses nothing of the library does no harm to the parent's memory.
void ForkDoesNoHarm(World& world) {
  ExpectEq(world.v.fork_init(), 0, "ibv_fork_init");
  Pair pair(world);
  Region local = pair.first.NewRegion(kBytes), target = pair.second.NewRegion(kBytes);
  std::vector<ibv_sge> list = {local.Sge(0, kBytes)};
  for (uint32_t i = 0; i < 10; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      usleep(1000);
      _exit(0);
    }
    local.buffer->Fill(i);
    pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, i, list, target.addr(), target.mr->rkey));
    ExpectCompletion(world, pair.first.send_cq, i, IBV_WC_SUCCESS);
    target.buffer->ExpectPattern(0, kBytes, i);
    int status = -1;
    ExpectEq(waitpid(child, &status, 0), child, "waitpid");
    ExpectEq(status, 0, "status of the child");
  }
}

// A child that runs another program, as system() does, is no different.
void ForkAndExec(World& world) {
  ExpectEq(world.v.fork_init(), 0, "ibv_fork_init");
  Pair pair(world);
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  local.buffer->Fill(1);
  ExpectEq(system("true"), 0, "system");
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  target.buffer->ExpectPattern(0, 64, 1);
}

}  // namespace

std::vector<Case> ProcessCases() {
  const std::vector<std::string> processes = {"processes"};
  const char* const retry = "IBTA 9.7.6.1.3, 11.6.2";
  std::vector<Case> cases = {
      {"Processes.PingPong_BytesArrive", "IBTA 9.7", processes, PingPong},
      {"Processes.OneSided_PeerNeedNotRun", "IBTA 9.4.3, 9.4.4", processes, OneSided},
      {"Processes.PeerExits_Status12", retry, processes, PeerExitsCleanly},
      {"Processes.NewPeerAfterDeath_Works", retry, processes, NewPeerAfterDeath},
      {"Processes.ForkAfterForkInit_DoesNoHarm", "man ibv_fork_init", processes, ForkDoesNoHarm},
      {"Processes.ForkAndExec_DoesNoHarm", "man ibv_fork_init", processes, ForkAndExec},
  };
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    cases.push_back(
        {"Processes.PeerKilledAtRandomPoint" + std::to_string(seed) + "_SuccessesThen12ThenFlush",
         retry, processes, [=](World& world) { KilledPeer(world, seed); }});
  }
  return cases;
}

}  // namespace railhop::conformance
