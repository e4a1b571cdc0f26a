// Where the emitted Rules meet the tiles: classes of tiles, scores and masks of elements, and values that a mask must
// keep out.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

#include "saccade_templates/common/params.h"
#include "saccade_templates/common/rules.h"
#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/prims/math.h"
#include "saccade_templates/cuda/tile/warp_products.h"

namespace saccade::cuda {

/// The sequence and head that a block works on, as Rules want to know it.
struct RuleContext {
  int batch, head, len_q, len_kv;

  SACCADE_FN Tile tile(int q_first, int q_last, int kv_first, int kv_last) const {
    return {batch, head, q_first, q_last, kv_first, kv_last, len_q, len_kv};
  }
  SACCADE_FN Element element(int q_idx, int kv_idx) const { return {batch, head, q_idx, kv_idx, len_q, len_kv}; }
};

/// The rows of the lane's accumulator elements: `first` + 8 r for r < 2 * m_tiles; columns first_column + 8 n + {0, 1}.
struct LanePlace {
  int first_row;
  int first_column;  ///< within the tile
  SACCADE_FN LanePlace(uint32 lane, int warp_first_row)
      : first_row(warp_first_row + int(lane / 4)), first_column(int(lane % 4) * 2) {}
};

/// A run of columns of a tile, in multiples of 16.
struct Columns {
  int first, count;
};

/// Calls visit(s element, q_idx, column in the tile) for the lane's elements in `columns`.
template <int m_tiles, int tile_n, class Visit>
SACCADE_FN void for_each_score(Accumulator<m_tiles, tile_n>& s, const LanePlace& place, const Columns& columns,
                               Visit visit) {
#pragma unroll
  for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
    for (int n = columns.first / 8; n < (columns.first + columns.count) / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        visit(s[m][n][i], place.first_row + 16 * m + i / 2 * 8, place.first_column + 8 * n + i % 2);
      }
    }
  }
}

/// S becomes the score program's value of scale * S.
template <class Rules, int m_tiles, int tile_n>
SACCADE_FN void apply_score(Accumulator<m_tiles, tile_n>& s, const KernelParams& params, const RuleContext& context,
                            const LanePlace& place, const Columns& columns, int kv_first) {
  for_each_score<m_tiles, tile_n>(s, place, columns, [&](float& value, int q_idx, int column) {
    value = Rules::score(params, context.element(q_idx, kv_first + column), params.scale * value);
  });
}

/// Scores beyond the last key become -inf.
template <int m_tiles, int tile_n>
SACCADE_FN void mask_tail(Accumulator<m_tiles, tile_n>& s, const RuleContext& context, const LanePlace& place,
                          const Columns& columns, int kv_first) {
  const int keys = context.len_kv - kv_first;
  for_each_score<m_tiles, tile_n>(
      s, place, columns, [&](float& value, int, int column) { value = column < keys ? value : negative_infinity(); });
}

/// Scores that the mask does not keep become -inf: a select, so that a NaN score does not survive.
template <class Rules, int m_tiles, int tile_n>
SACCADE_FN void apply_mask(Accumulator<m_tiles, tile_n>& s, const KernelParams& params, const RuleContext& context,
                           const LanePlace& place, const Columns& columns, int kv_first) {
  for_each_score<m_tiles, tile_n>(s, place, columns, [&](float& value, int q_idx, int column) {
    const int kv_idx = kv_first + column;
    const bool keep = kv_idx < context.len_kv && Rules::keep(params, context.element(q_idx, kv_idx));
    value = keep ? value : negative_infinity();
  });
}

/// For a tile whose infinities and NaN were scrubbed from shared memory because some row masks them: gives them back,
/// from global memory, to the rows that do keep them. Rare, so it is written for size. `value` is row 0 of the
/// sequence's V.
template <class Rules, int tile_n, int head_dim, int m_tiles, int columns, class Element>
SACCADE_FN void restore_kept_non_finite(Accumulator<m_tiles, columns>& o, const KernelParams& params,
                                        const RuleContext& context, const LanePlace& place, const Element* value,
                                        int64 row_stride, int kv_first) {
  const int kv_end = minimum(kv_first + tile_n, context.len_kv);
#pragma unroll 1
  for (int kv_idx = kv_first; kv_idx < kv_end; ++kv_idx) {
    bool keep[2 * m_tiles];
#pragma unroll
    for (int r = 0; r < 2 * m_tiles; ++r) {
      keep[r] = Rules::keep(params, context.element(place.first_row + 8 * r, kv_idx));
    }
    const Element* row = value + kv_idx * row_stride + place.first_column;
#pragma unroll
    for (int n = 0; n < head_dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const Element v = row[8 * n + i];
        if (!is_non_finite(v)) continue;
#pragma unroll
        for (int r = 0; r < 2 * m_tiles; ++r) {
          if (keep[r]) o[r / 2][n][r % 2 * 2 + i] += to_float(v);
        }
      }
    }
  }
}

}  // namespace saccade::cuda
