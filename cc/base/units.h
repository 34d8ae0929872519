// Durations, sizes and rates as people write them: 100ms, 1MiB, 10Gb/s. No dependency.
//
// Arithmetic is exact: "0.3ms" is 300,000 ns and "0.0000001ms" is refused, since what cannot be
// carried out as written should not be carried out at all. Formatting gives the shortest text that
// parses back to the same number.
#ifndef RAILHOP_CC_BASE_UNITS_H_
#define RAILHOP_CC_BASE_UNITS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "cc/base/result.h"

namespace railhop {

inline constexpr int64_t kNsPerUs = 1'000;
inline constexpr int64_t kNsPerMs = 1'000'000;
inline constexpr int64_t kNsPerSecond = 1'000'000'000;

// Nanoseconds in [0, 2^63). Units: ns, us, ms, s, min, h. "0" needs none.
// Errors: no number, no or unknown unit, not a whole number of ns, too large; the text names the
// input and the units.
Result<int64_t> ParseDurationNs(std::string_view text);

// Bytes in [0, 2^63). Units: B, KiB, MiB, GiB, TiB (powers of 1,024) and kB, MB, GB, TB (powers of
// 1,000); none means bytes.
Result<int64_t> ParseSizeBytes(std::string_view text);

// Bits per second in [0, 2^63). Units: b/s, kb/s, Mb/s, Gb/s, Tb/s, and B/s, kB/s, MB/s, GB/s, TB/s
// (8 bits each); all powers of 1,000. "0" needs none.
Result<int64_t> ParseRateBps(std::string_view text);

// In the largest unit that leaves a number of at least 1: 1500000 -> "1.5ms", 0 -> "0ns". Negative
// values get a '-' (which Parse refuses).
std::string FormatDurationNs(int64_t ns);
// In powers of 1,024, fractions only where exact in three digits: 1536 -> "1.5KiB", 1000 ->
// "1000B".
std::string FormatSizeBytes(int64_t bytes);
// In bits: 12500000000 -> "12.5Gb/s".
std::string FormatRateBps(int64_t bits_per_second);

}  // namespace railhop

#endif  // RAILHOP_CC_BASE_UNITS_H_
