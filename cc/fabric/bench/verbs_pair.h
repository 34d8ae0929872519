// Two connected queue pairs in one process or two, for benchmarks and stress programs over any
// verbs library.
//
// Plain verbs, no knowledge of the fabric: the same program runs on hardware.
#ifndef RAILHOP_CC_FABRIC_BENCH_VERBS_PAIR_H_
#define RAILHOP_CC_FABRIC_BENCH_VERBS_PAIR_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace railhop::fabric {

// What the other end must know to connect and to reach a buffer. Plain bytes, sent over a pipe or
// socket.
struct Address {
  uint32_t qpn = 0;
  uint32_t psn = 0;
  ibv_gid gid = {};
  uint64_t addr = 0;
  uint32_t rkey = 0;
};

// An open device with a protection domain. Ends the program with a message where something is
// missing: these are tools, and a line on standard error is what their user needs.
class OpenDevice {
 public:
  explicit OpenDevice(const std::string& name);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  int gid_index() const { return gid_index_; }  // the last RoCE v2 one

 private:
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  int gid_index_ = 0;
};

struct PairOptions {
  int depth = 128;   // send and receive requests
  int timeout = 14;  // exponent
  int retry_cnt = 7;
  ibv_mtu mtu = IBV_MTU_4096;
  uint32_t start_psn = 0;  // 0: random
};

// One RC queue pair with a completion queue of its own and one registered buffer.
class Endpoint {
 public:
  Endpoint(const OpenDevice& device, size_t buffer_bytes, const PairOptions& options);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  Address address() const;
  // To RTS, towards `peer`. 0 or an errno.
  int Connect(const Address& peer);
  ibv_qp* qp() const { return qp_; }
  ibv_cq* cq() const { return cq_; }
  uint8_t* buffer() const { return buffer_; }
  size_t size() const { return size_; }
  uint32_t lkey() const { return mr_->lkey; }

  // Posts an RDMA write of `length` bytes from `offset` of the buffer to `remote_offset` of the
  // peer's.
  int PostWrite(uint64_t wr_id, size_t offset, uint32_t length, size_t remote_offset, bool signaled,
                ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE, uint32_t imm = 0);
  int PostReceive(uint64_t wr_id, size_t offset, uint32_t length);

 private:
  const OpenDevice& device_;
  const PairOptions options_;
  const size_t size_;
  uint8_t* buffer_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  uint32_t psn_ = 0;
  Address peer_;
};

}  // namespace railhop::fabric

#endif  // RAILHOP_CC_FABRIC_BENCH_VERBS_PAIR_H_
