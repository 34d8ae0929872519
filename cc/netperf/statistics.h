// Middles of noisy figures.
#ifndef RAILHOP_CC_NETPERF_STATISTICS_H_
#define RAILHOP_CC_NETPERF_STATISTICS_H_

#include <vector>

namespace railhop::netperf {

struct Interval {
  double median = 0;
  double low = 0;
  double high = 0;
};

// 0 for no values. `sorted` ascending; share in [0, 1].
double Quantile(const std::vector<double>& sorted, double share);

// The median and its 95 % interval, from the ranks alone: nothing is assumed of the distribution.
// With fewer than six values the interval is all of them. Source: the binomial interval for a
// median, e.g. Conover, Practical Nonparametric Statistics, 3.2.
Interval MedianInterval(std::vector<double> values);

}  // namespace railhop::netperf

#endif  // RAILHOP_CC_NETPERF_STATISTICS_H_
