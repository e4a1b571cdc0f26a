// Verification: a result against the float64 oracle by the 2x rule, on all rows or, for large calls, on a sample of
// them.
#pragma once

#include <cstdint>

#include "cli/workload.h"
#include "tuner/reference.h"

namespace saccade::cli {

struct Verification {
  ErrorReport report;
  std::int64_t rows_checked = 0;
  std::int64_t rows = 0;  ///< of O, over all heads
  /// Of every output that was not checked against the oracle: whether one is NaN, which no row may be unless q, k or v
  /// have an element that is not finite, or a checked row is rightly NaN.
  bool stray_nan = false;
  bool pass() const { return report.pass && !stray_nan; }
};

/// `pair_budget`: (query, key) pairs to spend on the oracle; when the call has more, rows are sampled: the first and
/// last rows of some heads of each batch entry, and rows spread evenly between, at different places of different heads.
Verification verify(const Workload& workload, const HostResult& result, std::int64_t pair_budget);

/// The budget for which a check takes about a second.
inline constexpr std::int64_t kDefaultPairBudget = 4'000'000;

}  // namespace saccade::cli
