// The vocabulary of the queue pair model: states, opcodes, statuses, keys, sequence numbers.
//
// Everything here is plain data without pointers, so the same structs live in a simulator's heap
// and in memory that several processes share. Numeric values equal those of <infiniband/verbs.h>,
// which this layer may not include; cc/fabric asserts the equality at compile time.
#ifndef RAILHOP_CC_RDMA_MODEL_TYPES_H_
#define RAILHOP_CC_RDMA_MODEL_TYPES_H_

#include <cstdint>

namespace railhop::rdma {

// Source of the values: enum ibv_qp_type, ibv_qp_state, ibv_wr_opcode, ibv_wc_status,
// ibv_wc_opcode, ibv_access_flags, ibv_send_flags, ibv_event_type, ibv_mtu (rdma-core v44 verbs.h).
enum class QpType : uint8_t { kRc = 2, kUc = 3 };

enum class QpState : uint8_t { kReset = 0, kInit, kRtr, kRts, kSqd, kSqe, kErr };

enum class Opcode : uint8_t {
  kWrite = 0,
  kWriteImm = 1,
  kSend = 2,
  kSendImm = 3,
  kRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6,
};

enum class WcStatus : uint8_t {
  kSuccess = 0,
  kLocLenErr = 1,
  kLocQpOpErr = 2,
  kLocEecOpErr = 3,
  kLocProtErr = 4,
  kWrFlushErr = 5,
  kMwBindErr = 6,
  kBadRespErr = 7,
  kLocAccessErr = 8,
  kRemInvReqErr = 9,
  kRemAccessErr = 10,
  kRemOpErr = 11,
  kRetryExcErr = 12,
  kRnrRetryExcErr = 13,
  kLocRddViolErr = 14,
  kRemInvRdReqErr = 15,
  kRemAbortErr = 16,
  kInvEecnErr = 17,
  kInvEecStateErr = 18,
  kFatalErr = 19,
  kRespTimeoutErr = 20,
  kGeneralErr = 21,
};

enum class WcOpcode : uint8_t {
  kSend = 0,
  kWrite = 1,
  kRead = 2,
  kCompareSwap = 3,
  kFetchAdd = 4,
  kRecv = 128,
  kRecvWriteImm = 129,
};

// Rights of a memory region or queue pair, as bits.
enum Access : uint32_t {
  kAccessLocalWrite = 1,
  kAccessRemoteWrite = 2,
  kAccessRemoteRead = 4,
  kAccessRemoteAtomic = 8,
};

enum SendFlag : uint32_t {
  kSendFence = 1,
  kSendSignaled = 2,
  kSendSolicited = 4,
  kSendInline = 8,
};

enum class AsyncEvent : uint8_t {
  kCqErr = 0,
  kQpFatal = 1,
  kQpReqErr = 2,
  kQpAccessErr = 3,
  kCommEst = 4,
  kSqDrained = 5,
  kPathMig = 6,
  kPathMigErr = 7,
  kDeviceFatal = 8,
  kPortActive = 9,
  kPortErr = 10,
  kLidChange = 11,
  kPkeyChange = 12,
  kSmChange = 13,
  kSrqErr = 14,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
  kClientReregister = 17,
  kGidChange = 18,
};

// A GID as 16 bytes in network order.
struct Gid {
  uint8_t raw[16] = {};
  friend bool operator==(const Gid&, const Gid&) = default;
};

enum class GidType : uint8_t { kIb = 0, kRoceV1 = 1, kRoceV2 = 2 };  // enum ibv_gid_type
enum class LinkLayer : uint8_t { kInfiniBand = 1, kEthernet = 2 };
enum class PortLinkState : uint8_t { kDown = 1, kInit = 2, kArmed = 3, kActive = 4 };

// A piece of registered memory of the process that posted the request.
struct Sge {
  uint64_t addr = 0;
  uint32_t length = 0;  // bytes
  uint32_t lkey = 0;
};

inline constexpr int kMaxSge = 16;
inline constexpr uint32_t kMaxInlineData = 512;         // bytes
inline constexpr uint32_t kMaxMessageBytes = 1u << 30;  // IBTA limit is 2^31
inline constexpr uint32_t kPsnMask = 0xffffff;          // 24 bits, IBTA 9.7.1
inline constexpr uint32_t kRetryForever = 7;  // rnr_retry value that means no limit, IBTA 11.6.2

// What a work request reports when it is done. Mirrors the valid fields of ibv_wc.
struct Completion {
  uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSend;
  uint8_t with_imm = 0;
  uint8_t solicited = 0;
  uint32_t vendor_err = 0;
  uint32_t byte_len = 0;
  uint32_t imm_data = 0;  // network order, carried as it was given
  uint32_t qp_num = 0;
  uint32_t src_qp = 0;
};

// Sequence numbers wrap at 2^24; `a` is before `b` when it is fewer than 2^23 behind it
// (IBTA 9.7.2).
constexpr uint32_t PsnAdd(uint32_t psn, uint32_t n) { return (psn + n) & kPsnMask; }
// How far `a` is ahead of `b`, from -2^23 to 2^23 - 1.
constexpr int32_t PsnDiff(uint32_t a, uint32_t b) {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

// Bytes that one packet carries for verbs MTU code 1..5 (256..4096).
constexpr uint32_t MtuBytes(uint32_t code) { return 128u << code; }

// Time until a request that nobody acknowledged is sent again; 0 means never (IBTA 9.7.6.1.3).
constexpr uint64_t AckTimeoutNs(uint32_t timeout) {
  return timeout == 0 ? 0 : uint64_t{4096} << (timeout & 31);
}

// Time that a receiver-not-ready answer asks to wait, by its 5-bit code (IBTA table 46).
uint64_t RnrTimerNs(uint32_t code);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_TYPES_H_
