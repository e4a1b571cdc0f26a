// cuda.fwd.sm80: how long a schedule takes. Cycles of an SM's tensor cores, shared memory, exp units and issue slots,
// of which the busiest hides most of the others; constants fitted to an H200 (bench/NOTES.md).
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
  switch (target.compute_capability) {
    case 80: return {2048};
    case 90: return {2430};  // measured: 634 TFLOP/s on an H200, 62% of wgmma
    case 100: return {2430};
    default: return {1024};
  }
}

/// Cycles that all of a block's warps take for one tile of keys when they have the SM to themselves.
struct TileCycles {
  double matrix, shared, exp, issue;
};

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
  cycles.shared = (warps * (key_loads + value_loads) * kLdmatrixBytes + copied) / machine.shared_bytes;
  cycles.exp = elements / machine.exps;
  // Of each element: max, scaled difference, exp, sum, half a conversion; more where a score program or a mask applies.
  const double per_element = 4.5 + (problem.score.is_identity() ? 0 : 8) + mixed_share * 6;
  const double instructions = elements / 32 * per_element + flops / kMmaFlops + warps * (key_loads + value_loads) +
                              copied / 16 / 32 * (16.0 / static_cast<double>(p.load_bytes)) * 4 + warps * 90;
  cycles.issue = instructions / machine.issues;
  return cycles;
}

}  // namespace

Cost cost(const Problem& problem, const Target& target, const Shape& shape, const expr::Bindings& bindings,
          const Schedule& schedule) {
  Cost cost;
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return cost;
  const Parameters& p = *parsed;
  const Machine machine = machine_of(target);
  const double cycles_per_us = std::max(target.clock_mhz, 1);
  const auto seqlen_q = static_cast<double>(shape.seqlen_q), seqlen_kv = static_cast<double>(shape.seqlen_kv);
  const double heads = static_cast<double>(shape.batch) * static_cast<double>(shape.heads_q);
  const MaskDensity density =
      mask_density(problem, shape, bindings, static_cast<int>(p.tile_m), static_cast<int>(p.tile_n));

  const double row_tiles = std::ceil(seqlen_q / static_cast<double>(p.tile_m));
  const double blocks = row_tiles * heads;
  const double kv_tiles = std::ceil(seqlen_kv / static_cast<double>(p.tile_n)) * density.computed;
  const double mixed_share = density.computed > 0 ? density.mixed / density.computed : 0;
  const double resident = blocks_per_sm(problem, target, p);
  const double resident_warps = resident * static_cast<double>(p.warps);

  const TileCycles tile = cycles_of_tile(problem, machine, p, mixed_share);
  // With few warps on an SM the units wait for each other: part of the shorter times shows.
  const double longest = std::max({tile.matrix, tile.shared, tile.exp, tile.issue});
  const double sum = tile.matrix + tile.shared + tile.exp + tile.issue;
  const double exposed = 4.0 / std::max(resident_warps, 1.0) * 0.75;
  const double pipeline = p.stages * (p.shared_kv != 0 ? 1 : 2) > 2 ? 0 : 40 + 0.02 * longest;
  const double tile_cycles = longest + exposed * (sum - longest) + pipeline;
  const double fixed_cycles = 3000 / resident + 0.8 * tile_cycles;

  const double block_cycles = kv_tiles * tile_cycles + fixed_cycles;  // of an SM's time
  const double slots = target.sm_count * resident;
  const double waves = blocks / std::max(slots, 1.0);
  // Blocks of even length end together, a wave at a time; uneven ones fill the gaps when the long start first.
  const bool uneven = density.computed < 0.95;
  const double quantised = uneven ? waves + (p.block_order == 0 ? 0.6 : 0.3) : std::ceil(waves);
  cost.wave_efficiency = quantised > 0 ? std::min(1.0, waves / std::max(quantised, waves)) : 1;
  const double effective_waves = std::max(waves, quantised);
  const double to_us = effective_waves * resident / cycles_per_us;

  cost.matrix_us = kv_tiles * tile.matrix * to_us;
  cost.exp_us = kv_tiles * tile.exp * to_us;
  cost.shared_us = kv_tiles * tile.shared * to_us;
  cost.prologue_us = fixed_cycles * to_us;
  const double bytes = 2 * heads * seqlen_q * (problem.head_dim_qk + problem.head_dim_v) +
                       2 * static_cast<double>(shape.batch) * static_cast<double>(shape.heads_kv) * seqlen_kv *
                           (problem.head_dim_qk + problem.head_dim_v);
  cost.memory_us = target.memory_gb_per_s > 0 ? bytes / (target.memory_gb_per_s * 1e3) : 0;
  cost.total_us = 3 + std::max(block_cycles * to_us, cost.memory_us);
  return cost;
}

}  // namespace saccade::cuda_sm80
