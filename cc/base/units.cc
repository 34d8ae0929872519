#include "cc/base/units.h"

#include <cstddef>
#include <limits>
#include <span>

#include "cc/base/strings.h"

namespace railhop {
namespace {

__extension__ using Int128 = __int128;

struct Unit {
  std::string_view name;
  int64_t factor;
};

// Each table from the smallest unit to the largest, its base unit (factor 1) first.
constexpr Unit kDurations[] = {
    {"ns", 1},           {"us", kNsPerUs},           {"ms", kNsPerMs},
    {"s", kNsPerSecond}, {"min", 60 * kNsPerSecond}, {"h", 3600 * kNsPerSecond}};
constexpr Unit kBinarySizes[] = {{"B", 1},
                                 {"KiB", int64_t{1} << 10},
                                 {"MiB", int64_t{1} << 20},
                                 {"GiB", int64_t{1} << 30},
                                 {"TiB", int64_t{1} << 40}};
constexpr Unit kSizes[] = {{"B", 1},
                           {"KiB", int64_t{1} << 10},
                           {"MiB", int64_t{1} << 20},
                           {"GiB", int64_t{1} << 30},
                           {"TiB", int64_t{1} << 40},
                           {"kB", 1'000},
                           {"MB", 1'000'000},
                           {"GB", 1'000'000'000},
                           {"TB", 1'000'000'000'000}};
constexpr Unit kBitRates[] = {{"b/s", 1},
                              {"kb/s", 1'000},
                              {"Mb/s", 1'000'000},
                              {"Gb/s", 1'000'000'000},
                              {"Tb/s", 1'000'000'000'000}};
constexpr Unit kRates[] = {{"b/s", 1},
                           {"kb/s", 1'000},
                           {"Mb/s", 1'000'000},
                           {"Gb/s", 1'000'000'000},
                           {"Tb/s", 1'000'000'000'000},
                           {"B/s", 8},
                           {"kB/s", 8'000},
                           {"MB/s", 8'000'000},
                           {"GB/s", 8'000'000'000},
                           {"TB/s", 8'000'000'000'000}};

// More digits than any quantity here needs, and few enough that 10^n fits.
constexpr size_t kFractionDigitsMax = 18;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string UnitNames(std::span<const Unit> units) {
  std::string names;
  for (const Unit& unit : units) names += (names.empty() ? "" : ", ") + std::string(unit.name);
  return names;
}

const Unit* FindUnit(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

// What is written before the unit: whole + fraction / 10^digits.
struct Number {
  int64_t whole = 0;
  int64_t fraction = 0;
  int64_t scale = 1;
  std::string_view rest;
};

// Errors: empty text if there is no number, else why it cannot be held.
Result<Number> ParseNumber(std::string_view text) {
  Number number;
  size_t at = 0;
  for (; at < text.size() && IsDigit(text[at]); ++at) {
    if (__builtin_mul_overflow(number.whole, int64_t{10}, &number.whole) ||
        __builtin_add_overflow(number.whole, int64_t{text[at] - '0'}, &number.whole)) {
      return Error{"is too large"};
    }
  }
  if (at == 0) return Error{"does not start with a number"};
  if (at < text.size() && text[at] == '.') {
    const size_t first = ++at;
    for (; at < text.size() && IsDigit(text[at]); ++at) {
      if (at - first == kFractionDigitsMax) return Error{"has too many digits"};
      number.fraction = number.fraction * 10 + (text[at] - '0');
      number.scale *= 10;
    }
    if (at == first) return Error{"has no digit after the point"};
  }
  number.rest = text.substr(at);
  return number;
}

struct Kind {
  std::string_view what;  // as in "is no ..."
  std::span<const Unit> units;
  std::string_view default_unit;  // taken when there is none; empty: only 0 may go without
};

Result<int64_t> Parse(std::string_view text, const Kind& kind) {
  const auto fail = [&](std::string_view why) {
    return Error{Quote(text) + " is no " + std::string(kind.what) + ": it " + std::string(why) +
                 " (a number and one of " + UnitNames(kind.units) + " is wanted)"};
  };
  Result<Number> number = ParseNumber(text);
  if (!number.ok()) return fail(number.error());
  std::string_view name = number->rest;
  if (name.empty()) {
    if (number->whole == 0 && number->fraction == 0) return int64_t{0};
    if (kind.default_unit.empty()) return fail("has no unit");
    name = kind.default_unit;
  }
  const Unit* unit = FindUnit(kind.units, name);
  if (unit == nullptr) return fail("has the unknown unit " + Quote(name));

  const Int128 fraction = Int128{number->fraction} * unit->factor;
  if (fraction % number->scale != 0) {
    return fail("is not a whole number of " + std::string(kind.units.front().name));
  }
  const Int128 value = Int128{number->whole} * unit->factor + fraction / number->scale;
  if (value > std::numeric_limits<int64_t>::max()) return fail("is too large");
  return static_cast<int64_t>(value);
}

// value/factor as a decimal of at most `digits` places, or "" if it is not exact in those.
std::string ExactDecimal(uint64_t value, uint64_t factor, int digits) {
  std::string text = std::to_string(value / factor);
  Int128 rest = value % factor;
  if (rest == 0) return text;
  text += '.';
  for (int i = 0; i < digits && rest != 0; ++i) {
    rest *= 10;
    text += static_cast<char>('0' + static_cast<int>(rest / factor));
    rest %= factor;
  }
  return rest == 0 ? text : "";
}

std::string Format(int64_t value, std::span<const Unit> units, int digits) {
  const bool negative = value < 0;
  const uint64_t magnitude =
      negative ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  for (size_t i = units.size(); i-- > 0;) {
    const auto factor = static_cast<uint64_t>(units[i].factor);
    if (magnitude < factor && i > 0) continue;
    const std::string number = ExactDecimal(magnitude, factor, digits);
    if (number.empty()) continue;
    return (negative ? "-" : "") + number + std::string(units[i].name);
  }
  return "";  // not reached: the base unit is always exact
}

}  // namespace

Result<int64_t> ParseDurationNs(std::string_view text) {
  return Parse(text, {"duration", kDurations, ""});
}

Result<int64_t> ParseSizeBytes(std::string_view text) { return Parse(text, {"size", kSizes, "B"}); }

Result<int64_t> ParseRateBps(std::string_view text) { return Parse(text, {"rate", kRates, ""}); }

std::string FormatDurationNs(int64_t ns) { return Format(ns, kDurations, 9); }

std::string FormatSizeBytes(int64_t bytes) { return Format(bytes, kBinarySizes, 3); }

std::string FormatRateBps(int64_t bits_per_second) {
  return Format(bits_per_second, kBitRates, 12);
}

}  // namespace railhop
