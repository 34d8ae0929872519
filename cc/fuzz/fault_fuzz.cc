// The words for faults, one command a line as in scenarios and on the control program's command
// line: an error names the word, or the command comes out of its own words again and can be put
// into a port's table.
#include <memory>
#include <string>

#include "cc/base/strings.h"
#include "cc/fuzz/input.h"
#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/fault_table.h"

namespace railhop::fuzz {
namespace {

using rdma::FaultCommand;

constexpr size_t kLinesMax = 16;

void CheckError(const std::string& error, std::string_view line) {
  RequireReadable(error);
  Require(error.find("expected ") != std::string::npos, "an error says what is allowed", error);
  const size_t words = SplitWords(line).size();
  if (words == 0) {
    Require(error.starts_with("no words"), "nothing is nothing", error);
    return;
  }
  const size_t at = error.find("word ");
  Require(at != std::string::npos, "an error names the word", error);
  const auto number = std::strtoul(error.c_str() + at + 5, nullptr, 10);
  Require(number >= 1 && number <= words, "which is there", error);
}

void CheckCommand(const FaultCommand& command, rdma::FaultTable* table) {
  const std::string words = rdma::FormatFault(command);
  Require(IsPrintable(words), "a command's words can be read", words);
  FaultCommand again;
  std::string error;
  Require(rdma::ParseFault(words, &again, &error), "what is written can be read",
          words + "\n" + error);
  Require(again == command, "what is read, written and read is the same", words);

  const rdma::FaultClock clock = {.now_ns = 1'000'000, .start_ns = 500'000};
  rdma::ApplyFault(command.spec, clock, *table);
  rdma::JudgeVerb(*table, rdma::VerbCall::kModifyQp, 3, clock.now_ns);
  rdma::PlanEvent(*table, rdma::AsyncEvent::kPortErr, clock.now_ns);
  rdma::FaultAction action;
  for (int step = 0; step < 4 && rdma::NextAction(*table, clock.now_ns * 1000, &action); ++step) {
    rdma::FinishAction(*table, action);
  }
  rdma::NextFaultDeadline(*table, clock.now_ns);
  for (uint32_t rule = 0; rule < rdma::kMaxFaultRules; ++rule) {
    rdma::FaultStatus status;
    if (rdma::ReadFault(*table, rule, clock.now_ns, &status)) {
      Require(IsPrintable(rdma::FormatFaultSpec(status.spec)), "a rule's words can be read");
    }
  }
  rdma::ReapFaults(*table, clock.now_ns * 1000);
}

}  // namespace
}  // namespace railhop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace railhop::fuzz;  // NOLINT(google-build-using-namespace): the entry of the program
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = std::make_unique<railhop::rdma::FaultTable>();
  for (size_t i = 0; i < kLinesMax && !text.empty(); ++i) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    FaultCommand command;
    std::string error;
    if (railhop::rdma::ParseFault(line, &command, &error)) {
      Require(line.find('\0') == line.npos, "no word holds a zero");
      CheckCommand(command, table.get());
    } else {
      CheckError(error, line);
    }
    railhop::rdma::FaultSpec spec;
    if (!railhop::rdma::ParseFaultSpec(line, &spec, &error)) CheckError(error, line);
  }
  return 0;
}
