// The end of a row tile: O = O / l from registers to global memory in 16-byte chunks, or to shared memory for a tensor map.
#pragma once

#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/prims/ldmatrix.h"
#include "saccade_templates/cuda/prims/mma.h"
#include "saccade_templates/cuda/prims/shared_memory.h"

namespace saccade::cuda {

/// Lane t of a quad holds word t of four chunks; afterwards it holds the four words of chunk t.
SACCADE_FN void transpose_quad(uint32 (&word)[4]) {
  const bool odd = (thread_index() & 1) != 0, high = (thread_index() & 2) != 0;
  const auto exchange = [](uint32& first, uint32& second, bool keep_second, uint32 distance) {
    const uint32 received = __shfl_xor_sync(kFullWarp, keep_second ? first : second, int(distance));
    first = keep_second ? received : first;
    second = keep_second ? second : received;
  };
  exchange(word[0], word[1], odd, 1);
  exchange(word[2], word[3], odd, 1);
  exchange(word[0], word[2], high, 2);
  exchange(word[1], word[3], high, 2);
}

/// Panel `panel` of the warp's rows to `place`, 16 columns at a time.
template <class Element, class Tile, int n>
SACCADE_FN void stage_panel(const Accumulator<1, n>& o, const float (&inverse)[2], int panel, uint32 place,
                            uint32 lane) {
#pragma unroll
  for (int step = 0; step < Tile::panel_columns / 16; ++step) {
    const int k = panel * Tile::panel_columns / 16 + step;
    if (k >= n / 16) continue;
    const float(&left)[4] = o[0][2 * k];
    const float(&right)[4] = o[0][2 * k + 1];
    stmatrix_x4(place + Tile::offset(lane % 16, 2 * step + lane / 16),
                pack<Element>(left[0] * inverse[0], left[1] * inverse[0]),
                pack<Element>(left[2] * inverse[1], left[3] * inverse[1]),
                pack<Element>(right[0] * inverse[0], right[1] * inverse[0]),
                pack<Element>(right[2] * inverse[1], right[3] * inverse[1]));
  }
}

/// Writes rows g and g + 8 of the warp. `output` is the warp's first row; `rows_left` of them exist.
template <class Element, int head_dim, int n>
SACCADE_FN void store_rows_from_registers(const Accumulator<1, n>& o, const float (&inverse)[2], Element* output,
                                          int64 row_stride, int rows_left) {
  const int lane = int(thread_index() % 32);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    Element* first = output + row * row_stride;
#pragma unroll
    for (int group = 0; group < n / 8; group += 4) {
      Chunk chunk = {};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (group + j >= n / 8) continue;
        const float* pair = &o[0][group + j][2 * r];
        chunk.word[j] = pack<Element>(pair[0] * inverse[r], pair[1] * inverse[r]);
      }
      transpose_quad(chunk.word);
      const int column = 8 * (group + lane % 4);
      if (row < rows_left && column < head_dim) store_global(first + column, chunk);
    }
  }
}

}  // namespace saccade::cuda
