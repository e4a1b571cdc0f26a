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
  using Map = ChunkMap<SharedTile<16 * m_tiles, Tile::columns>, head_dim, 32>;
  const Map map(lane);
  const int rows_left = row_limit - first_row - int(map.row);
  Element* first = output + int64(first_row + int(map.row)) * row_stride + map.chunk * 8;
#pragma unroll
  for (int i = 0; i < Map::row_passes; ++i) {
    Chunk values[Map::column_passes];
#pragma unroll
    for (int j = 0; j < Map::column_passes; ++j) {
      const uint32 chunk = umin(map.chunk + j * Map::threads_per_row, Tile::chunks - 1);
      values[j] = load_shared_chunk(staging + Tile::offset(warp_row + map.row + i * Map::rows_per_pass, chunk));
    }
    if (i * Map::rows_per_pass >= rows_left) break;
#pragma unroll
    for (int j = 0; j < Map::column_passes; ++j) {
      if (map.chunk + j * Map::threads_per_row >= head_dim / 8) continue;
      store_chunk<store_bytes>(first + i * (Map::rows_per_pass * row_stride) + j * Map::threads_per_row * 8, values[j]);
    }
  }
}

}  // namespace saccade::cuda
