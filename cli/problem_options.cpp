// Flags to a Workload: declarations, programs, problem, shape.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "cli/byte_source.h"
#include "cli/named_rules.h"
#include "cli/numbers.h"
#include "cli/workload.h"

namespace saccade::cli {
namespace {

constexpr std::uint64_t kMaxProblemBytes = 1 << 20;

/// "NAME[:TYPE...][=VALUE]"
struct Assignment {
  std::string name;
  std::vector<std::string> types;
  std::optional<std::string> value;
};

Expected<Assignment> split_assignment(std::string_view flag, const std::string& text) {
  Assignment result;
  const std::size_t equals = text.find('=');
  std::string_view left = std::string_view(text).substr(0, equals);
  if (equals != std::string::npos) result.value = text.substr(equals + 1);
  for (std::size_t colon = left.find(':'); colon != std::string_view::npos; colon = left.find(':')) {
    result.types.emplace_back(left.substr(0, colon));
    left.remove_prefix(colon + 1);
  }
  result.types.emplace_back(left);
  result.name = result.types.front();
  result.types.erase(result.types.begin());
  const bool blank = result.name.empty() || (result.value && result.value->empty()) ||
                     std::any_of(result.types.begin(), result.types.end(), [](const auto& t) { return t.empty(); });
  if (blank) return Status::invalid_argument(fmt::format("{} {}: a part of it is empty", flag, text));
  return result;
}

/// Where a table's values are: FILE or FILE.safetensors:TENSOR.
struct TableFile {
  std::string path, tensor;
};
TableFile table_file(const Assignment& assignment) {
  TableFile file{*assignment.value, assignment.name};
  const std::size_t colon = file.path.rfind(".safetensors:");
  if (colon != std::string::npos) {
    file.tensor = file.path.substr(colon + 13);
    file.path.resize(colon + 12);
  }
  return file;
}

std::optional<expr::Type> scalar_type(std::string_view name) {
  for (const expr::Type type : {expr::Type::i32, expr::Type::i64, expr::Type::f32})
    if (expr::name_of(type) == name) return type;
  return std::nullopt;
}

/// The type that a literal has when none is given.
expr::Type type_of_literal(std::string_view text) {
  const auto integer = number_from<std::int64_t>(text);
  if (!integer) return expr::Type::f32;
  return *integer >= INT32_MIN && *integer <= INT32_MAX ? expr::Type::i32 : expr::Type::i64;
}

Expected<double> scalar_value(const expr::ScalarDeclaration& declaration, const std::string& text) {
  if (declaration.type == expr::Type::f32) {
    const auto value = number_from<double>(text);
    const bool fits = value && !(std::isfinite(*value) && std::abs(*value) > std::numeric_limits<float>::max());
    if (!fits) return Status::invalid_argument(fmt::format("--scalar {}: '{}' is no number", declaration.name, text));
    return *value;
  }
  const auto value = number_from<std::int64_t>(text);
  const bool fits = value && *value != INT64_MIN &&
                    (declaration.type == expr::Type::i64 || (*value >= INT32_MIN && *value <= INT32_MAX));
  // Bindings hold doubles: integers beyond 2^53 would be another number.
  if (!fits || std::abs(*value) > std::int64_t{1} << 53)
    return Status::invalid_argument(fmt::format("--scalar {}: '{}' is no {}{}", declaration.name, text,
                                                expr::name_of(declaration.type),
                                                declaration.type == expr::Type::i64 ? " within 2^53" : ""));
  return static_cast<double>(*value);
}

template <class Declaration>
int index_of(const std::vector<Declaration>& declarations, const std::string& name) {
  const auto found =
      std::find_if(declarations.begin(), declarations.end(), [&](const auto& d) { return d.name == name; });
  return found == declarations.end() ? -1 : static_cast<int>(found - declarations.begin());
}

/// Collects declarations and values; with a problem from JSON, values only.
class Declarer {
 public:
  Declarer(Workload& workload, bool fixed) : workload_(workload), fixed_(fixed) {}

  Status scalar(const std::string& text) {
    SACCADE_ASSIGN(const Assignment assignment, split_assignment("--scalar", text));
    auto& declared = workload_.problem.declarations.scalars;
    int index = index_of(declared, assignment.name);
    if (index < 0) {
      if (fixed_) return undeclared("scalar", assignment.name);
      SACCADE_ASSIGN(const expr::Type type, type_of(assignment));
      index = static_cast<int>(declared.size());
      declared.push_back({assignment.name, type});
    } else if (!fixed_) {
      return Status::invalid_argument(fmt::format("--scalar {} is given twice", assignment.name));
    }
    workload_.scalars.resize(declared.size());
    if (!assignment.value) return {};
    SACCADE_ASSIGN(workload_.scalars[static_cast<std::size_t>(index)],
                   scalar_value(declared[static_cast<std::size_t>(index)], *assignment.value));
    return {};
  }

  Status table(const std::string& text) {
    SACCADE_ASSIGN(const Assignment assignment, split_assignment("--table", text));
    WorkloadTable table;
    if (assignment.value) SACCADE_TRY(read(assignment, table));
    SACCADE_ASSIGN(const expr::TableDeclaration declaration, declare(assignment, table));
    auto& declared = workload_.problem.declarations.tables;
    int index = index_of(declared, assignment.name);
    if (index < 0) {
      if (fixed_) return undeclared("table", assignment.name);
      index = static_cast<int>(declared.size());
      declared.push_back(declaration);
    } else if (!fixed_) {
      return Status::invalid_argument(fmt::format("--table {} is given twice", assignment.name));
    } else if (!(declared[static_cast<std::size_t>(index)] == declaration)) {
      const auto& wanted = declared[static_cast<std::size_t>(index)];
      return Status::invalid_argument(
          fmt::format("--table {}: the problem declares {} of rank {}, the file holds {} of rank {}", wanted.name,
                      name_of(wanted.dtype), wanted.rank, name_of(declaration.dtype), declaration.rank));
    }
    workload_.tables.resize(declared.size());
    workload_.tables[static_cast<std::size_t>(index)] = std::move(table);
    return {};
  }

 private:
  static Status undeclared(std::string_view what, const std::string& name) {
    return Status::invalid_argument(fmt::format("--{} {}: the problem declares no such {}", what, name, what));
  }

  static Expected<expr::Type> type_of(const Assignment& assignment) {
    if (assignment.types.size() > 1 || (assignment.types.empty() && !assignment.value))
      return Status::invalid_argument(fmt::format(
          "--scalar {}: write NAME=VALUE, NAME:TYPE=VALUE or NAME:TYPE with TYPE i32, i64 or f32", assignment.name));
    if (assignment.types.empty()) return type_of_literal(*assignment.value);
    const auto type = scalar_type(assignment.types.front());
    if (!type)
      return Status::invalid_argument(
          fmt::format("--scalar {}: type '{}' is not one of i32, i64, f32", assignment.name, assignment.types.front()));
    return *type;
  }

  static Status read(const Assignment& assignment, WorkloadTable& table) {
    const TableFile file = table_file(assignment);
    SACCADE_ASSIGN(HostTensor data, read_tensor(file.path, file.tensor));
    SACCADE_ASSIGN(table.data, row_major(std::move(data)));
    if (table.data.shape.empty() || table.data.shape.size() > kMaxTableRank)
      return Status::invalid_argument(fmt::format("--table {}: shape {}; a table has 1 to {} dimensions",
                                                  assignment.name, shape_text(table.data.shape), kMaxTableRank));
    std::copy(table.data.shape.begin(), table.data.shape.end(), table.extent);
    std::copy(table.data.stride.begin(), table.data.stride.end(), table.stride);
    return {};
  }

  static Expected<expr::TableDeclaration> declare(const Assignment& assignment, const WorkloadTable& table) {
    const Status usage = Status::invalid_argument(fmt::format(
        "--table {}: write NAME=FILE, or NAME:DTYPE:RANK (such as doc:i32:2) without values", assignment.name));
    if (assignment.types.empty() && assignment.value)
      return expr::TableDeclaration{assignment.name, table.data.dtype, static_cast<int>(table.data.shape.size())};
    if (assignment.types.size() != 2) return usage;
    const auto dtype = data_type_from_name(assignment.types[0]);
    const auto rank = number_from<int>(assignment.types[1]);
    if (!dtype || !rank) return usage;
    if (assignment.value && (*dtype != table.data.dtype || static_cast<std::size_t>(*rank) != table.data.shape.size()))
      return Status::invalid_argument(fmt::format("--table {}: the file holds {} of shape {}", assignment.name,
                                                  name_of(table.data.dtype), shape_text(table.data.shape)));
    return expr::TableDeclaration{assignment.name, *dtype, *rank};
  }

  Workload& workload_;
  bool fixed_;
};

Status set_shape(Workload& workload, const ProblemOptions& options) {
  Shape& shape = workload.shape;
  shape.heads_q = options.heads;
  shape.heads_kv = options.heads_kv > 0 ? options.heads_kv : options.heads;
  if (workload.problem.layout == Layout::dense) {
    if (!options.lengths.empty() || !options.lengths_kv.empty())
      return Status::invalid_argument("--lengths is for --layout varlen; dense problems take --seqlen and --batch");
    shape.batch = options.batch;
    shape.seqlen_q = options.seqlen_q >= 0 ? options.seqlen_q : options.seqlen;
    shape.seqlen_kv = options.seqlen_kv >= 0 ? options.seqlen_kv : options.seqlen;
    return {};
  }
  const std::vector<std::int64_t>& lengths_q = options.lengths;
  const std::vector<std::int64_t>& lengths_kv = options.lengths_kv.empty() ? options.lengths : options.lengths_kv;
  if (lengths_q.empty())
    return Status::invalid_argument("--layout varlen needs --lengths, such as --lengths 100,512,37");
  if (lengths_kv.size() != lengths_q.size())
    return Status::invalid_argument(
        fmt::format("--lengths-kv has {} sequences, --lengths has {}", lengths_kv.size(), lengths_q.size()));
  shape.batch = static_cast<std::int64_t>(lengths_q.size());
  const auto accumulate = [](const std::vector<std::int64_t>& lengths, std::vector<std::int32_t>& cumulative,
                             std::int64_t& longest, std::int64_t& total) -> Status {
    cumulative.assign(1, 0);
    for (const std::int64_t length : lengths) {
      if (length < 0 || total + length > INT32_MAX)
        return Status::invalid_argument("--lengths: each is at least 0 and their sum at most 2^31 - 1");
      total += length;
      longest = std::max(longest, length);
      cumulative.push_back(static_cast<std::int32_t>(total));
    }
    return {};
  };
  SACCADE_TRY(accumulate(lengths_q, workload.cu_seqlens_q, shape.seqlen_q, shape.total_q));
  return accumulate(lengths_kv, workload.cu_seqlens_kv, shape.seqlen_kv, shape.total_kv);
}

bool names(const std::vector<std::string>& specifications, std::string_view rule) {
  return std::any_of(specifications.begin(), specifications.end(), [&](const std::string& s) { return s == rule; });
}

/// `--score alibi` brings its own table.
Status add_alibi_table(Workload& workload, std::int64_t heads) {
  constexpr std::int64_t kMaxHeads = 1 << 16;  // far beyond any model; each has a slope in memory
  const std::string name(kAlibiTable);
  if (index_of(workload.problem.declarations.tables, name) >= 0) return {};
  if (heads > kMaxHeads)
    return Status::invalid_argument(
        fmt::format("--score alibi has slopes for at most {} heads, not {}; give your own as --table {}=FILE",
                    kMaxHeads, heads, name));
  const std::vector<float> slopes = alibi_slopes(static_cast<int>(heads));
  WorkloadTable table;
  SACCADE_ASSIGN(table.data, make_tensor(DataType::f32, {heads}));
  std::copy(slopes.begin(), slopes.end(), reinterpret_cast<float*>(table.data.data.data()));
  table.extent[0] = heads;
  table.stride[0] = 1;
  workload.problem.declarations.tables.push_back({name, DataType::f32, 1});
  workload.tables.push_back(std::move(table));
  return {};
}

/// Sizes of 1 of a bias table stand for all: extent of the shape, stride 0.
void broadcast_bias(Workload& workload, const std::vector<std::string>& scores) {
  for (const std::string& score : scores) {
    if (!score.starts_with("bias:")) continue;
    const int index = index_of(workload.problem.declarations.tables, score.substr(5));
    if (index < 0) continue;
    WorkloadTable& table = workload.tables[static_cast<std::size_t>(index)];
    const std::int64_t full[] = {workload.shape.batch, workload.shape.heads_q, workload.shape.seqlen_q,
                                 workload.shape.seqlen_kv};
    for (int axis = 0; axis < kMaxTableRank; ++axis) {
      if (table.extent[axis] != 1) continue;
      table.extent[axis] = full[axis];
      table.stride[axis] = 0;
    }
  }
}

/// Row-major tensors have strides that are multiples of their head_dim.
int alignment_of(const Problem& problem) {
  const std::int64_t sizes[] = {problem.head_dim_qk * static_cast<std::int64_t>(size_of(problem.q_dtype)),
                                problem.head_dim_qk * static_cast<std::int64_t>(size_of(problem.k_dtype)),
                                problem.head_dim_v * static_cast<std::int64_t>(size_of(problem.v_dtype)),
                                problem.head_dim_v * static_cast<std::int64_t>(size_of(problem.o_dtype))};
  int alignment = 16;
  for (const std::int64_t bytes : sizes)
    while (bytes % alignment != 0) alignment /= 2;
  return alignment;
}

Status problem_from_flags(Workload& workload, const ProblemOptions& options) {
  Problem& problem = workload.problem;
  const std::string dtype_name = options.dtype.empty() ? "f32" : options.dtype;
  const auto dtype = data_type_from_name(dtype_name);
  if (!dtype) return Status::invalid_argument(fmt::format("--dtype {}: known are f32, f16, bf16", dtype_name));
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = *dtype;
  problem.head_dim_qk = options.head_dim > 0 ? options.head_dim : 64;
  problem.head_dim_v = options.head_dim_v > 0 ? options.head_dim_v : problem.head_dim_qk;
  problem.lse = options.lse;
  if (!options.layout.empty() && options.layout != "dense" && options.layout != "varlen")
    return Status::invalid_argument(fmt::format("--layout {}: known are dense and varlen", options.layout));
  problem.layout = options.layout == "varlen" ? Layout::varlen : Layout::dense;
  return {};
}

Status programs_from_flags(Workload& workload, const ProblemOptions& options) {
  Problem& problem = workload.problem;
  const bool equal_lengths = workload.problem.layout == Layout::dense
                                 ? workload.shape.seqlen_q == workload.shape.seqlen_kv
                                 : workload.cu_seqlens_q == workload.cu_seqlens_kv;
  SACCADE_ASSIGN(const std::string mask, combined_mask(options.mask, equal_lengths));
  SACCADE_ASSIGN(const std::string score, combined_score(options.score, equal_lengths));
  if (names(options.score, "alibi") || names(options.score, "alibi-br"))
    SACCADE_TRY(add_alibi_table(workload, workload.shape.heads_q));
  SACCADE_TRY(expr::validate(problem.declarations));
  if (!mask.empty()) {
    SACCADE_ASSIGN(problem.mask, expr::Program::parse(expr::Kind::mask, mask, problem.declarations));
  }
  if (!score.empty()) {
    SACCADE_ASSIGN(problem.score, expr::Program::parse(expr::Kind::score, score, problem.declarations));
  }
  broadcast_bias(workload, options.score);
  return {};
}

}  // namespace

std::vector<std::string> files_of(const ProblemOptions& options) {
  std::vector<std::string> files = {options.problem};
  for (const std::string& table : options.tables) {
    const auto assignment = split_assignment("--table", table);
    if (assignment.ok() && assignment->value) files.push_back(table_file(*assignment).path);
  }
  return files;
}

Expected<Workload> workload_from_options(const ProblemOptions& options) {
  Workload workload;
  const bool from_json = !options.problem.empty();
  if (from_json) {
    std::string json = options.problem;
    if (json.find_first_not_of(" \n\t") == std::string::npos || json[json.find_first_not_of(" \n\t")] != '{') {
      SACCADE_ASSIGN(json, read_text_file(options.problem, kMaxProblemBytes));
    }
    SACCADE_ASSIGN(workload.problem, problem_from_json(json));
  } else {
    SACCADE_TRY(problem_from_flags(workload, options));
  }
  workload.scalars.resize(workload.problem.declarations.scalars.size());
  workload.tables.resize(workload.problem.declarations.tables.size());
  Declarer declarer(workload, from_json);
  for (const std::string& scalar : options.scalars) SACCADE_TRY(declarer.scalar(scalar));
  for (const std::string& table : options.tables) SACCADE_TRY(declarer.table(table));
  SACCADE_TRY(set_shape(workload, options));
  if (!from_json) SACCADE_TRY(programs_from_flags(workload, options));
  SACCADE_TRY(validate(workload.problem));
  workload.shape.alignment = alignment_of(workload.problem);
  SACCADE_TRY(validate(workload.shape, workload.problem));
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(workload.problem.head_dim_qk)));
  if (!(std::abs(scale) <= std::numeric_limits<float>::max()))
    return Status::invalid_argument(fmt::format("--scale {}: it must be finite in fp32", scale));
  workload.scale = static_cast<float>(scale);
  return workload;
}

}  // namespace saccade::cli
