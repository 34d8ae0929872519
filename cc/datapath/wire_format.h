// What two ends write into each other's memory, and the 32 bits that travel with each stripe.
// docs/protocol.md tells the story; the numbers are asserted here.
//
// A transfer (one grouped receive and the sends that match it) has a 64-bit sequence, from 1, and
// lives in slot sequence % 32. The receiver writes its clear-to-send entries into the slot of the
// sender's FIFO; the sender writes data, and each stripe's last write carries an immediate.
//
// The hard case is that nothing tells the sender of an entry's arrival: it looks at memory that the
// NIC writes. The sequence is the last word of the entry and no two writes of one slot share it, so
// an entry counts once its own sequence is there.
#ifndef RAILHOP_CC_DATAPATH_WIRE_FORMAT_H_
#define RAILHOP_CC_DATAPATH_WIRE_FORMAT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace railhop::datapath {

static_assert(std::endian::native == std::endian::little, "memory is shared as it is");

// Transfers in flight for each connection. Source: NCCL_NET_MAX_REQUESTS, NCCL 2.30.7
// src/include/plugin/nccl_net.h.
inline constexpr uint32_t kSlots = 32;
// Receives in one transfer. Source: as maxRecvs of NCCL's IB transport.
inline constexpr uint32_t kReceivesMax = 8;
// Devices that a net device may be made of: NCCL_NET_MAX_DEVS_PER_NIC of v12.
inline constexpr uint32_t kDevicesMax = 8;
// Ports of verbs devices in one process that memory may be registered on: bits of a word.
inline constexpr uint32_t kPhysicalMax = 32;
// Queue pairs in one connection. Source: NCCL_IB_MAX_QPS, NCCL 2.30.7.
inline constexpr uint32_t kLanesMax = 128;
inline constexpr uint32_t kStripesMax = 128;
// Stripes start at multiples of this: LL128 needs whole lines.
inline constexpr uint64_t kStripeAlignment = 128;

inline constexpr uint64_t kFirstSequence = 1;
constexpr uint32_t SlotOf(uint64_t sequence) { return static_cast<uint32_t>(sequence % kSlots); }

// One receive of a transfer, as announced to the sender.
struct alignas(64) CtsEntry {
  uint64_t address;                   // where the data goes
  uint64_t size;                      // room, bytes
  uint32_t remote_keys[kDevicesMax];  // of that memory on each device of the receiver; 0 = none
  int32_t tag;
  uint8_t receives;  // in this transfer, 1..8; the same in each of its entries
  // Transfers below sequence - open_before are complete; 255 = so many or more.
  uint8_t open_before;
  uint16_t epoch_low;  // the keys are for lanes that were made in this epoch or before
  uint64_t sequence;   // of the transfer; written last
};
static_assert(sizeof(CtsEntry) == 64);
static_assert(offsetof(CtsEntry, size) == 8);
static_assert(offsetof(CtsEntry, remote_keys) == 16);
static_assert(offsetof(CtsEntry, tag) == 48);
static_assert(offsetof(CtsEntry, receives) == 52);
static_assert(offsetof(CtsEntry, epoch_low) == 54);
static_assert(offsetof(CtsEntry, sequence) == 56);

// Whether the NIC has written this transfer's entry; its sequence is the last word.
inline bool HasArrived(const CtsEntry& entry, uint64_t sequence) {
  return __atomic_load_n(&entry.sequence, __ATOMIC_ACQUIRE) == sequence;
}

// Sizes of sends whose stripes do not tell them (adaptive routing), by slot and receive.
struct SizeRecords {
  uint64_t bytes[kSlots][kReceivesMax];
};
static_assert(sizeof(SizeRecords) == 2048);

// The memory that a sender registers for one connection. Whole pages: nothing else is in them.
struct alignas(4096) SenderMemory {
  CtsEntry fifo[kSlots][kReceivesMax];  // written by the receiver
  SizeRecords sizes;                    // read by our own NIC
  // Written by the receiver if receives are confirmed and no entry is due: all transfers below it
  // are complete.
  uint64_t complete_below;
};
static_assert(sizeof(SenderMemory) == 20480);
static_assert(offsetof(SenderMemory, sizes) == 16384);
static_assert(offsetof(SenderMemory, complete_below) == 18432);

// The memory that a receiver registers for one connection.
struct alignas(4096) ReceiverMemory {
  CtsEntry staging[kSlots][kReceivesMax];  // read by our own NIC
  SizeRecords sizes;                       // written by the sender
  uint64_t flush_landing[kDevicesMax];     // written by our own NIC
  uint64_t complete_below;                 // read by our own NIC
};
static_assert(sizeof(ReceiverMemory) == 20480);
static_assert(offsetof(ReceiverMemory, sizes) == 16384);

// The immediate of a stripe, from its lowest bit: slot 5, receive 3, stripe 7, stripes - 1 7,
// has_record 1, epoch 9. In network order in the work request.
struct Immediate {
  uint32_t slot;     // 0..31
  uint32_t receive;  // 0..7
  uint32_t stripe;   // 0..stripes-1
  uint32_t stripes;  // of this send, 1..128
  bool has_record;   // the payload is the send's whole size, in SizeRecords; not data
  uint32_t epoch;    // low 9 bits
};
inline constexpr uint32_t kImmediateEpochMask = 0x1ff;
inline constexpr uint32_t kImmediateEpochShift = 23;
inline constexpr uint32_t kImmediateRecordBit = 1u << 22;

constexpr uint32_t PackImmediate(const Immediate& i) {
  return i.slot | i.receive << 5 | i.stripe << 8 | (i.stripes - 1) << 15 |
         static_cast<uint32_t>(i.has_record) << 22 | (i.epoch & kImmediateEpochMask) << 23;
}

constexpr Immediate UnpackImmediate(uint32_t bits) {
  return {.slot = bits & 0x1f,
          .receive = bits >> 5 & 0x7,
          .stripe = bits >> 8 & 0x7f,
          .stripes = (bits >> 15 & 0x7f) + 1,
          .has_record = (bits >> 22 & 1) != 0,
          .epoch = bits >> 23};
}

static_assert(kSlots == 1 << 5 && kReceivesMax == 1 << 3 && kStripesMax == 1 << 7);
static_assert(PackImmediate({31, 7, 127, 128, true, 0x1ff}) == 0xffffffff);
static_assert(UnpackImmediate(PackImmediate({5, 3, 9, 77, false, 300})).stripes == 77);

}  // namespace railhop::datapath

#endif  // RAILHOP_CC_DATAPATH_WIRE_FORMAT_H_
