// A random generator that gives the same numbers everywhere: a seed replays a run.
//
// xoshiro256** 1.0, filled from the seed by splitmix64 (both public domain, by D. Blackman and
// S. Vigna, prng.di.unimi.it). The standard library's distributions are not used: each library
// draws differently. Nothing here calls libm, whose last digit differs between versions.
// Not for secrets.
#ifndef RAILHOP_CC_BASE_PRNG_H_
#define RAILHOP_CC_BASE_PRNG_H_

#include <bit>
#include <cstdint>
#include <limits>

namespace railhop {

// One step of splitmix64: advances *state and returns a well-mixed number. Also good for deriving
// seeds from numbers that are close together.
constexpr uint64_t SplitMix64(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

namespace prng_internal {

// Natural logarithm of x in (0, 1], from the four basic operations alone, so that it gives the same
// bits on every machine. Relative error below 1e-14.
constexpr double Ln(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 artanh s with s = (m-1)/(m+1), |s| < 0.172: 11 terms reach 1e-17.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return exponent * 0.6931471805599453 + 2 * s * sum;
}

}  // namespace prng_internal

// Not thread-safe: one for each thread or actor (Fork). Is a UniformRandomBitGenerator.
class Prng {
 public:
  using result_type = uint64_t;

  // Any seed is good, 0 included.
  explicit constexpr Prng(uint64_t seed) : state_{} {
    for (uint64_t& word : state_) word = SplitMix64(&seed);
  }

  // 64 random bits.
  constexpr uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound), without bias. bound 0 gives 0.
  constexpr uint64_t Below(uint64_t bound) {
    if (bound == 0) return 0;
    // Of the product's 128 bits the upper half is the draw; a lower half below 2^64 mod bound would
    // make some draws more likely, so it is drawn again (Lemire, arXiv:1805.10941).
    const uint64_t reject_below = (0 - bound) % bound;
    while (true) {
      const Uint128 product = Uint128{Next()} * bound;
      if (static_cast<uint64_t>(product) >= reject_below) {
        return static_cast<uint64_t>(product >> 64);
      }
    }
  }

  // Uniform in [low, high], both included; low <= high.
  constexpr int64_t Between(int64_t low, int64_t high) {
    const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    const uint64_t offset =
        width == std::numeric_limits<uint64_t>::max() ? Next() : Below(width + 1);
    return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
  }

  // Uniform in [0, 1), 53 bits.
  constexpr double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // True with this probability; <= 0 is never, >= 1 always. Always draws once, so that a changed
  // probability does not shift the draws that follow.
  constexpr bool Chance(double probability) { return Unit() < probability; }

  // How many trials fail before the first success, each succeeding with this probability: skips to
  // the next lost packet in one draw. <= 0 gives kNever, >= 1 gives 0.
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  constexpr uint64_t Geometric(double probability) {
    const double u = 1.0 - Unit();  // (0, 1]
    if (!(probability > 0)) return kNever;
    if (probability >= 1) return 0;
    const double one_minus = 1.0 - probability;
    // Below 2^-53 nothing is left of it; the first term of the series is then exact enough.
    const double log_fail = one_minus < 1.0 ? prng_internal::Ln(one_minus) : -probability;
    const double trials = prng_internal::Ln(u) / log_fail;
    return trials < 0x1p63 ? static_cast<uint64_t>(trials) : kNever;
  }

  // A generator of its own for actor number `stream`; does not advance this one.
  constexpr Prng Fork(uint64_t stream) const {
    uint64_t seed = state_[0] ^ std::rotl(state_[3], 21);
    seed ^= SplitMix64(&stream);
    return Prng(seed);
  }

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }
  constexpr uint64_t operator()() { return Next(); }

 private:
  __extension__ using Uint128 = unsigned __int128;

  uint64_t state_[4];
};

}  // namespace railhop

#endif  // RAILHOP_CC_BASE_PRNG_H_
