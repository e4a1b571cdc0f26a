// Which tiles of keys a block of several warpgroups walks, and what the mask keeps of them for each warpgroup.
#pragma once

#include "saccade_templates/cuda/prims/shared_memory.h"
#include "saccade_templates/cuda/tile/masking.h"
#include "saccade_templates/cuda/tile/row_tiles.h"

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
/// Rolled up: what reads tables is long, and the producer of tiles has few registers.
template <class Rules, int warpgroups, int tile_n>
SACCADE_FN int classify_warpgroups(const KernelParams& params, const RuleContext& context, int q_first, int kv_first) {
  int classes = 0;
  const int kv_last = minimum(kv_first + tile_n, context.len_kv) - 1;
#pragma unroll 1
  for (int w = 0; w < warpgroups; ++w) {
    const int first = q_first + w * kWarpgroupRows;
    if (first >= context.len_q) continue;
    const int q_last = minimum(first + kWarpgroupRows, context.len_q) - 1;
    TileClass found = Rules::tile_class(params, context.tile(first, q_last, kv_first, kv_last));
    if (found == TileClass::full && kv_first + tile_n > context.len_kv) found = TileClass::mixed;
    classes |= int(found) << 2 * w;
  }
  return classes;
}

/// A row tile as the producer describes it to the consumers.
struct RowNote {
  int batch, head, q_first, len_q, len_kv;
  int q_row, kv_row;  ///< varlen: where the sequence starts; tensor maps count rows in 31 bits

  SACCADE_FN static RowNote of(const WorkItem& item, const Sequence& sequence) {
    return {item.batch,      item.head,           item.q_first,        sequence.len_q,
            sequence.len_kv, int(sequence.q_row), int(sequence.kv_row)};
  }
  SACCADE_FN void store(uint32 address) const {
    store_shared(address, Chunk{{uint32(batch), uint32(head), uint32(q_first), uint32(len_q)}});
    store_shared(address + 16, Chunk{{uint32(len_kv), uint32(q_row), uint32(kv_row), 0}});
  }
  SACCADE_FN static RowNote load(uint32 address) {
    const Chunk a = load_shared_chunk(address), b = load_shared_chunk(address + 16);
    return {int(a.word[0]), int(a.word[1]), int(a.word[2]), int(a.word[3]),
            int(b.word[0]), int(b.word[1]), int(b.word[2])};
  }
  SACCADE_FN RuleContext context() const { return {batch, head, len_q, len_kv}; }
};

/// Walks the tiles of a row tile from the last to the first, leaving out those that are empty for all: what the end of the
/// keys or a causal mask cuts comes first, where a maximum is taken anyway and there is no O yet. A whole warp walks: with
/// a mask, its lanes classify 32 tiles at a time.
template <class Rules, int warpgroups, int tile_n>
struct WarpgroupWalk {
  uint32 row_note = 0;     ///< address
  int begin = 0, end = 0;  ///< of the tiles that are not in hand
  int batch_last = 0;      ///< of the 32 tiles in hand
  uint32 waiting = 0;      ///< bit l: tile batch_last - l is still to come
  int classes = 0;         ///< with a mask of the lane's tile, else of the next

  WarpgroupWalk() = default;
  SACCADE_FN WarpgroupWalk(const KernelParams& params, uint32 row_note_address) : row_note(row_note_address) {
    const RowNote rows = RowNote::load(row_note);
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
    if constexpr (Rules::has_mask) {
      refill(params, rows);
    } else {
      classes = end * tile_n > rows.len_kv ? kAllMixed : 2 * kAllMixed;
    }
  }

  /// The next tile. When there is none at all, one that is empty for all and the last.
  SACCADE_FN TileNote next(const KernelParams& params) {
    TileNote note = TileNote::of(0, 0);
    if constexpr (!Rules::has_mask) {
      if (end > 0) note = TileNote::of(--end, classes);
      classes = 2 * kAllMixed;
      return note.with_last(end == 0);
    } else {
      if (waiting != 0) {
        const int lane = __ffs(int(waiting)) - 1;
        waiting &= waiting - 1;
        note = TileNote::of(batch_last - lane, __shfl_sync(kFullWarp, classes, lane));
        if (waiting == 0 && begin < end) refill(params, RowNote::load(row_note));
      }
      return note.with_last(waiting == 0);
    }
  }

 private:
  /// A tile that is cut for each warpgroup; twice that, one that is full for each.
  static constexpr int kAllMixed = 0x15 & ((1 << 2 * warpgroups) - 1);

  SACCADE_FN void refill(const KernelParams& params, const RowNote& rows) {
    while (waiting == 0 && begin < end) {
      batch_last = end - 1;
      end -= 32;
      const int tile = batch_last - int(thread_index() % 32);
      classes = tile >= begin ? classify_warpgroups<Rules, warpgroups, tile_n>(params, rows.context(), rows.q_first,
                                                                               tile * tile_n)
                              : 0;
      waiting = __ballot_sync(kFullWarp, classes != 0);
    }
  }
};

}  // namespace saccade::cuda
