// The 2x rule of the design: see compare() in reference.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tuner/reference.h"

namespace saccade {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Half the distance from `magnitude` to the next larger value of `type`: the most that one rounding can change it.
double half_ulp(DataType type, double magnitude) {
  const bool bf16 = type == DataType::bf16, f16 = type == DataType::f16;
  const int fraction_bits = bf16 ? 7 : f16 ? 10 : type == DataType::f64 ? 52 : 23;
  const int least_exponent = f16 ? -14 : type == DataType::f64 ? -1022 : -126;
  const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), least_exponent) : least_exponent;
  return std::ldexp(0.5, exponent - fraction_bits);
}

/// max|exact| and max|plain - exact| over the elements where both are finite.
struct Yardstick {
  double magnitude = 0, error = 0;
};
Yardstick measure(const std::vector<double>& exact, const std::vector<double>& plain) {
  Yardstick yardstick;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (!std::isfinite(exact[i])) continue;
    yardstick.magnitude = std::max(yardstick.magnitude, std::abs(exact[i]));
    if (std::isfinite(plain[i])) yardstick.error = std::max(yardstick.error, std::abs(plain[i] - exact[i]));
  }
  return yardstick;
}

/// The largest error of `actual`; a value that must be met exactly (NaN, infinity) and is not counts as infinite.
struct Deviation {
  double error = 0;
  std::size_t index = 0;
};
template <class MustBeExact>
Deviation deviation(const std::vector<double>& actual, const std::vector<double>& exact, MustBeExact must_be_exact) {
  Deviation worst;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    double error = 0;
    if (std::isnan(exact[i])) {
      error = std::isnan(actual[i]) ? 0 : kInfinity;
    } else if (std::isinf(exact[i]) || must_be_exact(i)) {
      error = actual[i] == exact[i] ? 0 : kInfinity;
    } else {
      error = std::isfinite(actual[i]) ? std::abs(actual[i] - exact[i]) : kInfinity;
    }
    if (error > worst.error) worst = {error, i};
  }
  return worst;
}

}  // namespace

ErrorReport compare(const Problem& problem, const HostResult& actual, const HostResult& exact, const HostResult& plain,
                    bool with_lse) {
  ErrorReport report;
  if (actual.o.size() != exact.o.size() || plain.o.size() != exact.o.size() || plain.lse.size() != exact.lse.size() ||
      (with_lse && actual.lse.size() != exact.lse.size())) {
    report.detail = fmt::format("sizes differ: o has {} elements and must have {}; lse has {} and must have {}",
                                actual.o.size(), exact.o.size(), actual.lse.size(), exact.lse.size());
    return report;
  }
  const std::size_t head_dim = static_cast<std::size_t>(problem.head_dim_v);
  // Rows of o and elements of lse are numbered differently when the layout is varlen, so an empty row is known by its
  // o: exactly 0 in every column, which a row with a kept key only has when V is 0 there, and then 0 is right as well.
  const auto zero_row = [&](std::size_t i) {
    const auto row = exact.o.begin() + static_cast<std::ptrdiff_t>(i / head_dim * head_dim);
    return std::all_of(row, row + static_cast<std::ptrdiff_t>(head_dim), [](double x) { return x == 0; });
  };
  const Yardstick o = measure(exact.o, plain.o);
  report.o_bound = 2 * std::max(o.error, exact.o_rounding) + half_ulp(problem.o_dtype, o.magnitude);
  const Deviation o_worst = deviation(actual.o, exact.o, zero_row);
  report.o_error = o_worst.error;
  report.pass = !(o_worst.error > report.o_bound);
  if (!report.pass) {
    const std::size_t i = o_worst.index;
    report.detail =
        fmt::format("o row {} column {}: {} and must be {} (plain: {}), error {:.3g} over the bound {:.3g}",
                    i / head_dim, i % head_dim, actual.o[i], exact.o[i], plain.o[i], o_worst.error, report.o_bound);
  }
  if (!with_lse) return report;

  const Yardstick lse = measure(exact.lse, plain.lse);
  constexpr double kLseUlps = 4;  // scale, log2(e), log2 and their product: one fp32 rounding each
  report.lse_bound = 2 * std::max(lse.error, exact.lse_rounding) +
                     2 * kLseUlps * half_ulp(DataType::f32, std::max(1.0, lse.magnitude));
  const Deviation lse_worst = deviation(actual.lse, exact.lse, [](std::size_t) { return false; });
  report.lse_error = lse_worst.error;
  if (lse_worst.error > report.lse_bound) {
    const std::size_t i = lse_worst.index;
    report.pass = false;
    report.detail += fmt::format("{}lse element {}: {} and must be {} (plain: {}), error {:.3g} over the bound {:.3g}",
                                 report.detail.empty() ? "" : "; ", i, actual.lse[i], exact.lse[i], plain.lse[i],
                                 lse_worst.error, report.lse_bound);
  }
  return report;
}

}  // namespace saccade
