// The one table of options: what loads them, prints them and documents them.
#ifndef RAILHOP_CC_CONFIG_OPTION_TABLE_H_
#define RAILHOP_CC_CONFIG_OPTION_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cc/config/options.h"

namespace railhop::config {

// How the text is read. The first two are NCCL's rules (nccl_values.h), the others ours.
enum class OptionType {
  kNcclInt,
  kNcclText,
  kText,
  kChoice,    // one of the words of `range`
  kFlag,      // 0 or 1
  kDuration,  // 100ms, 1s, 5min
};

// What becomes of it.
enum class OptionUse {
  kApplied,    // Railhop acts on it
  kCore,       // NCCL's core acts on it; Railhop gives it truthful device properties
  kNotYet,     // will be acted on by a later version; until then as the next
  kNotApplied  // has no effect on Railhop; said at start if it is set
};

using OptionField =
    std::variant<std::monostate, int64_t Options::*, bool Options::*, std::string Options::*>;

struct OptionRow {
  const char* group;  // heading in the documentation
  const char* name;
  OptionType type;
  OptionUse use;
  OptionField field;          // nothing if only shown
  const char* default_value;  // "" is unset; must parse
  const char* unit;           // "" if none
  const char* range;          // for people; the words of a choice, separated by '|'
  int64_t min;                // bounds of a duration, ns; 0 and 0 for other types
  int64_t max;
  const char* since;  // "NCCL 2.18" (the first release that has it) or "Railhop 0.1"
  const char* peers;  // what two ends must agree on; "" if each end may have its own
  const char* doc;    // meaning, in sentences
};

std::span<const OptionRow> OptionTable();

// Null if there is no such row.
const OptionRow* FindOption(std::string_view name);

// The name of a RAILHOP_ option that `name` may have been meant to be; "" if none is near.
std::string NearestOption(std::string_view name);

// Whether it may change while a job runs, and all such names in the table's order.
bool IsChangeable(std::string_view name);
std::vector<std::string> ChangeableOptions();

// Names that begin so belong to others of our programs and are not looked at.
inline constexpr std::string_view kForeignPrefixes[] = {"RAILHOP_BROWSER", "RAILHOP_DRILL_",
                                                        "RAILHOP_FABRIC",  "RAILHOP_HOME",
                                                        "RAILHOP_NODES",   "RAILHOP_TEST_"};

// docs/reference/environment.md.
std::string OptionReferenceMarkdown();

}  // namespace railhop::config

#endif  // RAILHOP_CC_CONFIG_OPTION_TABLE_H_
