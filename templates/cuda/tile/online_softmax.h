// The online softmax (Milakov and Gimelshein 2018; FlashAttention-2, algorithm 1) of the rows that a thread shares with
// its quad.
#pragma once

#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/tile/softmax_row.h"
#include "saccade_templates/cuda/tile/warp_products.h"

namespace saccade::cuda {

/// P = exp(S - reference), l = sum of P, O = P V. A row's reference is the maximum over its first keys and then trails:
/// nothing looks for a maximum as long as the sums show that S has not outgrown the reference by more than kLimit. When
/// it has, the reference is moved to the true maximum, O and l are rescaled as with the running maximum, and P of the
/// columns in hand is made anew. P stays at or below kLimit, which fp16 holds, and O / l does not depend on the
/// reference.
///
/// Thread state for rows 8 * r + g of the warp (r < 2 * m_tiles). S is in units where p = 2^(log2_scale * s).
/// When `wide_range`, s may be any finite float (an additive bias of -1e38, say) and the difference is taken before
/// scaling; otherwise scaling and difference are one FFMA.
template <int m_tiles, bool wide_range>
struct OnlineSoftmax {
  static constexpr int rows = 2 * m_tiles;
  static constexpr float kLimit = 4096.f;
  float log2_scale;
  float reference[rows];    ///< units of s when wide_range, else of log2_scale * s; 0 while the row has no key
  float sum[rows];          ///< of this lane's columns
  uint32 rows_without_key;  ///< bit r

  SACCADE_FN explicit OnlineSoftmax(float log2_scale_of_s)
      : log2_scale(log2_scale_of_s), rows_without_key((1u << rows) - 1) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      reference[r] = 0.f;
      sum[r] = 0.f;
    }
  }

  /// P of `blocks` blocks of 16 columns of S from `first_block` on, as A operands of P V; adds it to the sums. Rescales
  /// `o` and the sums if it must, so `o` has to hold P V of all columns before these.
  template <class Element, int blocks, int tile_n, int value_columns>
  SACCADE_FN void exponentiate(uint32 (&p)[blocks][m_tiles][4], const Accumulator<m_tiles, tile_n>& s, int first_block,
                               Accumulator<m_tiles, value_columns>& o) {
    float added[rows];
    try_reference<Element, blocks, tile_n>(p, added, s, first_block);
    bool outgrown = rows_without_key != 0;
#pragma unroll
    for (int r = 0; r < rows; ++r) outgrown |= added[r] > kLimit;
    if (__any_sync(kFullWarp, outgrown)) {
      move_reference<blocks, tile_n, value_columns>(s, first_block, o);
      try_reference<Element, blocks, tile_n>(p, added, s, first_block);
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) sum[r] += added[r];
  }

  /// Completes the sums over the quad and gives 1 / l, or 0 for a row without keys, and its natural-log LSE.
  SACCADE_FN void finish(float (&inverse)[rows], float (&lse)[rows]) {
#pragma unroll
    for (int r = 0; r < rows; ++r) finish_row<wide_range>(reference[r], sum[r], log2_scale, inverse[r], lse[r]);
  }

 private:
  template <class Element, int blocks, int tile_n>
  SACCADE_FN void try_reference(uint32 (&p)[blocks][m_tiles][4], float (&added)[rows],
                                const Accumulator<m_tiles, tile_n>& s, int first_block) const {
#pragma unroll
    for (int r = 0; r < rows; ++r) added[r] = 0.f;
#pragma unroll
    for (int k = 0; k < blocks; ++k) {
#pragma unroll
      for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // rows g, g + 8, then the same for the next eight columns
          const int r = 2 * m + i % 2;
          const float* pair = &s[m][2 * (first_block + k) + i / 2][i % 2 * 2];
          const float p0 = exponential<wide_range>(pair[0], reference[r], log2_scale);
          const float p1 = exponential<wide_range>(pair[1], reference[r], log2_scale);
          added[r] += p0 + p1;
          p[k][m][i] = pack<Element>(p0, p1);
        }
      }
    }
  }

  template <int blocks, int tile_n, int value_columns>
  SACCADE_FN void move_reference(const Accumulator<m_tiles, tile_n>& s, int first_block,
                                 Accumulator<m_tiles, value_columns>& o) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float top = negative_infinity();
#pragma unroll
      for (int n = 2 * first_block; n < 2 * (first_block + blocks); ++n) {
        const float* pair = &s[r / 2][n][r % 2 * 2];
        top = fmaxf(top, wide_range ? fmaxf(pair[0], pair[1]) : fmaxf(pair[0] * log2_scale, pair[1] * log2_scale));
      }
      const float factor = raise_reference<wide_range>(reference[r], quad_max(top), rows_without_key, r, log2_scale);
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
