// Shared by the tests of faults: rules from words, trains of writes, a wire that notes what befell
// each packet.
#ifndef RAILHOP_CC_RDMA_MODEL_FAULT_TEST_UTIL_H_
#define RAILHOP_CC_RDMA_MODEL_FAULT_TEST_UTIL_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/fault_judge.h"

namespace railhop::rdma {

inline void Require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

inline FaultSpec Spec(std::string_view words) {
  FaultSpec spec;
  std::string error;
  Require(ParseFaultSpec(words, &spec, &error), error);
  return spec;
}

inline void Apply(FaultTable& table, std::string_view words, uint64_t now_ns = 1000,
                  uint64_t start_ns = 0) {
  Require(ApplyFault(Spec(words), {now_ns, start_ns}, table) == ApplyResult::kOk, words);
}

// Two ports and one queue pair between them.
struct Wire {
  std::unique_ptr<FaultTable> tx = std::make_unique<FaultTable>();
  std::unique_ptr<FaultTable> rx = std::make_unique<FaultTable>();
  FlowState requests;
  FlowState responses;
  uint64_t next_message = 0;

  explicit Wire(uint64_t seed = 1, uint32_t device = 0, uint32_t order = 0)
      : requests(InitFlow(seed, device, order, FlowDirection::kRequests)),
        responses(InitFlow(seed, device, order, FlowDirection::kResponses)) {}

  Train Message(uint32_t packets, uint32_t mtu = 1024) {
    Train train;
    train.count = packets;
    train.mtu = mtu;
    train.length = packets * mtu;
    train.message_id = next_message++;
    return train;
  }
  Verdict Send(const Train& train, uint64_t now_ns = 2000) {
    return Judge(*tx, *rx, train, requests, now_ns);
  }
  Verdict Ack(uint64_t now_ns = 2000) {
    Response response;
    response.kind = ResponseKind::kAck;
    return JudgeResponse(*rx, *tx, response, responses, now_ns);
  }
};

// Takes packets off a train of a message, which ends with `last`.
inline Train Front(const Train& train, uint32_t from, uint32_t count) {
  Train part = train;
  part.first = train.first && from == 0;
  part.last = train.last && from + count == train.count;
  part.count = count;
  part.psn = train.psn + from;
  part.offset = train.offset + from * train.mtu;
  part.length = std::min(train.length - from * train.mtu, count * train.mtu);
  return part;
}

// Everything but how many packets share the verdict, as text to compare.
inline std::string Show(const Verdict& v) {
  std::string text;
  for (const uint64_t value : {static_cast<uint64_t>(v.fate), static_cast<uint64_t>(v.victim),
                               static_cast<uint64_t>(v.status), static_cast<uint64_t>(v.side),
                               static_cast<uint64_t>(v.rule), static_cast<uint64_t>(v.copies),
                               static_cast<uint64_t>(v.reorder_by), v.delay_ns, v.tx_cap_bps,
                               v.rx_cap_bps, v.hold_ticket}) {
    text += std::to_string(value) + " ";
  }
  return text;
}

// Sends a message in trains of at most `batch` packets; one line for each packet.
inline void SendInBatches(Wire& wire, const Train& train, uint32_t batch,
                          std::vector<std::string>* packets) {
  for (uint32_t at = 0; at < train.count;) {
    const Train part = Front(train, at, std::min(batch, train.count - at));
    const Verdict verdict = wire.Send(part);
    Require(verdict.packets >= 1 && verdict.packets <= part.count, "packets of a verdict");
    for (uint32_t i = 0; i < verdict.packets; ++i) packets->push_back(Show(verdict));
    at += verdict.packets;
  }
}

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_FAULT_TEST_UTIL_H_
