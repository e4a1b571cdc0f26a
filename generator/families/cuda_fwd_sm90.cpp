// cuda.fwd.sm90: forward attention on TMA and wgmma from templates/cuda/forward_sm90.h. The family's contract; parameters
// and cost are in cuda_fwd_sm90_schedule.cpp and cuda_fwd_sm90_cost.cpp.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "generator/families/cuda_common.h"
#include "generator/families/cuda_fwd_sm90_schedule.h"
#include "generator/families/families.h"

namespace saccade {
namespace {

using cuda_sm90::Parameters;
using cuda_sm90::parameters_from;

Status supports(const Problem& problem, const Target& target) {
  if (target.kind != Target::Kind::cuda) return Status::unsupported("runs on NVIDIA GPUs only");
  if (target.compute_capability != 90) {
    return Status::unsupported(fmt::format("needs sm_90a, not {}: wgmma is Hopper's alone", target.arch));
  }
  return check_sixteen_bit_forward(problem);
}

std::int64_t row_tiles(const Shape& shape, std::int64_t tile_m) {
  return (shape.seqlen_q + tile_m - 1) / tile_m * shape.heads_q * shape.batch;
}

Status check_alignment(const Shape& shape) {
  if (shape.alignment >= 16) return {};
  return Status::unsupported(fmt::format(
      "tensor maps need pointers and strides that are multiples of 16 bytes, and {} is given", shape.alignment));
}

/// Whether a kernel can count to what the shape has: rows and row tiles in 31 bits, tiles of keys in 23 (TileNote of
/// templates/cuda/tile/warpgroup_notes.h).
Status check_counts(const Shape& shape, std::int64_t tile_m, std::int64_t tile_n) {
  constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max(), kMaxKeyTiles = 1 << 23;
  if (shape.seqlen_kv / tile_n >= kMaxKeyTiles) {
    return Status::unsupported(fmt::format("counts tiles of keys in 23 bits, and {} keys have more", shape.seqlen_kv));
  }
  if (const std::int64_t rows = std::max(shape.total_q, shape.total_kv); rows > kMaxCount) {
    return Status::unsupported(fmt::format("counts rows in 31 bits, and there are {}", rows));
  }
  if (const std::int64_t tiles = row_tiles(shape, tile_m); tiles > kMaxCount) {
    return Status::unsupported(fmt::format("counts row tiles in 31 bits, and there are {}", tiles));
  }
  return {};
}

Status takes(const Problem&, const Target&, const Shape& shape) {
  SACCADE_TRY(check_alignment(shape));
  // One query: 261 us where cuda.fwd.sm80 takes 244 (bench/NOTES.md, 2026-11-30).
  if (shape.seqlen_q <= 16 && shape.seqlen_q > 0) {
    return Status::unsupported(fmt::format("row tiles have 64 rows, too many for {} queries", shape.seqlen_q));
  }
  Shape roomy = shape;  // lengths are rounded up by up to a quarter for planning
  roomy.total_q *= 2;
  roomy.total_kv *= 2;
  return check_counts(roomy, 32, 24);
}

Status legal(const Problem& problem, const Target& target, const Shape& shape, const Schedule& schedule) {
  SACCADE_TRY(supports(problem, target));
  SACCADE_TRY(validate(shape, problem));
  SACCADE_ASSIGN(const Parameters p, parameters_from(schedule));
  SACCADE_TRY(cuda_sm90::check(problem, target, p));
  SACCADE_TRY(check_alignment(shape));
  return check_counts(shape, p.tile_m(), p.tile_n);
}

std::vector<Schedule> candidates(const Problem& problem, const Target& target, const Shape& shape) {
  std::vector<Schedule> result;
  for (const Status& status : {supports(problem, target), validate(shape, problem), check_alignment(shape)}) {
    if (!status.ok()) return result;
  }
  for (const Parameters& p : cuda_sm90::buildable(problem, target)) {
    if (check_counts(shape, p.tile_m(), p.tile_n).ok()) result.push_back(to_schedule(p));
  }
  return result;
}

Resources resources(const Problem& problem, const Target&, const Schedule& schedule) {
  Resources resources;
  if (const auto parameters = parameters_from(schedule); parameters.ok()) {
    resources.threads = parameters->threads();
    resources.registers_per_thread = std::min(255, 65536 / parameters->threads() / 8 * 8);
    resources.shared_bytes = cuda_sm90::shared_bytes(problem, *parameters);
  }
  return resources;
}

std::string schedule_struct(const Problem& problem, const Parameters& p) {
  const cuda_sm90::RegisterShares registers = cuda_sm90::register_shares(problem, p);
  return ConstantsText("Schedule")
      .add_problem(problem)
      .add("warpgroups", p.warpgroups)
      .add("tile_n", p.tile_n)
      .add("q_slots", p.q_slots)
      .add("k_stages", p.k_stages)
      .add("v_stages", p.v_stages)
      .add_flag("q_in_registers", p.q_in_registers != 0)
      .add_flag("ping_pong", p.ping_pong != 0)
      .add_flag("stages_output", p.stages_output != 0)
      .add("cuda::RowOrder", "row_order", p.row_order == 0 ? "cuda::RowOrder::rising" : "cuda::RowOrder::folded")
      .add("producer_registers", registers.producer)
      .add("consumer_registers", registers.consumer)
      .add("key_range_bytes", cuda_sm90::key_range_bytes(problem))
      .add("shared_bytes", cuda_sm90::shared_bytes(problem, p))
      .finish();
}

std::string emit(const Problem& problem, const Target&, const Schedule& schedule) {
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return fmt::format("#error \"{}\"\n", parsed.status().message());
  return translation_unit(
      problem, schedule,
      {.header = "saccade_templates/cuda/forward_sm90.h",
       .definitions = schedule_struct(problem, *parsed) + "\n" + cuda_sm90::emit_products(problem, *parsed),
       .threads = parsed->threads(),
       .blocks_per_sm = 1,
       .parameters = "const __grid_constant__ saccade::KernelParams params,\n"
                     "    const __grid_constant__ saccade::TensorMaps maps",
       .body = "saccade::cuda::forward_sm90<saccade::Schedule, saccade::Rules>(params, maps);",
       .table_ranges = expr::TableRanges::given});
}

TensorMapSpec map_of(int head_dim, std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t box_rows) {
  return {batch, heads, rows, head_dim, static_cast<int>(box_rows), cuda_sm90::panel_columns(head_dim)};
}

TensorMapSpecs tensor_maps(const Problem& problem, const Shape& shape, const Parameters& p) {
  const bool varlen = problem.layout == Layout::varlen;
  const std::int64_t batch = varlen ? 1 : shape.batch;
  const std::int64_t rows_q = varlen ? shape.total_q : shape.seqlen_q;
  const std::int64_t rows_kv = varlen ? shape.total_kv : shape.seqlen_kv;
  TensorMapSpecs maps;
  maps.q = map_of(problem.head_dim_qk, batch, shape.heads_q, rows_q, 64);
  maps.k = map_of(problem.head_dim_qk, batch, shape.heads_kv, rows_kv, p.tile_n);
  maps.v = map_of(problem.head_dim_v, batch, shape.heads_kv, rows_kv, p.tile_n);
  if (p.stages_output != 0) maps.o = map_of(problem.head_dim_v, batch, shape.heads_q, rows_q, 16);
  return maps;
}

LaunchGeometry launch_geometry(const Problem& problem, const Target& target, const Shape& shape,
                               const Schedule& schedule) {
  LaunchGeometry geometry;
  const auto parameters = parameters_from(schedule);
  if (!parameters.ok()) return geometry;
  const bool no_rows = problem.layout == Layout::varlen && shape.total_q == 0;
  const std::int64_t items = row_tiles(shape, parameters->tile_m());
  if (items == 0 || no_rows) return geometry;
  Launch launch;
  launch.symbol = kForwardSymbol;
  launch.grid = static_cast<std::uint32_t>(std::min<std::int64_t>(items, std::max(target.sm_count, 1)));
  launch.block = static_cast<std::uint32_t>(parameters->threads());
  launch.shared_bytes = static_cast<std::uint32_t>(cuda_sm90::shared_bytes(problem, *parameters));
  launch.work_items = items;
  launch.tensor_maps = tensor_maps(problem, shape, *parameters);
  geometry.launches.push_back(launch);
  return geometry;
}

}  // namespace

const Family kCudaForwardSm90 = {
    .name = cuda_sm90::kName,
    .version = 4,
    .target_kind = Target::Kind::cuda,
    .supports = supports,
    .candidates = candidates,
    .legal = legal,
    .cost = cuda_sm90::cost,
    .resources = resources,
    .emit = emit,
    .launch_geometry = launch_geometry,
    .takes = takes,
};

}  // namespace saccade
