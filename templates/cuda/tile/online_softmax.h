// The online softmax (Milakov and Gimelshein 2018; FlashAttention-2, algorithm 1) of the rows that a thread shares with
// its quad.
#pragma once

#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/prims/fast_math.h"
#include "saccade_templates/cuda/tile/warp_products.h"

namespace saccade::cuda {

/// Reductions over the four lanes that hold one row of an mma accumulator.
SACCADE_FN float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kFullWarp, x, 2));
}
SACCADE_FN float quad_sum(float x) {
  x += __shfl_xor_sync(kFullWarp, x, 1);
  return x + __shfl_xor_sync(kFullWarp, x, 2);
}

/// P = exp(S - reference), l = sum of P, O = P V. A row's reference trails its true maximum by at most 2^kSlack and is
/// moved only when S outgrows it, which after the first tiles is rare: then O and l are rescaled, exactly as with the
/// running maximum. P stays at or below 2^kSlack, so fp16 can hold it, and O / l does not depend on the reference.
///
/// Thread state for rows 8 * r + g of the warp (r < 2 * m_tiles). S is in units where p = 2^(log2_scale * s).
/// When `wide_range`, s may be any finite float (an additive bias of -1e38, say) and the difference is taken before
/// scaling; otherwise scaling and difference are one FFMA.
template <int m_tiles, bool wide_range>
struct OnlineSoftmax {
  static constexpr int rows = 2 * m_tiles;
  static constexpr float kSlack = 8.f;
  float log2_scale;
  float reference[rows];  ///< units of s when wide_range, else of log2_scale * s; -inf while the row has no key
  float sum[rows];        ///< of this lane's columns

  SACCADE_FN explicit OnlineSoftmax(float log2_scale_of_s) : log2_scale(log2_scale_of_s) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      reference[r] = negative_infinity();
      sum[r] = 0.f;
    }
  }

  /// Makes the references fit the scores `s`; rescales `o` and the sums if it must.
  template <int tile_n, int value_columns>
  SACCADE_FN void fit_reference(const Accumulator<m_tiles, tile_n>& s, Accumulator<m_tiles, value_columns>& o) {
    float top[rows];
    bool outgrown = false;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      top[r] = negative_infinity();
#pragma unroll
      for (int n = 0; n < tile_n / 8; ++n) {
        top[r] = fmaxf(top[r], fmaxf(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1]));
      }
      outgrown |= growth(top[r], r) > kSlack;
    }
    if (__any_sync(kFullWarp, outgrown)) move_reference<value_columns>(top, o);
  }

  /// P of columns 16 k .. 16 k + 15 as the A operand of P V; adds it to the sums.
  template <class Element, int tile_n>
  SACCADE_FN void exponentiate(uint32 (&p)[m_tiles][4], const Accumulator<m_tiles, tile_n>& s, int k) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // rows g, g + 8, then the same for the next eight columns
        const int r = 2 * m + i % 2;
        const float* pair = &s[m][2 * k + i / 2][i % 2 * 2];
        const float p0 = exponential(pair[0], r);
        const float p1 = exponential(pair[1], r);
        sum[r] += p0 + p1;
        p[m][i] = pack<Element>(p0, p1);
      }
    }
  }

  /// Completes the sums over the quad and gives 1 / l, or 0 for a row without keys, and its natural-log LSE.
  SACCADE_FN void finish(float (&inverse)[rows], float (&lse)[rows]) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const float total = quad_sum(sum[r]);
      const bool empty = total == 0.f;
      const float reference_ln = wide_range ? reference[r] * (log2_scale * kLn2) : reference[r] * kLn2;
      inverse[r] = empty ? 0.f : fast_reciprocal(total);
      lse[r] = empty ? negative_infinity() : reference_ln + fast_log2(total) * kLn2;
    }
  }

 private:
  /// log2 of the largest P that score `s` would give.
  SACCADE_FN float growth(float s, int r) const {
    return wide_range ? (s - reference[r]) * log2_scale : s * log2_scale - reference[r];
  }

  SACCADE_FN float exponential(float s, int r) const {
    const float finite_reference = reference[r] == negative_infinity() ? 0.f : reference[r];
    return fast_exp2(wide_range ? (s - finite_reference) * log2_scale : fmaf(s, log2_scale, -finite_reference));
  }

  template <int value_columns>
  SACCADE_FN void move_reference(const float (&top)[rows], Accumulator<m_tiles, value_columns>& o) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const float row_top = quad_max(top[r]);
      const float moved = fmaxf(reference[r], wide_range ? row_top : row_top * log2_scale);
      const float step = reference[r] - moved;
      const float factor = moved == negative_infinity() ? 1.f : fast_exp2(wide_range ? step * log2_scale : step);
      reference[r] = moved;
      sum[r] *= factor;
#pragma unroll
      for (int n = 0; n < value_columns / 8; ++n) {
        o[r / 2][n][r % 2 * 2] *= factor;
        o[r / 2][n][r % 2 * 2 + 1] *= factor;
      }
    }
  }
};

}  // namespace saccade::cuda
