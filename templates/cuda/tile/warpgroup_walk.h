// Which tiles of keys a block of several warpgroups walks, and what the mask keeps of them for each warpgroup.
#pragma once

#include "saccade_templates/cuda/tile/masking.h"

namespace saccade::cuda {

constexpr int kWarpgroupRows = 64;

/// A tile of keys, its class for each of up to three warpgroups, and whether it is the last of its row tile, or of all: one
/// word, which the producer leaves in shared memory for the consumers.
struct TileNote {
  int bits;

  SACCADE_FN static TileNote of(int tile, int classes) { return {tile << 8 | classes}; }
  SACCADE_FN TileNote with_last(bool last) const { return {bits | int(last) << 7}; }
  SACCADE_FN TileNote with_final(bool final) const { return {bits | int(final) << 6}; }
  SACCADE_FN int tile() const { return bits >> 8; }
  SACCADE_FN bool last() const { return (bits & 128) != 0; }
  SACCADE_FN bool final() const { return (bits & 64) != 0; }
  SACCADE_FN TileClass class_of(int warpgroup) const { return TileClass(bits >> 2 * warpgroup & 3); }
  /// Whether some warpgroup needs the tile; masks a part of it.
  SACCADE_FN bool has_keys() const { return (bits & 0x3f) != 0; }
  SACCADE_FN bool has_mixed() const { return (bits & 0x15) != 0; }
};
static_assert(int(TileClass::empty) == 0 && int(TileClass::mixed) == 1 && int(TileClass::full) == 2);

/// The classes of a tile of keys for each warpgroup, as TileNote holds them. One that reaches beyond the last key is cut.
template <class Rules, int warpgroups, int tile_n>
SACCADE_FN int classify_warpgroups(const KernelParams& params, const RuleContext& context, int q_first, int kv_first) {
  int classes = 0;
#pragma unroll
  for (int w = 0; w < warpgroups; ++w) {
    const int first = q_first + w * kWarpgroupRows;
    if (Rules::has_mask && first >= context.len_q) continue;  // without a mask, all go through all tiles
    TileClass found = TileClass::full;
    if constexpr (Rules::has_mask) {
      const int q_last = minimum(first + kWarpgroupRows, context.len_q) - 1;
      const int kv_last = minimum(kv_first + tile_n, context.len_kv) - 1;
      found = Rules::tile_class(params, context.tile(first, q_last, kv_first, kv_last));
    }
    if (found == TileClass::full && kv_first + tile_n > context.len_kv) found = TileClass::mixed;
    classes |= int(found) << 2 * w;
  }
  return classes;
}

/// Walks the tiles of a row tile from the last to the first, leaving out those that are empty for all: what the end of the
/// keys or a causal mask cuts comes first, where a maximum is taken anyway and there is no O yet. A whole warp walks: with
/// a mask, its lanes classify 32 tiles at a time.
template <class Rules, int warpgroups, int tile_n>
struct WarpgroupWalk {
  const KernelParams& params;
  RuleContext context;
  int q_first;
  int begin_tile, end_tile;  ///< of those that are not in hand
  int batch_last = 0;        ///< of the 32 tiles in hand
  uint32 waiting = 0;        ///< bit l: tile batch_last - l is still to come
  int classes = 0;           ///< of the lane's tile

  SACCADE_FN WarpgroupWalk(const KernelParams& kernel_params, const RuleContext& rule_context, int first_row)
      : params(kernel_params), context(rule_context), q_first(first_row) {
    int begin = 0, end = context.len_kv;
    if constexpr (Rules::has_mask) {
      const int q_last = minimum(q_first + warpgroups * kWarpgroupRows, context.len_q) - 1;
      const KvRange range = Rules::kv_range(params, context.tile(q_first, q_last, 0, context.len_kv - 1));
      begin = maximum(range.begin, 0);
      end = minimum(range.end, context.len_kv);
    }
    begin_tile = begin / tile_n;
    end_tile = begin < end ? ceil_div(end, tile_n) : 0;
    refill();
  }

  /// The next tile. When there is none at all, one that is empty for all and the last.
  SACCADE_FN TileNote next() {
    if constexpr (!Rules::has_mask) {
      if (end_tile == 0) return TileNote::of(0, 0).with_last(true);
      --end_tile;
      return TileNote::of(end_tile, classify_warpgroups<Rules, warpgroups, tile_n>(params, context, q_first,
                                                                                   end_tile * tile_n))
          .with_last(end_tile == 0);
    } else {
      TileNote note = TileNote::of(0, 0);
      if (waiting != 0) {
        const int lane = __ffs(int(waiting)) - 1;
        waiting &= waiting - 1;
        note = TileNote::of(batch_last - lane, __shfl_sync(kFullWarp, classes, lane));
        refill();
      }
      return note.with_last(waiting == 0);
    }
  }

 private:
  SACCADE_FN void refill() {
    if constexpr (Rules::has_mask) {
      while (waiting == 0 && begin_tile < end_tile) {
        batch_last = end_tile - 1;
        end_tile -= 32;
        const int tile = batch_last - int(thread_index() % 32);
        classes = tile >= begin_tile
                      ? classify_warpgroups<Rules, warpgroups, tile_n>(params, context, q_first, tile * tile_n)
                      : 0;
        waiting = __ballot_sync(kFullWarp, classes != 0);
      }
    }
  }
};

}  // namespace saccade::cuda
