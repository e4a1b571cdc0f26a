// Robust statistics of timings: medians and deviations that one slow sample does not move.
#pragma once

#include <vector>

namespace saccade::tuner {

/// The middle value (mean of the two middle ones); NaN when `values` is empty.
double median(std::vector<double> values);

/// Median of |value - centre|; NaN when `values` is empty.
double median_absolute_deviation(const std::vector<double>& values, double centre);

/// A median and how far it may be off.
struct Estimate {
  double median = 0;  ///< NaN when there are no samples
  double error = 0;   ///< two standard errors of the median; infinite below three samples
  int samples = 0;
};

/// The standard error of a median is sqrt(pi/2) times that of a mean; the deviation is estimated from the median
/// absolute deviation (x 1.4826 for a normal distribution), so that an interrupt in one sample does not widen it.
Estimate estimate(const std::vector<double>& values);

}  // namespace saccade::tuner
