#include "cc/sim/recorder.h"

#include <bit>
#include <cinttypes>
#include <cstdio>

#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/fault_judge.h"
#include "cc/rdma_model/packet.h"
#include "cc/rdma_model/types.h"

namespace railhop::sim {
namespace {

constexpr const char* kKinds[] = {"send",   "execute", "answer",  "take",  "lost",
                                  "fate",   "done",    "event",   "state", "fault",
                                  "action", "post",    "receive", "verb",  "note"};
constexpr const char* kOpcodes[] = {"WRITE", "WRITE_IMM", "SEND",     "SEND_IMM",
                                    "READ",  "CMP_SWAP",  "FETCH_ADD"};
constexpr const char* kResponses[] = {"nothing",     "ACK",        "NAK_SEQ",
                                      "NAK_INVALID", "NAK_ACCESS", "NAK_REMOTE",
                                      "RNR_NAK",     "READ_DATA",  "ATOMIC"};
constexpr const char* kLosses[] = {"no route", "link down", "too long",
                                   "nobody",   "fault",     "host dead"};
constexpr const char* kFates[] = {"deliver", "drop", "hold", "fail", "wedge", "kill"};
constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccd;
  return std::rotl(hash, 29) ^ (hash >> 32);
}

template <size_t kN>
std::string Name(const char* const (&names)[kN], uint8_t detail) {
  return detail < kN ? names[detail] : std::to_string(detail);
}

std::string DetailOf(const Record& r) {
  switch (r.kind) {
    case RecordKind::kSend:
    case RecordKind::kPost:
      return Name(kOpcodes, r.detail);
    case RecordKind::kExecute:
    case RecordKind::kAnswer:
    case RecordKind::kTake:
      return Name(kResponses, r.detail);
    case RecordKind::kLost:
      return Name(kLosses, r.detail);
    case RecordKind::kFate:
      return Name(kFates, r.detail);
    case RecordKind::kEvent:
      return std::string(rdma::AsyncEventName(static_cast<rdma::AsyncEvent>(r.detail)));
    case RecordKind::kQpState:
      return Name(kStates, r.detail);
    case RecordKind::kFault:
    case RecordKind::kAction:
      return std::string(rdma::FaultKindName(static_cast<rdma::FaultKind>(r.detail)));
    case RecordKind::kVerb:
      return std::string(rdma::VerbCallName(static_cast<rdma::VerbCall>(r.detail)));
    case RecordKind::kCompletion:
      return r.detail == 0 ? "success" : "status " + std::to_string(r.detail);
    default:
      return "";
  }
}

// What a, b and c are called.
const char* FormatOf(RecordKind kind) {
  switch (kind) {
    case RecordKind::kSend:
    case RecordKind::kExecute:
      return "psn %06" PRIx64 " x%" PRIu64 " message %" PRIu64;
    case RecordKind::kAnswer:
    case RecordKind::kTake:
    case RecordKind::kLost:
      return "psn %06" PRIx64 " x%" PRIu64;
    case RecordKind::kFate:
      return "psn %06" PRIx64 " x%" PRIu64 " rule %" PRIu64;
    case RecordKind::kCompletion:
      return "wr %" PRIu64 " opcode %" PRIu64 " bytes %" PRIu64;
    case RecordKind::kPost:
    case RecordKind::kPostReceive:
      return "wr %" PRIu64 " bytes %" PRIu64;
    case RecordKind::kVerb:
      return "errno %" PRIu64 " ns %" PRIu64;
    default:
      return "%" PRIu64 " %" PRIu64 " %" PRIu64;
  }
}

}  // namespace

void Recorder::Add(const Record& r) {
  hash_ = Mix(hash_, r.time_ns);
  hash_ = Mix(hash_, uint64_t{static_cast<uint8_t>(r.kind)} | uint64_t{r.detail} << 8 |
                         uint64_t{r.port} << 16 | uint64_t{r.qp} << 32);
  hash_ = Mix(Mix(Mix(hash_, r.a), r.b), r.c);
  ++count_;
  if (keep_) records_.push_back(r);
}

std::string Recorder::Text(const std::vector<std::string>& port_names) const {
  std::string text;
  for (const Record& r : records_) {
    char line[256];
    int n = std::snprintf(line, sizeof(line), "%12.3f us  %-7s",
                          static_cast<double>(r.time_ns) / 1e3, kKinds[static_cast<int>(r.kind)]);
    text.append(line, static_cast<size_t>(n));
    if (r.port != 0 && r.port <= port_names.size()) text += " " + port_names[r.port - 1];
    if (r.qp != 0) text += " qp" + std::to_string(r.qp - 1);
    text += " " + DetailOf(r) + " ";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    n = std::snprintf(line, sizeof(line), FormatOf(r.kind), r.a, r.b, r.c);
#pragma GCC diagnostic pop
    text.append(line, static_cast<size_t>(n));
    text += '\n';
  }
  return text;
}

}  // namespace railhop::sim
