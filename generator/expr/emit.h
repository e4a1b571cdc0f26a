// Shared by the files that emit C++ text.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "generator/expr/node.h"

namespace saccade::expr {

/// What a function's text refers to, so that only that is declared.
struct Uses {
  std::set<int> scalars;
  bool params = false, position = false, q_idx = false, kv_idx = false;
};

/// Precedence of C++ expressions, loosest first.
enum class Bind { select, disjunction, conjunction, equality, relational, sum, term, unary, primary };

/// Whether a division may be off by 2 units in the last place where the target has a cheaper one (math::divide). Not in what
/// jumps: masks, and a score's conditions, floors and indices decide as the host does.
enum class Division { exact, approximate };

/// C++ text of a tree's value at one element (`position` is "e") or of what does not vary over a tile ("t").
class ElementEmitter {
 public:
  ElementEmitter(std::string position, Uses& uses, Division division = Division::exact)
      : position_(std::move(position)), uses_(uses), division_(division) {}

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
  Text infix(const Node& n, const char* symbol, Bind bind);
  Text junction(const Node& n);
  static bool is_optional_bound(const Node& n);
  Text optional_bound(const Node& n);
  Text call(const std::string& name, const Node& n);
  Text table(const Node& n);
  std::string term(const Node& atom, std::int64_t coefficient, bool first, bool widen);

  std::string position_;
  Uses& uses_;
  Division division_;  ///< in the part of the tree that is being emitted
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
FunctionText emit_tile_class(const Node& mask);
FunctionText emit_kv_range(const Node& mask);

}  // namespace saccade::expr
