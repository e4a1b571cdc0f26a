// Values that go from lane to lane, or through shared memory, word by word.
#pragma once

#include "saccade_templates/cuda/prims/shared_memory.h"

namespace saccade::cuda {

/// A trivially copyable value of whole words, or an empty one.
template <class T>
struct Words {
  static constexpr int count = __is_empty(T) ? 0 : int(sizeof(T) / 4);
  uint32 word[count > 0 ? count : 1];

  SACCADE_FN static Words of(const T& value) {
    if constexpr (count == 0) {
      return {};
    } else {
      return __builtin_bit_cast(Words, value);
    }
  }
  SACCADE_FN T value() const {
    if constexpr (count == 0) {
      return {};
    } else {
      return __builtin_bit_cast(T, *this);
    }
  }

  /// That of another lane; all lanes of the warp call.
  SACCADE_FN Words from_lane(int lane) const {
    Words result = {};
#pragma unroll
    for (int i = 0; i < count; ++i) result.word[i] = __shfl_sync(kFullWarp, word[i], lane);
    return result;
  }

  SACCADE_FN void store(uint32 address) const {
#pragma unroll
    for (int i = 0; i < count; ++i) store_shared(address + 4 * uint32(i), word[i]);
  }
  SACCADE_FN static Words load(uint32 address) {
    Words result = {};
#pragma unroll
    for (int i = 0; i < count; ++i) result.word[i] = load_shared(address + 4 * uint32(i));
    return result;
  }
};

}  // namespace saccade::cuda
