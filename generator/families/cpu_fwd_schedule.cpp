#include "generator/families/cpu_fwd_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace saccade::cpu_forward {
namespace {

struct Field {
  const char* name;
  std::int64_t Parameters::* member;
};
constexpr Field kFields[] = {
    {"streaming", &Parameters::streaming},     {"tile_m", &Parameters::tile_m},
    {"tile_n", &Parameters::tile_n},           {"vectors", &Parameters::vectors},
    {"score_rows", &Parameters::score_rows},   {"output_rows", &Parameters::output_rows},
    {"vector_bits", &Parameters::vector_bits}, {"bf16_dot", &Parameters::bf16_dot},
    {"kv_splits", &Parameters::kv_splits},
};
constexpr std::int64_t kMaxParameter = 4096;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Status illegal(std::string reason) { return Status::invalid_argument("cpu.fwd: " + std::move(reason)); }

/// Accumulators, one step's vectors and a broadcast must stay in registers, or the micro-kernel spills in its inner
/// loop.
Status check_registers(const Parameters& p, std::int64_t rows, std::string_view name) {
  const std::int64_t registers = p.vector_bits == 512 ? 32 : 16;
  if (rows < 1 || rows * p.vectors + p.vectors + 1 > registers) {
    return illegal(fmt::format("{} = {} with vectors = {} needs {} registers of {}", name, rows, p.vectors,
                               rows * p.vectors + p.vectors + 1, registers));
  }
  return {};
}

Status check_tiles(const Parameters& p) {
  if (p.vectors < 1 || p.vectors > 4) return illegal(fmt::format("vectors = {}; 1 to 4 work", p.vectors));
  SACCADE_TRY(check_registers(p, p.score_rows, "score_rows"));
  SACCADE_TRY(check_registers(p, p.output_rows, "output_rows"));
  if (p.tile_m % p.lanes() != 0) {
    return illegal(fmt::format("tile_m = {} is no multiple of a panel's {} queries", p.tile_m, p.lanes()));
  }
  if (p.tile_n % p.score_rows != 0) {
    return illegal(fmt::format("tile_n = {} is no multiple of score_rows = {}", p.tile_n, p.score_rows));
  }
  if (p.bf16_dot == 2 && p.tile_n % 2 != 0) return illegal("tile_n must be even with bf16_dot = 2");
  return {};
}

Status check_streaming(const Parameters& p) {
  if (p.vectors != 1 || p.score_rows != 1 || p.output_rows != 1 || p.bf16_dot != 0) {
    return illegal("streaming takes vectors, score_rows and output_rows = 1 and bf16_dot = 0");
  }
  if (p.tile_m > 16) return illegal(fmt::format("streaming with tile_m = {}; 1 to 16 rows work", p.tile_m));
  if (p.tile_n % 16 != 0) return illegal(fmt::format("streaming with tile_n = {}; multiples of 16 work", p.tile_n));
  return {};
}

}  // namespace

Schedule to_schedule(const Parameters& parameters) {
  Schedule schedule;
  schedule.family = kName;
  for (const Field& field : kFields) schedule.params[field.name] = parameters.*field.member;
  return schedule;
}

Expected<Parameters> parameters_from(const Schedule& schedule) {
  if (schedule.family != kName) {
    return Status::invalid_argument(fmt::format("a schedule of family '{}' is none of {}", schedule.family, kName));
  }
  Parameters parameters;
  for (const Field& field : kFields) {
    const auto found = schedule.params.find(field.name);
    if (found == schedule.params.end()) return illegal(fmt::format("parameter '{}' is missing", field.name));
    const bool is_flag = field.member == &Parameters::streaming || field.member == &Parameters::bf16_dot;
    const std::int64_t least = is_flag ? 0 : 1;  // the others are divided by
    if (found->second < least || found->second > kMaxParameter) {
      return illegal(fmt::format("{} = {}; {} to {} are looked at", field.name, found->second, least, kMaxParameter));
    }
    parameters.*field.member = found->second;
  }
  for (const auto& [name, value] : schedule.params) {
    if (std::none_of(std::begin(kFields), std::end(kFields), [&](const Field& f) { return name == f.name; })) {
      return illegal(fmt::format("unknown parameter '{}'", name));
    }
  }
  return parameters;
}

bool has_feature(const Target& target, std::string_view name) {
  return std::find(target.features.begin(), target.features.end(), name) != target.features.end();
}

bool can_dot_bf16(const Problem& problem, const Target& target) {
  return problem.q_dtype == DataType::bf16 && target.arch == "avx512" && has_feature(target, "avx512bf16");
}

std::int64_t stack_bytes(const Problem& problem, const Parameters& p) {
  const std::int64_t row_buffers = 4 * 4 * (std::max(problem.head_dim_qk, problem.head_dim_v) + 64) + 4096;
  if (p.streaming != 0) {
    const std::int64_t dim_qk = round_up(problem.head_dim_qk, p.width()),
                       dim_v = round_up(problem.head_dim_v, p.width());
    return 4 * p.tile_m * (dim_qk + dim_v + p.tile_n + 8) + row_buffers;
  }
  const std::int64_t score_depth = p.bf16_dot >= 1 ? 2 : 1, output_depth = p.bf16_dot == 2 ? 2 : 1;
  const std::int64_t score_steps = (problem.head_dim_qk + score_depth - 1) / score_depth;
  const std::int64_t channels = round_up(problem.head_dim_v, p.output_rows);
  const std::int64_t queries_and_outputs = p.tile_m * (score_steps + channels + 2);
  const std::int64_t keys = p.tile_n * (round_up(score_steps, p.width()) + 16);
  const std::int64_t values = p.tile_n / output_depth * channels;
  const std::int64_t scores = p.tile_n * p.lanes() * (p.bf16_dot == 2 ? 3 : 2) / 2;
  return 4 * (queries_and_outputs + keys + values + scores) + row_buffers;
}

Status check(const Problem& problem, const Target& target, const Parameters& p) {
  if (p.vector_bits != 256 && p.vector_bits != 512) {
    return illegal(fmt::format("vector_bits = {}; 256 and 512 work", p.vector_bits));
  }
  if (p.vector_bits == 512 && target.arch != "avx512")
    return illegal("vector_bits = 512 needs the avx512 architecture");
  if (p.bf16_dot > 2) return illegal(fmt::format("bf16_dot = {}; 0 to 2 work", p.bf16_dot));
  if (p.bf16_dot != 0 && (!can_dot_bf16(problem, target) || p.vector_bits != 512)) {
    return illegal("bf16_dot needs bfloat16 tensors, vector_bits = 512 and the CPU feature avx512bf16");
  }
  if (p.tile_m < 1 || p.tile_n < 1) return illegal("tile_m and tile_n must be positive");
  if (p.kv_splits < 1) return illegal("kv_splits must be positive");
  if (p.streaming > 1) return illegal("streaming is 0 or 1");
  SACCADE_TRY(p.streaming != 0 ? check_streaming(p) : check_tiles(p));
  if (const std::int64_t bytes = stack_bytes(problem, p); bytes > kMaxStackBytes) {
    return illegal(fmt::format("tiles of {} x {} need {} bytes of stack, {} are allowed", p.tile_m, p.tile_n, bytes,
                               kMaxStackBytes));
  }
  return {};
}

std::int64_t output_rows(const Problem& problem, const Shape& shape) {
  return shape.heads_q * (problem.layout == Layout::varlen ? shape.total_q : shape.batch * shape.seqlen_q);
}

std::int64_t work_items(const Problem&, const Shape& shape, const Parameters& p) {
  const std::int64_t heads = p.streaming != 0 ? shape.heads_kv : shape.heads_q;
  const std::int64_t rows =
      p.streaming != 0 ? shape.heads_q / std::max<std::int64_t>(shape.heads_kv, 1) * shape.seqlen_q : shape.seqlen_q;
  return shape.batch * heads * ((rows + p.tile_m - 1) / p.tile_m) * p.kv_splits;
}

}  // namespace saccade::cpu_forward
