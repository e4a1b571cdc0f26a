// The row tiles of a block that stays on its SM.
#pragma once

#include "saccade_templates/cuda/tile/work.h"

namespace saccade::cuda {

/// Rising: tiles as they come. Folded: as much work for each block when later rows have more keys (causal). Most row tiles
/// go two by two, a head's last with its first, the last but one with the second ...; what whole rounds of the blocks leave
/// over goes one by one, the longest first and there and back over the blocks.
enum class RowOrder : int { rising = 0, folded = 1 };

/// The row tiles of this block, in the order in which it computes them. Tiles of one head stay together in time, so that its
/// K and V stay in L2. `Config`: tile_m, row_order, varlen.
template <class Config, bool varlen = Config::varlen>
struct RowTiles {
  static constexpr bool folded = Config::row_order == RowOrder::folded;

  const KernelParams& params;
  uint32 tiles_per_head;
  uint32 heads;               ///< of all sequences
  uint32 round = 0;           ///< of the blocks, over row tiles or pairs, and then over what is left
  bool second = false;        ///< folded: of its pair
  bool left = !folded;        ///< folded: the pairs are done
  uint32 index = blockIdx.x;  ///< of the tile, pair, or tile among those left

  SACCADE_FN explicit RowTiles(const KernelParams& kernel_params)
      : params(kernel_params),
        tiles_per_head(uint32(ceil_div(kernel_params.seqlen_q, Config::tile_m))),
        heads(uint32(kernel_params.heads_q) * uint32(kernel_params.batch)) {
    if (folded && paired_rounds() == 0) left = true;
  }

  /// False when there is none.
  SACCADE_FN bool next(WorkItem& item, Sequence& sequence) {
    if (!exists()) return false;
    item = current();
    sequence = sequence_of<false>(params, item.batch);
    advance();
    return true;
  }

 private:
  SACCADE_FN bool exists() const { return !left || index < tiles_left(); }

  SACCADE_FN WorkItem current() const {
    uint32 head_index, tile;
    if (!folded) {
      head_index = index / tiles_per_head;
      tile = index - head_index * tiles_per_head;
    } else if (left) {
      find_left(head_index, tile);
    } else {
      head_index = index / pairs_per_head();
      tile = index - head_index * pairs_per_head();
      if (!second) tile = tiles_per_head - 1 - tile;
    }
    const uint32 batch = head_index / uint32(params.heads_q);
    return {int(batch), int(head_index - batch * uint32(params.heads_q)), int(tile) * Config::tile_m};
  }

  SACCADE_FN void advance() {
    if (!left) {
      const uint32 place = index % pairs_per_head();
      second = !second && tiles_per_head - 1 - place != place;
      if (second) return;
      if (++round == paired_rounds()) {
        left = true;
        round = 0;
      }
    } else {
      ++round;
    }
    const bool back = folded && left && round % 2 != 0;
    index = round * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }

  SACCADE_FN uint32 pairs_per_head() const { return (tiles_per_head + 1) / 2; }

  /// Whole rounds of the blocks over pairs but for the last, from which the rest could not be evened out (but few tiles a
  /// head are as even without it).
  SACCADE_FN uint32 paired_rounds() const {
    const uint32 rounds = pairs_per_head() * heads / gridDim.x, spared = tiles_per_head >= 8 ? 1 : 0;
    return rounds > spared ? rounds - spared : 0;
  }

  /// The heads that are left: all tiles of `whole` of them, and perhaps, of the one before, the tiles but for `taken` at
  /// either end.
  struct Left {
    uint32 first_whole, whole, taken;
    SACCADE_FN uint32 with_part() const { return whole + (taken > 0 ? 1 : 0); }
  };
  SACCADE_FN Left heads_left() const {
    const uint32 pairs = paired_rounds() * gridDim.x;
    const uint32 first_whole = uint32(ceil_div(int(pairs), int(pairs_per_head())));
    return {first_whole, heads - first_whole, pairs % pairs_per_head()};
  }

  SACCADE_FN uint32 tiles_left() const {
    if (!folded) return tiles_per_head * heads;
    const Left rest = heads_left();
    return rest.whole * tiles_per_head + (rest.taken > 0 ? tiles_per_head - 2 * rest.taken : 0);
  }

  /// Tile `index` of those left when they are sorted by row, the last rows first.
  SACCADE_FN void find_left(uint32& head_index, uint32& tile) const {
    const Left rest = heads_left();
    const uint32 above = rest.taken * rest.whole;  // tiles of rows of which the part has none
    const uint32 middle = (tiles_per_head - 2 * rest.taken) * rest.with_part();
    uint32 place = index, across = rest.whole, first_row = tiles_per_head - 1, first_head = rest.first_whole;
    if (place >= above + middle) {
      place -= above + middle;
      first_row = rest.taken - 1;
    } else if (place >= above) {
      place -= above;
      first_row -= rest.taken;
      across = rest.with_part();
      first_head = rest.first_whole + rest.whole - across;
    }
    tile = first_row - place / across;
    head_index = first_head + place % across;
  }
};

/// Of sequences whose lengths only the GPU knows: their row tiles, or pairs of them when folded, are counted on the way, so
/// that blocks have as many each. The longest sequences come first, by powers of two, and the blocks take them there and back:
/// short work evens out what long work has left. A whole warp (`Config::lanes`) looks for the sequences.
template <class Config>
struct RowTiles<Config, true> {
  static constexpr bool folded = Config::row_order == RowOrder::folded;

  const KernelParams& params;
  int batch = 0;        ///< from where on sequences are looked for
  int size = 32;        ///< log2 of the lengths in turn
  int lower = -1;       ///< of the longest shorter ones that the lane has seen meanwhile
  uint32 passed = 0;    ///< tiles or pairs of the sequences before
  uint32 round = 0;     ///< of the blocks, over all tiles or pairs
  bool second = false;  ///< of its pair

  SACCADE_FN explicit RowTiles(const KernelParams& kernel_params) : params(kernel_params) {}

  SACCADE_FN bool next(WorkItem& item, Sequence& sequence) {
    for (; find(); ++batch) {
      sequence = sequence_of<true>(params, batch);
      const uint32 tiles = uint32(ceil_div(sequence.len_q, Config::tile_m));
      const uint32 per_head = folded ? (tiles + 1) / 2 : tiles;
      const uint32 index = round * gridDim.x + (round % 2 != 0 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
      const uint32 place = index - passed;
      if (place < per_head * uint32(params.heads_q)) {
        const uint32 head = place / per_head, first = place - head * per_head, mirrored = tiles - 1 - first;
        item = {batch, int(head), int(folded && !second ? mirrored : first) * Config::tile_m};
        second = folded && !second && mirrored != first;
        if (!second) ++round;
        return true;
      }
      passed += per_head * uint32(params.heads_q);
    }
    return false;
  }

 private:
  /// Moves `batch` to the next sequence of the size in turn, or else of the next lower size that there is.
  SACCADE_FN bool find() {
    const int lane = int(threadIdx.x % Config::lanes);
    while (size >= 0) {
      for (; batch < params.batch; batch += Config::lanes) {
        const int mine = batch + lane;
        const int found =
            mine < params.batch ? log2_floor(params.cu_seqlens_q[mine + 1] - params.cu_seqlens_q[mine]) : -1;
        const uint32 hits = __ballot_sync(kFullWarp, found == size);
        if (found < size) lower = maximum(lower, found);
        if (hits != 0) {
          batch += __ffs(int(hits)) - 1;
          return true;
        }
      }
      size = __reduce_max_sync(kFullWarp, lower);
      lower = -1;
      batch = 0;
    }
    return false;
  }

  /// -1 of an empty sequence.
  SACCADE_FN static int log2_floor(int length) { return length <= 0 ? -1 : 31 - __clz(length); }
};

}  // namespace saccade::cuda
