// Completion channels: one event for each arming, none is missed, and destroying waits for
// acknowledgements.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

const SideOptions kChannels = {.channels = true};

bool HasEvent(const ibv_comp_channel* channel) {
  pollfd wait = {channel->fd, POLLIN, 0};
  return poll(&wait, 1, 0) == 1;
}

void ExpectEvent(World& world, const Side& side, ibv_comp_channel* channel, ibv_cq* cq,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!world.WaitUntil([&] { return HasEvent(channel); })) Fail("no event in time", file, line);
  ibv_cq* which = nullptr;
  void* context = nullptr;
  ExpectEq(world.v.get_cq_event(channel, &which, &context), 0, "ibv_get_cq_event", file, line);
  ExpectTrue(which == cq && context == &side, "the event names its queue", file, line);
  world.v.ack_cq_events(cq, 1);
}

void ExpectNoEvent(World& world, const ibv_comp_channel* channel, double seconds = 0.05,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  world.Pass(seconds);
  if (HasEvent(channel)) Fail("an event that nobody asked for", file, line);
}

void SendOne(World& world, Pair& pair, unsigned flags = IBV_SEND_SIGNALED) {
  pair.second.MustRecv(5, {});
  std::vector<ibv_sge> nothing;
  pair.first.MustSend(SendWr(IBV_WR_SEND, 4, nothing, flags | IBV_SEND_SIGNALED));
  ExpectCompletion(world, pair.first.send_cq, 4, IBV_WC_SUCCESS);
}

void Arm(World& world, ibv_cq* cq, int solicited_only = 0) {
  ExpectEq(world.v.req_notify_cq(cq, solicited_only), 0, "ibv_req_notify_cq");
}

void EventAfterArming(World& world) {
  Pair pair(world, kChannels, {});
  Arm(world, pair.second.recv_cq);
  ExpectNoEvent(world, pair.second.recv_channel);
  SendOne(world, pair);
  ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
  ExpectCompletion(world, pair.second.recv_cq, 5, IBV_WC_SUCCESS);
}

void SenderEvent(World& world) {
  Pair pair(world, kChannels, {});
  Arm(world, pair.first.send_cq);
  pair.second.MustRecv(5, {});
  std::vector<ibv_sge> nothing;
  pair.first.MustSend(SendWr(IBV_WR_SEND, 4, nothing));
  ExpectEvent(world, pair.first, pair.first.send_channel, pair.first.send_cq);
  ExpectCompletion(world, pair.first.send_cq, 4, IBV_WC_SUCCESS, 0);
}

void NoEventUnarmed(World& world) {
  Pair pair(world, kChannels, {});
  SendOne(world, pair);
  ExpectNoEvent(world, pair.second.recv_channel);
}

void OneEventForEachArming(World& world) {
  Pair pair(world, kChannels, {});
  Arm(world, pair.second.recv_cq);
  for (int i = 0; i < 5; ++i) SendOne(world, pair);
  ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
  ExpectNoEvent(world, pair.second.recv_channel);
  Poll(world, pair.second.recv_cq, 5);
  Arm(world, pair.second.recv_cq);
  SendOne(world, pair);
  ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
}

// What is in the queue before arming gives no event; polling once more after arming is what closes
// the gap.
void ArmThenPoll(World& world) {
  Pair pair(world, kChannels, {});
  uint64_t seen = 0;
  for (int i = 0; i < 200; ++i) {
    Arm(world, pair.second.recv_cq);
    SendOne(world, pair);
    ibv_wc wc[4];
    int found = world.v.poll_cq(pair.second.recv_cq, 4, wc);
    if (found == 0) {
      ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
      found = world.v.poll_cq(pair.second.recv_cq, 4, wc);
      ExpectTrue(found > 0, "a completion is there when its event is");
    } else if (HasEvent(pair.second.recv_channel)) {
      ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
    }
    seen += static_cast<uint64_t>(found);
  }
  ExpectEq(seen, 200u, "completions");
}

// The classic loop: wait, arm, poll until empty. A thread sends at its own pace; none may be
// missed.
void NoMissedEvent(World& world) {
  Pair pair(world, kChannels, {});
  constexpr int kMessages = 300;
  for (int i = 0; i < 64; ++i) pair.second.MustRecv(5, {});
  std::thread sender([&] {
    std::vector<ibv_sge> nothing;
    for (int i = 0; i < kMessages; ++i) {
      pair.first.MustSend(SendWr(IBV_WR_SEND, 4, nothing));
      ExpectCompletion(world, pair.first.send_cq, 4, IBV_WC_SUCCESS);
    }
  });
  int received = 0;
  Arm(world, pair.second.recv_cq);
  bool missed = false;
  auto drain = [&] {
    ibv_wc wc;
    while (world.v.poll_cq(pair.second.recv_cq, 1, &wc) == 1) {
      ++received;
      pair.second.MustRecv(5, {});
    }
  };
  drain();
  while (received < kMessages && !missed) {
    pollfd wait = {pair.second.recv_channel->fd, POLLIN, 0};
    missed = poll(&wait, 1, 5000) != 1;
    if (missed) break;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ExpectEq(world.v.get_cq_event(pair.second.recv_channel, &cq, &context), 0, "get_cq_event");
    world.v.ack_cq_events(cq, 1);
    Arm(world, cq);
    drain();
  }
  sender.join();
  ExpectTrue(!missed, "five seconds without an event while messages are on their way");
  ExpectEq(received, kMessages, "messages");
}

void SolicitedOnly(World& world) {
  Pair pair(world, kChannels, {});
  Arm(world, pair.second.recv_cq, 1);
  SendOne(world, pair);
  ExpectNoEvent(world, pair.second.recv_channel);
  SendOne(world, pair, IBV_SEND_SOLICITED);
  ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
}

void SolicitedWriteImm(World& world) {
  Pair pair(world, kChannels, {});
  Region local = pair.first.NewRegion(8), target = pair.second.NewRegion(8);
  Arm(world, pair.second.recv_cq, 1);
  pair.second.MustRecv(5, {});
  std::vector<ibv_sge> list = {local.Sge(0, 8)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 1, list, target.addr(), target.mr->rkey,
                             IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
  ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
}

// An unsuccessful completion wakes those who wait for solicited ones only.
void ErrorIsSolicited(World& world) {
  Pair pair(world, kChannels, {});
  pair.second.MustRecv(5, {});
  Arm(world, pair.second.recv_cq, 1);
  pair.second.MoveTo(IBV_QPS_ERR);
  ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
  ExpectCompletion(world, pair.second.recv_cq, 5, IBV_WC_WR_FLUSH_ERR);
}

// Arming for all after arming for solicited is the wider of the two.
void WiderArmingWins(World& world) {
  Pair pair(world, kChannels, {});
  Arm(world, pair.second.recv_cq, 0);
  Arm(world, pair.second.recv_cq, 1);
  SendOne(world, pair);
  ExpectEvent(world, pair.second, pair.second.recv_channel, pair.second.recv_cq);
}

void NonBlockingFd(World& world) {
  Pair pair(world, kChannels, {});
  ibv_comp_channel* channel = pair.second.recv_channel;
  const int flags = fcntl(channel->fd, F_GETFL);
  ExpectEq(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK), 0, "O_NONBLOCK");
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  errno = 0;
  ExpectTrue(world.v.get_cq_event(channel, &cq, &context) != 0, "ibv_get_cq_event without one");
  ExpectEq(errno, EAGAIN, "errno");
  Arm(world, pair.second.recv_cq);
  SendOne(world, pair);
  ExpectEvent(world, pair.second, channel, pair.second.recv_cq);
}

void DestroyWaitsForAck(World& world) {
  Pair pair(world, kChannels, {});
  Side& side = pair.second;
  Arm(world, side.recv_cq);
  SendOne(world, pair);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ExpectTrue(world.WaitUntil([&] { return HasEvent(side.recv_channel); }), "an event");
  ExpectEq(world.v.get_cq_event(side.recv_channel, &cq, &context), 0, "ibv_get_cq_event");
  side.DestroyQp();
  std::atomic<bool> acknowledged{false};
  std::atomic<bool> early{false};
  std::thread destroyer([&] {
    const bool gone = world.v.destroy_cq(side.recv_cq) == 0;
    early = gone && !acknowledged;
  });
  world.Pass(0.2);
  acknowledged = true;
  world.v.ack_cq_events(cq, 1);
  destroyer.join();
  side.recv_cq = nullptr;
  ExpectTrue(!early, "ibv_destroy_cq waits until its events are acknowledged");
}

void TwoCqsOneChannel(World& world) {
  Side side(world, world.first_device(), kChannels);
  ibv_cq* one = world.v.create_cq(side.device->context, 8, &side, side.recv_channel, 0);
  ExpectTrue(one != nullptr, "a second queue on the channel");
  ibv_qp_init_attr attr = {};
  attr.send_cq = one;
  attr.recv_cq = side.recv_cq;
  attr.cap = {8, 8, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  side.DestroyQp();
  side.qp = world.v.create_qp(side.pd, &attr);
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange(side, {}, 3));
  side.MustModify(side.RtsChange({}, 3));
  Arm(world, one);
  Arm(world, side.recv_cq);
  side.MustRecv(1, {});
  std::vector<ibv_sge> nothing;
  side.MustSend(SendWr(IBV_WR_SEND, 2, nothing));
  int of_one = 0, of_recv = 0;
  for (int i = 0; i < 2; ++i) {
    ExpectTrue(world.WaitUntil([&] { return HasEvent(side.recv_channel); }), "an event of each");
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ExpectEq(world.v.get_cq_event(side.recv_channel, &cq, &context), 0, "ibv_get_cq_event");
    world.v.ack_cq_events(cq, 1);
    of_one += cq == one ? 1 : 0;
    of_recv += cq == side.recv_cq ? 1 : 0;
  }
  ExpectTrue(of_one == 1 && of_recv == 1, "one event of each queue");
  side.DestroyQp();
  ExpectEq(world.v.destroy_cq(one), 0, "ibv_destroy_cq");
}

}  // namespace

std::vector<Case> ChannelCases() {
  const std::vector<std::string> channels = {"channels"};
  const std::vector<std::string> threads = {"channels", "threads"};
  const char* const notify = "IBTA 11.4.2.2; man ibv_req_notify_cq";
  return {
      {"Channel.Armed_OneEventAtTheReceiver", notify, channels, EventAfterArming},
      {"Channel.Armed_OneEventAtTheSender", notify, channels, SenderEvent},
      {"Channel.NotArmed_NoEvent", notify, channels, NoEventUnarmed},
      {"Channel.ArmedOnce_OneEventForManyCompletions", notify, channels, OneEventForEachArming},
      {"Channel.ArmThenPoll_NothingIsMissed", notify, channels, ArmThenPoll},
      {"Channel.WaitArmDrainLoop_NothingIsMissed", "man ibv_get_cq_event", threads, NoMissedEvent},
      {"Channel.SolicitedOnly_PlainMessagesAreSilent", notify, channels, SolicitedOnly},
      {"Channel.SolicitedWriteWithImmediate_Event", notify, channels, SolicitedWriteImm},
      {"Channel.SolicitedOnly_ErrorsWakeToo", notify, channels, ErrorIsSolicited},
      {"Channel.ArmedForAllThenSolicited_TheWiderCounts", notify, channels, WiderArmingWins},
      {"Channel.NonBlocking_Eagain", "man ibv_get_cq_event", channels, NonBlockingFd},
      {"Channel.DestroyCqWithUnackedEvent_Waits", "man ibv_destroy_cq, ibv_ack_cq_events", threads,
       DestroyWaitsForAck},
      {"Channel.TwoCqs_EachItsEvent", "man ibv_create_comp_channel", channels, TwoCqsOneChannel},
  };
}

}  // namespace railhop::conformance
