// The warps that feed the consumers: one loads Q, K and V by TMA, three more clean V where that is needed.
#pragma once

#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/prims/warpgroup.h"
#include "saccade_templates/cuda/tile/warpgroup_shared.h"

namespace saccade::cuda {

/// Starts the loads of a whole tile: `place` is that of its first panel. Where rows have stride 0, the map has one row, which
/// becomes every row of the tile.
template <class Tile>
SACCADE_FN void load_tile(uint32 shared, const TensorMap& map, TilePlace place, int64 row_stride, uint32 barrier) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel) {
    tma_load(shared, map, place, barrier);
    if (row_stride == 0) {
#pragma unroll 1
      for (int row = 1; row < Tile::rows; ++row) tma_load(shared + row * Tile::pitch_bytes, map, place, barrier);
    }
    shared += Tile::panel_bytes;
    place.column += Tile::panel_columns;
  }
}

/// A coordinate of a tensor map, in which a dimension of stride 0 has one element.
SACCADE_FN int coordinate(int index, int64 stride) { return stride == 0 ? 0 : index; }

/// Loads in the order in which the consumers wait: K of a tile, V of the tile before; Q of the next row tile as soon as there is
/// a slot. All lanes walk, lane 0 loads.
template <class Config, class Rules>
struct Producer {
  const KernelParams& params;
  const TensorMaps& maps;
  WarpgroupShared<Config> shared;

  /// Q of the next row tile, where there is a slot, and where three consumers have left registers for it.
  static constexpr bool loads_ahead = Config::q_stages > 1 && Config::warpgroups < 3;

  SACCADE_FN void run() const {
    const bool loads = thread_index() == 0;
    if (loads) prefetch_maps();
    RingPlace<Config::k_stages> k;
    RingPlace<Config::v_stages> v;
    RingPlace<Config::q_stages> q;
    RingPlace<Config::row_notes> row;
    RowTiles<Config> rows(params);
    WorkItem item, next_item;
    Sequence sequence, next_sequence;
    bool exists = rows.next(item, sequence);
    if (!exists) {  // nothing for this block: a row tile without rows and keys ends it
      item = {};
      sequence = {};
      exists = true;
    }
    bool has_query = false;  // Q of the row tile is on its way already
    while (exists) {
      const RuleContext context{item.batch, item.head, sequence.len_q, sequence.len_kv};
      typename Config::Walk walk(params, context, item.q_first);
      const bool goes_on = rows.next(next_item, next_sequence);
      const Place place{item.head / params.group, Config::varlen ? 0 : item.batch, int(sequence.kv_row),
                        sequence.len_kv};
      TileNote note, before = {};
      for (int tile = 0;; ++tile) {
        note = walk.next();
        note = note.with_final(note.last() && !goes_on);
        mbarrier_wait(shared.key_empty(k.slot), k.parity ^ 1);
        if (loads) load_key(k.slot, note, place);
        k.advance();
        if (tile == 0 && !has_query) load_query(q, row, item, sequence, loads);
        if (tile == 0) has_query = false;
        if (tile > 0) load_value(v, before, place, loads);
        if (loads_ahead && tile == 1 && goes_on) {  // the row tile before is done, and its slot free
          load_query(q, row, next_item, next_sequence, loads);
          has_query = true;
        }
        before = note;
        if (note.last()) break;
      }
      load_value(v, note, place, loads);
      item = next_item;
      sequence = next_sequence;
      exists = goes_on;
    }
  }

 private:
  struct Place {
    int head, batch, row;  ///< of K and V: the sequence's first
    int len_kv;
  };

  SACCADE_FN void prefetch_maps() const {
    tma_prefetch_map(maps.q);
    tma_prefetch_map(maps.k);
    tma_prefetch_map(maps.v);
    if (Config::stages_output) tma_prefetch_map(maps.o);
  }

  SACCADE_FN void load_query(RingPlace<Config::q_stages>& q, RingPlace<Config::row_notes>& row, const WorkItem& item,
                             const Sequence& sequence, bool loads) const {
#pragma unroll
    for (int w = 0; w < Config::warpgroups; ++w) {
      mbarrier_wait(shared.query_empty(q.slot, w), q.parity ^ 1);
      if (!loads) continue;
      if (w == 0) RowNote::of(item, sequence).store(shared.row_note(row.slot));
      mbarrier_arrive_expect(shared.query_full(q.slot, w), Config::QueryTile::loaded_bytes);
      const TilePlace place{0, coordinate(int(sequence.q_row) + item.q_first + w * kWarpgroupRows, params.q_stride.row),
                            coordinate(item.head, params.q_stride.head),
                            Config::varlen ? 0 : coordinate(item.batch, params.q_stride.batch)};
      load_tile<typename Config::QueryTile>(shared.query(q.slot, w), maps.q, place, params.q_stride.row,
                                            shared.query_full(q.slot, w));
    }
    q.advance();
    row.advance();
  }

  SACCADE_FN void load_key(uint32 slot, const TileNote& note, const Place& place) const {
    store_shared(shared.key_note(slot), uint32(note.bits));
    load<typename Config::KeyTile>(shared.key(slot), shared.key_full(slot), maps.k, params.k_stride, note, place);
  }

  SACCADE_FN void load_value(RingPlace<Config::v_stages>& v, const TileNote& note, const Place& place,
                             bool loads) const {
    mbarrier_wait(shared.value_empty(v.slot), v.parity ^ 1);
    if (loads) {
      store_shared(shared.value_note(v.slot), uint32(note.bits));
      store_shared(shared.value_keys(v.slot), uint32(place.len_kv - note.tile() * Config::tile_n));
      load<typename Config::ValueTile>(shared.value(v.slot), shared.value_full(v.slot), maps.v, params.v_stride, note,
                                       place);
    }
    v.advance();
  }

  template <class Tile>
  SACCADE_FN static void load(uint32 tile, uint32 full, const TensorMap& map, const TensorStrides& stride,
                              const TileNote& note, const Place& place) {
    if (!note.has_keys()) return mbarrier_arrive(full);
    mbarrier_arrive_expect(full, Tile::loaded_bytes);
    load_tile<Tile>(tile, map,
                    {0, coordinate(place.row + note.tile() * Config::tile_n, stride.row),
                     coordinate(place.head, stride.head), coordinate(place.batch, stride.batch)},
                    stride.row, full);
  }
};

/// Takes from the tiles of V, before they are multiplied, what a weight of 0 would not take out of the products.
template <class Config, class Rules>
struct ValueCleaner {
  using Element = typename Config::Element;
  using Tile = typename Config::ValueTile;
  static constexpr uint32 threads = 32 * WarpgroupShared<Config>::cleaner_warps;
  static constexpr uint32 chunks = Tile::columns / 8;

  WarpgroupShared<Config> shared;

  SACCADE_FN void run() const {
    const uint32 thread = thread_index() - 32;
    RingPlace<Config::v_stages> v;
    TileNote note;
    do {
      mbarrier_wait(shared.value_full(v.slot), v.parity);
      note = {int(load_shared(shared.value_note(v.slot)))};
      const int keys = int(load_shared(shared.value_keys(v.slot)));
      const bool clears = Config::varlen && keys < Config::tile_n;
      const bool scrubs = Rules::has_mask && note.any(TileClass::mixed);
      if (clears) clear_rows_from(uint32(maximum(keys, 0)), shared.value(v.slot), thread);
      if (scrubs) scrub(shared.value(v.slot), thread);
      if (clears || scrubs) fence_async_proxy();
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(shared.value_clean(v.slot));
      v.advance();
    } while (!note.final());
  }

 private:
  /// Zeroes the rows beyond the sequence's last key.
  SACCADE_FN void clear_rows_from(uint32 row, uint32 tile, uint32 thread) const {
#pragma unroll 1
    for (uint32 i = row * chunks + thread; i < Tile::rows * chunks; i += threads) {
      store_shared(tile + Tile::offset(i / chunks, i % chunks), Chunk{});
    }
  }

  /// Replaces infinities and NaN by zeros and says so in shared.scrubbed().
  SACCADE_FN void scrub(uint32 tile, uint32 thread) const {
#pragma unroll 4
    for (uint32 i = thread; i < Tile::rows * chunks; i += threads) {
      const uint32 address = tile + Tile::offset(i / chunks, i % chunks);
      Chunk values = load_shared_chunk(address);
      uint32 sum = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) accumulate_non_finite<Element>(sum, values.word[j]);
      if (non_finite_halves<Element>(sum) == 0) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) values.word[j] = without_non_finite<Element>(values.word[j]);
      store_shared(address, values);
      store_shared(shared.scrubbed(), 1);
    }
  }
};

}  // namespace saccade::cuda
