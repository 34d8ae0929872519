#include "cc/fabric/abi/test_fabric.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "cc/fabric/fault_actions.h"
#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/fault_table.h"

namespace railhop::fabric::abi {

rdma::Topology TestTopology() {
  rdma::Topology topology = rdma::DefaultTopology();
  rdma::TopologyCaps& caps = topology.devices[1].caps;
  caps.max_qp = kSmallMaxQp;
  caps.max_cq = kSmallMaxCq;
  caps.max_mr = kSmallMaxMr;
  caps.max_pd = kSmallMaxPd;
  caps.max_qp_wr = kSmallMaxQpWr;
  caps.max_sge = kSmallMaxSge;
  caps.max_cqe = kSmallMaxCqe;
  caps.max_mr_size = 1 << 20;
  topology.devices[2].open_errno = EACCES;

  topology.nets.push_back("fabric");
  rdma::TopologyDevice& ib = topology.devices[3];
  ib.ports.assign(2, rdma::TopologyPort());
  for (uint32_t i = 0; i < 2; ++i) {
    rdma::TopologyPort& port = ib.ports[i];
    port.link_layer = rdma::LinkLayer::kInfiniBand;
    port.net = 1;
    port.speed_gbps = i == 0 ? 200 : 800;
    port.lid = 10 + i;
    port.sm_lid = 1;
    port.guid = 0x0200c90300000010 + i;
    port.pkeys = {0xffff, 0x8001};
    rdma::TopologyGid gid;
    gid.gid.raw[0] = 0xfe;
    gid.gid.raw[1] = 0x80;
    gid.gid.raw[15] = static_cast<uint8_t>(0x10 + i);
    port.gids = {gid};
  }
  return topology;
}

DirectoryHandle& TheFabric() {
  static DirectoryHandle* const fabric = [] {
    std::string error;
    DirectoryHandle* const made = DirectoryHandle::Create("", TestTopology(), 1, &error).release();
    if (made == nullptr) {
      ADD_FAILURE() << error;
      abort();
    }
    setenv(kFabricVariable, made->Reference().c_str(), 1);
    return made;
  }();
  return *fabric;
}

void Fault(const std::string& words) {
  rdma::FaultCommand command;
  std::string error;
  ASSERT_TRUE(rdma::ParseFault(words, &command, &error)) << error;
  DirectoryHandle& fabric = TheFabric();
  const auto device = fabric.FindDevice(0, command.device);
  ASSERT_TRUE(device.has_value()) << words;
  const PortRef port = {*device, command.port == 0 ? 1 : command.port};
  {
    SharedLock lock(fabric.dir().control_lock);
    const rdma::FaultClock clock = {MonotonicNs(), fabric.dir().created_ns};
    ASSERT_EQ(rdma::ApplyFault(command.spec, clock, fabric.port(port).faults),
              rdma::ApplyResult::kOk);
  }
  RunFaultActions(fabric, port);
}

ContextPtr Open(const std::string& device) {
  TheFabric();
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  errno = ENOENT;
  for (int i = 0; i < count; ++i) {
    if (device == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  const int error = errno;
  ibv_free_device_list(list);
  errno = error;
  return ContextPtr(context);
}

ibv_qp_init_attr QpInitAttr(ibv_cq* cq, ibv_qp_type type) {
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = type;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 8;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
  attr.cap.max_inline_data = 64;
  return attr;
}

ibv_qp_init_attr_ex QpInitAttrEx(ibv_pd* pd, ibv_cq* cq, uint64_t send_ops) {
  ibv_qp_init_attr_ex attr = {};
  const ibv_qp_init_attr plain = QpInitAttr(cq);
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = plain.qp_type;
  attr.cap = plain.cap;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = send_ops;
  return attr;
}

int Connect(ibv_qp* qp, uint32_t peer) {
  const bool rc = qp->qp_type == IBV_QPT_RC;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | (rc ? IBV_ACCESS_REMOTE_ATOMIC : 0);
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (const int error = ibv_modify_qp(qp, &attr, mask); error != 0) return error;

  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.port_num = 1;
  ibv_port_attr port = {};
  ibv_query_port(qp->context, 1, &port);
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 1;
    if (ibv_query_gid(qp->context, 1, 1, &attr.ah_attr.grh.dgid) != 0) return errno;
  } else {
    attr.ah_attr.dlid = port.lid;
  }
  mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (const int error = ibv_modify_qp(qp, &attr, mask); error != 0) return error;

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (rc) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return ibv_modify_qp(qp, &attr, mask);
}

std::vector<ibv_wc> Await(ibv_cq* cq, size_t count) {
  std::vector<ibv_wc> all;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (all.size() < count && std::chrono::steady_clock::now() < deadline) {
    ibv_wc wc = {};
    const int got = ibv_poll_cq(cq, 1, &wc);
    EXPECT_GE(got, 0);
    if (got == 1) all.push_back(wc);
    if (got < 0) break;
  }
  EXPECT_EQ(all.size(), count);
  return all;
}

Loopback::Loopback(const std::string& device, ibv_qp_type type) {
  context = Open(device);
  pd = PdPtr(ibv_alloc_pd(context.get()));
  mr = MrPtr(ibv_reg_mr(pd.get(), buffer, sizeof(buffer),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC));
  cq = CqPtr(ibv_create_cq(context.get(), 64, nullptr, nullptr, 0));
  ibv_qp_init_attr attr = QpInitAttr(cq.get(), type);
  qp = QpPtr(ibv_create_qp(pd.get(), &attr));
  EXPECT_NE(qp, nullptr);
  EXPECT_EQ(Connect(qp.get(), qp->qp_num), 0);
}

}  // namespace railhop::fabric::abi
