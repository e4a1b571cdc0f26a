// Shared by the files that emit C++ text.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "generator/expr/node.h"
#include "generator/expr/program.h"

namespace saccade::expr {

/// What a function's text refers to, so that only that is declared.
struct Uses {
  std::set<int> scalars;
  bool params = false, position = false, q_idx = false, kv_idx = false;
};

/// Precedence of C++ expressions, loosest first.
enum class Bind { select, disjunction, conjunction, equality, relational, sum, term, unary, primary };

/// How near a number comes to what IEEE arithmetic gives: where `two_ulps` will do, targets may divide by cheaper means
/// and positions become floats by way of kv_base. What jumps is exact, so that it decides as the host does: masks, and a
/// score's conditions, floors and indices.
enum class Accuracy { exact, two_ulps };

/// C++ text of a tree's value at one element (`position` is "e") or of what does not vary over a tile ("t").
class ElementEmitter {
 public:
  ElementEmitter(std::string position, Uses& uses, Accuracy accuracy = Accuracy::exact)
      : position_(std::move(position)), uses_(uses), accuracy_(accuracy) {}

  std::string emit(const Node& n, Bind least = Bind::select);

 private:
  struct Text {
    std::string text;
    Bind bind = Bind::primary;
  };
  Text body(const Node& n);
  Text linear(const Node& n);
  Text quotient(const Node& n);
  Text division(const Node& n);
  Text to_float(const Node& integer);
  Text infix(const Node& n, const char* symbol, Bind bind);
  Text junction(const Node& n);
  static bool is_optional_bound(const Node& n);
  Text optional_bound(const Node& n);
  Text call(const std::string& name, const Node& n);
  Text table(const Node& n);
  std::string term(const Node& atom, std::int64_t coefficient, bool first, bool widen);

  std::string position_;
  const char* kv_field_ = "kv_idx";
  Uses& uses_;
  Accuracy accuracy_;  ///< in the part of the tree that is being emitted
};

std::string integer_text(std::int64_t value);
std::string cpp_type(Type type);             ///< "int", "long long", "float" or "bool"
std::string element_type(DataType element);  ///< the storage type that table_load is instantiated with
std::string scalar_name(const std::string& name);
std::string slot_name(const std::string& name);

/// A body line by line: statements of a function, broken to 120 columns as clang-format would.
struct FunctionText {
  std::vector<std::string> statements;
  Uses uses;
};

/// A range of a table that is read apart from tile_class.
struct RangeRead {
  Type type;  ///< of the elements
  std::string text;
};

/// Ranges that tile_class is given, as `keys.range_0` ... and `queries.range_0` ...: those that depend on the tile's keys, but
/// not on its queries, and the other way round. Later ones may use earlier ones.
struct TileClassText {
  FunctionText body;
  std::vector<RangeRead> keys, queries;
};
TileClassText emit_tile_class(const Node& mask, TableRanges ranges);
FunctionText emit_kv_range(const Node& mask);

}  // namespace saccade::expr
