// Every word that faults know: kinds with their options and meaning, verbs calls, errors, statuses,
// events, quirks.
//
// The parser, the formatter, error messages and docs/reference/faults.md all read these tables, so
// a word that is added here is known everywhere.
#ifndef RAILHOP_CC_RDMA_MODEL_FAULT_WORDS_H_
#define RAILHOP_CC_RDMA_MODEL_FAULT_WORDS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cc/rdma_model/fault_spec.h"

namespace railhop::rdma {

// Options that a kind may be given, as bits.
enum FaultOption : uint32_t {
  kOptDirection = 1 << 0,
  kOptClass = 1 << 1,
  kOptRate = 1 << 2,
  kOptPacket = 1 << 3,
  kOptQp = 1 << 4,
  kOptAfter = 1 << 5,
  kOptCalls = 1 << 6,
  kOptAt = 1 << 7,
  kOptFor = 1 << 8,
  kOptCount = 1 << 9,
  kOptSeed = 1 << 10,
  kOptEvent = 1 << 11,  // event lost, early T, late T, doubled
};

struct FaultKindRow {
  FaultKind kind;
  const char* name;        // one word, for lists, logs and `clear`
  const char* words;       // as written in a command: "gid set"
  const char* parameters;  // behind the words: "INDEX ADDRESS [v1|v2|ib]"
  uint32_t options;        // FaultOption bits
  const char* meaning;
  const char* example;  // behind the device
};

struct FaultOptionRow {
  FaultOption option;
  const char* words;  // as in an error message: "after N UNIT"
  const char* meaning;
};

struct NamedValue {
  std::string_view name;
  uint64_t value;
};

std::span<const FaultKindRow> FaultKindRows();
std::span<const FaultOptionRow> FaultOptionRows();
const FaultKindRow* FindKind(FaultKind kind);  // nullptr: none

std::span<const NamedValue> VerbNames();     // VerbCall
std::span<const NamedValue> ErrnoNames();    // errno of Linux
std::span<const NamedValue> StatusNames();   // WcStatus
std::span<const NamedValue> EventNames();    // AsyncEvent
std::span<const NamedValue> QuirkRows();     // Quirk
std::span<const NamedValue> QpStateNames();  // QpState
std::span<const NamedValue> GidTypeNames();  // GidType
std::span<const NamedValue> LogKindNames();  // LogKind

// nullptr when there is none.
const NamedValue* FindName(std::span<const NamedValue> rows, std::string_view name);
const NamedValue* FindValue(std::span<const NamedValue> rows, uint64_t value);
// "a, b, c"
std::string JoinNames(std::span<const NamedValue> rows);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_FAULT_WORDS_H_
