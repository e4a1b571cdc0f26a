// The warp that decides which tiles are needed, some tiles ahead of the one that loads them.
#pragma once

#include "saccade_templates/cuda/tile/key_range_cache.h"
#include "saccade_templates/cuda/tile/warpgroup_shared.h"

namespace saccade::cuda {

/// Walks the tiles of a row tile from the last to the first, leaving out those that are empty for all: what the end of the
/// keys or a causal mask cuts comes first, where a maximum is taken anyway and there is no O yet. A whole warp walks: with
/// a mask, its lanes classify 32 tiles at a time.
template <class Config, class Rules>
struct WarpgroupWalk {
  static constexpr int warpgroups = Config::warpgroups, tile_n = Config::tile_n;
  using KeyRanges = KeyRangeCache<Rules, tile_n, Config::key_range_bytes>;

  const KernelParams& params;
  RowNote rows;
  KeyRanges& key_ranges;
  int begin = 0, end = 0;  ///< of the tiles that are not in hand
  int first_in_hand = 0;   ///< of 32 tiles
  uint32 waiting = 0;      ///< bit l: tile first_in_hand + l is still to come
  int classes = 0;         ///< with a mask of the lane's tile, else of the next

  Words<typename Rules::QueryRanges> queries = {};  ///< of warpgroup lane / kTogether

  SACCADE_FN WarpgroupWalk(const KernelParams& kernel_params, const RowNote& row_note, KeyRanges& range_cache)
      : params(kernel_params), rows(row_note), key_ranges(range_cache) {
    int first_key = 0, keys_end = rows.len_kv;
    if constexpr (Rules::has_mask) {
      const int q_last = minimum(rows.q_first + warpgroups * kWarpgroupRows, rows.len_q) - 1;
      const KvRange range = Rules::kv_range(params, rows.context().tile(rows.q_first, q_last, 0, rows.len_kv - 1));
      first_key = maximum(range.begin, 0);
      keys_end = minimum(range.end, rows.len_kv);
    }
    if (first_key >= keys_end) return;
    begin = first_key / tile_n;
    end = ceil_div(keys_end, tile_n);
    if constexpr (Rules::has_mask) queries = decltype(queries)::of(read_query_ranges());
    if (!Rules::has_mask) classes = end * tile_n > rows.len_kv ? kAllMixed : 2 * kAllMixed;
  }

  /// Puts the tile that comes next into `note`, which changes nothing when there is none.
  SACCADE_FN bool next(TileNote& note) {
    if constexpr (!Rules::has_mask) {
      if (end == 0) return false;
      note = TileNote::of(--end, classes);
      classes = 2 * kAllMixed;
    } else {
      while (waiting == 0) {
        if (begin >= end) return false;
        take_in_hand();
      }
      const int lane = 31 - __clz(int(waiting));
      waiting &= ~(1u << lane);
      note = TileNote::of(first_in_hand + lane, __shfl_sync(kFullWarp, classes, lane));
    }
    return true;
  }

 private:
  /// A tile that is cut for each warpgroup; twice that, one that is full for each.
  static constexpr int kAllMixed = 0x15 & ((1 << 2 * warpgroups) - 1);

  static constexpr int kTogether = 8;  ///< lanes that read the ranges of a warpgroup's queries

  SACCADE_FN typename Rules::QueryRanges read_query_ranges() const {
    const int warpgroup = minimum(int(thread_index() % 32) / kTogether, warpgroups - 1);
    const int first = minimum(rows.q_first + warpgroup * kWarpgroupRows, rows.len_q - 1);
    const int last = minimum(first + kWarpgroupRows, rows.len_q) - 1;
    return Rules::template query_ranges<kTogether>(params, rows.context().tile(first, last, 0, 0));
  }

  SACCADE_FN void take_in_hand() {
    const int line = (end - 1) / 32, lane = int(thread_index() % 32), tile = 32 * line + lane;
    classes = classify(minimum(maximum(tile, begin), end - 1) * tile_n, key_ranges.read(params, rows, line));
    if (tile < begin || tile >= end) classes = 0;
    first_in_hand = end = 32 * line;
    waiting = __ballot_sync(kFullWarp, classes != 0);
  }

  /// The classes of the lane's tile for each warpgroup, as TileNote holds them. One that reaches beyond the last key is cut.
  /// Rolled up, since the walker has few registers.
  SACCADE_FN int classify(int kv_first, const typename Rules::KeyRanges& keys) const {
    int found = 0;
    const int kv_last = minimum(kv_first + tile_n, rows.len_kv) - 1;
#pragma unroll 1
    for (int w = 0; w < warpgroups; ++w) {
      const int first = rows.q_first + w * kWarpgroupRows;
      if (first >= rows.len_q) break;
      const Tile tile = rows.context().tile(first, minimum(first + kWarpgroupRows, rows.len_q) - 1, kv_first, kv_last);
      TileClass of_tile = Rules::tile_class(params, tile, queries.from_lane(w * kTogether).value(), keys);
      if (of_tile == TileClass::full && kv_first + tile_n > rows.len_kv) of_tile = TileClass::mixed;
      found |= int(of_tile) << 2 * w;
    }
    return found;
  }
};

/// Leaves a note of each row tile, and then one of each of its tiles, in the order in which they are computed. The note of the
/// next row tile is there before those of this one's tiles, so that its Q can be loaded ahead. At the end comes a row tile without
/// rows and keys.
template <class Config, class Rules>
struct Walker {
  using Walk = WarpgroupWalk<Config, Rules>;

  const KernelParams& params;
  WarpgroupShared<Config> shared;

  SACCADE_FN void run() const {
    const bool speaks = thread_index() % 32 == 0;
    RowTiles<Config> row_tiles(params);
    RingPlace<Config::row_notes> row;
    RingPlace<Config::tile_notes> tile;
    typename Walk::KeyRanges key_ranges{shared.key_ranges()};
    bool exists;
    uint32 rows = leave_next(row_tiles, row, exists, speaks);
    while (exists) {
      const uint32 next_rows = leave_next(row_tiles, row, exists, speaks);
      Walk walk(params, RowNote::load(rows), key_ranges);
      TileNote note = TileNote::of(0, 0);  // no tile at all: one that is empty for all
      bool found = false;
      for (TileNote next_note = {}; walk.next(next_note); note = next_note) {
        if (found) leave(tile, note, speaks);
        found = true;
      }
      leave(tile, note.with_last(), speaks);
      rows = next_rows;
    }
    leave(tile, TileNote::of(0, 0).with_last().with_final(), speaks);
  }

 private:
  /// The note of the next row tile, which all lanes can read then; where there is none, of one without rows and keys.
  SACCADE_FN uint32 leave_next(RowTiles<Config>& row_tiles, RingPlace<Config::row_notes>& place, bool& exists,
                               bool speaks) const {
    WorkItem item = {};
    Sequence sequence = {};
    exists = row_tiles.next(item, sequence);
    const uint32 address = shared.row_note(place.slot);
    if (speaks) RowNote::of(item, exists ? sequence : Sequence{}).store(address);
    __syncwarp();
    place.advance();
    return address;
  }

  SACCADE_FN void leave(RingPlace<Config::tile_notes>& place, TileNote note, bool speaks) const {
    mbarrier_wait_by_warp(shared.tile_note_empty(place.slot), place.parity ^ 1);
    if (speaks) {
      store_shared(shared.tile_note(place.slot), uint32(note.bits));
      mbarrier_arrive(shared.tile_note_full(place.slot));
    }
    place.advance();
  }
};

}  // namespace saccade::cuda
