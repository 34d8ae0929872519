// A fabric inside the test's own process, and verbs objects that go away by themselves.
#ifndef RAILHOP_CC_FABRIC_ABI_TEST_FABRIC_H_
#define RAILHOP_CC_FABRIC_ABI_TEST_FABRIC_H_

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/fabric/directory.h"
#include "cc/rdma_model/topology.h"

namespace railhop::fabric::abi {

// The topology of all tests: four devices soft0 to soft3 on one host.
//   soft0: as it comes. soft1: small limits. soft2: may not be opened (EACCES). soft3: InfiniBand,
//   two ports.
rdma::Topology TestTopology();
inline constexpr uint32_t kSmallMaxQp = 2, kSmallMaxCq = 2, kSmallMaxMr = 2, kSmallMaxPd = 1,
                          kSmallMaxQpWr = 8, kSmallMaxSge = 2, kSmallMaxCqe = 100;

// The process's fabric; made at the first call.
DirectoryHandle& TheFabric();
// Puts a fault in, in the words of docs/reference/faults.md.
void Fault(const std::string& words);

struct ContextCloser {
  void operator()(ibv_context* context) const { EXPECT_EQ(ibv_close_device(context), 0); }
};
struct PdCloser {
  void operator()(ibv_pd* pd) const { EXPECT_EQ(ibv_dealloc_pd(pd), 0); }
};
struct MrCloser {
  void operator()(ibv_mr* mr) const { EXPECT_EQ(ibv_dereg_mr(mr), 0); }
};
struct CqCloser {
  void operator()(ibv_cq* cq) const { EXPECT_EQ(ibv_destroy_cq(cq), 0); }
};
struct ChannelCloser {
  void operator()(ibv_comp_channel* channel) const {
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  }
};
struct QpCloser {
  void operator()(ibv_qp* qp) const { EXPECT_EQ(ibv_destroy_qp(qp), 0); }
};
using ContextPtr = std::unique_ptr<ibv_context, ContextCloser>;
using PdPtr = std::unique_ptr<ibv_pd, PdCloser>;
using MrPtr = std::unique_ptr<ibv_mr, MrCloser>;
using CqPtr = std::unique_ptr<ibv_cq, CqCloser>;
using ChannelPtr = std::unique_ptr<ibv_comp_channel, ChannelCloser>;
using QpPtr = std::unique_ptr<ibv_qp, QpCloser>;

// Null with errno as ibv_open_device leaves it.
ContextPtr Open(const std::string& device);

ibv_qp_init_attr QpInitAttr(ibv_cq* cq, ibv_qp_type type = IBV_QPT_RC);
// With send operations, for the ibv_wr_* calls.
ibv_qp_init_attr_ex QpInitAttrEx(ibv_pd* pd, ibv_cq* cq, uint64_t send_ops);

// RESET to RTS, connected to queue pair `peer` (its own number: a loopback). 0 or the first errno.
int Connect(ibv_qp* qp, uint32_t peer);

// Polls until `count` completions are there (10 s at most).
std::vector<ibv_wc> Await(ibv_cq* cq, size_t count);

// A device, a protection domain, a queue, a buffer, and a queue pair connected to itself.
struct Loopback {
  explicit Loopback(const std::string& device = "soft0", ibv_qp_type type = IBV_QPT_RC);

  alignas(64) uint8_t buffer[4096] = {};
  ContextPtr context;
  PdPtr pd;
  MrPtr mr;
  CqPtr cq;
  QpPtr qp;

  ibv_sge Sge(uint32_t offset, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(buffer) + offset, length, mr->lkey};
  }
  uint64_t Address(uint32_t offset) const { return reinterpret_cast<uint64_t>(buffer) + offset; }
};

}  // namespace railhop::fabric::abi

#endif  // RAILHOP_CC_FABRIC_ABI_TEST_FABRIC_H_
