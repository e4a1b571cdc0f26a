// One row of a softmax whose reference trails the maximum, as the online softmax of a warp and that of a warpgroup share it.
#pragma once

#include "saccade_templates/cuda/prims/fast_math.h"

namespace saccade::cuda {

/// log2(e) * scale, or next to nothing instead of zero, which would make NaN of masked scores.
SACCADE_FN float log2_scale_of(float scale) { return scale == 0.f ? 1e-37f : scale * kLog2E; }

/// Reductions over the four lanes that hold one row of an mma accumulator.
SACCADE_FN float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kFullWarp, x, 2));
}
SACCADE_FN float quad_sum(float x) {
  x += __shfl_xor_sync(kFullWarp, x, 1);
  return x + __shfl_xor_sync(kFullWarp, x, 2);
}

/// p of one score. `wide_range`: s may be any finite float, and the difference is taken before scaling, with the reference in
/// units of s; otherwise scaling and difference are one FFMA, with the reference in units of log2_scale * s.
template <bool wide_range>
SACCADE_FN float exponential(float s, float reference, float log2_scale) {
  return fast_exp2(wide_range ? (s - reference) * log2_scale : fmaf(s, log2_scale, -reference));
}

/// Moves a row's reference up to `top`, the largest of its scores in hand (-inf: none). Gives the factor by which its sum and
/// O have to follow. Bit `row` of `rows_without_key` says whether this is its first key.
template <bool wide_range>
SACCADE_FN float raise_reference(float& reference, float top, uint32& rows_without_key, int row, float log2_scale) {
  const bool first_key = (rows_without_key >> row & 1) != 0;
  const bool has_key = top != negative_infinity();
  const float moved = !has_key ? reference : first_key ? top : fmaxf(reference, top);
  const float step = reference - moved;
  const float factor = first_key ? 1.f : fast_exp2(wide_range ? step * log2_scale : step);
  reference = moved;
  if (has_key) rows_without_key &= ~(1u << row);
  return factor;
}

/// Completes a row's sum over the quad and gives 1 / l and its natural-log LSE; 0 and -inf for a row without keys.
template <bool wide_range>
SACCADE_FN void finish_row(float reference, float lane_sum, float log2_scale, float& inverse, float& lse) {
  const float sum = quad_sum(lane_sum);
  const bool empty = sum == 0.f;
  const float reference_ln = wide_range ? reference * (log2_scale * kLn2) : reference * kLn2;
  inverse = empty ? 0.f : fast_reciprocal(sum);
  lse = empty ? negative_infinity() : reference_ln + fast_log2(sum) * kLn2;
}

}  // namespace saccade::cuda
