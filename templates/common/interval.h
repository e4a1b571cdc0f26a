// Interval arithmetic for tile classes. Used in kernels, and by the host for the cost model: one definition, one truth.
// SACCADE_FN is set by the including target (`__device__ __forceinline__`, `inline`, ...).
#pragma once

namespace saccade {

/// What a mask keeps of a tile.
enum class TileClass : int { empty = 0, mixed = 1, full = 2 };

}  // namespace saccade
