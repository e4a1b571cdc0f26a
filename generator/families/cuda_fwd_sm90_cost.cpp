// cuda.fwd.sm90: how long a schedule takes. A tile of keys costs what its products cost on the tensor cores, or what one
// warpgroup needs from S to the next S, whichever is longer; a row tile costs its begin and its end on top.
// Constants fitted to bursts on an H200, some set by hand after that (bench/NOTES.md, 2026-11-30).
#include <algorithm>
#include <cmath>

#include "generator/families/cuda_fwd_sm90_schedule.h"

namespace saccade::cuda_sm90 {
namespace {

constexpr double kProductsPerCycle = 2048;  ///< multiply-adds of an SM's tensor cores with 16-bit inputs
constexpr double kStandstill = 1.034;       ///< of the tensor cores, between products of one warpgroup and the other
constexpr double kStandstillOfThree = 0.93, kStandstillOfThreeUneven = 1.04;
constexpr double kPerTile = 36;       ///< cycles
constexpr double kChain = 1250;       ///< of a warpgroup for each tile: barriers, decisions, issue, latencies
constexpr double kChainPerKey = 1.9;  ///< exponentials, sums, conversion
constexpr double kScorePerKey =
    1.07;  ///< of each warpgroup, for each instruction of a score program: no product hides it
constexpr double kMaskedPerKey = 16;  ///< of a tile that the mask cuts
constexpr double kLongMaskPerKey = 60;
constexpr double kTailPerKey = 16;                    ///< of the tile in which the keys end
constexpr double kCutByTables = 0.3;                  ///< at most, of the tiles
constexpr double kShallow = 4, kShallowUneven = 200;  ///< loads that nothing hides, for tiles of 64 keys
constexpr double kShallowOfThree = 350;               ///< over the stages of K
constexpr double kOneValue = 2500;                    ///< with one stage of V, no product runs beside a load
constexpr double kCrowded = 0.04;                     ///< with more than 176 registers of accumulators
constexpr double kRowTile = 1530;                     ///< first tile, last product, O / l
constexpr double kStoreFromRegisters = 4.5, kStoreOfThree = 2000;  ///< O for each column; of three warpgroups all of it
constexpr double kLateQuery = 750;  ///< where no warpgroup's Q is loaded ahead; nothing for one or two with uneven rows
constexpr double kLateQueryTile =
    0.012;                             ///< and of each tile, unless of three (measured at 256 columns, not understood)
constexpr double kTwoValues = 250;     ///< with two stages of V, unless of three warpgroups
constexpr double kUnevenThird = 2000;  ///< of a row tile whose third warpgroup has more keys than the first
constexpr double kNoTurns = 0.024;     ///< what taking turns gains
constexpr double kWide = 0.0012;       ///< for each key of a tile beyond 128
/// The longest block over the mean; few: under four row tiles a head.
constexpr double kFolded = 1.036, kFoldedFew = 1.095;
constexpr double kLaunchUs = 5;
constexpr double kClock = 0.95;  ///< cycles of the model over those counted

/// The lengths that a schedule should suit, and how many sequences of them there are. Of packed sequences their sum and a bound
/// are known: long ones have most of the work, as a length between the mean and the bound says.
struct Lengths {
  double q, kv, sequences;
};

Lengths lengths_of(const Problem& problem, const Shape& shape) {
  const auto q = static_cast<double>(shape.seqlen_q), kv = static_cast<double>(shape.seqlen_kv),
             batch = static_cast<double>(shape.batch);
  const bool empty = batch == 0 || q == 0 || kv == 0 || shape.total_q == 0 || shape.total_kv == 0;
  if (problem.layout != Layout::varlen || empty) return {q, kv, batch};
  const double total_q = static_cast<double>(shape.total_q), total_kv = static_cast<double>(shape.total_kv);
  const double typical_q = std::clamp(std::sqrt(total_q / batch * q), 1.0, q);
  return {typical_q, std::clamp(std::sqrt(total_kv / batch * kv), 1.0, kv), total_q / typical_q};
}

}  // namespace

Cost cost(const Problem& problem, const Target& target, const Shape& shape, MaskDensities& densities,
          const Schedule& schedule) {
  Cost cost;
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return cost;
  const Parameters& p = *parsed;
  const double tile_n = static_cast<double>(p.tile_n), warpgroups = static_cast<double>(p.warpgroups);
  const MaskDensity& density = densities.of(p.tile_m(), static_cast<int>(p.tile_n));
  const double columns_qk = padded(problem.head_dim_qk), columns_v = padded(problem.head_dim_v);
  const Lengths lengths = lengths_of(problem, shape);
  const double heads = lengths.sequences * static_cast<double>(shape.heads_q);
  const bool varlen = problem.layout == Layout::varlen;
  // Lengths of packed sequences end anywhere in their last tile.
  const auto tiles_of = [varlen](double length, double tile) {
    return varlen ? std::max(1.0, length / tile + 0.5) : std::ceil(length / tile);
  };
  const double tiles_per_head = tiles_of(lengths.q, p.tile_m());
  const double row_tiles =
      (varlen ? static_cast<double>(shape.total_q) / p.tile_m() + 0.5 * static_cast<double>(shape.batch)
              : tiles_per_head * static_cast<double>(shape.batch)) *
      static_cast<double>(shape.heads_q);
  const double all_kv_tiles = tiles_of(lengths.kv, tile_n);
  const double kv_tiles = std::max(1.0, all_kv_tiles * density.computed);
  const double longest = std::max(1.0, all_kv_tiles * density.longest);
  const double sampled_share = density.computed > 0 ? density.mixed / density.computed : 0;
  // Tables that the host cannot read count as cutting every tile; documents and padding cut few.
  const double mixed_share = problem.mask.reads_tables() ? std::min(sampled_share, kCutByTables) : sampled_share;

  // Q and K come from shared memory at 128 bytes a cycle, which is too slow for fewer than 64 keys.
  const double feed = std::max(1.0, (16 + tile_n / 4) / (tile_n / 2));
  const double matrix = warpgroups * 64 * tile_n * (columns_qk * feed + columns_v) / kProductsPerCycle;
  const double masked = mixed_share * tile_n *
                        (problem.mask.reads_tables()  ? kLongMaskPerKey
                         : problem.mask.is_identity() ? 0
                                                      : kMaskedPerKey);
  const double chain = 64 * tile_n * columns_qk / kProductsPerCycle + tile_n * kChainPerKey + kChain + masked;
  const double score = warpgroups * tile_n * kScorePerKey * element_work(problem.score);
  const bool uneven = density.computed < 0.95;
  const double narrow = 64 / tile_n;  // such tiles are over before the next ones are there
  const double shallow = (p.k_stages == 1 ? 600 : 0) + (p.v_stages == 1 ? kOneValue : 0) +
                         narrow * narrow * narrow *
                             (p.warpgroups == 3 ? kShallowOfThree / static_cast<double>(p.k_stages)
                              : uneven          ? kShallowUneven
                                                : kShallow);
  const double standstill = (p.warpgroups != 3 ? kStandstill
                             : uneven          ? kStandstillOfThreeUneven
                                               : kStandstillOfThree) +
                            (accumulators(problem, p) > 176 ? kCrowded : 0);
  const double late = uneven && p.warpgroups < 3
                          ? 0
                          : static_cast<double>(std::max<std::int64_t>(2 * p.warpgroups - p.q_slots, 0)) / warpgroups;
  const double tile = std::max(matrix * standstill + kPerTile, chain) *
                          (1 + (p.ping_pong != 0 ? 0 : kNoTurns) + kWide * std::max(tile_n - 128, 0.0) +
                           (p.warpgroups == 3 ? 0 : late * kLateQueryTile)) +
                      score + shallow;
  // Keys past the end are masked where no mask does it anyway.
  const bool has_tail = problem.mask.is_identity() && (varlen || shape.seqlen_kv % p.tile_n != 0);
  const double tail = has_tail ? tile_n * kTailPerKey : 0;
  const double store = p.stages_output != 0 ? 0 : p.warpgroups == 3 ? kStoreOfThree : columns_v * kStoreFromRegisters;
  const double row_tile = kRowTile + store + late * kLateQuery +
                          (p.v_stages == 2 && p.warpgroups < 3 ? kTwoValues : 0) +
                          ((uneven || varlen) && p.warpgroups == 3 ? kUnevenThird : 0) + tail;

  // Even work ends in whole rounds of the blocks. Uneven work leaves a ragged end, unless short work comes last.
  const double blocks = std::max(target.sm_count, 1);
  const double rounds = row_tiles / blocks;
  const double share = std::ceil(rounds) > 0 ? rounds / std::ceil(rounds) : 1;
  const double rounds_paid = !uneven && !varlen ? std::ceil(rounds)
                             : p.row_order == 1 || !uneven
                                 ? std::max(1.0, rounds * (tiles_per_head < 4 ? kFoldedFew : kFolded))
                                 : std::max(1.0, rounds * 1.15 + 0.5);
  cost.wave_efficiency = uneven ? rounds / rounds_paid : share;
  const double to_us = rounds_paid / std::max(target.clock_mhz, 1) * kClock;
  cost.matrix_us = kv_tiles * matrix * to_us;
  cost.exp_us = kv_tiles * warpgroups * 64 * tile_n / 16 * to_us;
  cost.prologue_us = row_tile * to_us;
  const double bytes = 2 * (columns_qk + columns_v) *
                       (heads * lengths.q + lengths.sequences * static_cast<double>(shape.heads_kv) * lengths.kv);
  cost.memory_us = target.memory_gb_per_s > 0 ? bytes / (target.memory_gb_per_s * 1e3) : 0;
  // However few row tiles there are, the longest takes its time; of equals the order that balances the others is taken.
  constexpr double kOthers = 0.02;
  const double balanced_us = (kv_tiles * tile + row_tile) * to_us;
  const double longest_us = (longest * tile + row_tile) / std::max(target.clock_mhz, 1) * kClock;
  const double work_us = balanced_us >= longest_us ? balanced_us : longest_us + kOthers * balanced_us;
  cost.total_us = kLaunchUs + std::max(work_us, cost.memory_us);
  return cost;
}

}  // namespace saccade::cuda_sm90
