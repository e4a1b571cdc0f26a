// From the C interface's structs to the library's.
#include <fmt/format.h>

#include "runtime/api/boundary.h"

namespace saccade::api {
namespace {

static_assert(static_cast<int>(DataType::boolean) == SACCADE_BOOL && static_cast<int>(DataType::e5m2) == SACCADE_E5M2 &&
              static_cast<int>(DataType::i64) == SACCADE_I64);
static_assert(static_cast<int>(StatusCode::internal) == SACCADE_INTERNAL &&
              static_cast<int>(StatusCode::not_found) == SACCADE_NOT_FOUND);
static_assert(static_cast<int>(TuningPolicy::exhaustive) == SACCADE_TUNE_EXHAUSTIVE);
static_assert(static_cast<int>(Layout::varlen) == SACCADE_VARLEN);

// The sizes in version 0.1.0, which every later version keeps reading.
constexpr std::size_t kFirstShape = 72;
constexpr std::size_t kFirstPrepareOptions = 56;

Expected<DataType> dtype_from(std::int32_t dtype, std::string_view field) {
  if (dtype < SACCADE_F32 || dtype > SACCADE_BOOL) {
    return Status::invalid_argument(fmt::format("{} is {}, which is no saccade_dtype", field, dtype));
  }
  return static_cast<DataType>(dtype);
}

Expected<expr::Declarations> declarations_from(const saccade_problem_options& options) {
  expr::Declarations declarations;
  if (options.scalar_count > 0) SACCADE_TRY(require(options.scalars, "scalars"));
  if (options.table_count > 0) SACCADE_TRY(require(options.tables, "tables"));
  if (options.scalar_count > kMaxScalars || options.table_count > kMaxTables) {
    return Status::invalid_argument(fmt::format("{} scalars and {} tables are declared; at most {} and {} can be",
                                                options.scalar_count, options.table_count, kMaxScalars, kMaxTables));
  }
  for (std::size_t i = 0; i < options.scalar_count; ++i) {
    const saccade_scalar_declaration& given = options.scalars[i];
    SACCADE_TRY(require(given.name, "the name of a scalar"));
    expr::Type type = expr::Type::i32;
    switch (given.dtype) {
      case SACCADE_I32: break;
      case SACCADE_I64: type = expr::Type::i64; break;
      case SACCADE_F32: type = expr::Type::f32; break;
      default:
        return Status::invalid_argument(
            fmt::format("scalar \"{}\": its dtype must be SACCADE_I32, SACCADE_I64 or SACCADE_F32", given.name));
    }
    declarations.scalars.push_back({given.name, type});
  }
  for (std::size_t i = 0; i < options.table_count; ++i) {
    const saccade_table_declaration& given = options.tables[i];
    SACCADE_TRY(require(given.name, "the name of a table"));
    SACCADE_ASSIGN(const DataType dtype, dtype_from(given.dtype, given.name));
    declarations.tables.push_back({given.name, dtype, given.rank});
  }
  SACCADE_TRY(expr::validate(declarations));
  return declarations;
}

/// Bindings hold doubles, and an integer that a double rounds would be another scalar.
Expected<double> value_of(const saccade_scalar& scalar, const expr::ScalarDeclaration& declared) {
  constexpr std::int64_t kMostExact = std::int64_t{1} << 53;
  if (declared.type == expr::Type::f32) return static_cast<double>(scalar.f);
  if (declared.type == expr::Type::i32) return static_cast<double>(static_cast<std::int32_t>(scalar.i));  // as kernels
  if (scalar.i < -kMostExact || scalar.i > kMostExact) {
    return Status::invalid_argument(fmt::format(
        "scalar \"{}\" is {} in the prepare options; there -2^53 to 2^53 is possible. Any value is in a run: "
        "leave the options' scalars null, or give one that keeps about as much",
        declared.name, scalar.i));
  }
  return static_cast<double>(scalar.i);
}

}  // namespace

Expected<Shape> shape_from(const saccade_shape* given) {
  SACCADE_ASSIGN(const saccade_shape known, read_struct(given, kFirstShape, "shape"));
  Shape shape;
  shape.batch = known.batch;
  shape.heads_q = known.heads_q;
  shape.heads_kv = known.heads_kv;
  shape.seqlen_q = known.seqlen_q;
  shape.seqlen_kv = known.seqlen_kv;
  shape.total_q = known.total_q;
  shape.total_kv = known.total_kv;
  shape.alignment = known.alignment == 0 ? 16 : known.alignment;
  return shape;
}

Expected<Problem> problem_from(const saccade_problem_options& options) {
  Problem problem;
  SACCADE_ASSIGN(problem.q_dtype, dtype_from(options.q_dtype, "q_dtype"));
  SACCADE_ASSIGN(problem.k_dtype, dtype_from(options.k_dtype, "k_dtype"));
  SACCADE_ASSIGN(problem.v_dtype, dtype_from(options.v_dtype, "v_dtype"));
  SACCADE_ASSIGN(problem.o_dtype, dtype_from(options.o_dtype, "o_dtype"));
  problem.head_dim_qk = options.head_dim_qk;
  problem.head_dim_v = options.head_dim_v == 0 ? options.head_dim_qk : options.head_dim_v;
  if (options.layout != SACCADE_DENSE && options.layout != SACCADE_VARLEN) {
    return Status::invalid_argument(fmt::format("layout is {}; it is SACCADE_DENSE or SACCADE_VARLEN", options.layout));
  }
  problem.layout = static_cast<Layout>(options.layout);
  problem.lse = options.lse != 0;
  SACCADE_ASSIGN(problem.declarations, declarations_from(options));
  if (options.mask != nullptr) {
    SACCADE_ASSIGN(problem.mask, expr::Program::parse(expr::Kind::mask, options.mask, problem.declarations));
  }
  if (options.score != nullptr) {
    SACCADE_ASSIGN(problem.score, expr::Program::parse(expr::Kind::score, options.score, problem.declarations));
  }
  SACCADE_TRY(validate(problem));
  return problem;
}

Expected<PrepareOptions> prepare_options_from(const saccade_prepare_options* given, const Problem& problem) {
  PrepareOptions options;
  if (given == nullptr) return options;
  SACCADE_ASSIGN(const saccade_prepare_options known, read_struct(given, kFirstPrepareOptions, "prepare options"));
  if (known.tuning < SACCADE_TUNE_OFF || known.tuning > SACCADE_TUNE_EXHAUSTIVE) {
    return Status::invalid_argument(fmt::format("tuning is {}, which is no saccade_tuning", known.tuning));
  }
  options.tuning = static_cast<TuningPolicy>(known.tuning);
  options.use_cache = known.no_cache == 0;
  options.stream = known.stream;
  if (known.schedule_json != nullptr) {
    SACCADE_ASSIGN(options.schedule, schedule_from_json(known.schedule_json));
  }
  const expr::Declarations& declared = problem.declarations;
  if (known.scalars != nullptr) {
    for (std::size_t i = 0; i < declared.scalars.size(); ++i) {
      SACCADE_ASSIGN(const double value, value_of(known.scalars[i], declared.scalars[i]));
      options.bindings.scalars.push_back(value);
    }
  }
  if (known.tables != nullptr) {
    for (std::size_t i = 0; i < declared.tables.size(); ++i) {
      expr::HostTable table;
      table.data = known.tables[i].data;
      for (int d = 0; d < kMaxTableRank; ++d) {
        table.extent[d] = known.tables[i].extent[d];
        table.stride[d] = known.tables[i].stride[d];
      }
      options.bindings.tables.push_back(table);
    }
  }
  return options;
}

}  // namespace saccade::api
