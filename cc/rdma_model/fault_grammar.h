// The words for faults: one grammar for the control program, C++, Python and scenario files.
//
//   [HOST/]DEVICE[:PORT] KIND [PARAMETERS] [TRIGGERS]      soft0:2 blackhole rx acks after 100
//   messages for 2s
//
// The table behind it also makes docs/reference/faults.md. FormatFault is the inverse of
// ParseFault.
#ifndef RAILHOP_CC_RDMA_MODEL_FAULT_GRAMMAR_H_
#define RAILHOP_CC_RDMA_MODEL_FAULT_GRAMMAR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "cc/rdma_model/fault_spec.h"

namespace railhop::rdma {

struct FaultCommand {
  std::string host;  // empty: not given; the caller finds the device by its name
  std::string device;
  uint32_t port = 0;  // 1-based; 0: not given, which means port 1
  FaultSpec spec;

  friend bool operator==(const FaultCommand&, const FaultCommand&) = default;
};

// Reads one command. False: `*error` names the word, its position (the first word is 1) and what is
// allowed there.
bool ParseFault(std::string_view text, FaultCommand* command, std::string* error);
// Reads the part behind the device.
bool ParseFaultSpec(std::string_view text, FaultSpec* spec, std::string* error);

// The shortest words that ParseFault turns into the same command.
std::string FormatFault(const FaultCommand& command);
std::string FormatFaultSpec(const FaultSpec& spec);

// docs/reference/faults.md.
std::string FaultReferenceMarkdown();

// Names for lists and logs: "blackhole", "reg_mr", "no_uc", "drop".
std::string_view FaultKindName(FaultKind kind);
std::string_view VerbCallName(VerbCall call);
std::string_view LogKindName(LogKind kind);
std::string_view AsyncEventName(AsyncEvent event);
// All quirk bits set in `quirks`, comma-separated; empty for none.
std::string QuirkNames(uint64_t quirks);

}  // namespace railhop::rdma

#endif  // RAILHOP_CC_RDMA_MODEL_FAULT_GRAMMAR_H_
