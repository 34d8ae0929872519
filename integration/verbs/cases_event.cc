// Asynchronous events, and what a broken link looks like.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

constexpr double kTick = 4.096e-6 * (1 << 14);

struct Event {
  int type = -1;
  ibv_async_event raw = {};
};

bool HasEvent(const Side& side) {
  pollfd wait = {side.device->context->async_fd, POLLIN, 0};
  return poll(&wait, 1, 0) == 1;
}

// Waits for an event of `type`, skipping others of the kinds that may come along, and acknowledges
// all.
ibv_async_event ExpectEvent(World& world, const Side& side, int type, double seconds = 3,
                            const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const double end = world.Now() + seconds * world.options.time_factor;
  std::string seen;
  while (world.WaitUntil([&] { return HasEvent(side); }, std::max(0.0, end - world.Now()))) {
    ibv_async_event event = {};
    ExpectEq(world.v.get_async_event(side.device->context, &event), 0, "get_async_event", file,
             line);
    const ibv_async_event copy = event;
    world.v.ack_async_event(&event);
    if (copy.event_type == type) return copy;
    seen += " " + std::to_string(copy.event_type);
  }
  Fail("no event " + std::to_string(type) + "; seen:" + (seen.empty() ? " none" : seen), file,
       line);
}

void QuietWithoutReason(World& world) {
  Pair pair(world);
  pair.second.MustRecv(1, {});
  std::vector<ibv_sge> nothing;
  pair.first.MustSend(SendWr(IBV_WR_SEND, 1, nothing));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  world.Pass(0.1);
  ExpectTrue(!HasEvent(pair.first) && !HasEvent(pair.second), "no event after plain traffic");
}

void NonBlocking(World& world) {
  Device device(world, world.first_device());
  const int fd = device.context->async_fd;
  ExpectEq(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0, "O_NONBLOCK");
  ibv_async_event event = {};
  errno = 0;
  ExpectTrue(world.v.get_async_event(device.context, &event) != 0, "no event");
  ExpectEq(errno, EAGAIN, "errno");
}

// The first message to a queue pair that is still in RTR says so, once.
void CommEst(World& world) {
  Side first(world, world.first_device()), second(world, world.second_device());
  first.MustModify(first.InitChange());
  second.MustModify(second.InitChange());
  first.MustModify(first.RtrChange(second, {}, 1));
  second.MustModify(second.RtrChange(first, {}, 1));
  first.MustModify(first.RtsChange({}, 1));
  second.MustRecv(1, {});
  std::vector<ibv_sge> nothing;
  first.MustSend(SendWr(IBV_WR_SEND, 1, nothing));
  ExpectCompletion(world, first.send_cq, 1, IBV_WC_SUCCESS);
  const ibv_async_event event = ExpectEvent(world, second, IBV_EVENT_COMM_EST);
  ExpectTrue(event.element.qp == second.qp, "its queue pair");
}

void RefusedRequestIsReported(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr() + 1, target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
  const ibv_async_event event = ExpectEvent(world, pair.second, IBV_EVENT_QP_ACCESS_ERR);
  ExpectTrue(event.element.qp == pair.second.qp, "its queue pair");
  world.Pass(0.05);
  ExpectTrue(!HasEvent(pair.first), "the requester has its completion and no event");
}

ibv_port_state PortState(World& world, const Side& side) {
  ibv_port_attr attr = {};
  ExpectEq(world.v.query_port(side.device->context, world.options.port, &attr), 0, "query_port");
  return attr.state;
}

void WaitForPort(World& world, const Side& side, ibv_port_state state) {
  ExpectTrue(world.WaitUntil([&] { return PortState(world, side) == state; }, 5),
             "the port state becomes " + std::to_string(state));
}

void PortDownAndUp(World& world) {
  Side side(world, world.first_device());
  Side other(world, world.second_device());
  world.Fault(world.first_device(), "down");
  const ibv_async_event down = ExpectEvent(world, side, IBV_EVENT_PORT_ERR);
  ExpectEq(down.element.port_num, world.options.port, "port_num");
  WaitForPort(world, side, IBV_PORT_DOWN);
  world.Fault(world.first_device(), "up");
  const ibv_async_event up = ExpectEvent(world, side, IBV_EVENT_PORT_ACTIVE);
  ExpectEq(up.element.port_num, world.options.port, "port_num");
  WaitForPort(world, side, IBV_PORT_ACTIVE);
  if (world.first_device() != world.second_device()) {
    ExpectEq(+PortState(world, other), +IBV_PORT_ACTIVE, "the other device's port");
  }
}

// Every context of the device hears of the port.
void EveryContextHears(World& world) {
  Side one(world, world.first_device()), two(world, world.first_device());
  world.Fault(world.first_device(), "down");
  ExpectEvent(world, one, IBV_EVENT_PORT_ERR);
  ExpectEvent(world, two, IBV_EVENT_PORT_ERR);
  world.Fault(world.first_device(), "up");
  ExpectEvent(world, one, IBV_EVENT_PORT_ACTIVE);
  ExpectEvent(world, two, IBV_EVENT_PORT_ACTIVE);
}

// Posts one write and expects the end that `patience` allows.
void ExpectDead(World& world, Pair& pair, const Region& local, const Region& target,
                uint8_t retries) {
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  const double start = world.Now();
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 5, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 5, IBV_WC_RETRY_EXC_ERR, 20);
  ExpectTrue(world.Now() - start > 0.9 * kTick * (retries + 1), "not before its time");
}

void CarriesAgain(World& world, Pair& pair, const Region& local, const Region& target) {
  pair.first.MoveTo(IBV_QPS_RESET);
  pair.second.MoveTo(IBV_QPS_RESET);
  Connect(pair.first, pair.second, {.first_psn = 77, .second_psn = 88});
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 6, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 6, IBV_WC_SUCCESS);
}

void DeadWhileBroken(World& world, const std::string& device, const std::string& words) {
  Pair pair(world, {}, {.retry_count = 2});
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  world.Fault(device, words);
  world.Pass(0.1);
  ExpectDead(world, pair, local, target, 2);
  ExpectEq(+pair.second.State(), +IBV_QPS_RTS, "state of the peer, who heard nothing");
  world.Fault(device, words == "down" ? "up" : "clear");
  WaitForPort(world, pair.first, IBV_PORT_ACTIVE);
  WaitForPort(world, pair.second, IBV_PORT_ACTIVE);
  CarriesAgain(world, pair, local, target);
}

void BackInTime(World& world, const std::string& down, const std::string& up) {
  Pair pair(world, {}, {.timeout = 18, .retry_count = 6});  // 7.5 s in all
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  world.Fault(world.second_device(), down);
  world.Pass(0.1);
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE, 5, list, target.addr(), target.mr->rkey));
  ExpectQuiet(world, pair.first.send_cq, 0.4);
  world.Fault(world.second_device(), up);
  ExpectCompletion(world, pair.first.send_cq, 5, IBV_WC_SUCCESS, 20);
  target.buffer->ExpectPattern(0, 64, 1);
}

// Acknowledgements are lost: the data is there, and yet the requester must call it an error.
void AcksLost(World& world) {
  Pair pair(world, {}, {.retry_count = 2});
  Region local = pair.first.NewRegion(64), target = pair.second.NewRegion(64);
  local.buffer->Fill(1);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  pair.second.MustRecv(9, {});
  world.Fault(world.second_device(), "blackhole tx");
  pair.first.MustSend(RdmaWr(IBV_WR_RDMA_WRITE_WITH_IMM, 5, list, target.addr(), target.mr->rkey));
  ExpectCompletion(world, pair.first.send_cq, 5, IBV_WC_RETRY_EXC_ERR, 20);
  target.buffer->ExpectPattern(0, 64, 1);
  ExpectCompletion(world, pair.second.recv_cq, 9, IBV_WC_SUCCESS);
  ExpectQuiet(world, pair.second.recv_cq, 0);
  world.Fault(world.second_device(), "clear");
}

// Nobody hears of a black hole.
void SilenceHasNoEvent(World& world) {
  Side side(world, world.first_device());
  world.Fault(world.first_device(), "blackhole");
  world.Pass(0.3);
  ExpectTrue(!HasEvent(side), "no event");
  ExpectEq(+PortState(world, side), +IBV_PORT_ACTIVE, "state of the port");
  world.Fault(world.first_device(), "clear");
}

}  // namespace

std::vector<Case> EventCases() {
  const std::vector<std::string> none, port = {"fault.port"}, silence = {"fault.silence"};
  const char* const async = "IBTA 11.6.3; man ibv_get_async_event";
  const char* const retry = "IBTA 9.7.6.1.3, 11.6.2";
  return {
      {"Event.PlainTraffic_NoEvent", async, none, QuietWithoutReason},
      {"Event.NonBlocking_Eagain", "man ibv_get_async_event", none, NonBlocking},
      {"Event.FirstMessageInRtr_CommEst", "IBTA 11.6.3.2", none, CommEst},
      {"Event.RefusedRequest_QpAccessErrAtTheResponder", "IBTA 11.6.3.3", none,
       RefusedRequestIsReported},
      {"Link.DownAndUp_PortErrAndPortActive", "IBTA 11.6.3.3, 14.2.5.6", port, PortDownAndUp},
      {"Link.Down_EveryContextHears", async, port, EveryContextHears},
      {"Link.PeerDown_Status12AndReusable", retry, port,
       [](World& w) { DeadWhileBroken(w, w.second_device(), "down"); }},
      {"Link.OwnPortDown_Status12AndReusable", retry, port,
       [](World& w) { DeadWhileBroken(w, w.first_device(), "down"); }},
      {"Link.BackBeforeTheRetriesEnd_NoError", retry, port,
       [](World& w) { BackInTime(w, "down", "up"); }},
      {"Silence.BlackHole_Status12AndReusable", retry, silence,
       [](World& w) { DeadWhileBroken(w, w.second_device(), "blackhole"); }},
      {"Silence.BackBeforeTheRetriesEnd_NoError", retry, silence,
       [](World& w) { BackInTime(w, "blackhole", "clear"); }},
      {"Silence.AcksLost_DataIsThereButStatus12",
       "IBTA 9.7.6.1.3, 9.9.2.1.1",
       {"fault.silence", "two_devices"},
       AcksLost},
      {"Silence.BlackHole_NoEventAndPortActive", async, silence, SilenceHasNoEvent},
  };
}

}  // namespace railhop::conformance
