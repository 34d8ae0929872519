// Queue pair states: every transition from every state, allowed or refused.
#include <errno.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                    IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};
constexpr const char* kNames[] = {"Reset", "Init", "Rtr", "Rts", "Sqd", "Sqe", "Err"};

enum class Rule { kAllowed, kRefused, kEither };

// IBTA 10.3.1, figure of the QP states. RESET to ERR: the figure allows ERR from any state, but the
// kernel's table does not list it, so programs may rely on neither.
constexpr Rule kRules[6][6] = {
    // to:  RESET            INIT             RTR              RTS              SQD              ERR
    {Rule::kAllowed, Rule::kAllowed, Rule::kRefused, Rule::kRefused, Rule::kRefused, Rule::kEither},
    {Rule::kAllowed, Rule::kAllowed, Rule::kAllowed, Rule::kRefused, Rule::kRefused,
     Rule::kAllowed},
    {Rule::kAllowed, Rule::kRefused, Rule::kRefused, Rule::kAllowed, Rule::kRefused,
     Rule::kAllowed},
    {Rule::kAllowed, Rule::kRefused, Rule::kRefused, Rule::kAllowed, Rule::kAllowed,
     Rule::kAllowed},
    {Rule::kAllowed, Rule::kRefused, Rule::kRefused, Rule::kAllowed, Rule::kAllowed,
     Rule::kAllowed},
    {Rule::kAllowed, Rule::kRefused, Rule::kRefused, Rule::kRefused, Rule::kRefused,
     Rule::kAllowed},
};

// Brings a queue pair that points at itself from RESET to `state`.
void Reach(const Side& side, ibv_qp_state state) {
  if (state == IBV_QPS_RESET) return;
  side.MustModify(side.InitChange());
  if (state == IBV_QPS_INIT) return;
  if (state == IBV_QPS_ERR) return side.MoveTo(IBV_QPS_ERR);
  side.MustModify(side.RtrChange(side, {}, 100));
  if (state == IBV_QPS_RTR) return;
  side.MustModify(side.RtsChange({}, 100));
  if (state == IBV_QPS_RTS) return;
  side.MoveTo(IBV_QPS_SQD);
}

// All that a transition to `to` from `from` may need.
QpChange ChangeFor(const Side& side, ibv_qp_state from, ibv_qp_state to) {
  switch (to) {
    case IBV_QPS_INIT:
      return side.InitChange();
    case IBV_QPS_RTR:
      return side.RtrChange(side, {}, 100);
    case IBV_QPS_RTS:
      if (from == IBV_QPS_RTS || from == IBV_QPS_SQD) return Side::StateChange(IBV_QPS_RTS);
      return side.RtsChange({}, 100);
    default:
      return Side::StateChange(to);
  }
}

void Transition(World& world, ibv_qp_state from, ibv_qp_state to, Rule rule) {
  Side side(world, world.first_device());
  Reach(side, from);
  const QpChange change = ChangeFor(side, from, to);
  const int error = side.Modify(change);
  if (rule == Rule::kAllowed) ExpectEq(error, 0, "ibv_modify_qp");
  if (rule == Rule::kRefused) ExpectEq(error, EINVAL, "ibv_modify_qp");
  if (rule == Rule::kEither) ExpectOneOf(error, {0, EINVAL}, "ibv_modify_qp");
  const ibv_qp_state expected = error == 0 ? to : from;
  ExpectEq(static_cast<int>(side.State()), static_cast<int>(expected), "state afterwards");
}

struct Bit {
  int bit;
  const char* name;
};

// Leaving out any one of `required` is refused and changes nothing; with all of them it works.
void RequireEach(const Side& side, const QpChange& whole, const std::vector<Bit>& required) {
  const ibv_qp_state before = side.State();
  for (const Bit& bit : required) {
    QpChange partial = whole;
    partial.mask &= ~bit.bit;
    ExpectEq(side.Modify(partial), EINVAL, std::string("without ") + bit.name);
    ExpectEq(static_cast<int>(side.State()), static_cast<int>(before),
             std::string("state after a try without ") + bit.name);
  }
  side.MustModify(whole);
}

void RequiredAttributes(World& world, ibv_qp_type type) {
  Side side(world, world.first_device(), {.type = type});
  RequireEach(side, side.InitChange(),
              {{IBV_QP_PKEY_INDEX, "PKEY_INDEX"},
               {IBV_QP_PORT, "PORT"},
               {IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS"}});
  std::vector<Bit> rtr = {{IBV_QP_AV, "AV"},
                          {IBV_QP_PATH_MTU, "PATH_MTU"},
                          {IBV_QP_DEST_QPN, "DEST_QPN"},
                          {IBV_QP_RQ_PSN, "RQ_PSN"}};
  std::vector<Bit> rts = {{IBV_QP_SQ_PSN, "SQ_PSN"}};
  if (type == IBV_QPT_RC) {
    rtr.insert(rtr.end(), {{IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
                           {IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"}});
    rts.insert(rts.end(), {{IBV_QP_TIMEOUT, "TIMEOUT"},
                           {IBV_QP_RETRY_CNT, "RETRY_CNT"},
                           {IBV_QP_RNR_RETRY, "RNR_RETRY"},
                           {IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"}});
  }
  RequireEach(side, side.RtrChange(side, {}, 7), rtr);
  RequireEach(side, side.RtsChange({}, 9), rts);
}

void SurplusAttributes(World& world) {
  Side side(world, world.first_device());
  QpChange init = side.InitChange();
  init.mask |= IBV_QP_TIMEOUT;
  ExpectEq(side.Modify(init), EINVAL, "TIMEOUT on the way to INIT");
  init = side.InitChange();
  init.mask |= IBV_QP_DEST_QPN;
  ExpectEq(side.Modify(init), EINVAL, "DEST_QPN on the way to INIT");
  side.MustModify(side.InitChange());
  QpChange rtr = side.RtrChange(side, {}, 1);
  rtr.mask |= IBV_QP_SQ_PSN;
  ExpectEq(side.Modify(rtr), EINVAL, "SQ_PSN on the way to RTR");
  side.MustModify(side.RtrChange(side, {}, 1));
  QpChange rts = side.RtsChange({}, 1);
  rts.mask |= IBV_QP_PATH_MTU;
  ExpectEq(side.Modify(rts), EINVAL, "PATH_MTU on the way to RTS");
  side.MustModify(side.RtsChange({}, 1));
}

void CurrentStateMustAgree(World& world) {
  Side side(world, world.first_device());
  Reach(side, IBV_QPS_RTR);
  QpChange change = side.RtsChange({}, 1);
  change.mask |= IBV_QP_CUR_STATE;
  change.attr.cur_qp_state = IBV_QPS_INIT;
  ExpectEq(side.Modify(change), EINVAL, "a wrong current state");
  change.attr.cur_qp_state = IBV_QPS_RTR;
  ExpectEq(side.Modify(change), 0, "the right current state");
}

void PostBeforeInit(World& world) {
  Side side(world, world.first_device());
  Region region = side.NewRegion(64);
  ExpectEq(side.PostRecv(1, {region.Sge(0, 64)}), EINVAL, "ibv_post_recv in RESET");
}

void PostSendTooEarly(World& world) {
  Side side(world, world.first_device());
  Region region = side.NewRegion(64);
  std::vector<ibv_sge> list = {region.Sge(0, 64)};
  ExpectEq(side.PostSend(SendWr(IBV_WR_SEND, 1, list)), EINVAL, "ibv_post_send in RESET");
  side.MustModify(side.InitChange());
  ExpectEq(side.PostSend(SendWr(IBV_WR_SEND, 1, list)), EINVAL, "ibv_post_send in INIT");
  side.MustModify(side.RtrChange(side, {}, 1));
  ExpectEq(side.PostSend(SendWr(IBV_WR_SEND, 1, list)), EINVAL, "ibv_post_send in RTR");
}

// Receives posted in INIT are used once the queue pair is ready; one in RTR already takes messages.
void ReceivesOfInit(World& world) {
  Side first(world, world.first_device());
  Side second(world, world.second_device());
  second.MustModify(second.InitChange());
  Region sink = second.NewRegion(64);
  second.MustRecv(7, {sink.Sge(0, 64)});
  second.MustModify(second.RtrChange(first, {}, 5));
  first.MustModify(first.InitChange());
  first.MustModify(first.RtrChange(second, {}, 6));
  first.MustModify(first.RtsChange({}, 5));
  Region source = first.NewRegion(64);
  source.buffer->Fill(1);
  std::vector<ibv_sge> list = {source.Sge(0, 64)};
  first.MustSend(SendWr(IBV_WR_SEND, 1, list));
  ExpectCompletion(world, first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, second.recv_cq, 7, IBV_WC_SUCCESS);
  sink.buffer->ExpectPattern(0, 64, 1);
}

// What is sent while the other side is still in INIT is not lost, it is sent again.
void PeerBecomesReadyLater(World& world) {
  Side first(world, world.first_device());
  Side second(world, world.second_device());
  second.MustModify(second.InitChange());
  Region sink = second.NewRegion(64);
  second.MustRecv(7, {sink.Sge(0, 64)});
  first.MustModify(first.InitChange());
  first.MustModify(first.RtrChange(second, {}, 6));
  first.MustModify(first.RtsChange({.timeout = 15, .retry_count = 6}, 5));
  Region source = first.NewRegion(64);
  source.buffer->Fill(1);
  std::vector<ibv_sge> list = {source.Sge(0, 64)};
  first.MustSend(SendWr(IBV_WR_SEND, 1, list));
  ExpectQuiet(world, first.send_cq, 0.05);
  second.MustModify(second.RtrChange(first, {}, 5));
  ExpectCompletion(world, first.send_cq, 1, IBV_WC_SUCCESS);
  ExpectCompletion(world, second.recv_cq, 7, IBV_WC_SUCCESS);
  sink.buffer->ExpectPattern(0, 64, 1);
}

}  // namespace

std::vector<Case> QpStateCases() {
  std::vector<Case> cases;
  for (int from = 0; from < 6; ++from) {
    for (int to = 0; to < 6; ++to) {
      const Rule rule = kRules[from][to];
      const char* const word = rule == Rule::kAllowed   ? "Allowed"
                               : rule == Rule::kRefused ? "Einval"
                                                        : "AllowedOrEinval";
      Case c;
      c.name =
          std::string("QpState.") + kNames[kStates[from]] + "To" + kNames[kStates[to]] + "_" + word;
      c.clause = "IBTA 10.3.1; man ibv_modify_qp";
      if (kStates[from] == IBV_QPS_SQD || (kStates[to] == IBV_QPS_SQD && rule == Rule::kAllowed)) {
        c.needs = {"sqd"};
      }
      c.run = [=](World& world) { Transition(world, kStates[from], kStates[to], rule); };
      cases.push_back(c);
    }
  }
  const std::vector<std::string> none;
  const std::vector<Case> more = {
      {"QpState.RcWithoutRequiredAttribute_Einval", "man ibv_modify_qp, table for RC", none,
       [](World& world) { RequiredAttributes(world, IBV_QPT_RC); }},
      {"QpState.UcWithoutRequiredAttribute_Einval",
       "man ibv_modify_qp, table for UC",
       {"uc"},
       [](World& world) { RequiredAttributes(world, IBV_QPT_UC); }},
      {"QpState.AttributeThatDoesNotBelong_Einval", "man ibv_modify_qp", none, SurplusAttributes},
      {"QpState.WrongCurrentState_Einval", "man ibv_modify_qp, IBV_QP_CUR_STATE", none,
       CurrentStateMustAgree},
      {"QpState.PostRecvInReset_Einval", "IBTA 10.3.1.1", none, PostBeforeInit},
      {"QpState.PostSendBeforeRts_Einval", "IBTA 10.3.1.1 to 10.3.1.3", none, PostSendTooEarly},
      {"QpState.ReceivePostedInInit_TakesAMessageInRtr", "IBTA 10.3.1.2, 10.3.1.3", none,
       ReceivesOfInit},
      {"QpState.PeerReadyLater_MessageIsSentAgain", "IBTA 10.3.1.2, 9.7.6.1.3", none,
       PeerBecomesReadyLater},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace railhop::conformance
