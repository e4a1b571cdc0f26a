// The tree of a program, always in canonical form: the functions of namespace `build` are the only way to make nodes,
// and each simplifies what it is given. Canonical form in short:
//   - integer sums are one `linear` node (terms sorted, coefficients and constant collected);
//   - integer comparisons have what depends on kv_idx on the left, everything else on the right;
//   - `!` stands only before float comparisons and boolean tables; && and || are flat, sorted and without repeats;
//   - operands of commutative operators are sorted; float operators are never reassociated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/expr/program.h"

namespace saccade::expr {

enum class Op : std::uint8_t {
  // Leaves. The order is the order of terms and operands in canonical text.
  score,
  kv_idx,
  q_idx,
  len_q,
  len_kv,
  h,
  b,
  scalar,
  table,
  boolean,
  integer,
  real,
  // Integers
  linear,
  product,
  floor_divide,
  floor_modulo,
  to_int,
  // f32
  add,
  subtract,
  multiply,
  divide,
  negative,
  floor,
  exp,
  exp2,
  log,
  log2,
  sqrt,
  tanh,
  to_float,
  // Both
  minimum,
  maximum,
  absolute,
  select,
  // Conditions
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  all,
  any,
  negation,
};

struct Node {
  Op op = Op::boolean;
  Type type = Type::boolean;
  DataType element = DataType::i32;  ///< of a table
  int slot = -1;                     ///< of a scalar or table
  float real = 0;                    ///< value of a real
  std::int64_t integer = 0;          ///< value of an integer or boolean; constant of a linear
  std::string name;                  ///< of a scalar or table
  std::vector<NodePtr> args;
  std::vector<std::int64_t> coefficients;  ///< of a linear: one for each argument

  // Derived from the above when the node is made.
  IntInterval range{0};  ///< every value that an integer can take, whatever the arguments
  int depth = 1;
  bool uses_q = false, uses_kv = false, uses_table = false, uses_head = false;  ///< uses_head: b or h
  bool plain_sum = false;    ///< a linear that stays within 64 bits whatever its terms: plain arithmetic is exact
  bool never_wraps = false;  ///< a plain linear that also stays within its type

  bool ranged() const { return uses_q || uses_kv; }
};

inline bool is_integer(Type type) { return type == Type::i32 || type == Type::i64; }
inline bool is_constant(const Node& n) { return n.op == Op::boolean || n.op == Op::integer || n.op == Op::real; }
inline bool is_comparison(Op op) { return op >= Op::equal && op <= Op::greater_equal; }

/// A total order of nodes; 0 when they are the same expression.
int compare(const Node& a, const Node& b);

/// Whether any node of the tree satisfies `predicate`.
template <class Predicate>
bool any_node(const Node& n, Predicate&& predicate) {
  if (predicate(n)) return true;
  for (const NodePtr& a : n.args)
    if (any_node(*a, predicate)) return true;
  return false;
}

/// Canonical text of a tree.
std::string print(const Node& root);

/// A linear sum: every value of `sum(coefficient * term) + constant`, with positions below their lengths, in exact
/// arithmetic.
__extension__ typedef __int128 Int128;
struct ExactRange {
  Int128 lo = 0, hi = 0;
};
ExactRange exact_range(const std::vector<NodePtr>& terms, const std::vector<std::int64_t>& coefficients,
                       std::int64_t constant);
bool fits(const ExactRange& range, Type type);

/// Element type to program type: bool, i32 (also 8 and 16 bits), i64 (also u32), f32 (all floats).
Type type_of(DataType element);

namespace build {

NodePtr boolean(bool value);
NodePtr integer(std::int64_t value);
NodePtr real(float value);
NodePtr variable(Op op);
NodePtr scalar(int slot, const ScalarDeclaration& declaration);
NodePtr table(int slot, const TableDeclaration& declaration, std::vector<NodePtr> indices);

// Operands are numbers (not conditions); they widen as the grammar says.
NodePtr sum(const NodePtr& a, const NodePtr& b);
NodePtr difference(const NodePtr& a, const NodePtr& b);
NodePtr multiply(const NodePtr& a, const NodePtr& b);
NodePtr divide(const NodePtr& a, const NodePtr& b);
NodePtr negative(const NodePtr& a);
NodePtr floor_divide(const NodePtr& a, const NodePtr& b);  ///< integers
NodePtr floor_modulo(const NodePtr& a, const NodePtr& b);  ///< integers
NodePtr extremum(Op op, const NodePtr& a, const NodePtr& b);
NodePtr absolute(const NodePtr& a);
NodePtr function(Op op, const NodePtr& a);  ///< floor, exp, ..., tanh
NodePtr to_float(const NodePtr& a);         ///< also of conditions
NodePtr to_int(const NodePtr& a);           ///< also of conditions

/// Two numbers, or two conditions with == or !=.
NodePtr comparison(Op op, const NodePtr& a, const NodePtr& b);
NodePtr all(const std::vector<NodePtr>& conditions);
NodePtr any(const std::vector<NodePtr>& conditions);
NodePtr negation(const NodePtr& condition);
/// Branches are two numbers or two conditions.
NodePtr select(const NodePtr& condition, const NodePtr& a, const NodePtr& b);

/// sum(coefficients * terms) + constant, collected. Arithmetic on constants wraps at the width of the widest term.
NodePtr linear(const std::vector<NodePtr>& terms, const std::vector<std::int64_t>& coefficients, std::int64_t constant);

}  // namespace build
/// Whether `a op b`, for a comparison `op`.
template <class Number>
bool compares(Op op, Number a, Number b) {
  switch (op) {
    case Op::equal: return a == b;
    case Op::not_equal: return a != b;
    case Op::less: return a < b;
    case Op::less_equal: return a <= b;
    case Op::greater: return a > b;
    default: return a >= b;
  }
}

}  // namespace saccade::expr
