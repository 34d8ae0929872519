// String helpers with no dependency: split, trim, quote, and integers with errors that people can
// act on. Views point into the argument.
#ifndef RAILHOP_CC_BASE_STRINGS_H_
#define RAILHOP_CC_BASE_STRINGS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/result.h"

namespace railhop {

// The parts of `text` between separators, empty ones included: "a,,b" gives "a", "", "b"; "" gives
// one empty part.
std::vector<std::string_view> Split(std::string_view text, char separator);

// The words of `text`: what lies between runs of blanks (space, tab, CR, LF). None for "".
std::vector<std::string_view> SplitWords(std::string_view text);

// Without blanks at either end.
std::string_view Trim(std::string_view text);

// The parts with `separator` between them.
std::string Join(const std::vector<std::string_view>& parts, std::string_view separator);

// 'text' in single quotes for a message; quotes, backslashes and bytes that are no printable ASCII
// are escaped (\xNN), and what is longer than 80 bytes is cut with "...".
std::string Quote(std::string_view text);

// A whole number in [min, max], decimal or 0x hexadecimal, with an optional leading '-' for
// ParseInt. Errors: no number, rest after it, out of range; the text names the input and the range.
Result<int64_t> ParseInt(std::string_view text, int64_t min, int64_t max);
Result<uint64_t> ParseUint(std::string_view text, uint64_t min, uint64_t max);

}  // namespace railhop

#endif  // RAILHOP_CC_BASE_STRINGS_H_
