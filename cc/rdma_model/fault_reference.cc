// docs/reference/faults.md out of the tables in fault_words.
#include <string>

#include "cc/rdma_model/fault_grammar.h"
#include "cc/rdma_model/fault_words.h"

namespace railhop::rdma {
namespace {

// "|" would end a cell.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

std::string Options(uint32_t options) {
  std::string text;
  for (const FaultOptionRow& row : FaultOptionRows()) {
    if ((options & row.option) == 0) continue;
    const std::string_view words = row.words;
    // The word that stands for the option: the first that is not in brackets.
    std::string_view key = words.starts_with("[of] ") ? words.substr(5) : words;
    key = key.substr(0, key.find(' '));
    if (row.option == kOptCalls) key = "after N calls";
    text += (text.empty() ? "" : ", ") + Cell(key);
  }
  return text.empty() ? "-" : text;
}

std::string Names(const char* title, std::span<const NamedValue> rows) {
  std::string text = std::string("- ") + title + ": ";
  for (const NamedValue& row : rows) {
    if (&row != rows.data()) text += ", ";
    text += "`" + std::string(row.name) + "`";
  }
  return text + "\n";
}

}  // namespace

std::string FaultReferenceMarkdown() {
  std::string text =
      "# Faults\n\n"
      "<!-- Made by `bazel run //cc/rdma_model:fault_reference` from cc/rdma_model/fault_words.cc; "
      "do not edit. -->\n\n"
      "One line is one fault:\n\n"
      "```\n[HOST/]DEVICE[:PORT] FAULT [PARAMETERS] [OPTIONS]\n```\n\n"
      "A device's port is 1 unless given; what concerns the whole device (`fail`, `hang`, "
      "`remove`, `return`, `quirk`) "
      "belongs to port 1. Options may come in any order, each once. Several faults may be in force "
      "on a port at a time "
      "(64); the same words mean the same in the software fabric and in the simulator.\n\n"
      "## Words\n\n"
      "| fault | parameters | options | meaning | example |\n|---|---|---|---|---|\n";
  for (const FaultKindRow& row : FaultKindRows()) {
    text += "| `" + std::string(row.words) + "` | " + Cell(row.parameters) + " | " +
            Options(row.options) + " | " + Cell(row.meaning) + " | `soft0 " + row.example + "` |\n";
  }
  text += "\n## Options\n\n| option | meaning (what holds without it) |\n|---|---|\n";
  for (const FaultOptionRow& row : FaultOptionRows()) {
    text += "| `" + Cell(row.words) + "` | " + Cell(row.meaning) + " |\n";
  }
  text +=
      "\n## Values\n\n"
      "- TIME: `100ms`; ns, us, ms, s, min, h. RATE: `500Mb/s`; b/s, kb/s, Mb/s, Gb/s and B/s, "
      "kB/s, MB/s, GB/s. "
      "Sizes: `64KiB`. Shares: `1%`, `0.01%`.\n"
      "- Numbers may be decimal or, with `0x`, hexadecimal.\n";
  text += Names("CALL", VerbNames());
  text += Names("STATE", QpStateNames());
  text += Names("ERROR, or a number", ErrnoNames());
  text += Names("STATUS, or 1 to 21", StatusNames());
  text += Names("EVENT", EventNames());
  text += Names("QUIRK", QuirkRows());
  text +=
      "\n## Which packets are hit\n\n"
      "The choice is a hash of the fabric's seed, the rule's seed, the device, the queue pair's "
      "place in the order of "
      "creation, the direction and the packet's number in that direction. Neither time nor how "
      "packets are batched "
      "changes it: the same seed and the same traffic are hit at the same packets in every run. A "
      "packet that is sent "
      "again has a number of its own. Several processes that share one port share its `after` and "
      "`count`; which of "
      "their packets reaches a count first is up to their timing.\n\n"
      "Where several faults hit one packet, the first of kill, wedge, complete, loss or blackhole, "
      "hold decides; delays "
      "add up, and of several caps the smallest holds.\n";
  return text;
}

}  // namespace railhop::rdma
