// The stream of K and V tiles through shared memory: which tiles of the sequence are walked, and the multi-stage
// cp.async pipeline.
#pragma once

#include "saccade_templates/cuda/tile/masking.h"
#include "saccade_templates/cuda/tile/tile_copy.h"

namespace saccade::cuda {

/// A tile of keys and what the mask keeps of it for the block's rows, in one register: first keys are multiples of 16.
struct KvTile {
  int bits = -1;  ///< negative: past the last tile

  SACCADE_FN static KvTile of(int kv_first, TileClass tile_class) { return {kv_first | int(tile_class)}; }
  SACCADE_FN bool exists() const { return bits >= 0; }
  SACCADE_FN int kv_first() const { return bits & ~15; }
  SACCADE_FN TileClass tile_class() const { return TileClass(bits & 3); }
};

/// Walks the tiles of the block's KV range in rising order, leaving out those that the mask empties.
template <class Rules, int tile_m, int tile_n>
struct KvWalk {
  const KernelParams& params;
  RuleContext context;
  int q_first;
  int next_kv, end_kv;

  SACCADE_FN KvWalk(const KernelParams& kernel_params, const RuleContext& rule_context, int first_row)
      : params(kernel_params), context(rule_context), q_first(first_row), next_kv(0), end_kv(rule_context.len_kv) {
    if constexpr (Rules::has_mask) {
      const int q_last = minimum(q_first + tile_m, context.len_q) - 1;
      const KvRange range = Rules::kv_range(params, context.tile(q_first, q_last, 0, context.len_kv - 1));
      next_kv = maximum(range.begin, 0) / tile_n * tile_n;
      end_kv = minimum(range.end, context.len_kv);
    }
  }

  /// The class of a tile of keys for `rows` rows from `first_row` on, which must exist.
  SACCADE_FN TileClass classify(int first_row, int rows, int kv_first) const {
    if constexpr (Rules::has_mask) {
      const int first = opaque(first_row);  // or what the rules derive from it stays in registers from tile to tile
      const int q_last = minimum(first + rows, context.len_q) - 1;
      const int kv_last = minimum(kv_first + tile_n, context.len_kv) - 1;
      return Rules::tile_class(params, context.tile(first, q_last, kv_first, kv_last));
    } else {
      return TileClass::full;
    }
  }

  SACCADE_FN KvTile next() {
    while (next_kv < end_kv) {
      const int kv_first = next_kv;
      next_kv += tile_n;
      const TileClass tile_class = classify(q_first, tile_m, kv_first);
      if (tile_class != TileClass::empty) return KvTile::of(kv_first, tile_class);
    }
    return {};
  }
};

/// K and V tiles in the order K0 V0 K1 V1 ..., through a ring of shared memory slots `depth` items long: item i is
/// being used while items up to i + depth - 1 are on their way. Either K and V have `stages` slots each (depth = 2 *
/// stages), or they share one ring of `stages` slots (depth = stages).
///
/// With two or more stages each, K and V of a tile are awaited together, which halves the barriers.
template <class Config, class Rules>
struct KvPipeline {
  using Element = typename Config::Element;
  using KeyTile = typename Config::KeyTile;
  using ValueTile = typename Config::ValueTile;
  using KeyMap = ChunkMap<KeyTile, Config::head_dim_qk, Config::threads>;
  using ValueMap = ChunkMap<ValueTile, Config::head_dim_v, Config::threads>;
  static constexpr int stages = Config::stages;
  static constexpr bool shared_ring = Config::shared_kv;
  static constexpr int depth = shared_ring ? stages : 2 * stages;
  static constexpr bool whole_tiles = !shared_ring && stages >= 2;
  static constexpr int slot_bytes = maximum(KeyTile::bytes, ValueTile::bytes);
  static constexpr int bytes = shared_ring ? stages * slot_bytes : stages * (KeyTile::bytes + ValueTile::bytes);
  static constexpr int start_items = whole_tiles ? depth - 2 : depth - 1;  ///< groups that start() commits
  static constexpr int tiles_ahead = whole_tiles ? stages - 1 : depth / 2;
  static_assert(depth >= 2, "the next item is loaded while one is used");

  uint32 thread;
  uint32 shared;
  volatile uint32* scrubbed;  ///< in shared memory
  MatrixView<Element> key, value;
  KvWalk<Rules, Config::tile_m, Config::tile_n> walk;
  KvTile tiles[tiles_ahead + 1];  ///< the tile in use and those whose loads have begun
  int first_slot = 0;             ///< of K of the tile in use

  /// `k`, `v`: row 0 of the sequence's head.
  SACCADE_FN KvPipeline(uint32 thread_in_block, uint32 shared_memory, volatile uint32* scrubbed_flag, const Element* k,
                        int64 k_row_stride, const Element* v, int64 v_row_stride,
                        const KvWalk<Rules, Config::tile_m, Config::tile_n>& kv_walk)
      : thread(thread_in_block),
        shared(shared_memory),
        scrubbed(scrubbed_flag),
        key(view_of<KeyMap>(thread_in_block, k, k_row_stride)),
        value(view_of<ValueMap>(thread_in_block, v, v_row_stride)),
        walk(kv_walk) {}

  /// Starts the first loads. Whatever the caller has issued since its last commit joins the first group.
  SACCADE_FN void start() {
#pragma unroll
    for (int item = 0; item < start_items; ++item) issue(item);
  }

  SACCADE_FN const KvTile& current() const { return tiles[0]; }

  /// Waits for K of the current tile (and V, when whole tiles are awaited) and gives its address. `scrub`: see
  /// acquire_value.
  SACCADE_FN uint32 acquire_key(bool scrub) {
    if constexpr (whole_tiles) {
      cp_async_wait<depth - 4>();
      barrier(scrub);
      issue(depth - 2);
      issue(depth - 1);
    } else {
      cp_async_wait<depth - 2>();
      __syncthreads();
      issue(depth - 1);
    }
    return address_of(0);
  }

  /// Waits for V of the current tile and gives its address. With `scrub` (the same in all threads), infinities and NaN
  /// in it are replaced by zeros, and *scrubbed is set if there were any.
  SACCADE_FN uint32 acquire_value(bool scrub) {
    if constexpr (!whole_tiles) {
      cp_async_wait<depth - 2>();
      barrier(scrub);
      issue(depth);
    }
    return address_of(1);
  }

  /// Moves on to the next tile.
  SACCADE_FN void advance() {
#pragma unroll
    for (int i = 0; i < tiles_ahead; ++i) tiles[i] = tiles[i + 1];
    first_slot = slot_after(shared_ring ? 2 : 1);
  }

 private:
  /// The slot `steps` (at most 2 * stages) after that of the current K.
  SACCADE_FN int slot_after(int steps) const {
    int slot = first_slot + steps % stages;
    return slot >= stages ? slot - stages : slot;
  }

  /// Where item `item`, counted from K of the current tile, lies: K is even, V odd.
  SACCADE_FN uint32 address_of(int item) const {
    if constexpr (shared_ring) return shared + uint32(slot_after(item) * slot_bytes);
    const int slot = slot_after(item / 2);
    return shared + uint32(item % 2 == 0 ? slot * KeyTile::bytes : stages * KeyTile::bytes + slot * ValueTile::bytes);
  }

  /// Starts the load of item `item` counted from K of the current tile; an empty group past the last tile.
  SACCADE_FN void issue(int item) {
    KvTile& tile = tiles[item / 2];
    if (item % 2 == 0) {
      tile = walk.next();
      if (tile.exists()) {
        copy_tile_async<KeyMap, KeyTile, Config::load_bytes>(thread, address_of(item), key, tile.kv_first(),
                                                             walk.context.len_kv);
      }
    } else {
      if (tile.exists()) {
        copy_tile_async<ValueMap, ValueTile, Config::load_bytes>(thread, address_of(item), value, tile.kv_first(),
                                                                 walk.context.len_kv);
      }
    }
    cp_async_commit();
  }

  /// The block's barrier, after this thread has scrubbed its part of the current V.
  SACCADE_FN void barrier(bool scrub) {
    if (Rules::has_mask && scrub) {
      if (scrub_own_chunks<Element, ValueTile, Config::head_dim_v, Config::threads>(thread, address_of(1))) {
        *scrubbed = 1;
      }
    }
    __syncthreads();
  }
};

}  // namespace saccade::cuda
