// How a queue pair's packets get away. Network is the one that carries them.
#ifndef RAILHOP_CC_SIM_WIRE_H_
#define RAILHOP_CC_SIM_WIRE_H_

#include <cstdint>

#include "cc/rdma_model/packet.h"

namespace railhop::sim {

class QueuePair;

class Wire {
 public:
  virtual ~Wire() = default;
  // Takes a train; its bytes are copied now, as they leave the sender's memory now.
  virtual void Send(QueuePair& qp, const rdma::Train& train) = 0;
  // When this queue pair may send the next; not later than now: at once.
  virtual uint64_t ReadyAt(QueuePair& qp) = 0;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_WIRE_H_
