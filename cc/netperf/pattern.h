// Bytes that tell whose they are: every message has a pattern of its own, every buffer guard zones
// around it.
#ifndef RAILHOP_CC_NETPERF_PATTERN_H_
#define RAILHOP_CC_NETPERF_PATTERN_H_

#include <cstddef>
#include <cstdint>

namespace railhop::netperf {

inline constexpr size_t kGuardBytes = 256;

// What names a message: connection, number, place in its group.
constexpr uint64_t PatternKey(uint64_t connection, uint64_t message, uint64_t part) {
  return (connection << 44) ^ (message << 4) ^ part;
}

// Writes the pattern of `key` to `size` bytes.
void FillPattern(uint64_t key, uint8_t* data, size_t size);

// How many of the bytes are not the pattern's.
uint64_t CountWrong(uint64_t key, const uint8_t* data, size_t size);

// Guard zones of kGuardBytes in front of `data` and behind its `size` bytes.
void SetGuards(uint8_t* data, size_t size);
uint64_t CountBrokenGuards(const uint8_t* data, size_t size);

// Overwrites received bytes, so that a message that never came is not taken for an old one.
void Poison(uint8_t* data, size_t size);
// How many bytes are no longer as Poison left them.
uint64_t CountTouched(const uint8_t* data, size_t size);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_PATTERN_H_
