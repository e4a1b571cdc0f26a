// The ranges of tables over the keys of tiles, which one row tile leaves for the next.
#pragma once

#include "saccade_templates/cuda/prims/words.h"
#include "saccade_templates/cuda/tile/warpgroup_notes.h"

namespace saccade::cuda {

/// Rules::KeyRanges of the tiles of one sequence, in `bytes` of shared memory, in lines of 32 tiles. The first lines have places
/// of their own, the others share the last.
template <class Rules, int tile_n, int bytes>
struct KeyRangeCache {
  using Ranges = Words<typename Rules::KeyRanges>;
  static constexpr int line_tiles = 32, line_bytes = line_tiles * 4 * maximum(Ranges::count, 1);
  static constexpr int lines = bytes / line_bytes;

  uint32 address;
  int batch = -1, head = -1;  ///< whose tiles they are
  uint32 held = 0;            ///< bit of each line that is there
  int shared_line = 0;        ///< which one has the last place

  /// Of tile line_tiles * line + lane, for each lane of a warp.
  SACCADE_FN typename Rules::KeyRanges read(const KernelParams& params, const RowNote& rows, int line) {
    if constexpr (Ranges::count == 0) {
      return {};
    } else if constexpr (lines == 0) {
      const int tiles = ceil_div(rows.len_kv, tile_n);
      return Rules::template key_ranges<1>(
          params, tile_of(rows, minimum(line * line_tiles + int(thread_index() % 32), tiles - 1)));
    } else {
      if (rows.batch != batch || (Rules::key_ranges_by_head && rows.head != head)) {
        batch = rows.batch;
        head = rows.head;
        held = 0;
      }
      const int place = minimum(line, lines - 1);
      const bool there = (held >> place & 1) != 0 && (place < lines - 1 || line == shared_line);
      if (!there) {
        fill(params, rows, line, place);
        held |= 1u << place;
        if (place == lines - 1) shared_line = line;
      }
      return Ranges::load(address_of(place, int(thread_index() % 32))).value();
    }
  }

 private:
  SACCADE_FN uint32 address_of(int place, int tile) const {
    return address + uint32(place * line_bytes + tile * 4 * Ranges::count);
  }

  SACCADE_FN static Tile tile_of(const RowNote& rows, int tile) {
    const int kv_first = tile * tile_n;
    return rows.context().tile(0, 0, kv_first, minimum(kv_first + tile_n, rows.len_kv) - 1);
  }

  /// Eight lanes read the ranges of a tile together, so that a read takes few cache lines.
  SACCADE_FN void fill(const KernelParams& params, const RowNote& rows, int line, int place) const {
    constexpr int together = 8;
    const int lane = int(thread_index() % 32);
    const int first = line * line_tiles, count = minimum(line_tiles, ceil_div(rows.len_kv, tile_n) - first);
    __syncwarp();  // all have read what was there
#pragma unroll 1
    for (int tile = lane / together; tile - lane / together < count; tile += 32 / together) {
      const auto ranges = Rules::template key_ranges<together>(params, tile_of(rows, first + minimum(tile, count - 1)));
      if (lane % together == 0) Ranges::of(ranges).store(address_of(place, tile));
    }
    __syncwarp();
  }
};

}  // namespace saccade::cuda
