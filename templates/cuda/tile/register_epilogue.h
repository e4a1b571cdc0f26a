// The end of a row tile without shared memory: O = O / l from registers to memory in 16-byte chunks.
#pragma once

#include "saccade_templates/cuda/prims/convert.h"
#include "saccade_templates/cuda/prims/shared_memory.h"
#include "saccade_templates/cuda/tile/warp_products.h"

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
