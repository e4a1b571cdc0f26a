// The oracle: dense attention in float64, and the plain unfused computation in the problem's own precision. Shares no code
// with any kernel; the tuner's correctness gate, the tests and the CLI's verification all use it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "generator/problem.h"
#include "generator/shape.h"
#include "templates/common/params.h"

namespace saccade {

/// Host tensors of one call, in the layouts of KernelParams, strides in elements.
struct HostCall {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  TensorStrides q_stride{}, k_stride{}, v_stride{};
  std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_kv;  ///< varlen only
  float scale = 0;
  expr::Bindings bindings;
};

/// Row-major o [batch, heads_q, seqlen_q, head_dim_v] or varlen [total_q, heads_q, head_dim_v]; lse as in KernelParams.
struct HostResult {
  std::vector<double> o;
  std::vector<double> lse;
  /// Of reference_float64: the most that one fp32 rounding of each score, one rounding of each P and one fp32 rounding of the
  /// sum PV would change an element of o or of lse by, to first order.
  double o_rounding = 0, lse_rounding = 0;
};

/// Float64 throughout. Rows with no kept key give o = 0 and lse = -inf. `threads` share the heads; the result is the same.
HostResult reference_float64(const Problem& problem, const Shape& shape, const HostCall& call, unsigned threads = 1);
/// What a plain unfused implementation gives: S accumulated in fp32 and rounded to the storage type, softmax in fp32, P rounded
/// to the storage type, O accumulated in fp32 and rounded. Its error against float64 is the yardstick of the error rule.
HostResult unfused(const Problem& problem, const Shape& shape, const HostCall& call, unsigned threads = 1);

/// Row `i` of query head `h` of batch entry `b`.
struct ReferenceRow {
  std::int64_t b = 0, h = 0, i = 0;
};
/// The same for some rows only, for calls that are too large for all: o [rows, head_dim_v] and lse [rows], in the order of
/// `rows`. Fastest when rows of one (b, KV head) follow each other.
HostResult reference_float64(const Problem& problem, const Shape& shape, const HostCall& call,
                             std::span<const ReferenceRow> rows);
HostResult unfused(const Problem& problem, const Shape& shape, const HostCall& call,
                   std::span<const ReferenceRow> rows);
/// Where a row stands in a whole result: its index among the rows of o and among the elements of lse.
struct ReferenceRowIndex {
  std::int64_t o = 0, lse = 0;
};
ReferenceRowIndex reference_row_index(const Problem& problem, const Shape& shape, const HostCall& call,
                                      const ReferenceRow& row);

/// The 2x rule of the design: max|o - exact| <= 2 max(max|plain - exact|, o_rounding) + half an ulp, in the storage type, of
/// the largest |o|. o_rounding is there because a plain result can be right by luck, as happens with few keys or with one row
/// that decides, and no computation can count on luck twice. For lse: 2 max(max|plain - exact|, lse_rounding) + 4 fp32 ulps
/// of the largest |lse|. -inf and 0 of empty rows must be exact; NaN belongs where the exact value is NaN and nowhere else.
struct ErrorReport {
  double o_error = 0, o_bound = 0;  ///< maximum absolute error and what the rule allows
  double lse_error = 0, lse_bound = 0;
  bool pass = false;
  std::string detail;  ///< where and by how much, when it fails
};
ErrorReport compare(const Problem& problem, const HostResult& actual, const HostResult& exact, const HostResult& plain,
                    bool with_lse);

}  // namespace saccade
