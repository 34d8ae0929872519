// What a fault is: its kind, whom it hits, when it starts and how long it lasts.
//
// A FaultSpec is plain data. cc/rdma_model/fault_grammar turns words into one and back; fault_table
// keeps those that are in force; fault_judge asks them about packets. Everything that a real NIC,
// cable or switch does wrong and that this project rehearses has a kind here, so the words mean the
// same in every world.
#ifndef RAILHOP_CC_RDMA_MODEL_FAULT_SPEC_H_
#define RAILHOP_CC_RDMA_MODEL_FAULT_SPEC_H_

#include <cstdint>
#include <type_traits>

#include "cc/rdma_model/types.h"

namespace railhop::rdma {

// What goes wrong. docs/reference/faults.md says what each means; it is generated from
// fault_grammar's table.
enum class FaultKind : uint8_t {
  kNone = 0,
  // Commands about faults; never kept in a table.
  kClear,    // remove all rules, undo what had an end
  kList,     // print them; the caller does it
  kRelease,  // let go of held packets
  // Packets: kept in the table and asked by Judge.
  kBlackhole,
  kLoss,
  kDelay,
  kDuplicate,
  kReorder,
  kHold,
  kCap,
  kUnwritten,
  // Messages and processes: fates that Judge gives.
  kComplete,
  kWedge,
  kKill,
  // Verbs calls: asked by JudgeVerb.
  kFailVerb,
  kHangVerb,
  // Events on their way to programs: asked by PlanEvent.
  kEvents,
  // Actions: the world carries them out when NextAction hands them over.
  kDown,
  kUp,
  kFlap,
  kSpeed,
  kMtu,
  kLid,
  kSmLid,
  kPkey,
  kGidSet,
  kGidRemove,
  kGidMove,
  kGidLinkLocal,
  kEvent,
  kRemove,
  kReturn,
  kQuirk,
  kCount,
};

// Which way a packet travels through the port that has the rule.
enum class FaultDirection : uint8_t { kBoth = 0, kTx = 1, kRx = 2 };

// Data: requests of every kind and the data of READ. Acks: acknowledgements, NAKs and results of
// atomics.
enum class PacketClass : uint8_t { kAll = 0, kData = 1, kAcks = 2 };

enum class TriggerUnit : uint8_t { kNone = 0, kMessages = 1, kBytes = 2, kPackets = 3, kCalls = 4 };

// What becomes of the event that belongs to a change.
enum class EventMode : uint8_t { kNormal = 0, kLost = 1, kEarly = 2, kLate = 3, kDoubled = 4 };

// Verbs calls that can be made to fail or hang.
enum class VerbCall : uint8_t {
  kAny = 0,
  kOpenDevice,
  kCloseDevice,
  kQueryDevice,
  kQueryPort,
  kQueryGid,
  kQueryPkey,
  kAllocPd,
  kDeallocPd,
  kRegMr,
  kRegDmabufMr,
  kDeregMr,
  kCreateCompChannel,
  kCreateCq,
  kDestroyCq,
  kPollCq,
  kReqNotifyCq,
  kCreateQp,
  kModifyQp,
  kQueryQp,
  kDestroyQp,
  kPostSend,
  kPostRecv,
  kCount,
};

// Bits of a device's quirks: habits of some providers that a portable program must bear.
enum Quirk : uint64_t {
  kQuirkNoUc = 1 << 0,            // create_qp of a UC queue pair fails with EOPNOTSUPP
  kQuirkDeadAfterReset = 1 << 1,  // ERR -> RESET succeeds, and the queue pair never works again
  kQuirkRandomErrorFields =
      1 << 2,              // error completions: only wr_id, status, qp_num and vendor_err are valid
  kQuirkShortCq = 1 << 3,  // a completion queue holds exactly the entries asked for, at most 64
  kQuirkEioAfterRemoval =
      1 << 4,                    // all verbs calls on a removed device give EIO, destroy calls too
  kQuirkRetry7Forever = 1 << 5,  // retry_cnt 7 has no limit
  kQuirkHangVerbs = 1 << 6,      // modify, destroy and dereg calls take a minute
};

// What a line of the event log says. The meaning of `arg` is in the comment.
enum class LogKind : uint32_t {
  kNone = 0,
  kFaultSet,        // arg: FaultKind
  kFaultCleared,    // arg: FaultKind
  kDrop,            // arg: rule
  kDelay,           // arg: ns
  kDuplicate,       // arg: copies
  kReorder,         // arg: packets it falls behind
  kHold,            // arg: rule
  kRelease,         // arg: rule
  kFail,            // arg: WcStatus
  kWedge,           // arg: rule
  kKill,            // arg: pid
  kVerbFailed,      // arg: errno << 8 | VerbCall
  kVerbHung,        // arg: ns
  kPortState,       // arg: PortLinkState
  kEvent,           // arg: AsyncEvent
  kEventLost,       // arg: AsyncEvent
  kAddress,         // arg: FaultKind
  kDeviceRemoved,   // arg: generation
  kDeviceReturned,  // arg: generation
  kQuirk,           // arg: quirk bits now
  kRetransmit,      // arg: attempts so far
  kNak,             // arg: ResponseKind
  kQpError,         // arg: WcStatus
  kUnwritten,       // arg: rule
  kCount,
};

inline constexpr uint32_t kPpb = 1'000'000'000;  // a probability of 1

// One fault. Zero in a field means "not given" unless its comment says otherwise.
struct FaultSpec {
  FaultKind kind = FaultKind::kNone;
  FaultDirection direction = FaultDirection::kBoth;
  PacketClass packets = PacketClass::kAll;
  TriggerUnit after_unit = TriggerUnit::kNone;
  FaultDirection after_direction = FaultDirection::kBoth;  // messages sent, received, or either
  EventMode event_mode = EventMode::kNormal;
  uint8_t of_qp = 0;  // 1: only queue pair number `qp`
  uint8_t pad = 0;
  uint32_t qp = 0;        // in order of creation on its device, the first is 0
  uint32_t rate_ppb = 0;  // share of packets hit, 1 .. kPpb; 0: all
  uint32_t index =
      0;  // GID or P_Key index, from; VerbCall; AsyncEvent (kEvents: + 1); FaultKind to clear
  uint32_t index2 = 0;  // GID index, to; QpState + 1 that a modify_qp asks for; GidType
  uint64_t packet = 0;  // hits this packet of a queue pair alone, the first is 1
  uint64_t after = 0;   // starts when so many units have passed
  uint64_t at_ns = 0;   // starts at this time since the fabric's start
  uint64_t for_ns = 0;  // ends so long after it started
  uint64_t count = 0;   // hits so many packets, messages, calls or flaps at most
  uint64_t seed = 0;
  uint64_t value =
      0;  // ns, bit/s, status, errno, LID, P_Key, MTU, quirk bits, packets to fall behind
  uint64_t value2 = 0;    // jitter ns, time down in a flap, vendor error, 1: quirk off
  uint64_t event_ns = 0;  // kEarly: how long the event leads the change; kLate: how long it lags
  Gid gid;

  friend bool operator==(const FaultSpec&, const FaultSpec&) = default;
};
static_assert(std::is_trivially_copyable_v<FaultSpec>);
static_assert(sizeof(FaultSpec) % sizeof(uint64_t) == 0);

// True for kinds that the world carries out itself (NextAction hands them over).
constexpr bool IsAction(FaultKind kind) {
  return kind >= FaultKind::kDown && kind < FaultKind::kCount;
}
// True for kinds that Judge looks at.
constexpr bool IsPacketFault(FaultKind kind) {
  return kind >= FaultKind::kBlackhole && kind <= FaultKind::kKill;
}

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_FAULT_SPEC_H_
