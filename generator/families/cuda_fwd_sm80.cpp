// cuda.fwd.sm80: forward attention on mma.sync and cp.async from templates/cuda/forward_sm80.h. The family's contract;
// parameters and cost are in cuda_fwd_sm80_schedule.cpp and cuda_fwd_sm80_cost.cpp.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "generator/families/cuda_common.h"
#include "generator/families/cuda_fwd_sm80_schedule.h"
#include "generator/families/families.h"

namespace saccade {
namespace {

using cuda_sm80::Parameters;
using cuda_sm80::parameters_from;

Status supports(const Problem& problem, const Target& target) {
  if (target.kind != Target::Kind::cuda) return Status::unsupported("runs on NVIDIA GPUs only");
  if (target.compute_capability < 80) {
    return Status::unsupported(fmt::format("needs sm_80 or newer, not {}", target.arch));
  }
  return check_sixteen_bit_forward(problem);
}

std::int64_t row_tiles(const Shape& shape, const Parameters& p) { return (shape.seqlen_q + p.tile_m - 1) / p.tile_m; }

Status legal(const Problem& problem, const Target& target, const Shape& shape, const Schedule& schedule) {
  SACCADE_TRY(supports(problem, target));
  SACCADE_TRY(validate(shape, problem));
  SACCADE_ASSIGN(const Parameters p, parameters_from(schedule));
  SACCADE_TRY(cuda_sm80::check(problem, target, p));
  if (shape.alignment < 2) return Status::unsupported("needs tensors aligned to their 2-byte elements");
  if (p.load_bytes > shape.alignment) {
    return Status::unsupported(
        fmt::format("load_bytes {} needs that alignment of all pointers and strides, and {} is given", p.load_bytes,
                    shape.alignment));
  }
  if (shape.heads_q > kMaxBlocks / std::max<std::int64_t>(1, row_tiles(shape, p))) {
    return Status::unsupported(
        fmt::format("cannot hold {} heads of {} row tiles in a grid of 2^31 - 1 blocks; a larger tile_m might",
                    shape.heads_q, row_tiles(shape, p)));
  }
  return {};
}

Resources resources(const Problem& problem, const Target&, const Schedule& schedule) {
  Resources resources;
  if (const auto parameters = parameters_from(schedule); parameters.ok()) {
    resources.threads = parameters->threads();
    resources.registers_per_thread = cuda_sm80::register_limit(*parameters);
    resources.shared_bytes = cuda_sm80::shared_bytes(problem, *parameters);
  }
  return resources;
}

std::string schedule_struct(const Problem& problem, const Parameters& p) {
  return ConstantsText("Schedule")
      .add_problem(problem)
      .add("tile_m", p.tile_m)
      .add("tile_n", p.tile_n)
      .add("warps", p.warps)
      .add("stages", p.stages)
      .add_flag("shared_kv", p.shared_kv != 0)
      .add("q_in_registers", p.q_in_registers)
      .add("cuda::BlockOrder", "block_order",
           p.block_order == 0 ? "cuda::BlockOrder::first_rows_first" : "cuda::BlockOrder::last_rows_first")
      .add("load_bytes", p.load_bytes)
      .add("shared_bytes", cuda_sm80::shared_bytes(problem, p))
      .finish();
}

std::string emit(const Problem& problem, const Target&, const Schedule& schedule) {
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return fmt::format("#error \"{}\"\n", parsed.status().message());
  return translation_unit(problem, schedule,
                          {.header = "saccade_templates/cuda/forward_sm80.h",
                           .definitions = schedule_struct(problem, *parsed),
                           .threads = parsed->threads(),
                           .blocks_per_sm = parsed->min_blocks_per_sm,
                           .parameters = "const __grid_constant__ saccade::KernelParams params",
                           .body = "saccade::cuda::forward_sm80<saccade::Schedule, saccade::Rules>(params);"});
}

LaunchGeometry launch_geometry(const Problem& problem, const Target&, const Shape& shape, const Schedule& schedule) {
  LaunchGeometry geometry;
  const auto parameters = parameters_from(schedule);
  if (!parameters.ok()) return geometry;
  const std::int64_t blocks_per_batch = row_tiles(shape, *parameters) * shape.heads_q;
  const bool no_rows = problem.layout == Layout::varlen && shape.total_q == 0;
  if (blocks_per_batch == 0 || shape.batch == 0 || no_rows) return geometry;
  // Whole batches, as many as a grid can hold; the kernel goes on to the others (templates/cuda/tile/work.h).
  const std::int64_t batches = std::min(shape.batch, kMaxBlocks / blocks_per_batch);
  Launch launch;
  launch.symbol = kForwardSymbol;
  launch.grid = static_cast<std::uint32_t>(batches * blocks_per_batch);
  launch.block = static_cast<std::uint32_t>(parameters->threads());
  launch.shared_bytes = static_cast<std::uint32_t>(cuda_sm80::shared_bytes(problem, *parameters));
  launch.work_items = shape.batch * blocks_per_batch;
  geometry.launches.push_back(launch);
  return geometry;
}

}  // namespace

const Family kCudaForwardSm80 = {
    .name = cuda_sm80::kName,
    .version = 1,
    .target_kind = Target::Kind::cuda,
    .supports = supports,
    .candidates = cuda_sm80::candidates,
    .legal = legal,
    .cost = cuda_sm80::cost,
    .resources = resources,
    .emit = emit,
    .launch_geometry = launch_geometry,
};

}  // namespace saccade
