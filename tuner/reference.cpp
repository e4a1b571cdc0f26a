#include "tuner/reference.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string_view>

#include "base/together.h"
#include "generator/expr/evaluate.h"

namespace saccade {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The rows of one batch entry.
struct Sequence {
  std::int64_t b = 0;
  std::int64_t q_begin = 0, len_q = 0;  ///< q_begin, kv_begin: first row of a varlen tensor; 0 when dense
  std::int64_t kv_begin = 0, len_kv = 0;
};

std::vector<Sequence> sequences_of(const Problem& problem, const Shape& shape, const HostCall& call) {
  std::vector<Sequence> sequences;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    if (problem.layout == Layout::dense) {
      sequences.push_back({b, 0, shape.seqlen_q, 0, shape.seqlen_kv});
      continue;
    }
    const auto at = [b](const std::vector<std::int32_t>& offsets, int next) -> std::int64_t {
      const std::size_t i = static_cast<std::size_t>(b + next);
      return i < offsets.size() ? offsets[i] : 0;
    };
    const std::int64_t q_begin = at(call.cu_seqlens_q, 0), kv_begin = at(call.cu_seqlens_kv, 0);
    sequences.push_back({b, q_begin, std::max<std::int64_t>(0, at(call.cu_seqlens_q, 1) - q_begin), kv_begin,
                         std::max<std::int64_t>(0, at(call.cu_seqlens_kv, 1) - kv_begin)});
  }
  return sequences;
}

std::int64_t output_rows(const Problem& problem, const Shape& shape) {
  const std::int64_t rows = problem.layout == Layout::dense ? shape.batch * shape.seqlen_q : shape.total_q;
  return std::max<std::int64_t>(0, rows * shape.heads_q);
}

/// Index of row `i` of head `h` among the rows of o, and among the elements of lse.
ReferenceRowIndex row_index(const Problem& problem, const Shape& shape, const Sequence& sequence, std::int64_t h,
                            std::int64_t i) {
  if (problem.layout == Layout::dense) {
    const std::int64_t row = (sequence.b * shape.heads_q + h) * shape.seqlen_q + i;
    return {row, row};
  }
  return {(sequence.q_begin + i) * shape.heads_q + h, h * shape.total_q + sequence.q_begin + i};
}

/// Elements [0, count) of a row of `type`, as Real.
template <class Real>
void read_row(DataType type, const void* data, std::int64_t first, std::int64_t count, Real* out) {
  const auto read = [&](auto convert, auto* typed) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Real>(convert(typed[first + i]));
  };
  switch (type) {
    case DataType::f32: read([](float x) { return x; }, static_cast<const float*>(data)); return;
    case DataType::f16: read(float_from_f16, static_cast<const std::uint16_t*>(data)); return;
    case DataType::bf16: read(float_from_bf16, static_cast<const std::uint16_t*>(data)); return;
    default:
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Real>(load_as_double(type, data, first + i));
  }
}

/// All rows of one (batch, KV head) of k or v, packed.
template <class Real>
std::vector<Real> read_rows(const Problem& problem, DataType type, const void* data, const TensorStrides& stride,
                            const Sequence& sequence, std::int64_t head, int head_dim) {
  std::vector<Real> rows(static_cast<std::size_t>(sequence.len_kv * head_dim));
  const std::int64_t batch = problem.layout == Layout::dense ? sequence.b * stride.batch : 0;
  for (std::int64_t j = 0; j < sequence.len_kv; ++j) {
    const std::int64_t first = batch + head * stride.head + (sequence.kv_begin + j) * stride.row;
    read_row(type, data, first, head_dim, rows.data() + j * head_dim);
  }
  return rows;
}

/// `value` rounded to nearest even in `type`.
double rounded(DataType type, double value) {
  switch (type) {
    case DataType::f64: return value;
    case DataType::f32: return static_cast<float>(value);
    case DataType::f16: return float_from_f16(f16_from_double(value));
    case DataType::bf16: return float_from_bf16(bf16_from_double(value));
    default: {
      alignas(8) unsigned char bytes[8] = {};
      store_from_double(type, bytes, 0, value);
      return load_as_double(type, bytes, 0);
    }
  }
}

/// As rounded(), but a finite value that the type cannot hold stays as it is: an infinite yardstick would pass
/// anything.
double rounded_within_range(DataType type, double value) {
  const double result = rounded(type, value);
  return std::isfinite(value) && !std::isfinite(result) ? value : result;
}

/// Which elements of S are kept, for one (batch, query head); evaluated again only when the answer may differ.
class KeepMatrix {
 public:
  KeepMatrix(const Problem& problem, const expr::Bindings& bindings)
      : problem_(problem),
        bindings_(bindings),
        all_(problem.mask.is_identity()),
        by_batch_(problem.mask.uses_batch()),
        by_head_(problem.mask.uses_head()) {}

  void move_to(const Sequence& sequence, std::int64_t head) {
    const bool same_lengths = sequence.len_q == len_q_ && sequence.len_kv == len_kv_;
    if (valid_ && same_lengths && (!by_batch_ || sequence.b == b_) && (!by_head_ || head == h_)) return;
    valid_ = true;
    b_ = sequence.b;
    h_ = head;
    len_q_ = sequence.len_q;
    len_kv_ = sequence.len_kv;
    keep_.assign(static_cast<std::size_t>(len_q_ * len_kv_), 1);
    if (all_) return;
    for (std::int64_t i = 0; i < len_q_; ++i) {
      for (std::int64_t j = 0; j < len_kv_; ++j) {
        const expr::Point point{b_, h_, i, j, len_q_, len_kv_};
        keep_[static_cast<std::size_t>(i * len_kv_ + j)] =
            expr::evaluate(problem_.mask, problem_.declarations, bindings_, point) != 0 ? 1 : 0;
      }
    }
  }

  const unsigned char* row(std::int64_t i) const { return keep_.data() + i * len_kv_; }

 private:
  const Problem& problem_;
  const expr::Bindings& bindings_;
  bool all_, by_batch_, by_head_;
  bool valid_ = false;
  std::int64_t b_ = 0, h_ = 0, len_q_ = 0, len_kv_ = 0;
  std::vector<unsigned char> keep_;
};

/// What the two computations of a row share: where it stands, and what it needs.
template <class Real>
struct RowInput {
  const Problem& problem;
  const HostCall& call;
  const Sequence& sequence;
  std::int64_t h, i;
  const unsigned char* keep;
  const Real* q;
  const Real* k;
  const Real* v;
};

/// The score program on `s`, each operation rounded to `precision`.
template <class Real>
double scored(const RowInput<Real>& row, std::int64_t j, double s, expr::Precision precision) {
  if (row.problem.score.is_identity()) return s;
  const expr::Point point{row.sequence.b, row.h, row.i, j, row.sequence.len_q, row.sequence.len_kv};
  return expr::evaluate(*row.problem.score.root(), {row.call.bindings, point, s, precision}).f;
}

template <class Real>
Real dot(const Real* a, const Real* b, int count) {
  Real sum = 0;
  for (int c = 0; c < count; ++c) sum += a[c] * b[c];
  return sum;
}

/// What computing a row needs besides its input, kept from row to row.
template <class Real>
struct RowScratch {
  std::vector<Real> s;                  ///< scores, then exp(s - max)
  std::vector<double> score_magnitude;  ///< of each score: what a rounding of its computation is relative to
  std::vector<double> variance;         ///< of each column of o
  std::vector<double> absolute;         ///< sum P |V| of each column
};

/// The row maximum of the kept scores; -inf when there are none. A NaN score makes it NaN, as it makes the row.
template <class Real>
Real row_maximum(const std::vector<Real>& s, const unsigned char* keep) {
  Real maximum = -std::numeric_limits<Real>::infinity();
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (keep[j] && (s[j] > maximum || std::isnan(s[j]))) maximum = s[j];
    if (std::isnan(maximum)) break;
  }
  return maximum;
}

struct ExactArithmetic {
  using Real = double;
  static constexpr bool kMeasuresRounding = true;
  static double score(const RowInput<double>& row, std::int64_t j, double product) {
    return scored(row, j, product, expr::Precision::f64);
  }
  static double weight(const Problem&, double p, double total) { return p / total; }
  static double output(const Problem&, double o) { return o; }
};

struct PlainArithmetic {
  using Real = float;
  static constexpr bool kMeasuresRounding = false;
  static float score(const RowInput<float>& row, std::int64_t j, float product) {
    const double stored = rounded_within_range(row.problem.q_dtype, product);
    return static_cast<float>(scored(row, j, stored, expr::Precision::f32));
  }
  static float weight(const Problem& problem, float p, float total) {
    return static_cast<float>(rounded(problem.v_dtype, p / total));
  }
  static double output(const Problem& problem, float o) { return rounded_within_range(problem.o_dtype, o); }
};

/// A dot product errs by roundings relative to the sum of its absolute products (Higham, Accuracy and Stability of
/// Numerical Algorithms, 3.1), which may be far above the score itself; what the score rule adds is relative to its
/// own.
double score_magnitude(const RowInput<double>& row, std::int64_t j, double score) {
  const int head_dim = row.problem.head_dim_qk;
  const double* k = row.k + j * head_dim;
  double sum = 0;
  for (int c = 0; c < head_dim; ++c) sum += std::abs(row.q[c] * k[c]);
  return std::max(std::abs(score), std::abs(static_cast<double>(row.call.scale)) * sum);
}

double unit_roundoff(DataType type) {
  return type == DataType::bf16 ? 0x1p-8 : type == DataType::f16 ? 0x1p-11 : 0x1p-24;
}

/// HostResult's o_rounding and lse_rounding.
struct RoundingEffect {
  double o = 0, lse = 0;

  void add_to(HostResult& result) const {
    result.o_rounding = std::max(result.o_rounding, o);
    result.lse_rounding = std::max(result.lse_rounding, lse);
  }
};

/// What one fp32 rounding of each score and one rounding of each P do to the row, to first order, as the root of the
/// sum of squares. With P = softmax(S): dO = sum P_j (V_j - O) dS_j + sum V_j dP_j, and dLSE = sum P_j dS_j.
void note_rounding(const RowInput<double>& row, RowScratch<double>& scratch, double total, const double* o,
                   RoundingEffect& worst) {
  const int head_dim = row.problem.head_dim_v;
  if (!std::isfinite(total) || !std::all_of(o, o + head_dim, [](double x) { return std::isfinite(x); })) return;
  const double p_roundoff = unit_roundoff(row.problem.v_dtype);
  scratch.variance.assign(static_cast<std::size_t>(head_dim), 0);
  scratch.absolute.assign(static_cast<std::size_t>(head_dim), 0);
  double lse_variance = 0;
  for (std::int64_t j = 0; j < row.sequence.len_kv; ++j) {
    if (!row.keep[j]) continue;
    const double p = scratch.s[static_cast<std::size_t>(j)] / total;
    const double by_score = p * unit_roundoff(DataType::f32) * scratch.score_magnitude[static_cast<std::size_t>(j)];
    const double by_p = p * p_roundoff;
    const double* v = row.v + j * head_dim;
    for (int c = 0; c < head_dim; ++c) {
      const double s_part = by_score * (v[c] - o[c]), p_part = by_p * v[c];
      scratch.variance[static_cast<std::size_t>(c)] += s_part * s_part + p_part * p_part;
      scratch.absolute[static_cast<std::size_t>(c)] += p * std::abs(v[c]);
    }
    lse_variance += by_score * by_score;
  }
  for (std::size_t c = 0; c < scratch.variance.size(); ++c) {
    const double sum = unit_roundoff(DataType::f32) * scratch.absolute[c];
    worst.o = std::max(worst.o, std::sqrt(scratch.variance[c]) + sum);
  }
  worst.lse = std::max(worst.lse, std::sqrt(lse_variance));
}

/// One row of S, P and O. Masked elements touch neither K nor V.
template <class Arithmetic>
void compute_row(const RowInput<typename Arithmetic::Real>& row, RowScratch<typename Arithmetic::Real>& scratch,
                 double* o, double* lse, RoundingEffect& worst) {
  using Real = typename Arithmetic::Real;
  std::vector<Real>& s = scratch.s;
  const int head_dim_qk = row.problem.head_dim_qk, head_dim_v = row.problem.head_dim_v;
  const std::int64_t len_kv = row.sequence.len_kv;
  s.assign(static_cast<std::size_t>(len_kv), 0);
  if constexpr (Arithmetic::kMeasuresRounding) scratch.score_magnitude.assign(s.size(), 0);
  for (std::int64_t j = 0; j < len_kv; ++j) {
    if (!row.keep[j]) continue;
    const Real product = static_cast<Real>(row.call.scale) * dot(row.q, row.k + j * head_dim_qk, head_dim_qk);
    const Real score = Arithmetic::score(row, j, product);
    s[static_cast<std::size_t>(j)] = score;
    if constexpr (Arithmetic::kMeasuresRounding) {
      scratch.score_magnitude[static_cast<std::size_t>(j)] = score_magnitude(row, j, score);
    }
  }
  const Real maximum = row_maximum(s, row.keep);
  std::fill_n(o, head_dim_v, 0.0);
  *lse = -kInfinity;
  if (maximum == -std::numeric_limits<Real>::infinity()) return;

  Real total = 0;
  for (std::int64_t j = 0; j < len_kv; ++j) {
    if (!row.keep[j]) continue;
    Real& p = s[static_cast<std::size_t>(j)];
    p = std::exp(p - maximum);
    total += p;
  }
  std::vector<Real> sum(static_cast<std::size_t>(head_dim_v), 0);
  for (std::int64_t j = 0; j < len_kv; ++j) {
    if (!row.keep[j]) continue;
    const Real p = Arithmetic::weight(row.problem, s[static_cast<std::size_t>(j)], total);
    const Real* v = row.v + j * head_dim_v;
    for (int c = 0; c < head_dim_v; ++c) sum[static_cast<std::size_t>(c)] += p * v[c];
  }
  for (int c = 0; c < head_dim_v; ++c) o[c] = Arithmetic::output(row.problem, sum[static_cast<std::size_t>(c)]);
  *lse = maximum + std::log(total);
  if constexpr (Arithmetic::kMeasuresRounding) note_rounding(row, scratch, total, o, worst);
}

/// Computes rows of a call, one after another. K and V of a head are read once for the rows of it that follow each other.
template <class Arithmetic>
class RowWorker {
 public:
  RowWorker(const Problem& problem, const Shape& shape, const HostCall& call)
      : problem_(problem),
        call_(call),
        group_(shape.heads_q / shape.heads_kv),
        q_(static_cast<std::size_t>(problem.head_dim_qk)) {}

  /// Row i of query head h, of whose keys `keep` tells which count.
  void compute(const Sequence& sequence, std::int64_t h, std::int64_t i, const unsigned char* keep, double* o,
               double* lse) {
    load(sequence, h / group_);
    const std::int64_t batch = problem_.layout == Layout::dense ? sequence.b * call_.q_stride.batch : 0;
    const std::int64_t first = batch + h * call_.q_stride.head + (sequence.q_begin + i) * call_.q_stride.row;
    read_row(problem_.q_dtype, call_.q, first, problem_.head_dim_qk, q_.data());
    const RowInput<Real> row{problem_, call_, sequence, h, i, keep, q_.data(), k_.data(), v_.data()};
    compute_row<Arithmetic>(row, scratch_, o, lse, worst_);
  }
  const RoundingEffect& worst() const { return worst_; }

 private:
  using Real = typename Arithmetic::Real;

  void load(const Sequence& sequence, std::int64_t head_kv) {
    if (sequence.b == loaded_b_ && head_kv == loaded_head_) return;
    k_ = read_rows<Real>(problem_, problem_.k_dtype, call_.k, call_.k_stride, sequence, head_kv, problem_.head_dim_qk);
    v_ = read_rows<Real>(problem_, problem_.v_dtype, call_.v, call_.v_stride, sequence, head_kv, problem_.head_dim_v);
    loaded_b_ = sequence.b;
    loaded_head_ = head_kv;
  }

  const Problem& problem_;
  const HostCall& call_;
  std::int64_t group_, loaded_b_ = -1, loaded_head_ = -1;
  std::vector<Real> q_, k_, v_;
  RowScratch<Real> scratch_;
  RoundingEffect worst_;
};

template <class Arithmetic>
HostResult compute(const Problem& problem, const Shape& shape, const HostCall& call, unsigned threads) {
  const std::int64_t rows = output_rows(problem, shape);
  HostResult result;
  result.o.assign(static_cast<std::size_t>(rows * problem.head_dim_v), 0.0);
  result.lse.assign(static_cast<std::size_t>(rows), -kInfinity);
  if (rows == 0 || shape.heads_kv <= 0) return result;

  const std::vector<Sequence> sequences = sequences_of(problem, shape, call);
  const std::size_t heads_q = static_cast<std::size_t>(shape.heads_q), heads = sequences.size() * heads_q;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  work_together(std::min<std::size_t>(threads, heads), [&] {
    KeepMatrix keep(problem, call.bindings);
    RowWorker<Arithmetic> worker(problem, shape, call);
    for (std::size_t head = next++; head < heads; head = next++) {
      const Sequence& sequence = sequences[head / heads_q];
      const auto h = static_cast<std::int64_t>(head % heads_q);
      if (sequence.len_q == 0) continue;
      keep.move_to(sequence, h);
      for (std::int64_t i = 0; i < sequence.len_q; ++i) {
        const ReferenceRowIndex at = row_index(problem, shape, sequence, h, i);
        worker.compute(sequence, h, i, keep.row(i), result.o.data() + at.o * problem.head_dim_v,
                       &result.lse[static_cast<std::size_t>(at.lse)]);
      }
    }
    const std::lock_guard lock(mutex);
    worker.worst().add_to(result);
  });
  return result;
}

/// As compute(), for `rows` alone.
template <class Arithmetic>
HostResult compute_rows(const Problem& problem, const Shape& shape, const HostCall& call,
                        std::span<const ReferenceRow> rows) {
  HostResult result;
  result.o.assign(rows.size() * static_cast<std::size_t>(problem.head_dim_v), 0.0);
  result.lse.assign(rows.size(), -kInfinity);
  if (rows.empty()) return result;
  const std::vector<Sequence> sequences = sequences_of(problem, shape, call);
  RowWorker<Arithmetic> worker(problem, shape, call);
  std::vector<unsigned char> keep;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto [b, h, i] = rows[r];
    const Sequence& sequence = sequences[static_cast<std::size_t>(b)];
    keep.assign(static_cast<std::size_t>(sequence.len_kv), 1);
    for (std::int64_t j = 0; j < sequence.len_kv && !problem.mask.is_identity(); ++j) {
      const expr::Point point{b, h, i, j, sequence.len_q, sequence.len_kv};
      keep[static_cast<std::size_t>(j)] =
          expr::evaluate(problem.mask, problem.declarations, call.bindings, point) != 0 ? 1 : 0;
    }
    worker.compute(sequence, h, i, keep.data(), result.o.data() + r * static_cast<std::size_t>(problem.head_dim_v),
                   &result.lse[r]);
  }
  worker.worst().add_to(result);
  return result;
}

}  // namespace

HostResult reference_float64(const Problem& problem, const Shape& shape, const HostCall& call, unsigned threads) {
  return compute<ExactArithmetic>(problem, shape, call, threads);
}

HostResult unfused(const Problem& problem, const Shape& shape, const HostCall& call, unsigned threads) {
  return compute<PlainArithmetic>(problem, shape, call, threads);
}

HostResult reference_float64(const Problem& problem, const Shape& shape, const HostCall& call,
                             std::span<const ReferenceRow> rows) {
  return compute_rows<ExactArithmetic>(problem, shape, call, rows);
}

HostResult unfused(const Problem& problem, const Shape& shape, const HostCall& call,
                   std::span<const ReferenceRow> rows) {
  return compute_rows<PlainArithmetic>(problem, shape, call, rows);
}

ReferenceRowIndex reference_row_index(const Problem& problem, const Shape& shape, const HostCall& call,
                                      const ReferenceRow& row) {
  const Sequence sequence = sequences_of(problem, shape, call)[static_cast<std::size_t>(row.b)];
  return row_index(problem, shape, sequence, row.h, row.i);
}

}  // namespace saccade
