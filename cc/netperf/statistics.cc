#include "cc/netperf/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace railhop::netperf {
namespace {

// The largest k for which fewer than k of n values lie below the median with at most 2.5 %
// probability; 0 if there is none.
size_t LowRank(size_t n) {
  double probability = std::pow(0.5, static_cast<double>(n));  // that none lies below
  double sum = 0;
  size_t k = 0;
  while (k < n && sum + probability <= 0.025) {
    sum += probability;
    probability *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    ++k;
  }
  return k;
}

}  // namespace

double Quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double rest = place - static_cast<double>(below);
  return sorted[below] * (1 - rest) + sorted[above] * rest;
}

Interval MedianInterval(std::vector<double> values) {
  Interval interval;
  if (values.empty()) return interval;
  std::sort(values.begin(), values.end());
  const size_t k = LowRank(values.size());
  const size_t low = k == 0 ? 0 : k - 1;
  interval.median = Quantile(values, 0.5);
  interval.low = values[low];
  interval.high = values[values.size() - 1 - low];
  return interval;
}

}  // namespace railhop::netperf
