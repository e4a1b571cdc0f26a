#include "generator/shape.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "generator/expr/node.h"

namespace saccade {
namespace {

Status check_size(const char* name, std::int64_t value, std::int64_t highest) {
  if (value >= 0 && value <= highest) return {};
  return Status::invalid_argument(fmt::format("{} is {}; 0 to {} is possible", name, value, highest));
}

/// A total has no relation to batch and seqlen: seqlen may be a bound above every length, and rows may belong to no
/// sequence. Callers pad both, so that one CUDA graph serves calls of many lengths.
Status check_total(const char* name, std::int64_t total, std::int64_t heads, Layout layout) {
  if (layout == Layout::dense) {
    if (total == 0) return {};
    return Status::invalid_argument(fmt::format("{} is {}; a dense problem has none (0)", name, total));
  }
  SACCADE_TRY(check_size(name, total, kMaxShapeRows));
  if (heads == 0 || total <= kMaxShapeRows / heads) return {};
  return Status::invalid_argument(
      fmt::format("{} is {}; at most 2^40 rows of all {} heads are possible", name, total, heads));
}

/// Each size lies within its own limit: the product of the first two cannot overflow.
Status check_rows(const char* product, std::int64_t batch, std::int64_t heads, std::int64_t rows) {
  if (rows == 0 || batch * heads <= kMaxShapeRows / rows) return {};
  return Status::invalid_argument(
      fmt::format("{} is {} x {} x {}; at most 2^40 is possible", product, batch, heads, rows));
}

/// `count` indices spread over [0, total), first and last included; all of them where there are no more than that.
std::vector<std::int64_t> spread(std::int64_t total, std::int64_t count) {
  std::vector<std::int64_t> picks;
  count = std::min(count, total);
  for (std::int64_t i = 0; i < count; ++i) picks.push_back(count == 1 ? total / 2 : i * (total - 1) / (count - 1));
  return picks;
}

/// What one (batch, head) adds: pairs counted by the tiles they lie in.
struct PairCounts {
  double total = 0, computed = 0, mixed = 0;
  double longest = 0;  ///< share of a row tile's pairs
  double heads = 0;
  std::vector<double> rows = {};  ///< that share of each row tile sampled, over all heads
};

struct Sampler {
  const Problem& problem;
  const expr::Bindings& bindings;
  std::int64_t len_q, len_kv;
  int tile_m, tile_n;

  void add_rows(PairCounts& counts, std::size_t row, expr::TileRange tile) const {
    constexpr std::int64_t kKvTiles = 48;
    const auto rows = static_cast<double>(tile.q_last - tile.q_first + 1);
    const double all = rows * static_cast<double>(len_kv), before = counts.computed;
    counts.total += all;
    tile.kv_first = 0;
    tile.kv_last = len_kv - 1;
    const expr::KvRange range = expr::kv_range(problem.mask, problem.declarations, bindings, tile);
    if (range.begin >= range.end) return;
    const std::int64_t first = range.begin / tile_n, tiles = (range.end - 1) / tile_n - first + 1;
    const std::vector<std::int64_t> picks = spread(tiles, kKvTiles);
    const double weight = static_cast<double>(tiles) / static_cast<double>(picks.size());
    for (const std::int64_t pick : picks) {
      tile.kv_first = (first + pick) * tile_n;
      tile.kv_last = std::min<std::int64_t>(tile.kv_first + tile_n, len_kv) - 1;
      const double pairs = weight * rows * static_cast<double>(tile.kv_last - tile.kv_first + 1);
      const TileClass found = expr::classify(problem.mask, problem.declarations, bindings, tile);
      if (found != TileClass::empty) counts.computed += pairs;
      if (found == TileClass::mixed) counts.mixed += pairs;
    }
    const double share = (counts.computed - before) / all;
    counts.longest = std::max(counts.longest, share);
    counts.rows[row] += share;
  }

  void add_head(PairCounts& counts, std::int64_t b, std::int64_t h) const {
    constexpr std::int64_t kQTiles = 24;
    const std::vector<std::int64_t> picks = spread((len_q + tile_m - 1) / tile_m, kQTiles);
    counts.rows.resize(picks.size());
    ++counts.heads;
    for (std::size_t row = 0; row < picks.size(); ++row) {
      expr::TileRange tile;
      tile.b = b;
      tile.h = h;
      tile.len_q = len_q;
      tile.len_kv = len_kv;
      tile.q_first = picks[row] * tile_m;
      tile.q_last = std::min<std::int64_t>(tile.q_first + tile_m, len_q) - 1;
      add_rows(counts, row, tile);
    }
  }
};

/// Varlen problems plan with the mean length, as if no row were unused.
std::int64_t typical_length(Layout layout, std::int64_t longest, std::int64_t total, std::int64_t batch) {
  return layout == Layout::dense || batch == 0 ? longest : std::min((total + batch - 1) / batch, longest);
}

}  // namespace

Status validate(const Shape& shape, const Problem& problem) {
  SACCADE_TRY(check_size("batch", shape.batch, kMaxShapeSize));
  SACCADE_TRY(check_size("heads_q", shape.heads_q, kMaxShapeSize));
  SACCADE_TRY(check_size("heads_kv", shape.heads_kv, kMaxShapeSize));
  SACCADE_TRY(check_size("seqlen_q", shape.seqlen_q, kMaxShapeSize));
  SACCADE_TRY(check_size("seqlen_kv", shape.seqlen_kv, kMaxShapeSize));
  if (shape.heads_kv == 0 ? shape.heads_q != 0 : shape.heads_q % shape.heads_kv != 0) {
    return Status::invalid_argument(fmt::format(
        "heads_q is {} and heads_kv is {}; heads_q must be a multiple of heads_kv", shape.heads_q, shape.heads_kv));
  }
  SACCADE_TRY(check_rows("batch x heads_q x seqlen_q", shape.batch, shape.heads_q, shape.seqlen_q));
  SACCADE_TRY(check_rows("batch x heads_kv x seqlen_kv", shape.batch, shape.heads_kv, shape.seqlen_kv));
  SACCADE_TRY(check_total("total_q", shape.total_q, shape.heads_q, problem.layout));
  SACCADE_TRY(check_total("total_kv", shape.total_kv, shape.heads_kv, problem.layout));
  const int a = shape.alignment;
  if (a != 1 && a != 2 && a != 4 && a != 8 && a != 16) {
    return Status::invalid_argument(fmt::format("alignment is {}; 1, 2, 4, 8 or 16 bytes are possible", a));
  }
  return {};
}

MaskDensity mask_density(const Problem& problem, const Shape& shape, const expr::Bindings& bindings, int tile_m,
                         int tile_n) {
  if (problem.mask.is_identity()) return {1, 0, 1};
  const Sampler sampler{problem,
                        bindings,
                        typical_length(problem.layout, shape.seqlen_q, shape.total_q, shape.batch),
                        typical_length(problem.layout, shape.seqlen_kv, shape.total_kv, shape.batch),
                        std::max(tile_m, 1),
                        std::max(tile_n, 1)};
  PairCounts counts;
  // Most masks are the same for every head; tables are often indexed by them.
  const expr::Node& root = *problem.mask.root();
  const std::int64_t samples = root.uses_head ? 2 : 1;
  for (const std::int64_t b : spread(shape.batch, samples))
    for (const std::int64_t h : spread(shape.heads_q, samples)) sampler.add_head(counts, b, h);
  if (counts.total == 0) return {0, 0, 0};
  for (double& row : counts.rows) row /= counts.heads;
  return {std::min(counts.computed / counts.total, 1.0), std::min(counts.mixed / counts.total, 1.0),
          std::min(counts.longest, 1.0), std::move(counts.rows)};
}

const MaskDensity& MaskDensities::of(int tile_m, int tile_n) {
  const auto [found, added] = known_.try_emplace({tile_m, tile_n});
  if (added) found->second = mask_density(problem_, shape_, bindings_, tile_m, tile_n);
  return found->second;
}

}  // namespace saccade
