#include "cc/base/strings.h"

#include <charconv>
#include <cstdio>
#include <system_error>

namespace railhop {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kQuoteMax = 80;

template <typename T>
Result<T> ParseWhole(std::string_view text, T min, T max) {
  const std::string range =
      " (a whole number from " + std::to_string(min) + " to " + std::to_string(max) + " is wanted)";
  std::string_view digits = text;
  bool negative = false;
  if (min < 0 && digits.starts_with('-')) {
    negative = true;
    digits.remove_prefix(1);
  }
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X")) {
    base = 16;
    digits.remove_prefix(2);
  }
  uint64_t magnitude = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, magnitude, base);
  if (error == std::errc::invalid_argument || stop != end) {
    return Error{Quote(text) + " is no number" + range};
  }
  const Error out_of_range{Quote(text) + " is out of range" + range};
  if (error == std::errc::result_out_of_range) return out_of_range;
  if (negative) {
    // Magnitudes of negative numbers reach one further than those of positive ones.
    const uint64_t lowest = ~static_cast<uint64_t>(min) + 1;
    if (magnitude > lowest) return out_of_range;
    const T value = static_cast<T>(~magnitude + 1);
    if (value > max) return out_of_range;
    return value;
  }
  if (max < 0 || magnitude > static_cast<uint64_t>(max)) return out_of_range;
  const T value = static_cast<T>(magnitude);
  if (value < min) return out_of_range;
  return value;
}

}  // namespace

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::string_view> SplitWords(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = text.find_first_not_of(kBlanks);
  while (begin != std::string_view::npos) {
    const size_t end = text.find_first_of(kBlanks, begin);
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string Join(const std::vector<std::string_view>& parts, std::string_view separator) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) joined += separator;
    joined += parts[i];
  }
  return joined;
}

std::string Quote(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text.substr(0, kQuoteMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte > 0x7e) {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", byte);
      quoted += hex;
    } else {
      quoted += c;
    }
  }
  quoted += text.size() > kQuoteMax ? "...'" : "'";
  return quoted;
}

Result<int64_t> ParseInt(std::string_view text, int64_t min, int64_t max) {
  return ParseWhole<int64_t>(text, min, max);
}

Result<uint64_t> ParseUint(std::string_view text, uint64_t min, uint64_t max) {
  return ParseWhole<uint64_t>(text, min, max);
}

}  // namespace railhop
