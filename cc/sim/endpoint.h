// One end of a connection, made and connected the way programs do it.
#ifndef RAILHOP_CC_SIM_ENDPOINT_H_
#define RAILHOP_CC_SIM_ENDPOINT_H_

#include <cstdint>

#include "cc/rdma_model/types.h"
#include "cc/sim/context.h"
#include "cc/sim/world.h"

namespace railhop::sim {

struct EndpointOptions {
  rdma::QpType type = rdma::QpType::kRc;
  uint32_t port = 1;
  uint32_t send_depth = 64, receive_depth = 64;
  uint32_t sges = 4;
  uint32_t cq_entries = 256;
  bool signal_all = false;
};

struct Endpoint {
  Context* context = nullptr;
  uint32_t pd = 0;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  QueuePair* qp = nullptr;
  uint32_t port = 1;

  // Opens the NIC and makes all of the above. False: some call failed; *error is its errno.
  bool Open(World* world, Nic* nic, const EndpointOptions& options, int* error = nullptr);
  // Makes another queue pair in place of qp.
  bool MakeQp(const EndpointOptions& options, int* error = nullptr);
};

struct ConnectOptions {
  uint32_t mtu = 4;  // code
  uint32_t timeout = 14, retry_cnt = 7, rnr_retry = 7, min_rnr_timer = 1;
  uint32_t max_rd_atomic = 4;
  uint32_t access = 15;
};

// RESET to RTS (through INIT and RTR) towards `peer`. 0 or the errno of the first call that failed.
int Connect(const Endpoint& mine, const Endpoint& peer, const ConnectOptions& options,
            uint32_t send_psn, uint32_t receive_psn);

// The index of the GID that a program would pick for this port: the first RoCE v2 address that is
// not link-local, else the first there is; -1: none.
int BestGid(const Port& port);

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_ENDPOINT_H_
