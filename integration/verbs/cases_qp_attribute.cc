// Attributes of queue pairs: values out of range are refused, good ones are read back, changes in
// RTS act.
#include <errno.h>
#include <string.h>

#include "integration/verbs/side.h"

namespace railhop::conformance {
namespace {

// Each spoiled copy of `good` is refused, then `good` itself works.
struct Spoiled {
  const char* what;
  std::function<void(ibv_qp_attr*)> spoil;
};

void RefuseEach(const Side& side, const QpChange& good, const std::vector<Spoiled>& list) {
  for (const Spoiled& entry : list) {
    QpChange bad = good;
    entry.spoil(&bad.attr);
    ExpectOneOf(side.Modify(bad), {EINVAL, ENODATA}, entry.what);
  }
  side.MustModify(good);
}

void InitValues(World& world) {
  Side side(world, world.first_device());
  const ibv_device_attr attr = side.device->attr;
  const uint16_t pkeys = side.device->port_attr.pkey_tbl_len;
  RefuseEach(
      side, side.InitChange(),
      {{"port 0", [](ibv_qp_attr* a) { a->port_num = 0; }},
       {"port beyond the last", [&](ibv_qp_attr* a) { a->port_num = attr.phys_port_cnt + 1; }},
       {"P_Key index beyond the table", [&](ibv_qp_attr* a) { a->pkey_index = pkeys; }}});
}

void PathMtuValues(World& world) {
  Side side(world, world.first_device());
  side.MustModify(side.InitChange());
  const ibv_mtu active = side.device->port_attr.active_mtu;
  std::vector<Spoiled> bad = {
      {"path MTU 0", [](ibv_qp_attr* a) { a->path_mtu = static_cast<ibv_mtu>(0); }},
      {"path MTU code 6", [](ibv_qp_attr* a) { a->path_mtu = static_cast<ibv_mtu>(6); }}};
  if (active < IBV_MTU_4096) {
    bad.push_back({"path MTU above the port's",
                   [&](ibv_qp_attr* a) { a->path_mtu = static_cast<ibv_mtu>(active + 1); }});
  }
  RefuseEach(side, side.RtrChange(side, {}, 0), bad);
}

void RtrValues(World& world) {
  Side side(world, world.first_device());
  side.MustModify(side.InitChange());
  const int most = side.device->attr.max_qp_rd_atom;
  std::vector<Spoiled> bad;
  if (most < 255) {
    bad.push_back({"max_dest_rd_atomic above the device's", [&](ibv_qp_attr* a) {
                     a->max_dest_rd_atomic = static_cast<uint8_t>(most + 1);
                   }});
  }
  bad.push_back({"min_rnr_timer 32", [](ibv_qp_attr* a) { a->min_rnr_timer = 32; }});
  RefuseEach(side, side.RtrChange(side, {}, 0), bad);
}

void EthernetNeedsGrh(World& world) {
  Side side(world, world.first_device());
  if (side.device->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET) return;
  side.MustModify(side.InitChange());
  const int table = side.device->port_attr.gid_tbl_len;
  RefuseEach(side, side.RtrChange(side, {}, 0),
             {{"no GRH", [](ibv_qp_attr* a) { a->ah_attr.is_global = 0; }},
              {"source GID index beyond the table", [&](ibv_qp_attr* a) {
                 a->ah_attr.grh.sgid_index = static_cast<uint8_t>(table > 255 ? 255 : table);
               }}});
}

void RtsValues(World& world) {
  Side side(world, world.first_device());
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange(side, {}, 0));
  RefuseEach(side, side.RtsChange({}, 0),
             {{"retry_cnt 8", [](ibv_qp_attr* a) { a->retry_cnt = 8; }},
              {"rnr_retry 8", [](ibv_qp_attr* a) { a->rnr_retry = 8; }},
              {"timeout 32", [](ibv_qp_attr* a) { a->timeout = 32; }}});
}

void TooManyReads(World& world) {
  Side side(world, world.first_device());
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange(side, {}, 0));
  const int most = side.device->attr.max_qp_init_rd_atom;
  if (most >= 255) return side.MustModify(side.RtsChange({}, 0));
  RefuseEach(side, side.RtsChange({}, 0),
             {{"max_rd_atomic above the device's",
               [&](ibv_qp_attr* a) { a->max_rd_atomic = static_cast<uint8_t>(most + 1); }}});
}

void ReadsBack(World& world) {
  Side side(world, world.first_device(), {.sig_all = true});
  const int rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  side.MustModify(side.InitChange(rights));
  ConnectOptions options = {.mtu = IBV_MTU_512,
                            .timeout = 17,
                            .retry_count = 5,
                            .rnr_retry = 4,
                            .min_rnr_timer = 11,
                            .rd_atomic = 2};
  QpChange rtr = side.RtrChange(side, options, 0xabcdef);
  rtr.attr.ah_attr.grh.traffic_class = 106;
  side.MustModify(rtr);
  side.MustModify(side.RtsChange(options, 0x654321));
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  const int everything = (IBV_QP_DEST_QPN << 1) - 1;
  ExpectEq(world.v.query_qp(side.qp, &attr, everything, &init), 0, "ibv_query_qp");
  ExpectEq(static_cast<int>(attr.qp_state), static_cast<int>(IBV_QPS_RTS), "qp_state");
  ExpectEq(static_cast<int>(attr.path_mtu), static_cast<int>(IBV_MTU_512), "path_mtu");
  ExpectEq(attr.rq_psn, 0xabcdefu, "rq_psn");
  ExpectEq(attr.sq_psn, 0x654321u, "sq_psn");
  ExpectEq(attr.dest_qp_num, side.qp->qp_num, "dest_qp_num");
  ExpectEq(attr.qp_access_flags & 0xeu, static_cast<unsigned>(rights), "qp_access_flags");
  ExpectEq(attr.pkey_index, 0, "pkey_index");
  ExpectEq(attr.port_num, world.options.port, "port_num");
  ExpectEq(attr.timeout, 17, "timeout");
  ExpectEq(attr.retry_cnt, 5, "retry_cnt");
  ExpectEq(attr.rnr_retry, 4, "rnr_retry");
  ExpectEq(attr.min_rnr_timer, 11, "min_rnr_timer");
  ExpectEq(attr.max_rd_atomic, 2, "max_rd_atomic");
  ExpectEq(attr.max_dest_rd_atomic, 2, "max_dest_rd_atomic");
  if (side.device->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
    ExpectEq(attr.ah_attr.is_global, 1, "ah_attr.is_global");
    ExpectEq(attr.ah_attr.grh.traffic_class, 106, "ah_attr.grh.traffic_class");
    ExpectEq(attr.ah_attr.grh.sgid_index, side.device->gid_index, "ah_attr.grh.sgid_index");
    ExpectEq(memcmp(&attr.ah_attr.grh.dgid, &side.device->gid, 16), 0, "ah_attr.grh.dgid");
  }
  ExpectTrue(init.cap.max_send_wr >= 64 && init.cap.max_send_sge >= 2, "capabilities");
  ExpectEq(static_cast<int>(init.qp_type), static_cast<int>(IBV_QPT_RC), "qp_type");
  ExpectEq(init.sq_sig_all, 1, "sq_sig_all");
  ExpectTrue(init.send_cq == side.send_cq && init.recv_cq == side.recv_cq, "its queues");
  ExpectTrue(init.qp_context == &side, "qp_context");
}

void ServiceLevelReadsBack(World& world) {
  Side side(world, world.first_device());
  side.MustModify(side.InitChange());
  QpChange rtr = side.RtrChange(side, {}, 0);
  rtr.attr.ah_attr.sl = 3;
  side.MustModify(rtr);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ExpectEq(world.v.query_qp(side.qp, &attr, IBV_QP_AV, &init), 0, "ibv_query_qp");
  ExpectEq(attr.ah_attr.sl, 3, "ah_attr.sl");
}

// Rights taken away in RTS are gone for the peer.
void RightsChangedInRts(World& world) {
  Pair pair(world);
  Region local = pair.first.NewRegion(64);
  Region target = pair.second.NewRegion(64);
  std::vector<ibv_sge> list = {local.Sge(0, 64)};
  const ibv_send_wr write = RdmaWr(IBV_WR_RDMA_WRITE, 1, list, target.addr(), target.mr->rkey);
  pair.first.MustSend(write);
  ExpectCompletion(world, pair.first.send_cq, 1, IBV_WC_SUCCESS);
  QpChange change;
  change.mask = IBV_QP_ACCESS_FLAGS;
  change.attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  pair.second.MustModify(change);
  pair.first.MustSend(write);
  const ibv_wc wc = PollOne(world, pair.first.send_cq);
  ExpectOneOf<int>(wc.status, {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR}, "status");
}

void EceReadsBack(World& world) {
  Side side(world, world.first_device());
  ibv_ece ece = {};
  ExpectEq(world.v.query_ece(side.qp, &ece), 0, "ibv_query_ece");
  ece.comp_mask = 0;
  ExpectEq(world.v.set_ece(side.qp, &ece), 0, "ibv_set_ece of what was asked");
  side.MustModify(side.InitChange());
  side.MustModify(side.RtrChange(side, {}, 0));
  side.MustModify(side.RtsChange({}, 0));
  ibv_ece after = {};
  ExpectEq(world.v.query_ece(side.qp, &after), 0, "ibv_query_ece in RTS");
  ExpectEq(after.vendor_id, ece.vendor_id, "vendor_id");
}

void EceBadMask(World& world) {
  Side side(world, world.first_device());
  ibv_ece ece = {};
  ExpectEq(world.v.query_ece(side.qp, &ece), 0, "ibv_query_ece");
  ece.comp_mask = 0x80000000;
  ExpectOneOf(world.v.set_ece(side.qp, &ece), {EINVAL, EOPNOTSUPP}, "ibv_set_ece, unknown mask");
}

// Queue pairs in different partitions do not hear each other.
void PkeyMismatch(World& world) {
  Side first(world, world.first_device());
  Side second(world, world.second_device());
  const ConnectOptions options = {.retry_count = 1};
  QpChange init = second.InitChange();
  init.attr.pkey_index = 1;
  __be16 keys[2] = {};
  for (int i = 0; i < 2; ++i) {
    ExpectEq(world.v.query_pkey(second.device->context, world.options.port, i, &keys[i]), 0,
             "ibv_query_pkey");
  }
  ExpectTrue(keys[0] != keys[1] && keys[1] != 0, "the second P_Key is another one");
  first.MustModify(first.InitChange());
  second.MustModify(init);
  first.MustModify(first.RtrChange(second, options, 1));
  second.MustModify(second.RtrChange(first, options, 1));
  first.MustModify(first.RtsChange(options, 1));
  second.MustModify(second.RtsChange(options, 1));
  second.MustRecv(1, {});
  std::vector<ibv_sge> nothing;
  first.MustSend(SendWr(IBV_WR_SEND, 2, nothing));
  ExpectCompletion(world, first.send_cq, 2, IBV_WC_RETRY_EXC_ERR);
  ExpectQuiet(world, second.recv_cq, 0.01);
}

}  // namespace

std::vector<Case> QpAttributeCases() {
  const std::vector<std::string> none, ece = {"ece"};
  const char* const modify = "IBTA 11.2.5.2; man ibv_modify_qp";
  return {
      {"QpAttr.BadPortOrPkeyIndex_Einval", modify, none, InitValues},
      {"QpAttr.BadPathMtu_Einval", modify, none, PathMtuValues},
      {"QpAttr.BadReadDepthOrRnrTimer_Einval", modify, none, RtrValues},
      {"QpAttr.EthernetWithoutGrh_Einval", "IBTA annex A17 (RoCEv2)", none, EthernetNeedsGrh},
      {"QpAttr.BadRetryOrTimeout_Einval", modify, none, RtsValues},
      {"QpAttr.TooManyOutstandingReads_Einval", modify, none, TooManyReads},
      {"QpAttr.Query_ReadsEverythingBack", "man ibv_query_qp", none, ReadsBack},
      {"QpAttr.ServiceLevel_ReadsBack", "IBTA 11.2.5.3; man ibv_query_qp", none,
       ServiceLevelReadsBack},
      {"QpAttr.RightsTakenAwayInRts_PeerIsRefused", "IBTA 11.2.5.2, 9.7.4.1.5", none,
       RightsChangedInRts},
      {"Ece.SetWhatWasAsked_ReadsBackInRts", "man ibv_set_ece", ece, EceReadsBack},
      {"Ece.SetUnknownMask_Refused", "man ibv_set_ece", ece, EceBadMask},
      {"Pkey.Mismatch_NothingArrives", "IBTA 9.6.1.1, 10.9.3", {"pkeys"}, PkeyMismatch},
  };
}

}  // namespace railhop::conformance
