// The record of a run: every packet, fault, event and completion, as a hash and, on demand, as
// text.
//
// Two runs of the same seed have the same record, byte for byte; the hash of all records shows it
// at no cost. So nothing that differs between runs (addresses, real time) may be written here. One
// thread.
#ifndef RAILHOP_CC_SIM_RECORDER_H_
#define RAILHOP_CC_SIM_RECORDER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace railhop::sim {

enum class RecordKind : uint8_t {
  kSend,         // detail: Opcode; a: psn, b: packets, c: message
  kExecute,      // the responder took a train; detail: ResponseKind that goes back; as kSend
  kAnswer,       // an answer leaves; detail: ResponseKind; a: psn, b: packets
  kTake,         // the requester took an answer; as kAnswer
  kLost,         // detail: LossReason; a: psn, b: packets
  kFate,         // a fault hit packets; detail: Fate; a: psn, b: packets, c: rule
  kCompletion,   // detail: WcStatus; a: wr_id, b: opcode, c: bytes
  kEvent,        // detail: AsyncEvent
  kQpState,      // detail: QpState
  kFault,        // a fault was set; detail: FaultKind
  kAction,       // a fault's step was carried out; detail: FaultKind; a: undo
  kPost,         // detail: Opcode; a: wr_id, b: bytes
  kPostReceive,  // a: wr_id, b: bytes
  kVerb,         // a verbs call failed or hung; detail: VerbCall; a: errno, b: ns
  kNote,         // a: whatever the writer means
};

enum class LossReason : uint8_t { kNoRoute, kLinkDown, kTooLong, kNobody, kFault, kHostDead };

struct Record {
  uint64_t time_ns = 0;
  RecordKind kind = RecordKind::kNote;
  uint8_t detail = 0;
  uint16_t port = 0;  // number of the port in the world; 0: none, else + 1
  uint32_t qp = 0;    // number of the queue pair in the world; 0: none, else + 1
  uint64_t a = 0, b = 0, c = 0;
};

class Recorder {
 public:
  void Add(const Record& record);

  // Of all records so far.
  uint64_t hash() const { return hash_; }
  uint64_t count() const { return count_; }

  // Keeps records from now on (else only the hash is kept).
  void Keep() { keep_ = true; }
  const std::vector<Record>& records() const { return records_; }
  // One line a record. `port_names[i]` is port i.
  std::string Text(const std::vector<std::string>& port_names) const;

 private:
  uint64_t hash_ = 0x9e3779b97f4a7c15;
  uint64_t count_ = 0;
  bool keep_ = false;
  std::vector<Record> records_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_RECORDER_H_
