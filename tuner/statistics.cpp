#include "tuner/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace saccade::tuner {

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  const double lower = *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half));
  return (lower + upper) / 2;
}

double median_absolute_deviation(const std::vector<double>& values, double centre) {
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::fabs(value - centre));
  return median(std::move(deviations));
}

Estimate estimate(const std::vector<double>& values) {
  Estimate result;
  result.samples = static_cast<int>(values.size());
  result.median = median(values);
  if (values.size() < 3) {
    result.error = std::numeric_limits<double>::infinity();
    return result;
  }
  constexpr double kNormalDeviation = 1.4826;
  const double median_penalty = std::sqrt(std::acos(-1.0) / 2);
  const double deviation = kNormalDeviation * median_absolute_deviation(values, result.median);
  result.error = 2 * median_penalty * deviation / std::sqrt(static_cast<double>(values.size()));
  return result;
}

}  // namespace saccade::tuner
