#include "cli/verification.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace saccade::cli {
namespace {

/// Rows of one (batch, head): all of them, or `count` spread from the first to the last.
void add_rows(std::vector<ReferenceRow>& rows, std::int64_t b, std::int64_t h, std::int64_t len_q, std::int64_t count) {
  if (count >= len_q) {
    for (std::int64_t i = 0; i < len_q; ++i) rows.push_back({b, h, i});
    return;
  }
  for (std::int64_t n = 0; n < count; ++n) {
    const bool edge = n == 0 || n == count - 1;
    const std::int64_t even = count > 1 ? n * (len_q - 1) / (count - 1) : 0;
    // Shifted by the head, so that all remainders modulo a tile are met; not beyond the neighbours.
    const std::int64_t shift = edge ? 0 : h * 7 % std::max<std::int64_t>(1, len_q / count);
    rows.push_back({b, h, std::min(even + shift, len_q - 1)});
  }
}

std::vector<ReferenceRow> choose_rows(const Workload& workload, std::int64_t pair_budget) {
  const Shape& shape = workload.shape;
  if (shape.heads_q == 0 || shape.seqlen_q == 0) return {};
  double pairs = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const SequenceRows sequence = sequence_rows(workload, b);
    pairs += static_cast<double>(sequence.len_q) * static_cast<double>(std::max<std::int64_t>(1, sequence.len_kv)) *
             static_cast<double>(shape.heads_q);
  }
  const double share = pairs > 0 ? static_cast<double>(pair_budget) / pairs : 1;
  std::vector<ReferenceRow> rows;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const SequenceRows sequence = sequence_rows(workload, b);
    const auto count = static_cast<std::int64_t>(std::ceil(share * static_cast<double>(sequence.len_q)));
    for (std::int64_t h = 0; h < shape.heads_q; ++h)
      add_rows(rows, b, h, sequence.len_q, std::min(std::max<std::int64_t>(2, count), sequence.len_q));
  }
  return rows;
}

bool has_nan(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); });
}

bool is_finite(const HostTensor& tensor) {
  const std::int64_t count = tensor.elements();
  for (std::int64_t i = 0; i < count; ++i)
    if (!std::isfinite(load_as_double(tensor.dtype, tensor.data.data(), i))) return false;
  return true;
}

/// Whether some row that was not checked may rightly be NaN: an input that is not finite, or a rule that makes NaN of
/// finite ones, of which the checked rows are a sample.
bool nan_may_be_right(const Workload& workload, const HostResult& exact) {
  return has_nan(exact.o) || !is_finite(workload.q) || !is_finite(workload.k) || !is_finite(workload.v);
}

}  // namespace

Verification verify(const Workload& workload, const HostResult& result, std::int64_t pair_budget) {
  const Problem& problem = workload.problem;
  const HostCall call = workload.host_call();
  const auto head_dim = static_cast<std::size_t>(problem.head_dim_v);
  Verification verification;
  verification.rows = static_cast<std::int64_t>(result.o.size() / head_dim);
  const std::vector<ReferenceRow> rows = choose_rows(workload, pair_budget);
  verification.rows_checked = static_cast<std::int64_t>(rows.size());

  HostResult actual;
  for (const ReferenceRow& row : rows) {
    const ReferenceRowIndex index = reference_row_index(problem, workload.shape, call, row);
    const auto begin = result.o.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index.o) * head_dim);
    actual.o.insert(actual.o.end(), begin, begin + static_cast<std::ptrdiff_t>(head_dim));
    if (problem.lse) actual.lse.push_back(result.lse[static_cast<std::size_t>(index.lse)]);
  }
  const HostResult exact = reference_float64(problem, workload.shape, call, rows);
  const HostResult plain = unfused(problem, workload.shape, call, rows);
  verification.report = compare(problem, actual, exact, plain, problem.lse);

  if (has_nan(result.o) || has_nan(result.lse)) verification.stray_nan = !nan_may_be_right(workload, exact);
  return verification;
}

}  // namespace saccade::cli
