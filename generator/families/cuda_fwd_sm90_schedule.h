// cuda.fwd.sm90: its schedule parameters as a struct, and what follows from them. Shared by the family's functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "generator/families/cuda_common.h"
#include "generator/family.h"

namespace saccade::cuda_sm90 {

inline constexpr std::string_view kName = "cuda.fwd.sm90";

/// The named parameters. Stored in a Schedule under the names of the fields.
struct Parameters {
  std::int64_t warpgroups = 2;      ///< consumers; each owns 64 rows of a row tile
  std::int64_t tile_n = 128;        ///< keys of a tile of K and V
  std::int64_t q_slots = 2;         ///< places in shared memory for 64 rows of Q
  std::int64_t k_stages = 2;        ///< tiles of K in shared memory
  std::int64_t v_stages = 2;        ///< tiles of V in shared memory
  std::int64_t q_in_registers = 0;  ///< 1: Q is read from shared memory once
  std::int64_t ping_pong = 0;       ///< 1: consumers take turns in issuing products
  std::int64_t stages_output = 0;   ///< 1: O leaves by TMA, through shared memory, 128 columns at a time
  /// 0: row tiles as they come; 1: a head's last with its first, two by two
  std::int64_t row_order = 0;

  bool operator==(const Parameters&) const = default;
  int tile_m() const { return static_cast<int>(64 * warpgroups); }
  int threads() const { return static_cast<int>(128 * (warpgroups + 1)); }
};

Schedule to_schedule(const Parameters& parameters);
/// `invalid_argument` when the family is another one, or a parameter is missing, unknown or out of any range.
Expected<Parameters> parameters_from(const Schedule& schedule);

/// Registers of a thread after the warps have shared them out anew.
struct RegisterShares {
  int producer, consumer;
};
RegisterShares register_shares(const Problem& problem, const Parameters& parameters);
/// Registers of a consumer thread for O, S and P.
int accumulators(const Problem& problem, const Parameters& parameters);
/// What a consumer thread needs for accumulators, operands and addresses; beyond its share the compiler would spill.
int register_estimate(const Problem& problem, const Parameters& parameters);

/// PanelTile::panel_columns of templates/cuda/tile/panel_tile.h.
int panel_columns(int head_dim);
/// Of them, what keeps the ranges of tables over the keys of tiles.
int key_range_bytes(const Problem& problem);
/// Dynamic shared memory of a block: the layout of templates/cuda/tile/warpgroup_shared.h, which asserts that it agrees.
std::int64_t shared_bytes(const Problem& problem, const Parameters& parameters);

/// Whether the kernel can be built for the target and launched at all; not about a shape.
Status check(const Problem& problem, const Target& target, const Parameters& parameters);

/// What can be built and is worth a measurement, for any shape.
std::vector<Parameters> buildable(const Problem& problem, const Target& target);
Cost cost(const Problem& problem, const Target& target, const Shape& shape, MaskDensities& densities,
          const Schedule& schedule);

/// The specialisations of ScoreProduct and ValueProduct (templates/cuda/prims/wgmma.h) that a kernel uses.
std::string emit_products(const Problem& problem, const Parameters& parameters);

}  // namespace saccade::cuda_sm90
