#include "integration/verbs/side.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <utility>

namespace railhop::conformance {
namespace {

bool IsMappedIpv4(const ibv_gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

// The last IPv4 address of an Ethernet port: RoCE v2 entries come after the v1 entry of the same
// address.
int FindGidIndex(const VerbsTable& v, ibv_context* context, uint8_t port,
                 const ibv_port_attr& attr) {
  int found = 0;
  if (attr.link_layer != IBV_LINK_LAYER_ETHERNET) return found;
  for (int i = 0; i < attr.gid_tbl_len; ++i) {
    ibv_gid gid = {};
    if (v.query_gid(context, port, i, &gid) == 0 && IsMappedIpv4(gid)) found = i;
  }
  return found;
}

std::string ErrnoText(int error) { return std::string(strerror(error)); }

}  // namespace

Device::Device(World& world, const std::string& name) : world(world), name(name) {
  const VerbsTable& v = world.v;
  int count = 0;
  ibv_device** list = v.get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (name == v.get_device_name(list[i])) context = v.open_device(list[i]);
  }
  if (list != nullptr) v.free_device_list(list);
  if (context == nullptr) Fail("cannot open device " + name);
  const uint8_t port = world.options.port;
  ExpectEq(v.query_device(context, &attr), 0, "ibv_query_device");
  ExpectEq(v.query_port(context, port, &port_attr), 0, "ibv_query_port");
  gid_index = world.options.gid_index >= 0 ? world.options.gid_index
                                           : FindGidIndex(v, context, port, port_attr);
  ExpectEq(v.query_gid(context, port, gid_index, &gid), 0, "ibv_query_gid");
}

Device::~Device() { world.v.close_device(context); }

Region::Region(World& world, ibv_pd* pd, size_t size, int access, size_t skew)
    : world(&world), buffer(&world.NewBuffer(size, skew)) {
  mr = world.v.reg_mr(pd, buffer->data(), size, access);
  if (mr == nullptr) Fail("ibv_reg_mr of " + std::to_string(size) + ": " + ErrnoText(errno));
}

Region::~Region() {
  if (mr != nullptr) world->v.dereg_mr(mr);
}

Region::Region(Region&& other) noexcept
    : world(other.world), buffer(other.buffer), mr(std::exchange(other.mr, nullptr)) {}

void Region::Deregister() {
  ExpectEq(world->v.dereg_mr(std::exchange(mr, nullptr)), 0, "ibv_dereg_mr");
}

Side::Side(World& world, const std::string& name, const SideOptions& options)
    : world(world), device(std::make_shared<Device>(world, name)) {
  const VerbsTable& v = world.v;
  pd = v.alloc_pd(device->context);
  if (pd == nullptr) Fail("ibv_alloc_pd: " + ErrnoText(errno));
  if (options.channels) {
    send_channel = v.create_comp_channel(device->context);
    recv_channel = v.create_comp_channel(device->context);
    if (send_channel == nullptr || recv_channel == nullptr) {
      Fail("ibv_create_comp_channel: " + ErrnoText(errno));
    }
  }
  send_cq = v.create_cq(device->context, options.cq_entries, this, send_channel, 0);
  recv_cq = v.create_cq(device->context, options.cq_entries, this, recv_channel, 0);
  if (send_cq == nullptr || recv_cq == nullptr) Fail("ibv_create_cq: " + ErrnoText(errno));
  CreateQp(options);
}

Side::Side(Side& owner, const SideOptions& options)
    : world(owner.world),
      device(owner.device),
      pd(owner.pd),
      send_cq(owner.send_cq),
      recv_cq(owner.recv_cq),
      owns_queues_(false) {
  CreateQp(options);
}

void Side::CreateQp(const SideOptions& options) {
  ibv_qp_init_attr_ex attr = {};
  attr.qp_context = this;
  attr.send_cq = send_cq;
  attr.recv_cq = recv_cq;
  attr.cap = {options.send_wr, options.recv_wr, options.send_sge, options.recv_sge,
              options.inline_bytes};
  attr.qp_type = options.type;
  attr.sq_sig_all = options.sig_all ? 1 : 0;
  if (options.send_ops != 0) {
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    attr.send_ops_flags = options.send_ops;
    qp = world.v.create_qp_ex(device->context, &attr);
  } else {
    ibv_qp_init_attr plain = {};
    memcpy(&plain, &attr, sizeof plain);
    qp = world.v.create_qp(pd, &plain);
  }
  if (qp == nullptr) Fail("ibv_create_qp: " + ErrnoText(errno));
}

Side::~Side() {
  const VerbsTable& v = world.v;
  if (qp != nullptr) v.destroy_qp(qp);
  if (!owns_queues_) return;
  if (send_cq != nullptr) v.destroy_cq(send_cq);
  if (recv_cq != nullptr) v.destroy_cq(recv_cq);
  if (send_channel != nullptr) v.destroy_comp_channel(send_channel);
  if (recv_channel != nullptr) v.destroy_comp_channel(recv_channel);
  if (pd != nullptr) v.dealloc_pd(pd);
}

void Side::DestroyQp() {
  ExpectEq(world.v.destroy_qp(std::exchange(qp, nullptr)), 0, "ibv_destroy_qp");
}

QpChange Side::StateChange(ibv_qp_state state) {
  QpChange change;
  change.attr.qp_state = state;
  change.mask = IBV_QP_STATE;
  return change;
}

QpChange Side::InitChange(int access) const {
  QpChange change = StateChange(IBV_QPS_INIT);
  change.attr.pkey_index = 0;
  change.attr.port_num = world.options.port;
  change.attr.qp_access_flags = static_cast<unsigned>(access) & ~IBV_ACCESS_LOCAL_WRITE;
  change.mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  return change;
}

QpChange Side::RtrChange(const Side& peer, const ConnectOptions& options, uint32_t rq_psn) const {
  return RtrChange(peer.qp->qp_num, peer.device->gid, peer.device->port_attr.lid, options, rq_psn);
}

QpChange Side::RtrChange(uint32_t peer_qpn, const ibv_gid& peer_gid, uint16_t peer_lid,
                         const ConnectOptions& options, uint32_t rq_psn) const {
  QpChange change = StateChange(IBV_QPS_RTR);
  ibv_qp_attr& attr = change.attr;
  attr.path_mtu = std::min(options.mtu, device->port_attr.active_mtu);
  attr.dest_qp_num = peer_qpn;
  attr.rq_psn = rq_psn;
  attr.ah_attr.port_num = world.options.port;
  attr.ah_attr.dlid = peer_lid;
  if (device->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = peer_gid;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(device->gid_index);
    attr.ah_attr.grh.hop_limit = 64;
  }
  change.mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (qp->qp_type == IBV_QPT_RC) {
    attr.max_dest_rd_atomic = options.rd_atomic;
    attr.min_rnr_timer = options.min_rnr_timer;
    change.mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  }
  return change;
}

QpChange Side::RtsChange(const ConnectOptions& options, uint32_t sq_psn) const {
  QpChange change = StateChange(IBV_QPS_RTS);
  change.attr.sq_psn = sq_psn;
  change.mask |= IBV_QP_SQ_PSN;
  if (qp->qp_type == IBV_QPT_RC) {
    change.attr.timeout = options.timeout;
    change.attr.retry_cnt = options.retry_count;
    change.attr.rnr_retry = options.rnr_retry;
    change.attr.max_rd_atomic = options.rd_atomic;
    change.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  return change;
}

int Side::Modify(QpChange change) const {
  const double end = world.Now() + 3;
  for (;;) {
    const int error = world.v.modify_qp(qp, &change.attr, change.mask);
    if (error != ETIMEDOUT || world.Now() > end) return error;
  }
}

void Side::MustModify(const QpChange& change, const char* file, int line) const {
  const int error = Modify(change);
  if (error == 0) return;
  Fail("ibv_modify_qp to state " + std::to_string(change.attr.qp_state) + " gave " +
           std::to_string(error) + " (" + ErrnoText(error) + ")",
       file, line);
}

ibv_qp_state Side::State() const {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ExpectEq(world.v.query_qp(qp, &attr, IBV_QP_STATE, &init), 0, "ibv_query_qp");
  return attr.qp_state;
}

int Side::PostSend(ibv_send_wr wr) const {
  ibv_send_wr* bad = nullptr;
  return world.v.post_send(qp, &wr, &bad);
}

int Side::PostRecv(uint64_t wr_id, const std::vector<ibv_sge>& list) const {
  std::vector<ibv_sge> copy = list;
  ibv_recv_wr wr = {};
  ibv_recv_wr* bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = copy.data();
  wr.num_sge = static_cast<int>(copy.size());
  return world.v.post_recv(qp, &wr, &bad);
}

void Side::MustSend(const ibv_send_wr& wr, const char* file, int line) const {
  ExpectEq(PostSend(wr), 0, "ibv_post_send", file, line);
}

void Side::MustRecv(uint64_t wr_id, const std::vector<ibv_sge>& list, const char* file,
                    int line) const {
  ExpectEq(PostRecv(wr_id, list), 0, "ibv_post_recv", file, line);
}

void Connect(Side& first, Side& second, const ConnectOptions& options) {
  first.MustModify(first.InitChange(options.access));
  second.MustModify(second.InitChange(options.access));
  first.MustModify(first.RtrChange(second, options, options.second_psn));
  second.MustModify(second.RtrChange(first, options, options.first_psn));
  first.MustModify(first.RtsChange(options, options.first_psn));
  second.MustModify(second.RtsChange(options, options.second_psn));
}

Pair::Pair(World& world, const SideOptions& options, const ConnectOptions& connect)
    : Pair(world, options, options, connect) {}

Pair::Pair(World& world, const SideOptions& options, const SideOptions& second_options,
           const ConnectOptions& connect)
    : first(world, world.first_device(), options),
      second(world, world.second_device(), second_options) {
  Connect(first, second, connect);
}

ibv_send_wr SendWr(ibv_wr_opcode opcode, uint64_t wr_id, std::vector<ibv_sge>& list,
                   unsigned flags) {
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = list.data();
  wr.num_sge = static_cast<int>(list.size());
  wr.opcode = opcode;
  wr.send_flags = flags;
  return wr;
}

ibv_send_wr RdmaWr(ibv_wr_opcode opcode, uint64_t wr_id, std::vector<ibv_sge>& list,
                   uint64_t remote_addr, uint32_t rkey, unsigned flags) {
  ibv_send_wr wr = SendWr(opcode, wr_id, list, flags);
  wr.wr.rdma = {remote_addr, rkey};
  return wr;
}

ibv_send_wr AtomicWr(ibv_wr_opcode opcode, uint64_t wr_id, std::vector<ibv_sge>& list,
                     uint64_t remote_addr, uint32_t rkey, uint64_t compare_add, uint64_t swap) {
  ibv_send_wr wr = SendWr(opcode, wr_id, list, IBV_SEND_SIGNALED);
  wr.wr.atomic.remote_addr = remote_addr;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
  wr.wr.atomic.rkey = rkey;
  return wr;
}

std::vector<ibv_wc> Poll(World& world, ibv_cq* cq, int count, double seconds, const char* file,
                         int line) {
  std::vector<ibv_wc> found;
  auto enough = [&] {
    ibv_wc wc[16];
    const int want = std::min(count - static_cast<int>(found.size()), 16);
    const int got = world.v.poll_cq(cq, want, wc);
    if (got < 0) Fail("ibv_poll_cq gave " + std::to_string(got), file, line);
    found.insert(found.end(), wc, wc + got);
    return static_cast<int>(found.size()) == count;
  };
  if (world.WaitUntil(enough, seconds)) return found;
  Fail("only " + std::to_string(found.size()) + " of " + std::to_string(count) +
           " completions in " + std::to_string(seconds) + " s",
       file, line);
}

ibv_wc PollOne(World& world, ibv_cq* cq, double seconds, const char* file, int line) {
  return Poll(world, cq, 1, seconds, file, line)[0];
}

ibv_wc ExpectCompletion(World& world, ibv_cq* cq, uint64_t wr_id, ibv_wc_status status,
                        double seconds, const char* file, int line) {
  const ibv_wc wc = PollOne(world, cq, seconds, file, line);
  ExpectEq(wc.wr_id, wr_id, "wr_id of the completion", file, line);
  ExpectEq(static_cast<int>(wc.status), static_cast<int>(status),
           "status of request " + std::to_string(wr_id), file, line);
  return wc;
}

void ExpectQuiet(World& world, ibv_cq* cq, double seconds, const char* file, int line) {
  const double end = world.Now() + seconds;
  do {
    ibv_wc wc = {};
    if (world.v.poll_cq(cq, 1, &wc) != 0) {
      Fail("unexpected completion: request " + std::to_string(wc.wr_id) + " status " +
               std::to_string(wc.status),
           file, line);
    }
    world.v.idle();
  } while (world.Now() < end);
}

}  // namespace railhop::conformance
