// How a tile of 16-bit elements lies in shared memory, so that ldmatrix and 16-byte copies meet no bank conflict.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

/// `rows` x `columns` elements in 16-byte chunks of eight. Eight consecutive rows at one chunk column must fall on all
/// eight 16-byte bank groups. When a row fills whole 128-byte lines, chunk c of row r lies at chunk c ^ (r % 8) of its
/// line; otherwise the pitch is an odd number of chunks. A tile starts on a multiple of 128 bytes.
template <int rows_, int columns_>
struct SharedTile {
  static_assert(columns_ % 16 == 0, "columns are padded to the depth of one mma");
  static constexpr int rows = rows_;
  static constexpr int columns = columns_;
  static constexpr int chunks = columns / 8;
  static constexpr bool swizzled = chunks % 8 == 0;
  static constexpr int pitch_bytes = (swizzled ? chunks : chunks | 1) * 16;
  static constexpr int bytes = round_up(rows * pitch_bytes, 128);

  /// Byte offset of a chunk.
  SACCADE_FN static uint32 offset(uint32 row, uint32 chunk) {
    const uint32 place = swizzled ? chunk ^ (row % 8) : chunk;
    return row * pitch_bytes + place * 16;
  }

  /// From the address of chunk 0 or 1 of some row, the address `row_step` rows (a multiple of 8) and `chunk_step`
  /// chunks (even) further. Both steps are constants where it matters, so this is one xor and an immediate.
  SACCADE_FN static uint32 step(uint32 address, int row_step, int chunk_step) {
    if constexpr (swizzled) {
      return (address ^ uint32(chunk_step % 8 * 16)) + uint32(row_step * pitch_bytes + chunk_step / 8 * 128);
    } else {
      return address + uint32(row_step * pitch_bytes + chunk_step * 16);
    }
  }
};

}  // namespace saccade::cuda
