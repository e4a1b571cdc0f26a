// cuda.fwd.sm90: how long a schedule takes.
#include <algorithm>
#include <cmath>

#include "generator/families/cuda_fwd_sm90_schedule.h"

namespace saccade::cuda_sm90 {

Cost cost(const Problem& problem, const Target& target, const Shape& shape, const expr::Bindings& bindings,
          const Schedule& schedule) {
  Cost cost;
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return cost;
  const Parameters& p = *parsed;
  const double tile_m = p.tile_m(), tile_n = static_cast<double>(p.tile_n);
  const MaskDensity density = mask_density(problem, shape, bindings, p.tile_m(), static_cast<int>(p.tile_n));
  const double rows = std::ceil(static_cast<double>(shape.seqlen_q) / tile_m);
  const double items = rows * static_cast<double>(shape.batch * shape.heads_q);
  const double tiles = std::ceil(static_cast<double>(shape.seqlen_kv) / tile_n) * density.computed;
  const double matrix = 2 * tile_m * tile_n * (problem.head_dim_qk + problem.head_dim_v) / 4096;
  const double exp = tile_m * tile_n / 16;
  const double exposed = (p.warpgroups == 1 ? 0.6 : 0.1) * exp + 60;
  const double waves = items / std::max(target.sm_count, 1);
  const double fixed = 1800;
  const double to_us = 1.0 / std::max(target.clock_mhz, 1);
  cost.matrix_us = waves * tiles * matrix * to_us;
  cost.exp_us = waves * tiles * exp * to_us;
  cost.prologue_us = waves * fixed * to_us;
  cost.total_us = 3 + std::ceil(waves) * (tiles * (std::max(matrix, exp) + exposed) + fixed) * to_us;
  return cost;
}

}  // namespace saccade::cuda_sm90
