#include "cc/rdma_model/packet.h"

namespace railhop::rdma {

Train Train::TakeFront(uint32_t n) {
  Train front = *this;
  const uint32_t bytes = n * mtu;  // all packets but a message's last one are full
  front.count = n;
  front.length = bytes;
  front.last = false;
  first = false;
  psn = PsnAdd(psn, n);
  count -= n;
  offset += bytes;
  length -= bytes;
  return front;
}

Response Response::TakeFront(uint32_t n) {
  Response front = *this;
  const uint32_t bytes = n * mtu;
  front.count = n;
  front.length = bytes;
  psn = PsnAdd(psn, n);
  count -= n;
  length -= bytes;
  remote_addr += bytes;
  return front;
}

}  // namespace railhop::rdma
