// cuda.fwd.sm80: its schedule parameters as a struct, and what follows from them. Shared by the family's functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "generator/families/cuda_common.h"
#include "generator/family.h"

namespace saccade::cuda_sm80 {

inline constexpr std::string_view kName = "cuda.fwd.sm80";

/// The named parameters. Stored in a Schedule under the names of the fields.
struct Parameters {
  std::int64_t tile_m = 128;           ///< rows of Q of a block
  std::int64_t tile_n = 64;            ///< keys of a tile of K and V
  std::int64_t warps = 4;              ///< of a block; each owns tile_m / warps rows, a multiple of 16
  std::int64_t stages = 1;             ///< tiles of K and of V in shared memory; with shared_kv, tiles of either
  std::int64_t shared_kv = 0;          ///< 1: K and V take turns in one ring of buffers
  std::int64_t q_in_registers = 0;     ///< columns of Q that are read from shared memory once
  std::int64_t block_order = 0;        ///< 0: a head's first rows first; 1: last rows first
  std::int64_t min_blocks_per_sm = 1;  ///< residency that the compiler makes registers fit for
  std::int64_t load_bytes = 16;        ///< bytes of one copy between global and shared memory

  bool operator==(const Parameters&) const = default;
  int threads() const { return static_cast<int>(32 * warps); }
  /// All of Q in registers, and K kept until V is used: scores run a step ahead of the exponentials.
  bool looks_ahead(int columns_qk) const { return q_in_registers == columns_qk && shared_kv == 0 && stages >= 2; }
  int row_tiles_per_warp() const { return static_cast<int>(tile_m / warps / 16); }
};

Schedule to_schedule(const Parameters& parameters);
/// `invalid_argument` when the family is another one, or a parameter is missing, unknown or out of any range.
Expected<Parameters> parameters_from(const Schedule& schedule);

/// Dynamic shared memory of a block: the layout of templates/cuda/forward_sm80.h, which asserts that it agrees.
std::int64_t shared_bytes(const Problem& problem, const Parameters& parameters);
/// What launch bounds leave for a thread.
int register_limit(const Parameters& parameters);
/// What a thread needs for accumulators, fragments and addresses; beyond register_limit the compiler would spill.
int register_estimate(const Problem& problem, const Target& target, const Parameters& parameters);
/// Blocks that an SM holds at once.
int blocks_per_sm(const Problem& problem, const Target& target, const Parameters& parameters);

/// Whether the kernel can be built for the target and launched at all; not about a shape.
Status check(const Problem& problem, const Target& target, const Parameters& parameters);

std::vector<Schedule> candidates(const Problem& problem, const Target& target, const Shape& shape);
Cost cost(const Problem& problem, const Target& target, const Shape& shape, MaskDensities& densities,
          const Schedule& schedule);

}  // namespace saccade::cuda_sm80
