#include "generator/problem.h"

#include <array>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/expr/node.h"
#include "generator/json.h"

namespace saccade {
namespace {

using Json = nlohmann::json;

constexpr int kMaxHeadDim = 4096;
constexpr std::size_t kMaxJsonBytes = 1024 * 1024;

void write_dtypes(Json& json, const Problem& p) {
  const bool same = p.q_dtype == p.k_dtype && p.q_dtype == p.v_dtype && p.q_dtype == p.o_dtype;
  if (same && p.q_dtype == DataType::f32) return;
  if (same) {
    json["dtype"] = name_of(p.q_dtype);
    return;
  }
  json["dtype"] = {
      {"q", name_of(p.q_dtype)}, {"k", name_of(p.k_dtype)}, {"v", name_of(p.v_dtype)}, {"o", name_of(p.o_dtype)}};
}

void write_head_dims(Json& json, const Problem& p) {
  const Problem defaults;
  if (p.head_dim_qk == p.head_dim_v) {
    if (p.head_dim_qk != defaults.head_dim_qk) json["head_dim"] = p.head_dim_qk;
    return;
  }
  json["head_dim_qk"] = p.head_dim_qk;
  json["head_dim_v"] = p.head_dim_v;
}

void write_declarations(Json& json, const expr::Declarations& declarations) {
  for (const expr::ScalarDeclaration& s : declarations.scalars)
    json["scalars"].push_back({{"name", s.name}, {"type", expr::name_of(s.type)}});
  for (const expr::TableDeclaration& t : declarations.tables)
    json["tables"].push_back({{"dtype", name_of(t.dtype)}, {"name", t.name}, {"rank", t.rank}});
}

Expected<DataType> read_dtype(const Json& value, std::string_view key) {
  SACCADE_ASSIGN(const std::string name, json::text(value, key));
  if (const std::optional<DataType> type = data_type_from_name(name)) return *type;
  return Status::invalid_argument(fmt::format(
      "\"{}\": unknown dtype \"{}\"; f32, f16, bf16, e4m3 and e5m2 are known, and for tables bool, f64, i8, i16, "
      "i32, i64, u8, u16 and u32",
      key, json::shown(name)));
}

Status read_dtypes(const Json& value, Problem& p) {
  if (!value.is_object()) {
    SACCADE_ASSIGN(const DataType type, read_dtype(value, "dtype"));
    p.q_dtype = p.k_dtype = p.v_dtype = p.o_dtype = type;
    return {};
  }
  SACCADE_TRY(json::only_keys(value, "dtype", {"q", "k", "v", "o"}));
  const std::array<std::pair<const char*, DataType*>, 4> fields = {
      {{"q", &p.q_dtype}, {"k", &p.k_dtype}, {"v", &p.v_dtype}, {"o", &p.o_dtype}}};
  for (const auto& [key, field] : fields) {
    if (!value.contains(key)) {
      return Status::invalid_argument(
          fmt::format("\"dtype\" lacks \"{}\"; give q, k, v and o, or one name for all", key));
    }
    SACCADE_ASSIGN(*field, read_dtype(value[key], fmt::format("dtype.{}", key)));
  }
  return {};
}

Status read_head_dims(const Json& json, Problem& p) {
  if (json.contains("head_dim") && (json.contains("head_dim_qk") || json.contains("head_dim_v"))) {
    return Status::invalid_argument("\"head_dim\" sets both; give it, or \"head_dim_qk\" and \"head_dim_v\"");
  }
  const auto read = [&](const char* key, int& field) -> Status {
    if (!json.contains(key)) return {};
    SACCADE_ASSIGN(const std::int64_t value, json::integer(json[key], key, 1, kMaxHeadDim));
    field = static_cast<int>(value);
    return {};
  };
  SACCADE_TRY(read("head_dim", p.head_dim_qk));
  if (json.contains("head_dim")) p.head_dim_v = p.head_dim_qk;
  SACCADE_TRY(read("head_dim_qk", p.head_dim_qk));
  return read("head_dim_v", p.head_dim_v);
}

Status read_scalars(const Json& list, expr::Declarations& declarations) {
  if (!list.is_array()) return json::wrong_type("scalars", "an array of objects");
  for (const Json& entry : list) {
    SACCADE_TRY(json::only_keys(entry, "scalars[]", {"name", "type"}));
    expr::ScalarDeclaration scalar;
    SACCADE_ASSIGN(scalar.name, json::text(json::at(entry, "name"), "scalars[].name"));
    SACCADE_ASSIGN(const std::string type, json::text(json::at(entry, "type"), "scalars[].type"));
    if (type != "i32" && type != "i64" && type != "f32") {
      return Status::invalid_argument(
          fmt::format("\"scalars[].type\": \"{}\" is not i32, i64 or f32", json::shown(type)));
    }
    scalar.type = type == "i32" ? expr::Type::i32 : type == "i64" ? expr::Type::i64 : expr::Type::f32;
    declarations.scalars.push_back(std::move(scalar));
  }
  return {};
}

Status read_tables(const Json& list, expr::Declarations& declarations) {
  if (!list.is_array()) return json::wrong_type("tables", "an array of objects");
  for (const Json& entry : list) {
    SACCADE_TRY(json::only_keys(entry, "tables[]", {"dtype", "name", "rank"}));
    expr::TableDeclaration table;
    SACCADE_ASSIGN(table.name, json::text(json::at(entry, "name"), "tables[].name"));
    SACCADE_ASSIGN(table.dtype, read_dtype(json::at(entry, "dtype"), "tables[].dtype"));
    SACCADE_ASSIGN(const std::int64_t rank, json::integer(json::at(entry, "rank"), "tables[].rank", 1, 4));
    table.rank = static_cast<int>(rank);
    declarations.tables.push_back(std::move(table));
  }
  return {};
}

Expected<expr::Program> read_program(const Json& json, const char* key, expr::Kind kind,
                                     const expr::Declarations& declarations) {
  if (!json.contains(key)) return expr::Program(kind);
  SACCADE_ASSIGN(const std::string text, json::text(json[key], key));
  Expected<expr::Program> program = expr::Program::parse(kind, text, declarations);
  if (!program.ok()) return Status::invalid_argument(fmt::format("\"{}\": {}", key, program.status().message()));
  return program;
}

Status read_choices(const Json& json, Problem& p) {
  if (json.contains("op")) {
    SACCADE_ASSIGN(const std::string op, json::text(json["op"], "op"));
    if (op != "forward") {
      return Status::invalid_argument(fmt::format("\"op\": \"{}\" is not known; \"forward\" is", json::shown(op)));
    }
  }
  if (json.contains("layout")) {
    SACCADE_ASSIGN(const std::string layout, json::text(json["layout"], "layout"));
    if (layout != "dense" && layout != "varlen") {
      return Status::invalid_argument(
          fmt::format("\"layout\": \"{}\" is not known; \"dense\" and \"varlen\" are", json::shown(layout)));
    }
    p.layout = layout == "dense" ? Layout::dense : Layout::varlen;
  }
  if (json.contains("lse")) {
    if (!json["lse"].is_boolean()) return json::wrong_type("lse", "true or false");
    p.lse = json["lse"].get<bool>();
  }
  return {};
}

Expected<Problem> read_problem(const Json& json) {
  SACCADE_TRY(json::only_keys(
      json, "problem",
      {"dtype", "head_dim", "head_dim_qk", "head_dim_v", "layout", "lse", "mask", "op", "scalars", "score", "tables"}));
  Problem p;
  if (json.contains("dtype")) SACCADE_TRY(read_dtypes(json["dtype"], p));
  SACCADE_TRY(read_head_dims(json, p));
  SACCADE_TRY(read_choices(json, p));
  if (json.contains("scalars")) SACCADE_TRY(read_scalars(json["scalars"], p.declarations));
  if (json.contains("tables")) SACCADE_TRY(read_tables(json["tables"], p.declarations));
  SACCADE_ASSIGN(p.mask, read_program(json, "mask", expr::Kind::mask, p.declarations));
  SACCADE_ASSIGN(p.score, read_program(json, "score", expr::Kind::score, p.declarations));
  SACCADE_TRY(validate(p));
  return p;
}

Status check_dtype(const char* field, DataType type) {
  switch (type) {
    case DataType::f32:
    case DataType::f16:
    case DataType::bf16:
    case DataType::e4m3:
    case DataType::e5m2: return {};
    default:
      return Status::invalid_argument(
          fmt::format("{} is {}; f32, f16, bf16, e4m3 and e5m2 are element types of tensors", field, name_of(type)));
  }
}

Status check_head_dim(const char* field, int value) {
  if (value >= 1 && value <= kMaxHeadDim) return {};
  return Status::invalid_argument(fmt::format("{} is {}; 1 to {} is possible", field, value, kMaxHeadDim));
}

/// A program made with other declarations could read slots that do not exist here.
Status check_program(const char* field, const expr::Program& program, expr::Kind kind,
                     const expr::Declarations& declarations) {
  if (program.kind() != kind) {
    return Status::invalid_argument(
        fmt::format("{} holds a {} program", field, program.kind() == expr::Kind::mask ? "mask" : "score"));
  }
  const Expected<expr::Program> again = expr::Program::parse(kind, program.text(), declarations);
  if (!again.ok()) {
    return Status::invalid_argument(
        fmt::format("{} does not fit the problem's declarations: {}", field, again.status().message()));
  }
  if (expr::compare(*program.root(), *again->root()) == 0) return {};
  return Status::invalid_argument(fmt::format("{} was made with declarations in another order", field));
}

}  // namespace

Status validate(const Problem& p) {
  SACCADE_TRY(check_dtype("q_dtype", p.q_dtype));
  SACCADE_TRY(check_dtype("k_dtype", p.k_dtype));
  SACCADE_TRY(check_dtype("v_dtype", p.v_dtype));
  SACCADE_TRY(check_dtype("o_dtype", p.o_dtype));
  SACCADE_TRY(check_head_dim("head_dim_qk", p.head_dim_qk));
  SACCADE_TRY(check_head_dim("head_dim_v", p.head_dim_v));
  if (p.op != Op::forward) return Status::invalid_argument("op is not forward, the only one known");
  if (p.layout > Layout::varlen) return Status::invalid_argument("layout is neither dense nor varlen");
  SACCADE_TRY(expr::validate(p.declarations));
  SACCADE_TRY(check_program("mask", p.mask, expr::Kind::mask, p.declarations));
  return check_program("score", p.score, expr::Kind::score, p.declarations);
}

std::string to_json(const Problem& p) {
  Json json = Json::object();
  write_dtypes(json, p);
  write_head_dims(json, p);
  if (p.layout == Layout::varlen) json["layout"] = "varlen";
  if (p.lse) json["lse"] = true;
  if (!p.mask.is_identity()) json["mask"] = p.mask.text();
  if (!p.score.is_identity()) json["score"] = p.score.text();
  write_declarations(json, p.declarations);
  return json::dump(json);
}

Expected<Problem> problem_from_json(std::string_view text) {
  SACCADE_ASSIGN(const Json json, json::parse(text, kMaxJsonBytes));
  return read_problem(json);
}

std::uint64_t stable_hash(const Problem& problem) {
  // FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv), then the finaliser of MurmurHash3 for even high bits.
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : to_json(problem)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53u;
  return hash ^ (hash >> 33);
}

}  // namespace saccade
