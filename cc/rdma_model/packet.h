// What travels between two queue pairs.
//
// A Train is a run of consecutive packets of one message. Without faults a whole message is one
// train and costs one copy; where a fault hits a packet, the train is split in front of it and
// behind it, so every packet has a fate of its own at no cost to those that have none.
#ifndef RAILHOP_CC_RDMA_MODEL_PACKET_H_
#define RAILHOP_CC_RDMA_MODEL_PACKET_H_

#include <cstdint>

#include "cc/rdma_model/types.h"

namespace railhop::rdma {

// A run of request packets. Payload bytes are not here: who carries the train knows where they are
// (Requester::PayloadOf, or a copy made when the train was delayed).
struct Train {
  uint32_t src_qpn = 0;
  uint32_t dst_qpn = 0;
  QpType type = QpType::kRc;
  Opcode opcode = Opcode::kWrite;
  bool first = true;  // holds the first packet of its message
  bool last = true;   // holds the last packet of its message
  bool solicited = false;
  bool retransmitted = false;
  bool unwritten = false;  // a fault: the responder acknowledges it and nothing reaches memory
  uint32_t psn = 0;        // of the first packet in the train
  uint32_t count = 1;      // packets; a READ request is one packet whatever it asks for
  uint32_t mtu = 4096;     // bytes
  uint32_t length = 0;     // payload bytes in this train; for READ the bytes asked for
  uint32_t offset = 0;     // of this train's first byte in its message
  uint32_t message_length = 0;
  uint32_t imm_data = 0;
  uint32_t rkey = 0;
  uint64_t remote_addr = 0;  // of the message's first byte (RETH); valid for WRITE, READ, atomics
  uint64_t compare_add = 0;  // atomics
  uint64_t swap = 0;
  uint64_t message_id =
      0;  // counts the messages of a queue pair from 0, for fault triggers and logs

  // Takes the first `n` packets (0 < n < count) off this train and returns them; the rest stays.
  Train TakeFront(uint32_t n);
};

enum class ResponseKind : uint8_t {
  kNone = 0,     // nothing goes back: not for us, a duplicate of no interest, or UC
  kAck,          // all up to and including psn have been executed
  kNakSequence,  // psn is the packet that was expected
  kNakInvalidRequest,
  kNakRemoteAccess,
  kNakRemoteOperational,
  kRnrNak,    // psn cannot be executed yet; wait for rnr_timer
  kReadData,  // answers READ packets psn .. psn+count-1
  kAtomicResult,
};

// What a responder sends back. READ data is described, not carried: `remote_addr` is where the
// bytes lie in the responder's memory.
struct Response {
  ResponseKind kind = ResponseKind::kNone;
  uint32_t src_qpn = 0;  // the responder
  uint32_t dst_qpn = 0;  // the requester
  uint32_t psn = 0;
  uint32_t count = 1;
  uint32_t mtu = 4096;
  uint32_t rnr_timer = 0;  // code, see RnrTimerNs
  uint32_t length = 0;     // bytes of READ data
  uint64_t remote_addr = 0;
  uint64_t atomic_original = 0;

  // Takes the first `n` packets (0 < n < count) of READ data off and returns them; the rest stays.
  Response TakeFront(uint32_t n);
};

// Number of packets that `length` bytes take; an empty message is one packet (IBTA 9.7.2.1).
constexpr uint32_t PacketCount(uint32_t length, uint32_t mtu) {
  return length == 0 ? 1 : (length + mtu - 1) / mtu;
}

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_PACKET_H_
