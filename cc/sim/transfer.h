// What a simulated program wants moved, and what has become of it.
#ifndef RAILHOP_CC_SIM_TRANSFER_H_
#define RAILHOP_CC_SIM_TRANSFER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/rdma_model/types.h"
#include "cc/sim/memory.h"

namespace railhop::sim {

struct TransferPlan {
  rdma::Opcode opcode = rdma::Opcode::kWrite;
  uint32_t length = 0;  // bytes; 8 for atomics
  bool signaled = true;
  bool fence = false;
  bool in_line = false;
  bool relay = false;    // a fenced WRITE of what the READ before it brings, same length
  bool bad_key = false;  // names memory that the peer does not give: must be refused
  uint8_t pieces = 1;    // scatter entries
  uint8_t misalign = 0;
};

struct SidePlan {
  rdma::QpType type = rdma::QpType::kRc;
  std::vector<TransferPlan> transfers;
  uint64_t seed = 0;
  uint32_t send_depth = 16;
  uint32_t burst = 8;             // posts in one turn
  uint64_t pause_ns = 2000;       // between turns that post
  uint32_t receives_ahead = 8;    // posted at a time
  double late_receives = 0;       // chance that a turn posts none
  uint64_t poll_delay_ns = 1000;  // from a completion to the program's turn, at most
  double drains = 0;              // chance that a turn moves the queue pair to SQD for a while
  double destroys = 0;            // chance that it is fenced by destroying it
  bool faults = false;            // something may go wrong; else every error is a violation
  bool rnr_may_end = false;       // rnr_retry is not 7
  std::vector<rdma::WcStatus> injected;  // statuses that faults give to requests
};

// A transfer as its initiator's ledger has it.
struct Transfer {
  enum class State : uint8_t { kPlanned, kPosted, kDone, kFailed };
  TransferPlan plan;
  uint32_t id = 0;
  uint32_t incarnation = 0;
  State state = State::kPlanned;
  bool received = false;  // the peer's program has seen its receive completion
  Buffer source;          // local; for READ at the peer
  Buffer target;          // at the peer; for READ and atomics local. SEND: none
  uint32_t source_key = 0, target_key = 0;
  uint64_t pattern = 0;   // of what moves
  uint64_t expected = 0;  // atomics: what is found there
  uint64_t after = 0;     // pattern that the target must hold at the end; 0: not looked at

  bool Consumes() const {
    return plan.opcode == rdma::Opcode::kSend || plan.opcode == rdma::Opcode::kSendImm ||
           plan.opcode == rdma::Opcode::kWriteImm;
  }
  bool IsAtomic() const {
    return plan.opcode == rdma::Opcode::kFetchAdd || plan.opcode == rdma::Opcode::kCompareSwap;
  }
  bool IsWrite() const {
    return plan.opcode == rdma::Opcode::kWrite || plan.opcode == rdma::Opcode::kWriteImm;
  }
};

struct ReceiveSlot {
  Buffer buffer;
  uint32_t key = 0;
  bool done = false;
  uint64_t after = 0;  // as in Transfer
};

// What was seen that must not be. The first few are kept in words.
class Violations {
 public:
  void Add(const std::string& text) {
    if (++count_ <= kKept) texts_.push_back(text);
  }
  uint64_t count() const { return count_; }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  static constexpr uint64_t kKept = 20;
  uint64_t count_ = 0;
  std::vector<std::string> texts_;
};

}  // namespace railhop::sim

#endif  // RAILHOP_CC_SIM_TRANSFER_H_
