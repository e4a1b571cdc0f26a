// Shape: the run-time sizes of a call, as far as planning looks at them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "generator/expr/program.h"
#include "generator/problem.h"

namespace saccade {

/// KernelParams holds sizes as int, and tile ends are computed in int, past the last row.
constexpr std::int64_t kMaxShapeSize = (std::int64_t{1} << 30) - 1;
/// More than any memory holds. With it, counts of work items and bytes of a workspace (rows x splits x head_dim_v x 4)
/// stay far inside of 64 bits.
constexpr std::int64_t kMaxShapeRows = std::int64_t{1} << 40;

struct Shape {
  std::int64_t batch = 1;
  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;
  std::int64_t seqlen_q = 0;   ///< varlen: no sequence is longer
  std::int64_t seqlen_kv = 0;  ///< varlen: no sequence is longer
  std::int64_t total_q = 0;    ///< varlen: rows of q, also those before and after all sequences; dense: 0
  std::int64_t total_kv = 0;   ///< varlen: rows of k and v, likewise; dense: 0
  int alignment =
      16;  ///< bytes (2, 4, 8 or 16) that divide every pointer and every batch, head and row stride of q, k, v, o

  bool operator==(const Shape&) const = default;
};

/// {"alignment":8,"batch":2,"heads_kv":8,"heads_q":32,"seqlen_kv":4096,"seqlen_q":4096,"total_kv":..,"total_q":..}: sorted keys, no
/// spaces; an alignment of 16 and totals of 0 are left out.
std::string to_json(const Shape& shape);
/// Also left out may be batch (1), heads_kv (as heads_q) and seqlen_kv (as seqlen_q). Unknown keys, wrong types and sizes that no
/// shape can have are errors that name the key.
Expected<Shape> shape_from_json(std::string_view json);

/// Negative sizes, sizes of 2^30 and more, more than 2^40 rows of all heads and sequences, heads_q % heads_kv != 0,
/// alignment not one of 1, 2, 4, 8, 16: errors that say what would work.
Status validate(const Shape& shape, const Problem& problem);

/// The share of (q, kv) pairs in tiles that are not empty, and in tiles that need masking, for tiles of tile_m x tile_n.
/// Sampled deterministically; tables without data count as unknown (mixed). Sizes of varlen problems are means.
struct MaskDensity {
  double computed = 1;  ///< of all pairs: those in mixed or full tiles
  double mixed = 0;     ///< of all pairs: those in mixed tiles
  double longest = 1;   ///< of one row tile's pairs: those in its mixed or full tiles, at most
  /// That share for row tiles spread over the queries, first and last included, in the mean of the heads sampled; none
  /// without a mask.
  std::vector<double> rows = {};
};
MaskDensity mask_density(const Problem& problem, const Shape& shape, const expr::Bindings& bindings, int tile_m,
                         int tile_n);

/// mask_density for each tile size that is asked for, sampled once: that costs more than the rest of a cost model. Refers to
/// its arguments.
class MaskDensities {
 public:
  MaskDensities(const Problem& problem, const Shape& shape, const expr::Bindings& bindings)
      : problem_(problem), shape_(shape), bindings_(bindings) {}
  const MaskDensity& of(int tile_m, int tile_n);

  /// What a cost model derives from the density of such tiles, one figure: computed once.
  template <class Compute>
  double derived(int tile_m, int tile_n, Compute&& compute) {
    const auto [found, added] = derived_.try_emplace({tile_m, tile_n});
    if (added) found->second = compute(of(tile_m, tile_n));
    return found->second;
  }

 private:
  const Problem& problem_;
  const Shape& shape_;
  const expr::Bindings& bindings_;
  std::map<std::pair<int, int>, MaskDensity> known_;
  std::map<std::pair<int, int>, double> derived_;
};

}  // namespace saccade
