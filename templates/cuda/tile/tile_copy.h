// Copies of whole tiles between global and shared memory by all threads of a block.
#pragma once

#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/prims/cp_async.h"
#include "saccade_templates/cuda/prims/shared_memory.h"
#include "saccade_templates/cuda/tile/shared_tile.h"

namespace saccade::cuda {

/// One 16-byte chunk of eight elements, in pieces of `load_bytes`; zeros when not `valid`, and then nothing is read.
/// Two-byte pieces have no asynchronous form and go through registers.
template <int load_bytes>
SACCADE_FN void copy_chunk_async(uint32 shared_address, const void* global, bool valid) {
  if constexpr (load_bytes == 2) {
    Chunk chunk = {};
    if (valid) {
      const uint16* elements = static_cast<const uint16*>(global);
#pragma unroll
      for (int i = 0; i < 4; ++i) chunk.word[i] = elements[2 * i] | uint32(elements[2 * i + 1]) << 16;
    }
    store_shared(shared_address, chunk);
  } else {
#pragma unroll
    for (int i = 0; i < 16; i += load_bytes) {
      cp_async<load_bytes>(shared_address + i, static_cast<const char*>(global) + i, valid);
    }
  }
}

/// A chunk to global memory, in pieces of `store_bytes`.
template <int store_bytes>
SACCADE_FN void store_chunk(void* global, const Chunk& chunk) {
  if constexpr (store_bytes == 16) {
    *static_cast<Chunk*>(global) = chunk;
  } else if constexpr (store_bytes >= 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) static_cast<uint32*>(global)[i] = chunk.word[i];
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      static_cast<uint16*>(global)[i] = uint16(chunk.word[i / 2] >> (i % 2 * 16));
    }
  }
}

/// Which chunks of a tile each thread of a block handles: up to eight neighbouring threads share a row (128 contiguous
/// bytes), the others take further rows. `head_dim` is the width in memory; the tile's further columns are filled with
/// zeros.
template <class Tile, int head_dim, int threads>
struct ChunkMap {
  static constexpr int threads_per_row = Tile::chunks >= 8 ? 8 : Tile::chunks >= 4 ? 4 : 2;
  static constexpr int rows_per_pass = threads / threads_per_row;
  static constexpr int row_passes = ceil_div(Tile::rows, rows_per_pass);
  static constexpr int column_passes = ceil_div(Tile::chunks, threads_per_row);

  uint32 row, chunk;  ///< the thread's first

  SACCADE_FN explicit ChunkMap(uint32 thread) : row(thread / threads_per_row), chunk(thread % threads_per_row) {}

  /// Calls visit(row pass, column pass) for each chunk of the thread.
  template <class Visit>
  SACCADE_FN void for_each_chunk(Visit visit) const {
#pragma unroll
    for (int i = 0; i < row_passes; ++i) {
      if (Tile::rows % rows_per_pass != 0 && row + i * rows_per_pass >= Tile::rows) break;
#pragma unroll
      for (int j = 0; j < column_passes; ++j) {
        if (Tile::chunks % threads_per_row != 0 && chunk + j * threads_per_row >= Tile::chunks) break;
        visit(i, j);
      }
    }
  }

  /// Byte offset in the tile.
  SACCADE_FN uint32 offset(int row_pass, int column_pass) const {
    if constexpr (threads_per_row == 8 && rows_per_pass % 8 == 0) {  // the same place in every swizzle line
      return Tile::offset(row, chunk) + uint32(row_pass * rows_per_pass * Tile::pitch_bytes + column_pass * 128);
    } else {
      return Tile::offset(row + row_pass * rows_per_pass, chunk + column_pass * threads_per_row);
    }
  }

  SACCADE_FN bool in_head_dim(int column_pass) const {
    return head_dim == Tile::columns || chunk + column_pass * threads_per_row < head_dim / 8;
  }
};

/// A matrix of a sequence as one thread copies it: from its own first chunk of row 0.
template <class Element>
struct MatrixView {
  const Element* own;
  int64 row_stride;
};

/// The view of a matrix whose row 0 is at `data`, for tiles that are copied with this map.
template <class Map, class Element>
SACCADE_FN MatrixView<Element> view_of(uint32 thread, const Element* data, int64 row_stride) {
  const Map map(thread);
  return {data + map.row * row_stride + map.chunk * 8, row_stride};
}

/// Starts the copy of rows first_row.. of a matrix into the tile at `shared`. Rows at or beyond `row_limit` become
/// zeros, so that 0 * x stays 0 in the products that follow.
template <class Map, class Tile, int load_bytes, class Element>
SACCADE_FN void copy_tile_async(uint32 thread, uint32 shared, const MatrixView<Element>& matrix, int first_row,
                                int row_limit) {
  const Map map(opaque(thread));                   // cheaper to compute anew than to keep,
  const int64 stride = opaque(matrix.row_stride);  // like the multiples of the stride
  const Element* first = matrix.own + first_row * stride;
  const int rows_left = row_limit - first_row - int(map.row);
  map.for_each_chunk([&](int row_pass, int column_pass) {
    const Element* source = first + row_pass * (Map::rows_per_pass * stride) + column_pass * Map::threads_per_row * 8;
    copy_chunk_async<load_bytes>(shared + map.offset(row_pass, column_pass), source,
                                 map.in_head_dim(column_pass) && row_pass * Map::rows_per_pass < rows_left);
  });
}

/// Replaces infinities and NaN by zeros in the chunks that this thread itself copied (its copies must have landed).
/// Returns whether there were any.
template <class Element, class Tile, int head_dim, int threads>
SACCADE_FN bool scrub_own_chunks(uint32 thread, uint32 shared) {
  const ChunkMap<Tile, head_dim, threads> map(opaque(thread));
  uint32 sum = 0;
  map.for_each_chunk([&](int row_pass, int column_pass) {
    const Chunk values = load_shared_chunk(shared + map.offset(row_pass, column_pass));
#pragma unroll
    for (int i = 0; i < 4; ++i) accumulate_non_finite<Element>(sum, values.word[i]);
  });
  if (non_finite_halves<Element>(sum) == 0) return false;
#pragma unroll 1
  for (uint32 row = map.row; row < Tile::rows; row += map.rows_per_pass) {
#pragma unroll 1
    for (uint32 chunk = map.chunk; chunk < Tile::chunks; chunk += map.threads_per_row) {
      const uint32 address = shared + Tile::offset(row, chunk);
      Chunk values = load_shared_chunk(address);
#pragma unroll
      for (int i = 0; i < 4; ++i) values.word[i] = without_non_finite<Element>(values.word[i]);
      store_shared(address, values);
    }
  }
  return true;
}

}  // namespace saccade::cuda
