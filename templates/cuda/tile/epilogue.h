// The end of a row tile: O = O / l to memory through shared memory, so that stores are whole 16-byte chunks.
#pragma once

#include "saccade_templates/cuda/tile/tile_copy.h"
#include "saccade_templates/cuda/tile/warp_products.h"

namespace saccade::cuda {

/// Writes the warp's rows of O through its own rows of the tile at `staging`, which no other warp reads. `output` is
/// row 0 of the sequence's head; rows at or beyond `row_limit` are not written.
template <class Element, class Tile, int head_dim, int store_bytes, int m_tiles, int columns>
SACCADE_FN void store_rows(const Accumulator<m_tiles, columns>& o, const float (&inverse)[2 * m_tiles], uint32 staging,
                           uint32 warp_row, Element* output, int64 row_stride, int first_row, int row_limit) {
  const uint32 lane = thread_index() % 32;
#pragma unroll
  for (int r = 0; r < 2 * m_tiles; ++r) {
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
      const float* pair = &o[r / 2][n][r % 2 * 2];
      store_shared(staging + Tile::offset(warp_row + 8 * r + lane / 4, n) + lane % 4 * 4,
                   pack<Element>(pair[0] * inverse[r], pair[1] * inverse[r]));
    }
  }
  __syncwarp();
  constexpr int chunks = head_dim / 8;
  constexpr uint32 all_chunks = 16 * m_tiles * chunks;
  constexpr uint32 batch = 4;  // loads in flight
#pragma unroll 1
  for (uint32 first = lane; first < all_chunks; first += 32 * batch) {
    Chunk values[batch];
#pragma unroll
    for (uint32 i = 0; i < batch; ++i) {
      const uint32 index = umin(first + 32 * i, all_chunks - 1);
      values[i] = load_shared_chunk(staging + Tile::offset(warp_row + index / chunks, index % chunks));
    }
#pragma unroll
    for (uint32 i = 0; i < batch; ++i) {
      const uint32 index = first + 32 * i;
      const int row = first_row + int(index / chunks);
      if (index >= all_chunks || row >= row_limit) continue;
      store_chunk<store_bytes>(output + int64(row) * row_stride + index % chunks * 8, values[i]);
    }
  }
}

}  // namespace saccade::cuda
