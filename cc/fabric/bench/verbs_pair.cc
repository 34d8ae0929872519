#include "cc/fabric/bench/verbs_pair.h"

#include <arpa/inet.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

namespace railhop::fabric {
namespace {

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "%s: %s\n", what.c_str(), strerror(errno));
  exit(1);
}

// The last entry that is RoCE v2, or 0: link-local ones come first.
int PickGid(ibv_context* context) {
  ibv_gid_entry entries[64];
  const ssize_t n = ibv_query_gid_table(context, entries, 64, 0);
  int best = 0;
  for (ssize_t i = 0; i < n; ++i) {
    if (entries[i].port_num == 1 && entries[i].gid_type == IBV_GID_TYPE_ROCE_V2) {
      best = static_cast<int>(entries[i].gid_index);
    }
  }
  return best;
}

}  // namespace

OpenDevice::OpenDevice(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) Die("no RDMA device");
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) context_ = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  if (context_ == nullptr) Die("cannot open device " + name);
  pd_ = ibv_alloc_pd(context_);
  if (pd_ == nullptr) Die("ibv_alloc_pd");
  gid_index_ = PickGid(context_);
}

OpenDevice::~OpenDevice() {
  ibv_dealloc_pd(pd_);
  ibv_close_device(context_);
}

Endpoint::Endpoint(const OpenDevice& device, size_t buffer_bytes, const PairOptions& options)
    : device_(device),
      options_(options),
      size_(buffer_bytes),
      psn_((options.start_psn != 0 ? options.start_psn : std::random_device{}()) & 0xffffff) {
  void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) Die("mmap");
  buffer_ = static_cast<uint8_t*>(memory);
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  mr_ = ibv_reg_mr(device.pd(), buffer_, size_, kAccess);
  if (mr_ == nullptr) Die("ibv_reg_mr");
  cq_ = ibv_create_cq(device.context(), 2 * options.depth, nullptr, nullptr, 0);
  if (cq_ == nullptr) Die("ibv_create_cq");
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = init.cap.max_recv_wr = static_cast<uint32_t>(options.depth);
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  qp_ = ibv_create_qp(device.pd(), &init);
  if (qp_ == nullptr) Die("ibv_create_qp");
}

Endpoint::~Endpoint() {
  ibv_destroy_qp(qp_);
  ibv_destroy_cq(cq_);
  ibv_dereg_mr(mr_);
  munmap(buffer_, size_);
}

Address Endpoint::address() const {
  Address a;
  a.qpn = qp_->qp_num;
  a.psn = psn_;
  ibv_query_gid(device_.context(), 1, device_.gid_index(), &a.gid);
  a.addr = reinterpret_cast<uint64_t>(buffer_);
  a.rkey = mr_->rkey;
  return a;
}

int Endpoint::Connect(const Address& peer) {
  peer_ = peer;
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  int rc = ibv_modify_qp(qp_, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (rc != 0) return rc;
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = options_.mtu;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(device_.gid_index());
  attr.ah_attr.grh.hop_limit = 64;
  rc = ibv_modify_qp(qp_, &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (rc != 0) return rc;
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn_;
  attr.timeout = static_cast<uint8_t>(options_.timeout);
  attr.retry_cnt = static_cast<uint8_t>(options_.retry_cnt);
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  return ibv_modify_qp(qp_, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int Endpoint::PostWrite(uint64_t wr_id, size_t offset, uint32_t length, size_t remote_offset,
                        bool signaled, ibv_wr_opcode opcode, uint32_t imm) {
  ibv_sge sge = {reinterpret_cast<uint64_t>(buffer_ + offset), length, mr_->lkey};
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
  wr.imm_data = htonl(imm);
  wr.wr.rdma.remote_addr = peer_.addr + remote_offset;
  wr.wr.rdma.rkey = peer_.rkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_, &wr, &bad);
}

int Endpoint::PostReceive(uint64_t wr_id, size_t offset, uint32_t length) {
  ibv_sge sge = {reinterpret_cast<uint64_t>(buffer_ + offset), length, mr_->lkey};
  ibv_recv_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = length != 0 ? 1 : 0;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp_, &wr, &bad);
}

}  // namespace railhop::fabric
