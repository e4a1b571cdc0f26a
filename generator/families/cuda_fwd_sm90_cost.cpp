// cuda.fwd.sm90: how long a schedule takes. A tile of keys costs what its products cost on the tensor cores, or what one
// warpgroup needs from S to the next S, whichever is longer; a row tile costs its begin and its end on top.
// Constants fitted to bursts on an H200, some set by hand after that (bench/NOTES.md, 2026-11-30).
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

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
/// The plain order over pairs where both deal out the same: 0.995 to 1.019 measured. In a single round it is 0.95 to 0.99, and
/// wins as the first of equals.
constexpr double kRising = 1.01;
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

/// How much there is to do, in tiles.
struct Work {
  double heads;  ///< of all sequences
  double tiles_per_head, row_tiles, all_kv_tiles, kv_tiles;
  double longest;  ///< tiles of the row tile that has most
  bool uneven, varlen;
};

Work work_of(const Problem& problem, const Shape& shape, const Parameters& p, const Lengths& lengths,
             const MaskDensity& density) {
  Work work{};
  work.varlen = problem.layout == Layout::varlen;
  work.uneven = density.computed < 0.95;
  // Lengths of packed sequences end anywhere in their last tile.
  const auto tiles_of = [&](double length, auto tile) {
    const double tiles = length / static_cast<double>(tile);
    return work.varlen ? std::max(1.0, tiles + 0.5) : std::ceil(tiles);
  };
  const auto batch = static_cast<double>(shape.batch), heads_q = static_cast<double>(shape.heads_q);
  work.heads = lengths.sequences * heads_q;
  work.tiles_per_head = tiles_of(lengths.q, p.tile_m());
  work.row_tiles = heads_q * (work.varlen ? static_cast<double>(shape.total_q) / p.tile_m() + 0.5 * batch
                                          : work.tiles_per_head * batch);
  work.all_kv_tiles = tiles_of(lengths.kv, p.tile_n);
  work.kv_tiles = std::max(1.0, work.all_kv_tiles * density.computed);
  work.longest = std::max(1.0, work.all_kv_tiles * density.longest);
  return work;
}

/// Cycles of the tensor cores for one tile of all warpgroups.
double matrix_cycles(const Problem& problem, const Parameters& p) {
  const auto tile_n = static_cast<double>(p.tile_n);
  // Q and K come from shared memory at 128 bytes a cycle, which is too slow for fewer than 64 keys.
  const double feed = std::max(1.0, (16 + tile_n / 4) / (tile_n / 2));
  return static_cast<double>(p.warpgroups) * 64 * tile_n *
         (padded(problem.head_dim_qk) * feed + padded(problem.head_dim_v)) / kProductsPerCycle;
}

/// Of what a mask adds to an average tile.
double masked_cycles(const Problem& problem, const Parameters& p, const MaskDensity& density) {
  if (problem.mask.is_identity()) return 0;
  const double share = density.computed > 0 ? density.mixed / density.computed : 0;
  const auto tile_n = static_cast<double>(p.tile_n);
  // Tables that the host cannot read count as cutting every tile; documents and padding cut few.
  return problem.mask.reads_tables() ? std::min(share, kCutByTables) * tile_n * kLongMaskPerKey
                                     : share * tile_n * kMaskedPerKey;
}

/// Warpgroups whose Q is not loaded ahead, over all.
double late_queries(const Parameters& p, bool uneven) {
  if (uneven && p.warpgroups < 3) return 0;
  return static_cast<double>(std::max<std::int64_t>(2 * p.warpgroups - p.q_slots, 0)) /
         static_cast<double>(p.warpgroups);
}

double tile_cycles(const Problem& problem, const Parameters& p, const Work& work, const MaskDensity& density) {
  const double tile_n = static_cast<double>(p.tile_n), warpgroups = static_cast<double>(p.warpgroups);
  const double chain = 64 * tile_n * padded(problem.head_dim_qk) / kProductsPerCycle + tile_n * kChainPerKey + kChain +
                       masked_cycles(problem, p, density);
  const double score = warpgroups * tile_n * kScorePerKey * element_work(problem.score);
  const double narrow = 64 / tile_n;  // such tiles are over before the next ones are there
  const double shallow = (p.k_stages == 1 ? 600 : 0) + (p.v_stages == 1 ? kOneValue : 0) +
                         narrow * narrow * narrow *
                             (p.warpgroups == 3 ? kShallowOfThree / static_cast<double>(p.k_stages)
                              : work.uneven     ? kShallowUneven
                                                : kShallow);
  const double standstill = (p.warpgroups != 3 ? kStandstill
                             : work.uneven     ? kStandstillOfThreeUneven
                                               : kStandstillOfThree) +
                            (accumulators(problem, p) > 176 ? kCrowded : 0);
  const double late = p.warpgroups == 3 ? 0 : late_queries(p, work.uneven) * kLateQueryTile;
  return std::max(matrix_cycles(problem, p) * standstill + kPerTile, chain) *
             (1 + (p.ping_pong != 0 ? 0 : kNoTurns) + kWide * std::max(tile_n - 128, 0.0) + late) +
         score + shallow;
}

/// Of a row tile's begin and end.
double row_tile_cycles(const Problem& problem, const Shape& shape, const Parameters& p, const Work& work) {
  // Keys past the end are masked where no mask does it anyway.
  const bool has_tail = problem.mask.is_identity() && (work.varlen || shape.seqlen_kv % p.tile_n != 0);
  const double tail = has_tail ? static_cast<double>(p.tile_n) * kTailPerKey : 0;
  const double store = p.stages_output != 0 ? 0
                       : p.warpgroups == 3  ? kStoreOfThree
                                            : padded(problem.head_dim_v) * kStoreFromRegisters;
  return kRowTile + store + late_queries(p, work.uneven) * kLateQuery +
         (p.v_stages == 2 && p.warpgroups < 3 ? kTwoValues : 0) +
         ((work.uneven || work.varlen) && p.warpgroups == 3 ? kUnevenThird : 0) + tail;
}

/// What the row tiles of one head take, in tiles of keys, and how many heads there are.
struct RowTileWork {
  std::vector<double> of_tile;
  std::int64_t heads;

  /// Between the rows that were sampled. Row tiles beyond `kTiles`, of a head or of several, change no proportion.
  RowTileWork(const MaskDensity& density, const Work& work) {
    constexpr double kBeginAndEnd = 2, kTiles = 8192;
    const auto tiles = static_cast<std::int64_t>(std::min(work.tiles_per_head, kTiles));
    heads = static_cast<std::int64_t>(std::min(work.heads, std::max(kTiles / work.tiles_per_head, 1.0)));
    if (density.rows.empty()) return;
    const std::size_t last = density.rows.size() - 1;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const double place = static_cast<double>(tile * static_cast<std::int64_t>(last)) /
                           static_cast<double>(std::max<std::int64_t>(tiles - 1, 1));
      const auto before = static_cast<std::size_t>(place);
      const double weight = place - static_cast<double>(before);
      const double share = (1 - weight) * density.rows[before] + weight * density.rows[std::min(before + 1, last)];
      of_tile.push_back(kBeginAndEnd + work.all_kv_tiles * share);
    }
  }
  bool empty() const { return of_tile.empty() || heads == 0; }
};

/// Work that is dealt to the blocks one after another, or there and back.
class Deal {
 public:
  explicit Deal(int blocks) : loads_(static_cast<std::size_t>(blocks)) {}
  void add(double work, bool back = false) {
    loads_[back ? loads_.size() - 1 - place_ : place_] += work;
    if (++place_ < loads_.size()) return;
    place_ = 0;
    ++round_;
  }
  std::size_t round() const { return round_; }
  double busiest() const { return *std::max_element(loads_.begin(), loads_.end()); }

 private:
  std::vector<double> loads_;
  std::size_t place_ = 0, round_ = 0;
};

/// The busiest block's work by templates/cuda/tile/row_tiles.h.
double busiest_of_rising(const RowTileWork& rows, int blocks) {
  Deal deal(blocks);
  for (std::int64_t head = 0; head < rows.heads; ++head)
    for (const double work : rows.of_tile) deal.add(work);
  return deal.busiest();
}

double busiest_of_folded(const RowTileWork& rows, int blocks) {
  const std::size_t tiles = rows.of_tile.size(), pairs_per_head = (tiles + 1) / 2;
  const std::size_t pairs = pairs_per_head * static_cast<std::size_t>(rows.heads), spared = tiles >= 8 ? 1 : 0;
  const std::size_t rounds = pairs / static_cast<std::size_t>(blocks);
  const std::size_t paired = (rounds > spared ? rounds - spared : 0) * static_cast<std::size_t>(blocks);
  Deal deal(blocks);
  std::vector<double> left;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const std::size_t first = pair % pairs_per_head, mirrored = tiles - 1 - first;
    const double work = rows.of_tile[mirrored], partner = mirrored != first ? rows.of_tile[first] : 0;
    if (pair < paired) {
      deal.add(work + partner);
    } else {
      left.push_back(work);
      if (partner > 0) left.push_back(partner);
    }
  }
  std::sort(left.begin(), left.end(), std::greater<>());
  const std::size_t first_left = deal.round();
  for (const double work : left) deal.add(work, (deal.round() - first_left) % 2 != 0);
  return deal.busiest();
}

/// Even work ends in whole rounds of the blocks. Of uneven work, pairs of long and short rows leave the busiest block a little
/// more than the mean, and the plain order as much more or less as dealing both out shows: a window's rows are even, and pairs
/// of them only coarser. Packed sequences' rows are not known here.
double rounds_paid(const Work& work, const Parameters& p, double rounds, MaskDensities& densities, int blocks) {
  if (!work.uneven && !work.varlen) return std::ceil(rounds);
  const double folded = std::max(1.0, rounds * (work.tiles_per_head < 4 ? kFoldedFew : kFolded));
  if (p.row_order == 1 || !work.uneven) return folded;
  if (work.varlen) return std::max(1.0, rounds * 1.15 + 0.5);
  const auto rising_over_folded = [&](const MaskDensity& density) {
    const RowTileWork rows(density, work);
    return rows.empty() ? 1.0 : busiest_of_rising(rows, blocks) / busiest_of_folded(rows, blocks);
  };
  const double even = rounds > 1 ? kRising : 1;
  return folded * even * densities.derived(p.tile_m(), static_cast<int>(p.tile_n), rising_over_folded);
}

}  // namespace

Cost cost(const Problem& problem, const Target& target, const Shape& shape, MaskDensities& densities,
          const Schedule& schedule) {
  Cost cost;
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return cost;
  const Parameters& p = *parsed;
  const MaskDensity& density = densities.of(p.tile_m(), static_cast<int>(p.tile_n));
  const Lengths lengths = lengths_of(problem, shape);
  const Work work = work_of(problem, shape, p, lengths, density);
  const double tile = tile_cycles(problem, p, work, density), row_tile = row_tile_cycles(problem, shape, p, work);

  const int blocks = std::max(target.sm_count, 1);
  const double rounds = work.row_tiles / blocks, paid = rounds_paid(work, p, rounds, densities, blocks);
  cost.wave_efficiency = paid > 0 ? rounds / paid : 1;
  const double cycle_us = kClock / std::max(target.clock_mhz, 1), to_us = paid * cycle_us;
  cost.matrix_us = work.kv_tiles * matrix_cycles(problem, p) * to_us;
  cost.exp_us = work.kv_tiles * static_cast<double>(p.warpgroups * 64 * p.tile_n) / 16 * to_us;
  cost.prologue_us = row_tile * to_us;
  const double bytes = 2.0 * (padded(problem.head_dim_qk) + padded(problem.head_dim_v)) *
                       (work.heads * lengths.q + lengths.sequences * static_cast<double>(shape.heads_kv) * lengths.kv);
  cost.memory_us = target.memory_gb_per_s > 0 ? bytes / (target.memory_gb_per_s * 1e3) : 0;
  // However few row tiles there are, the longest takes its time; of equals the order that balances the others is taken.
  constexpr double kOthers = 0.02;
  const double balanced_us = (work.kv_tiles * tile + row_tile) * to_us;
  const double longest_us = (work.longest * tile + row_tile) * cycle_us;
  const double work_us = balanced_us >= longest_us ? balanced_us : longest_us + kOthers * balanced_us;
  cost.total_us = kLaunchUs + std::max(work_us, cost.memory_us);
  return cost;
}

}  // namespace saccade::cuda_sm90
