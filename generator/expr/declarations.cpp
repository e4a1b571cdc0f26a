#include "generator/expr/declarations.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "templates/common/params.h"

namespace saccade::expr {
namespace {

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto rest = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= kMaxNameBytes && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), rest);
}

/// For messages: at most a name's length, and nothing that a terminal could act on.
std::string shown(std::string_view name) {
  std::string text(name.substr(0, kMaxNameBytes));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return text;
}

Status check_name(std::string_view name, std::set<std::string_view>& seen) {
  if (!is_identifier(name)) {
    return Status::invalid_argument(
        fmt::format("'{}' is not a name: use letters, digits and '_', not starting with a digit, at most {} characters",
                    shown(name), kMaxNameBytes));
  }
  if (is_reserved(name)) {
    return Status::invalid_argument(fmt::format("'{}' is a name of the expression language; choose another", name));
  }
  if (!seen.insert(name).second) return Status::invalid_argument(fmt::format("'{}' is declared twice", name));
  return {};
}

}  // namespace

std::string_view name_of(Type type) {
  switch (type) {
    case Type::boolean: return "bool";
    case Type::i32: return "i32";
    case Type::i64: return "i64";
    default: return "f32";
  }
}

bool is_reserved(std::string_view name) {
  const auto has = [&](const auto& list) {
    return std::any_of(std::begin(list), std::end(list), [&](const auto& entry) { return entry.name == name; });
  };
  return name == "true" || name == "false" || has(kVariables) || has(kFunctions);
}

Status validate(const Declarations& declarations) {
  if (declarations.scalars.size() > kMaxScalars) {
    return Status::invalid_argument(
        fmt::format("{} scalars are declared; at most {} are allowed", declarations.scalars.size(), kMaxScalars));
  }
  if (declarations.tables.size() > kMaxTables) {
    return Status::invalid_argument(
        fmt::format("{} tables are declared; at most {} are allowed", declarations.tables.size(), kMaxTables));
  }
  std::set<std::string_view> seen;
  for (const ScalarDeclaration& s : declarations.scalars) {
    SACCADE_TRY(check_name(s.name, seen));
    if (s.type != Type::i32 && s.type != Type::i64 && s.type != Type::f32) {
      return Status::invalid_argument(fmt::format("scalar '{}' must have type i32, i64 or f32", s.name));
    }
  }
  for (const TableDeclaration& t : declarations.tables) {
    SACCADE_TRY(check_name(t.name, seen));
    if (t.rank < 1 || t.rank > kMaxTableRank) {
      return Status::invalid_argument(
          fmt::format("table '{}' has rank {}; ranks 1 to {} are allowed", t.name, t.rank, kMaxTableRank));
    }
    if (t.dtype > DataType::boolean) {
      return Status::invalid_argument(fmt::format("table '{}' has an unknown element type", t.name));
    }
  }
  return {};
}

}  // namespace saccade::expr
