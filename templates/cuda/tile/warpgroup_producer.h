// The warps that feed the consumers: one loads Q, K and V by TMA, two clean V where that is needed.
#pragma once

#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/prims/warpgroup.h"
#include "saccade_templates/cuda/tile/warpgroup_shared.h"

namespace saccade::cuda {

/// Starts the loads of a whole tile: `place` is that of its first panel.
template <class Tile>
SACCADE_FN void load_tile(uint32 shared, const TensorMap& map, TilePlace place, uint32 barrier) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel) {
    tma_load(shared + panel * Tile::panel_bytes, map, place, barrier);
    place.column += Tile::panel_columns;
  }
}

/// A tile of `rows` times the same row, by a whole warp: a tensor map has no stride of 0. Further rows become zeros.
template <class Tile, int head_dim, class Element>
SACCADE_FN void repeat_row(uint32 shared, const Element* row, int rows) {
  constexpr int chunks = Tile::columns / 8;
#pragma unroll 1
  for (int i = int(thread_index() % 32); i < Tile::rows * chunks; i += 32) {
    const bool exists = i / chunks < rows && i % chunks * 8 < head_dim;
    const Chunk chunk = exists ? reinterpret_cast<const Chunk*>(row)[i % chunks] : Chunk{};
    store_shared(shared + Tile::offset(uint32(i / chunks), uint32(i % chunks)), chunk);
  }
  fence_async_proxy();
  __syncwarp();
}

/// A coordinate of a tensor map, in which a dimension of stride 0 has one element.
SACCADE_FN int coordinate(int index, int64 stride) { return stride == 0 ? 0 : index; }

/// Loads in the order in which the consumers wait: K of a tile, V of the tile before. All lanes follow, lane 0 loads.
template <class Config>
struct Loader {
  const KernelParams& params;
  const TensorMaps& maps;
  WarpgroupShared<Config> shared;

  /// Warpgroups whose Q of the next row tile is loaded ahead: where there are slots.
  static constexpr int queries_ahead = Config::q_slots - Config::warpgroups;
  /// The tile with which those slots, of the row tile before, come free: its K has the place of that row tile's last.
  static constexpr int ahead_from = maximum(1, Config::k_stages - 1);

  SACCADE_FN void run() const {
    const bool loads = thread_index() == 0;
    if (loads) prefetch_maps();
    RingPlace<Config::k_stages> k;
    RingPlace<Config::v_stages> v;
    RingPlace<Config::q_slots> q;
    RingPlace<Config::row_notes> row;
    RingPlace<Config::tile_notes> notes;
    int loaded = 0;  // warpgroups that have their Q of this row tile
    TileNote note;
    do {
      note = take(notes, loads);  // that of the row tile is there then
      const Place place = keys_of(RowNote::load(shared.row_note(row.slot)));
      load_key(k, note, place, loads);
      load_queries(q, row.slot, loaded, Config::warpgroups, loads);
      loaded = 0;
      for (int tile = 1; !note.last(); ++tile) {
        const TileNote before = note;
        note = take(notes, loads);
        load_key(k, note, place, loads);
        if (queries_ahead > 0 && tile == ahead_from) {
          load_queries(q, row.after(), 0, queries_ahead, loads);
          loaded = queries_ahead;
        }
        load_value(v, before, place, loads);
      }
      load_value(v, note, place, loads);
      row.advance();
    } while (!note.final());
  }

 private:
  /// Where rows of a tensor begin, and how many of them its sequence has.
  struct Place {
    int head, batch, row, rows;
  };

  SACCADE_FN void prefetch_maps() const {
    tma_prefetch_map(maps.q);
    tma_prefetch_map(maps.k);
    tma_prefetch_map(maps.v);
    if (Config::stages_output) tma_prefetch_map(maps.o);
  }

  SACCADE_FN Place keys_of(const RowNote& rows) const {
    return {rows.head / params.group, Config::varlen ? 0 : rows.batch, rows.kv_row, rows.len_kv};
  }

  /// The tile that comes next, once the walker has got there.
  SACCADE_FN TileNote take(RingPlace<Config::tile_notes>& place, bool loads) const {
    mbarrier_wait_by_warp(shared.tile_note_full(place.slot), place.parity);
    const TileNote note{int(load_shared(shared.tile_note(place.slot)))};
    __syncwarp();
    if (loads) mbarrier_arrive(shared.tile_note_empty(place.slot));
    place.advance();
    return note;
  }

  /// Q of the warpgroups begin..end of the row tile with note `row`.
  SACCADE_FN void load_queries(RingPlace<Config::q_slots>& q, uint32 row, int begin, int end, bool loads) const {
    const RowNote rows = RowNote::load(shared.row_note(row));
#pragma unroll 1
    for (int w = begin; w < end; ++w) {
      mbarrier_wait_by_warp(shared.query_empty(q.slot), q.parity ^ 1);
      const int first_row = rows.q_first + w * kWarpgroupRows;
      if (rows.len_q == 0) {  // the end
        if (loads) mbarrier_arrive(shared.query_full(q.slot));
        q.advance();
        continue;
      }
      load<typename Config::QueryTile, Config::head_dim_qk>(
          shared.query(q.slot), shared.query_full(q.slot), maps.q, params.q, params.q_stride,
          {rows.head, Config::varlen ? 0 : rows.batch, rows.q_row + first_row, rows.len_q - first_row}, loads);
      q.advance();
    }
  }

  SACCADE_FN void load_key(RingPlace<Config::k_stages>& k, const TileNote& note, const Place& place, bool loads) const {
    mbarrier_wait_by_warp(shared.key_empty(k.slot), k.parity ^ 1);
    if (loads) store_shared(shared.key_note(k.slot), uint32(note.bits));
    load_keys_of<typename Config::KeyTile, Config::head_dim_qk>(shared.key(k.slot), shared.key_full(k.slot), maps.k,
                                                                params.k, params.k_stride, note, place, loads);
    k.advance();
  }

  SACCADE_FN void load_value(RingPlace<Config::v_stages>& v, const TileNote& note, const Place& place,
                             bool loads) const {
    mbarrier_wait_by_warp(shared.value_empty(v.slot), v.parity ^ 1);
    if (loads) {
      store_shared(shared.value_note(v.slot), uint32(note.bits));
      store_shared(shared.value_keys(v.slot), uint32(place.rows - note.tile() * Config::tile_n));
    }
    load_keys_of<typename Config::ValueTile, Config::head_dim_v>(shared.value(v.slot), shared.value_full(v.slot),
                                                                 maps.v, params.v, params.v_stride, note, place, loads);
    v.advance();
  }

  /// A tile of K or V. One that no row needs is not loaded.
  template <class Tile, int head_dim>
  SACCADE_FN static void load_keys_of(uint32 tile, uint32 full, const TensorMap& map, const void* tensor,
                                      const TensorStrides& stride, const TileNote& note, Place place, bool loads) {
    if (!note.has_keys()) {
      if (loads) mbarrier_arrive(full);
      return;
    }
    const int kv_first = note.tile() * Config::tile_n;
    place.row += kv_first;
    place.rows -= kv_first;
    load<Tile, head_dim>(tile, full, map, tensor, stride, place, loads);
  }

  template <class Tile, int head_dim>
  SACCADE_FN static void load(uint32 tile, uint32 full, const TensorMap& map, const void* tensor,
                              const TensorStrides& stride, const Place& place, bool loads) {
    if (stride.row == 0) {
      const auto* row =
          static_cast<const typename Config::Element*>(tensor) + place.batch * stride.batch + place.head * stride.head;
      repeat_row<Tile, head_dim>(tile, row, place.rows);
      if (loads) mbarrier_arrive(full);
    } else if (loads) {
      mbarrier_arrive_expect(full, Tile::loaded_bytes);
      load_tile<Tile>(tile, map,
                      {0, place.row, coordinate(place.head, stride.head), coordinate(place.batch, stride.batch)}, full);
    }
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
    const uint32 thread = thread_index() - 32 * (4 - WarpgroupShared<Config>::cleaner_warps);
    RingPlace<Config::v_stages> v;
    RingPlace<Config::row_notes> row;
    TileNote note;
    do {
      mbarrier_wait(shared.value_full(v.slot), v.parity);
      note = {int(load_shared(shared.value_note(v.slot)))};
      const int keys = int(load_shared(shared.value_keys(v.slot)));
      const bool clears = Config::varlen && keys < Config::tile_n;
      const bool scrubs = Rules::has_mask && note.has_mixed();
      if (clears) clear_rows_from(uint32(maximum(keys, 0)), shared.value(v.slot), thread);
      if (scrubs) scrub(shared.value(v.slot), thread, shared.row_note(row.slot), note.tile());
      if (clears || scrubs) fence_async_proxy();
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(shared.value_clean(v.slot));
      v.advance();
      if (note.last()) row.advance();
    } while (!note.final());
  }

 private:
  /// Zeroes the rows beyond the sequence's last key.
  SACCADE_FN void clear_rows_from(uint32 row, uint32 tile, uint32 thread) const {
#pragma unroll 1
    for (uint32 i = thread; i < Tile::rows * chunks; i += threads) {
      if (i >= row * chunks) store_shared(address_of(tile, i), Chunk{});
    }
  }

  /// Replaces infinities and NaN by zeros and says so in the row tile's ScrubbedRange. The consumers may be waiting: the loads
  /// of several chunks are in flight together.
  SACCADE_FN void scrub(uint32 tile, uint32 thread, uint32 row_note, int tile_index) const {
    constexpr uint32 together = 4, rounded_down = Tile::rows * chunks / (together * threads) * (together * threads);
    uint32 sum = 0;
#pragma unroll 1
    for (uint32 first = thread; first < rounded_down; first += together * threads) {
      look_at<together>(sum, tile, first);
    }
    look_at<ceil_div(int(Tile::rows * chunks - rounded_down), int(threads))>(sum, tile, rounded_down + thread);
    if (non_finite_halves<Element>(sum) == 0) return;
#pragma unroll 1
    for (uint32 i = thread; i < Tile::rows * chunks; i += threads) {
      Chunk values = load_shared_chunk(address_of(tile, i));
#pragma unroll
      for (int j = 0; j < 4; ++j) values.word[j] = without_non_finite<Element>(values.word[j]);
      store_shared(address_of(tile, i), values);
    }
    ScrubbedRange::add(RowNote::scrubbed_at(row_note), tile_index);
  }

  /// A half of `sum` becomes NaN if one of `count` chunks holds an infinity or a NaN.
  template <int count>
  SACCADE_FN static void look_at(uint32& sum, uint32 tile, uint32 first) {
    Chunk values[maximum(count, 1)] = {};
#pragma unroll
    for (int c = 0; c < count; ++c) {
      if (first + c * threads < Tile::rows * chunks)
        values[c] = load_shared_chunk(address_of(tile, first + c * threads));
    }
#pragma unroll
    for (int c = 0; c < count; ++c) {
#pragma unroll
      for (int j = 0; j < 4; ++j) accumulate_non_finite<Element>(sum, values[c].word[j]);
    }
  }

  /// Of chunk i of a tile; a thread has every `threads`-th.
  SACCADE_FN static uint32 address_of(uint32 tile, uint32 i) { return tile + Tile::offset(i / chunks, i % chunks); }
};

}  // namespace saccade::cuda
