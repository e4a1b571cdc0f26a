#include "runtime/kernel_plan.h"

#include <algorithm>
#include <cmath>

namespace saccade {
namespace {

KernelParams constant_params(const Problem& problem, const Shape& shape, const LaunchGeometry& geometry) {
  KernelParams params{};
  params.total_q = problem.layout == Layout::varlen ? shape.total_q : shape.batch * shape.seqlen_q;
  params.batch = static_cast<int>(shape.batch);
  params.heads_q = static_cast<int>(shape.heads_q);
  params.heads_kv = static_cast<int>(shape.heads_kv);
  params.group = shape.heads_kv > 0 ? static_cast<int>(shape.heads_q / shape.heads_kv) : 1;
  params.seqlen_q = static_cast<int>(shape.seqlen_q);
  params.seqlen_kv = static_cast<int>(shape.seqlen_kv);
  params.splits = geometry.splits;
  params.scale = 1.0F / std::sqrt(static_cast<float>(problem.head_dim_qk));
  return params;
}

}  // namespace

KernelPlan::KernelPlan(Parts parts)
    : parts_(std::move(parts)),
      constant_params_(constant_params(*parts_.problem, parts_.shape, parts_.geometry)),
      checks_(*parts_.problem, parts_.shape, parts_.geometry.workspace_bytes,
              parts_.device->target().kind == Target::Kind::cpu) {}

Status KernelPlan::run(const RunArguments& arguments) const {
  SACCADE_TRY(checks_.check(*parts_.problem, parts_.shape, arguments));
  KernelParams params = constant_params_;
  params.q = arguments.q;
  params.k = arguments.k;
  params.v = arguments.v;
  params.o = arguments.o;
  params.lse = arguments.lse;
  params.workspace = arguments.workspace;
  params.cu_seqlens_q = arguments.cu_seqlens_q;
  params.cu_seqlens_kv = arguments.cu_seqlens_kv;
  params.q_stride = arguments.q_stride;
  params.k_stride = arguments.k_stride;
  params.v_stride = arguments.v_stride;
  params.o_stride = arguments.o_stride;
  if (arguments.scale) params.scale = *arguments.scale;
  const expr::Declarations& declared = parts_.problem->declarations;
  std::copy_n(arguments.tables, declared.tables.size(), params.tables);
  std::copy_n(arguments.scalars, declared.scalars.size(), params.scalars);
  for (const Launch& launch : parts_.geometry.launches) {
    params.work_items = launch.work_items;
    SACCADE_TRY(parts_.kernel->launch(launch, params, arguments.stream));
  }
  return {};
}

}  // namespace saccade
