// cuda.fwd.sm80: how long a schedule takes: cycles of an SM's tensor cores, shared memory, exp units and issue slots
// for a tile of keys, of which resident warps hide a part, plus barriers, plus what a block costs besides its tiles.
// Constants fitted to 2,514 measurements on an H200 (bench/NOTES.md, 2026-11-29).
#include <algorithm>
#include <cmath>

#include "generator/families/cuda_fwd_sm80_schedule.h"

namespace saccade::cuda_sm80 {
namespace {

/// Rates of one SM, per cycle.
struct Machine {
  double mma_flops;  ///< of mma.sync with 16-bit inputs and fp32 accumulation
  double shared_bytes = 128;
  double exps = 16;
  double issues = 4;  ///< warp instructions
};

Machine machine_of(const Target& target) {
  if (target.compute_capability == 80) return {2048};
  const int generation = target.compute_capability / 10;
  if (generation == 9 || generation == 10) return {2430};  // measured: 634 TFLOP/s on an H200, 62% of wgmma
  return {1024};
}

/// Cycles that all of a block's warps take for one tile of keys when they have the SM to themselves.
struct TileCycles {
  double matrix, shared, exp, issue;
  double longest() const { return std::max({matrix, shared, exp, issue}); }
  double sum() const { return matrix + shared + exp + issue; }
};

/// The fit. Its cycles are nominal: kOverlap of them pass.
constexpr double kOverlap = 0.669;
constexpr double kSharedShare = 0.7175;  ///< of ldmatrix and cp.async time that is not hidden behind each other
constexpr double kIssueShare = 0.3616;
constexpr double kLookAhead = 0.942;           ///< what computing scores a step ahead leaves of the exposed time
constexpr double kBarriersPerTile = 870;       ///< cycles, of one block alone on an SM
constexpr double kBarriersPerWholeTile = 638;  ///< K and V awaited together
constexpr double kBlockStart = 2357, kBlockStartPerRow = 5.34, kBlockStartPerTile = 0.24, kAloneOnSm = 7071;
constexpr double kAlonePerTile = 1.05;     ///< nothing runs while a lone block waits
constexpr double kUnevenTail = 0.19;       ///< of an uneven grid's time is its ragged end
constexpr double kMaskedElement = 0.0063;  ///< cycles
constexpr double kLaunchUs = 3;

TileCycles cycles_of_tile(const Problem& problem, const Machine& machine, const Parameters& p, double mixed_share) {
  const double columns_qk = padded(problem.head_dim_qk), columns_v = padded(problem.head_dim_v);
  const auto tile_m = static_cast<double>(p.tile_m), tile_n = static_cast<double>(p.tile_n);
  const auto warps = static_cast<double>(p.warps);
  const double row_tiles = p.row_tiles_per_warp();
  const double elements = tile_m * tile_n;
  constexpr double kMmaFlops = 2.0 * 16 * 8 * 16, kLdmatrixBytes = 512;
  const double flops = 2 * elements * (columns_qk + columns_v);
  const double key_loads =
      columns_qk / 16 * tile_n / 16 + (columns_qk - static_cast<double>(p.q_in_registers)) / 16 * row_tiles;
  const double value_loads = tile_n / 16 * columns_v / 16;
  const double copied = tile_n * 2 * (columns_qk + columns_v);

  TileCycles cycles{};
  cycles.matrix = flops / machine.mma_flops;
  cycles.shared = kSharedShare * (warps * (key_loads + value_loads) * kLdmatrixBytes + copied) / machine.shared_bytes;
  cycles.exp = elements / machine.exps;
  // Of each element: scaled difference, exp, sum, half a conversion and, in the fit, one more; a score program's come
  // on top.
  const double per_element = 4.5 + (problem.score.is_identity() ? 0 : 8);
  const double narrow_loads = 16.0 / static_cast<double>(p.load_bytes);
  const double instructions = elements / 32 * (per_element + mixed_share * 6) + flops / kMmaFlops +
                              warps * (key_loads + value_loads + 90) + copied / 512 * narrow_loads * 4;
  cycles.issue = kIssueShare * instructions / machine.issues;
  return cycles;
}

}  // namespace

Cost cost(const Problem& problem, const Target& target, const Shape& shape, MaskDensities& densities,
          const Schedule& schedule) {
  Cost cost;
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return cost;
  const Parameters& p = *parsed;
  const Machine machine = machine_of(target);
  const double cycles_per_us = std::max(target.clock_mhz, 1);
  const auto seqlen_q = static_cast<double>(shape.seqlen_q), seqlen_kv = static_cast<double>(shape.seqlen_kv);
  const double heads = static_cast<double>(shape.batch) * static_cast<double>(shape.heads_q);
  const MaskDensity& density = densities.of(static_cast<int>(p.tile_m), static_cast<int>(p.tile_n));

  const double row_tiles = std::ceil(seqlen_q / static_cast<double>(p.tile_m));
  const double blocks = row_tiles * heads;
  const double kv_tiles = std::ceil(seqlen_kv / static_cast<double>(p.tile_n)) * density.computed;
  const double mixed_share = density.computed > 0 ? density.mixed / density.computed : 0;
  const double resident = std::min<double>(blocks_per_sm(problem, target, p),
                                           std::max(1.0, std::ceil(blocks / std::max(target.sm_count, 1))));
  const auto warps = static_cast<double>(p.warps);

  const TileCycles tile = cycles_of_tile(problem, machine, p, mixed_share);
  const bool looks_ahead = p.looks_ahead(padded(problem.head_dim_qk));
  const double exposed = std::sqrt(8 / (resident * warps)) * (looks_ahead ? kLookAhead : 1);
  const double barriers = p.shared_kv == 0 && p.stages >= 2 ? kBarriersPerWholeTile : kBarriersPerTile;
  const double masking = mixed_share * kMaskedElement * static_cast<double>(p.tile_m * p.tile_n);
  const double tile_cycles = tile.longest() + exposed * (tile.sum() - tile.longest()) +
                             barriers / resident * std::pow(warps / 4, 0.872) + masking;
  const double alone = resident == 1 ? kAlonePerTile : 1;
  const double fixed_cycles = kBlockStart + kBlockStartPerRow * static_cast<double>(p.tile_m) +
                              kBlockStartPerTile * tile_cycles + (resident == 1 ? kAloneOnSm : 0);

  // Blocks of even length end together, a wave at a time; uneven ones leave a ragged end, longer when the long start
  // last.
  const double waves = blocks / std::max(target.sm_count * resident, 1.0);
  const bool uneven = density.computed < 0.95;
  const double waves_paid =
      uneven ? std::max(1.0, waves * (1 + kUnevenTail * (p.block_order == 0 ? 1.5 : 1))) : std::ceil(waves);
  cost.wave_efficiency = waves_paid > 0 ? waves / waves_paid : 1;
  const double to_us = kOverlap * waves_paid * resident / cycles_per_us;

  cost.matrix_us = kv_tiles * tile.matrix * to_us;
  cost.exp_us = kv_tiles * tile.exp * to_us;
  cost.shared_us = kv_tiles * tile.shared * to_us;
  cost.prologue_us = fixed_cycles * to_us;
  const double bytes = 2 * heads * seqlen_q * (problem.head_dim_qk + problem.head_dim_v) +
                       2 * static_cast<double>(shape.batch) * static_cast<double>(shape.heads_kv) * seqlen_kv *
                           (problem.head_dim_qk + problem.head_dim_v);
  cost.memory_us = target.memory_gb_per_s > 0 ? bytes / (target.memory_gb_per_s * 1e3) : 0;
  cost.total_us = kLaunchUs + std::max((kv_tiles * tile_cycles * alone + fixed_cycles) * to_us, cost.memory_us);
  return cost;
}

}  // namespace saccade::cuda_sm80
