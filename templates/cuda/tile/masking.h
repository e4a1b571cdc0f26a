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
  SACCADE_FN Element element(int q_idx, int kv_base, int kv_offset) const {
    return {batch, head, q_idx, kv_base + kv_offset, len_q, len_kv, kv_base, float(kv_offset)};
  }
};

/// Where the lane's accumulator elements are: rows first_row + 8 r for r < 2 * m_tiles, columns of the tile
/// first_column + 8 n + {0, 1}.
struct LanePlace {
  int first_row;
  int first_column;
};

/// The warp's rows. Rules are needed for few tiles, so places are derived anew each time instead of kept in registers.
struct WarpRows {
  uint32 thread;
  int block_first;  ///< the block's first row
  int count;        ///< rows of each warp

  SACCADE_FN int first() const { return opaque(block_first) + int(opaque(thread) / 32) * count; }
  SACCADE_FN LanePlace place() const {
    const uint32 lane = opaque(thread) % 32;
    return {first() + int(lane / 4), int(lane % 4) * 2};
  }
};

/// A run of columns of a tile, in multiples of 16.
struct Columns {
  int first, count;
};

/// Calls visit(s element, q_idx, column from place.first_column, a constant) for the lane's elements in `columns`.
template <int m_tiles, int tile_n, class Visit>
SACCADE_FN void for_each_score(Accumulator<m_tiles, tile_n>& s, const LanePlace& place, const Columns& columns,
                               Visit visit) {
#pragma unroll
  for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
    for (int n = columns.first / 8; n < (columns.first + columns.count) / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        visit(s[m][n][i], place.first_row + 16 * m + i / 2 * 8, 8 * n + i % 2);
      }
    }
  }
}

/// The score of a masked key, such that log2_scale times it is -inf.
SACCADE_FN float masked_score(float log2_scale) {
  return log2_scale < 0.f ? -negative_infinity() : negative_infinity();
}

/// S becomes the score program's value of scale * S. 16 columns at a time, so that a table is not read for all of them at once:
/// each value in flight needs a register.
template <class Rules, int m_tiles, int tile_n>
SACCADE_FN void apply_score(Accumulator<m_tiles, tile_n>& s, const KernelParams& params, const RuleContext& context,
                            const WarpRows& warp, const Columns& columns, int kv_first) {
#pragma unroll
  for (int first = columns.first; first < columns.first + columns.count; first += 16) {
    const LanePlace place = warp.place();
    for_each_score<m_tiles, tile_n>(s, place, {first, 16}, [&](float& value, int q_idx, int column) {
      const Element element = context.element(q_idx, kv_first + place.first_column, column);
      value = Rules::score(params, element, params.scale * value);
    });
    __syncwarp();
  }
}

/// Scores beyond the last key become `masked`.
template <int m_tiles, int tile_n>
SACCADE_FN void mask_tail(Accumulator<m_tiles, tile_n>& s, const RuleContext& context, const WarpRows& warp,
                          const Columns& columns, int kv_first, float masked) {
  const LanePlace place = warp.place();
  const int keys = context.len_kv - kv_first - place.first_column;
  for_each_score<m_tiles, tile_n>(s, place, columns,
                                  [&](float& value, int, int column) { value = column < keys ? value : masked; });
}

/// Scores that the mask does not keep become `masked`: a select, so that a NaN score does not survive.
template <class Rules, int m_tiles, int tile_n>
SACCADE_FN void apply_mask(Accumulator<m_tiles, tile_n>& s, const KernelParams& params, const RuleContext& context,
                           const WarpRows& warp, const Columns& columns, int kv_first, float masked) {
  const LanePlace place = warp.place();
  for_each_score<m_tiles, tile_n>(s, place, columns, [&](float& value, int q_idx, int column) {
    const int kv_idx = kv_first + place.first_column + column;
    const bool keep = (kv_idx < context.len_kv) & Rules::keep(params, context.element(q_idx, kv_idx));  // no branch
    value = keep ? value : masked;
  });
}

/// The same for masks whose code is long: 16 columns at a time in a loop that gathers bits, so that the code stands
/// once for each 16 columns' rows and not for each element.
template <class Rules, int m_tiles, int tile_n>
SACCADE_FN void apply_long_mask(Accumulator<m_tiles, tile_n>& s, const KernelParams& params, const RuleContext& context,
                                const WarpRows& warp, const Columns& columns, int kv_first, float masked) {
  const LanePlace place = warp.place();
#pragma unroll
  for (int first = columns.first; first < columns.first + columns.count; first += 16) {
    uint32 kept = 0;
#pragma unroll 1
    for (int pair = 0; pair < 4; ++pair) {
      const int kv_idx = kv_first + place.first_column + first + pair / 2 * 8 + pair % 2;
#pragma unroll
      for (int r = 0; r < 2 * m_tiles; ++r) {
        const bool keep =
            kv_idx < context.len_kv && Rules::keep(params, context.element(place.first_row + 8 * r, kv_idx));
        kept |= uint32(keep) << (4 * r + pair);
      }
    }
#pragma unroll
    for (int r = 0; r < 2 * m_tiles; ++r) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        float& value = s[r / 2][first / 8 + pair / 2][r % 2 * 2 + pair % 2];
        value = (kept >> (4 * r + pair) & 1) != 0 ? value : masked;
      }
    }
  }
}

/// The same for a whole tile, where the code stands once for `run` of the lane's columns, whose table reads overlap: a loop
/// over the runs gathers a bit for each element.
template <class Rules, int m_tiles, int tile_n>
SACCADE_FN void apply_long_mask_to_tile(Accumulator<m_tiles, tile_n>& s, const KernelParams& params,
                                        const RuleContext& context, const WarpRows& warp, int kv_first, float masked) {
  constexpr int lane_columns = tile_n / 4, words = ceil_div(lane_columns, 32), rows = 2 * m_tiles;
  constexpr int run = lane_columns % 8 == 0 ? 8 : 4;
  const LanePlace place = warp.place();
  uint32 kept[words][rows] = {};
#pragma unroll
  for (int word = 0; word < words; ++word) {
    int kv_base = kv_first + place.first_column + 128 * word;
#pragma unroll 1
    for (int first = 0; first < minimum(32, lane_columns - 32 * word); first += run) {
      uint32 kept_of_run[rows] = {};
#pragma unroll
      for (int i = 0; i < run; ++i) {
        const int kv_idx = kv_base + i / 2 * 8 + i % 2;
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          const bool keep =
              (kv_idx < context.len_kv) & Rules::keep(params, context.element(place.first_row + 8 * r, kv_idx));
          kept_of_run[r] |= uint32(keep) << i;
        }
      }
#pragma unroll
      for (int r = 0; r < rows; ++r) kept[word][r] |= kept_of_run[r] << first;
      kv_base += 4 * run;
    }
  }
#pragma unroll
  for (int column = 0; column < lane_columns; ++column) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      float& value = s[r / 2][column / 2][r % 2 * 2 + column % 2];
      value = (kept[column / 32][r] >> column % 32 & 1) != 0 ? value : masked;
    }
  }
}

/// Score program and mask, where they apply: `tile_class` is that of the rows. Keys beyond the last become `masked` too.
template <class Config, class Rules, int m_tiles, int tile_n>
SACCADE_FN void finish_scores(Accumulator<m_tiles, tile_n>& s, const KernelParams& params, const RuleContext& context,
                              const WarpRows& warp, const Columns& columns, int kv_first, TileClass tile_class,
                              float masked) {
  if constexpr (Rules::has_score) {
    apply_score<Rules, m_tiles, tile_n>(s, params, context, warp, columns, kv_first);
  }
  const bool tail = kv_first + tile_n > context.len_kv;
  if constexpr (!Rules::has_mask) {
    if (tail) mask_tail<m_tiles, tile_n>(s, context, warp, columns, kv_first, masked);
  } else if (tail || tile_class == TileClass::mixed) {
    if constexpr (Config::long_mask && Config::masks_whole_tiles) {
      apply_long_mask_to_tile<Rules, m_tiles, tile_n>(s, params, context, warp, kv_first, masked);
    } else if constexpr (Config::long_mask) {
      apply_long_mask<Rules, m_tiles, tile_n>(s, params, context, warp, columns, kv_first, masked);
    } else {
      apply_mask<Rules, m_tiles, tile_n>(s, params, context, warp, columns, kv_first, masked);
    }
  }
}

/// Infinities and NaN of V were scrubbed from the tiles that the mask cuts, because some row masks them. Gives them
/// back to the rows that do keep them: o += v for each, in global memory, once O is there. Rare, so it is written for
/// size. `value` and `output` are row 0 of the sequence's head.
template <class Rules, int tile_m, int tile_n, int head_dim, int threads, class Walk, class Element>
SACCADE_FN void restore_kept_non_finite(Walk walk, uint32 thread, const Element* value, int64 value_stride,
                                        Element* output, int64 output_stride) {
  const int q_end = minimum(walk.q_first + tile_m, walk.context.len_q);
#pragma unroll 1
  while (true) {
    const auto tile = walk.next();  // one call, since it may be long
    if (!tile.exists()) return;
    if (tile.tile_class() != TileClass::mixed) continue;
    const int kv_end = minimum(tile.kv_first() + tile_n, walk.context.len_kv);
#pragma unroll 1
    for (int kv_idx = tile.kv_first(); kv_idx < kv_end; ++kv_idx) {
#pragma unroll 1
      for (int column = int(thread); column < head_dim; column += threads) {
        const Element v = value[kv_idx * value_stride + column];
        if (!is_non_finite(v)) continue;
#pragma unroll 1
        for (int q_idx = walk.q_first; q_idx < q_end; ++q_idx) {
          if (!Rules::keep(walk.params, walk.context.element(q_idx, kv_idx))) continue;
          Element& o = output[q_idx * output_stride + column];
          o.bits = uint16(pack<Element>(to_float(o) + to_float(v), 0.f));
        }
      }
    }
  }
}

}  // namespace saccade::cuda
