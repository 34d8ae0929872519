// How long things took: counts in fixed buckets, from 10 us to 5 min.
#ifndef RAILHOP_CC_RUNTIME_HISTOGRAM_H_
#define RAILHOP_CC_RUNTIME_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace railhop::runtime {

// Upper bounds, inclusive, ns: 1, 2 and 5 of each power of ten. What is above all has a bucket of
// its own.
inline constexpr auto kHistogramBounds = std::to_array<int64_t>(
    {10'000,         20'000,         50'000,         100'000,         200'000,        500'000,
     1'000'000,      2'000'000,      5'000'000,      10'000'000,      20'000'000,     50'000'000,
     100'000'000,    200'000'000,    500'000'000,    1'000'000'000,   2'000'000'000,  5'000'000'000,
     10'000'000'000, 20'000'000'000, 50'000'000'000, 100'000'000'000, 300'000'000'000});

// Not thread-safe.
class Histogram {
 public:
  // Less than 0 counts as 0.
  void Add(int64_t ns) {
    ns = std::max<int64_t>(ns, 0);
    const auto bucket = std::lower_bound(kHistogramBounds.begin(), kHistogramBounds.end(), ns) -
                        kHistogramBounds.begin();
    ++counts_[static_cast<size_t>(bucket)];
    ++count_;
    sum_ += static_cast<uint64_t>(ns);
    max_ = std::max(max_, static_cast<uint64_t>(ns));
  }

  const std::array<uint64_t, kHistogramBounds.size() + 1>& counts() const { return counts_; }
  uint64_t count() const { return count_; }
  uint64_t sum() const { return sum_; }
  uint64_t max() const { return max_; }

 private:
  std::array<uint64_t, kHistogramBounds.size() + 1> counts_ = {};
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t max_ = 0;
};

}  // namespace railhop::runtime

#endif  // RAILHOP_CC_RUNTIME_HISTOGRAM_H_
