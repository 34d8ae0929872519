#include "cc/netperf/pattern.h"

#include <algorithm>
#include <cstring>

namespace railhop::netperf {
namespace {

constexpr uint8_t kGuard = 0xc3;
constexpr uint8_t kPoison = 0x5e;
constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // odd, so that all words of a message differ

uint64_t Start(uint64_t key) {
  uint64_t x = key + kStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

void FillPattern(uint64_t key, uint8_t* data, size_t size) {
  uint64_t word = Start(key);
  size_t i = 0;
  for (; i + sizeof(word) <= size; i += sizeof(word), word += kStep)
    memcpy(data + i, &word, sizeof(word));
  memcpy(data + i, &word, size - i);
}

uint64_t CountWrong(uint64_t key, const uint8_t* data, size_t size) {
  uint64_t word = Start(key);
  uint64_t differ = 0;
  const size_t words = size / sizeof(word);
  for (size_t i = 0; i < words; ++i, word += kStep) {
    uint64_t seen = 0;
    memcpy(&seen, data + i * sizeof(word), sizeof(word));
    differ |= seen ^ word;
  }
  differ |=
      static_cast<uint64_t>(memcmp(data + words * sizeof(word), &word, size % sizeof(word)) != 0);
  if (differ == 0) return 0;
  // Seldom: count them byte by byte.
  uint64_t wrong = 0;
  word = Start(key);
  for (size_t i = 0; i < size; i += sizeof(word), word += kStep) {
    uint8_t expected[sizeof(word)];
    memcpy(expected, &word, sizeof(word));
    for (size_t k = 0; k < sizeof(word) && i + k < size; ++k) wrong += data[i + k] != expected[k];
  }
  return wrong;
}

void SetGuards(uint8_t* data, size_t size) {
  memset(data - kGuardBytes, kGuard, kGuardBytes);
  memset(data + size, kGuard, kGuardBytes);
}

uint64_t CountBrokenGuards(const uint8_t* data, size_t size) {
  uint64_t broken = 0;
  for (size_t i = 0; i < kGuardBytes; ++i) {
    broken += data[i - kGuardBytes] != kGuard;
    broken += data[size + i] != kGuard;
  }
  return broken;
}

void Poison(uint8_t* data, size_t size) { memset(data, kPoison, size); }

uint64_t CountTouched(const uint8_t* data, size_t size) {
  return size - static_cast<uint64_t>(std::count(data, data + size, kPoison));
}

}  // namespace railhop::netperf
