// The softmax of a warpgroup's rows with a reference that trails the maximum (see OnlineSoftmax in online_softmax.h for
// the algorithm). Here P takes the place of S in its registers, so an outgrown tile has to be computed again by the caller.
#pragma once

#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/prims/mma.h"
#include "saccade_templates/cuda/tile/softmax_row.h"

namespace saccade::cuda {

/// State of rows g and g + 8 of a warp, of which a thread holds a quarter. S is in units where p = 2^(log2_scale * s).
/// `wide_range`: s may be any finite float, so differences are taken before scaling.
template <class Element, bool wide_range>
struct TrailingSoftmax {
  /// P's sums over a thread's part of a tile may grow to this: fp16 must hold P, bf16 has fp32's range.
  static constexpr float kLimit = is_same<Element, f16> ? 4096.f : 16777216.f;

  float log2_scale;
  float reference[2] = {0.f, 0.f};  ///< units of s when wide_range, else of log2_scale * s; 0 while the row has no key
  float sum[2] = {0.f, 0.f};        ///< of this thread's columns
  uint32 rows_without_key = 3;      ///< bit r
  bool lacks_keys = true;           ///< of some row of the warp

  SACCADE_FN explicit TrailingSoftmax(float log2_scale_of_s) : log2_scale(log2_scale_of_s) {}

  /// Moves the references up to the maxima of S, and the sums with them. Gives the factors by which O has to follow.
  template <int n>
  SACCADE_FN void move_reference(const Accumulator<1, n>& s, float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = wide_range || log2_scale >= 0.f ? largest<n>(s, r, 1.f) : largest<n>(s, r, -1.f);
      if (!wide_range) top *= fabsf(log2_scale);
      factor[r] = raise_reference<wide_range>(reference[r], quad_max(top), rows_without_key, r, log2_scale);
      sum[r] *= factor[r];
    }
    lacks_keys = __any_sync(kFullWarp, rows_without_key != 0);
  }

  /// Columns first.. of S become P, in place; their sums are added to `added`.
  template <int first, int count, int n>
  SACCADE_FN void exponentiate(Accumulator<1, n>& s, float (&added)[2]) const {
    float odd[2] = {0.f, 0.f};
#pragma unroll
    for (int i = first / 8; i < (first + count) / 8; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float* pair = &s[0][i][2 * r];
        pair[0] = exponential<wide_range>(pair[0], reference[r], log2_scale);
        pair[1] = exponential<wide_range>(pair[1], reference[r], log2_scale);
        added[r] += pair[0];
        odd[r] += pair[1];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) added[r] += odd[r];
  }

  /// Whether P of some row of the warp is too large to be used: its reference has to be moved first.
  SACCADE_FN static bool outgrown(const float (&added)[2]) {
    return __builtin_expect(__any_sync(kFullWarp, fmaxf(added[0], added[1]) > kLimit), 0);
  }

  SACCADE_FN void add(const float (&added)[2]) {
    sum[0] += added[0];
    sum[1] += added[1];
  }

  /// 1 / l of each row, or 0 for a row without keys, and its natural-log LSE.
  SACCADE_FN void finish(float (&inverse)[2], float (&lse)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) finish_row<wide_range>(reference[r], sum[r], log2_scale, inverse[r], lse[r]);
  }

 private:
  /// The largest of `sign` times row r of S.
  template <int n>
  SACCADE_FN static float largest(const Accumulator<1, n>& s, int r, float sign) {
    float top = negative_infinity();
#pragma unroll
    for (int i = 0; i < n / 8; ++i) top = fmaxf(top, fmaxf(sign * s[0][i][2 * r], sign * s[0][i][2 * r + 1]));
    return top;
  }
};

/// The warpgroup's rows of O by `factor`.
template <int n>
SACCADE_FN void rescale(Accumulator<1, n>& o, const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < n / 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) o[0][i][j] *= factor[j / 2];
  }
}

/// Columns first.. of P in fp32 as the A operands of P V.
template <class Element, int first, int count, int n>
SACCADE_FN void to_operands(uint32 (&p)[n / 16][4], const Accumulator<1, n>& s) {
#pragma unroll
  for (int k = first / 16; k < (first + count) / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* pair = &s[0][2 * k + i / 2][i % 2 * 2];
      p[k][i] = pack<Element>(pair[0], pair[1]);
    }
  }
}

}  // namespace saccade::cuda
