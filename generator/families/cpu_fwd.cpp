// cpu.fwd: fused attention on x86-64 CPUs from templates/cpu. The family's contract; parameters and cost are in
// cpu_fwd_schedule.cpp and cpu_fwd_cost.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "generator/families/cpu_fwd_schedule.h"
#include "generator/families/families.h"

namespace saccade {
namespace {

using cpu_forward::Parameters;
using cpu_forward::parameters_from;

constexpr const char* kForwardSymbol = "saccade_forward";
constexpr const char* kCombineSymbol = "saccade_combine";

Status supports(const Problem& problem, const Target& target) {
  if (target.kind != Target::Kind::cpu) return Status::unsupported("runs on CPUs only");
  if (target.arch != "avx2" && target.arch != "avx512") {
    return Status::unsupported(fmt::format("needs avx2 or avx512, not '{}'", target.arch));
  }
  if (problem.op != Op::forward) return Status::unsupported("computes the forward pass only");
  const DataType type = problem.q_dtype;
  if (type != DataType::f32 && type != DataType::f16 && type != DataType::bf16) {
    return Status::unsupported(fmt::format("takes f32, f16 and bf16, not {}", name_of(type)));
  }
  if (problem.k_dtype != type || problem.v_dtype != type || problem.o_dtype != type) {
    return Status::unsupported(fmt::format("takes one dtype for q, k, v and o, such as {} for all", name_of(type)));
  }
  for (const int head_dim : {problem.head_dim_qk, problem.head_dim_v}) {
    if (head_dim < 1 || head_dim > 256) {
      return Status::unsupported(fmt::format("takes head dimensions 1 to 256, not {}", head_dim));
    }
  }
  return {};
}

Status legal(const Problem& problem, const Target& target, const Shape& shape, const Schedule& schedule) {
  SACCADE_TRY(supports(problem, target));
  SACCADE_ASSIGN(const Parameters parameters, parameters_from(schedule));
  SACCADE_TRY(cpu_forward::check(problem, target, parameters));
  return validate(shape, problem);
}

Resources resources(const Problem& problem, const Target&, const Schedule& schedule) {
  Resources resources;
  if (const auto parameters = parameters_from(schedule); parameters.ok()) {
    resources.shared_bytes = cpu_forward::stack_bytes(problem, *parameters);
  }
  return resources;
}

const char* storage_of(DataType type) {
  switch (type) {
    case DataType::f16: return "saccade::cpu::Half";
    case DataType::bf16: return "saccade::cpu::BFloat16";
    default: return "float";
  }
}

std::string header_comment(const Problem& problem, const Schedule& schedule) {
  return fmt::format("// Saccade {}: a kernel of family {}, made from templates/cpu.\n// problem  {}\n// schedule {}\n",
                     kGeneratorVersion, schedule.family, to_json(problem), to_json(schedule));
}

std::string config_of(const Problem& problem, const Parameters& p) {
  std::string text = "struct Config {\n";
  const auto line = [&](std::string_view declaration) { text += fmt::format("  {};\n", declaration); };
  const auto number = [&](std::string_view name, std::int64_t value) {
    line(fmt::format("static constexpr int {} = {}", name, value));
  };
  const auto flag = [&](std::string_view name, bool value) {
    line(fmt::format("static constexpr bool {} = {}", name, value));
  };
  line(fmt::format("using Storage = {}", storage_of(problem.q_dtype)));
  line("using Rules = saccade::Rules");
  number("head_dim_qk", problem.head_dim_qk);
  number("head_dim_v", problem.head_dim_v);
  flag("varlen", problem.layout == Layout::varlen);
  flag("lse", problem.lse);
  flag("split", p.kv_splits > 1);
  number("vector_bits", p.vector_bits);
  number("tile_m", p.tile_m);
  number("tile_n", p.tile_n);
  if (p.streaming == 0) {
    number("vectors", p.vectors);
    number("score_rows", p.score_rows);
    number("output_rows", p.output_rows);
    flag("bf16_scores", p.bf16_dot >= 1);
    flag("bf16_outputs", p.bf16_dot == 2);
  }
  return text + "};\n";
}

std::string entry_point(std::string_view symbol, std::string_view function) {
  return fmt::format(
      "\nextern \"C\" void {}(const saccade::KernelParams* params, long long work_begin, long long work_end) {{\n"
      "  saccade::cpu::{}<saccade::Config>(*params, work_begin, work_end);\n}}\n",
      symbol, function);
}

std::string emit(const Problem& problem, const Target&, const Schedule& schedule) {
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return fmt::format("#error \"{}\"\n", parsed.status().message());
  const Parameters& parameters = *parsed;
  std::string text = header_comment(problem, schedule);
  text += parameters.streaming != 0 ? "#include \"saccade_templates/cpu/streaming.h\"\n"
                                    : "#include \"saccade_templates/cpu/forward.h\"\n";
  if (parameters.kv_splits > 1) text += "#include \"saccade_templates/cpu/combine.h\"\n";
  text += "\nnamespace saccade {\n\n";
  text += expr::emit_rules(problem.mask, problem.score, problem.declarations);
  text += "\n" + config_of(problem, parameters);
  text += "\n}  // namespace saccade\n";
  text += entry_point(kForwardSymbol, parameters.streaming != 0 ? "streaming_forward" : "forward");
  if (parameters.kv_splits > 1) text += entry_point(kCombineSymbol, "combine");
  return text;
}

/// Work items of one call, such that it is worth more than waking a thread (about 10 us of arithmetic).
std::int64_t grain_of(double operations_per_item) {
  constexpr double kWorthwhile = 5e5;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(kWorthwhile / std::max(operations_per_item, 1.0)));
}

LaunchGeometry launch_geometry(const Problem& problem, const Target&, const Shape& shape, const Schedule& schedule) {
  LaunchGeometry geometry;
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return geometry;
  const Parameters& p = *parsed;
  const std::int64_t rows = cpu_forward::output_rows(problem, shape);
  const std::int64_t items = cpu_forward::work_items(problem, shape, p);
  if (rows == 0 || items == 0) return geometry;
  geometry.splits = static_cast<int>(p.kv_splits);
  Launch forward;
  forward.symbol = kForwardSymbol;
  forward.work_items = items;
  const double operations = 2.0 * static_cast<double>(shape.seqlen_kv) * (problem.head_dim_qk + problem.head_dim_v) *
                            static_cast<double>(std::min(shape.seqlen_q, p.tile_m)) / static_cast<double>(p.kv_splits);
  forward.grain = grain_of(operations);
  geometry.launches.push_back(forward);
  if (p.kv_splits > 1) {
    constexpr int kStatistics = 2;  // row maximum and row sum
    geometry.workspace_bytes = 4 * p.kv_splits * rows * (problem.head_dim_v + kStatistics);
    Launch combine;
    combine.symbol = kCombineSymbol;
    combine.work_items = rows;
    combine.grain = grain_of(2.0 * static_cast<double>(p.kv_splits) * problem.head_dim_v);
    geometry.launches.push_back(combine);
  }
  return geometry;
}

}  // namespace

const Family kCpuForward = {
    .name = cpu_forward::kName,
    .version = 1,
    .target_kind = Target::Kind::cpu,
    .supports = supports,
    .candidates = cpu_forward::candidates,
    .legal = legal,
    .cost = cpu_forward::cost,
    .resources = resources,
    .emit = emit,
    .launch_geometry = launch_geometry,
};

}  // namespace saccade
