// The documentation page of the table, and the guess at what a misspelt name meant.
#include <algorithm>
#include <vector>

#include "cc/config/option_table.h"

namespace railhop::config {
namespace {

// Edits (insert, delete, replace) between two names.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

const char* UseText(OptionUse use) {
  switch (use) {
    case OptionUse::kApplied:
      return "yes";
    case OptionUse::kCore:
      return "NCCL's core";
    case OptionUse::kNotYet:
      return "not yet";
    case OptionUse::kNotApplied:
      return "no";
  }
  return "";
}

// Bars would end the cell of a table.
std::string Cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string(", ") : std::string(1, c);
  return out;
}

std::string RangeText(const OptionRow& row) {
  const std::string range = Cell(row.range);
  if (*row.unit == '\0') return range;
  return range.empty() ? row.unit : range + " (" + row.unit + ")";
}

}  // namespace

std::string NearestOption(std::string_view name) {
  constexpr size_t kEditsMax = 6;  // further away it is a guess, not a help
  std::string best;
  size_t best_distance = kEditsMax + 1;
  for (const OptionRow& row : OptionTable()) {
    const std::string_view candidate(row.name);
    if (!candidate.starts_with("RAILHOP_")) continue;
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string OptionReferenceMarkdown() {
  std::string page =
      "# Environment variables\n"
      "\n"
      "Made from the table in `cc/config/option_table.cc`; do not edit it by hand.\n"
      "\n"
      "The environment comes first, then the file that `NCCL_CONF_FILE` names or else "
      "`~/.nccl.conf`, then\n"
      "`/etc/nccl.conf`; who sets a name first wins. Lines of the files are `NAME=VALUE`; `#` in "
      "the first column\n"
      "starts a comment; blanks count. `RAILHOP_` names may stand in these files as well. What is "
      "in force, and who set\n"
      "it, is printed at start under `NCCL_DEBUG=INFO`.\n"
      "\n"
      "`NCCL_` integers are read as NCCL reads them: decimal, `0x` hexadecimal or `0` octal; empty "
      "is unset; text that\n"
      "is no number is 0; out of range is the default. A bad value of a `RAILHOP_` variable is "
      "warned of and the\n"
      "default is used; so is an unknown `RAILHOP_` name, with the nearest known one.\n"
      "\n"
      "*Used* says who acts on a variable: Railhop (yes), NCCL's core, which works with the device "
      "properties that\n"
      "Railhop gives it, or nobody (no, or not yet), which is said at start if the variable is "
      "set.\n";
  std::string_view group;
  for (const OptionRow& row : OptionTable()) {
    if (group != row.group) {
      group = row.group;
      page += "\n## " + std::string(group) +
              "\n\n| variable | default | range | used | since | both ends | meaning |\n"
              "| --- | --- | --- | --- | --- | --- | --- |\n";
    }
    const std::string value = *row.default_value == '\0' ? "unset" : row.default_value;
    page += "| `" + std::string(row.name) + "` | " + value + " | " + RangeText(row) + " | " +
            UseText(row.use) + " | " + row.since + " | " + row.peers + " | " + Cell(row.doc) +
            (IsChangeable(row.name) ? " May change while the job runs." : "") + " |\n";
  }
  return page;
}

}  // namespace railhop::config
