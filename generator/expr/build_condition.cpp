// Conditions: comparisons, && || !, and the choice between two values.
#include <cmath>

#include "generator/expr/build.h"

namespace saccade::expr::build {
namespace {

/// The operator with its operands exchanged (mirror) or its answer inverted.
Op mirror(Op op) {
  switch (op) {
    case Op::less: return Op::greater;
    case Op::less_equal: return Op::greater_equal;
    case Op::greater: return Op::less;
    case Op::greater_equal: return Op::less_equal;
    default: return op;
  }
}
Op inverse(Op op) {
  switch (op) {
    case Op::equal: return Op::not_equal;
    case Op::not_equal: return Op::equal;
    case Op::less: return Op::greater_equal;
    case Op::less_equal: return Op::greater;
    case Op::greater: return Op::less_equal;
    default: return Op::less;
  }
}

NodePtr float_comparison(Op op, NodePtr a, NodePtr b) {
  if (a->op == Op::real && b->op == Op::real) return boolean(compares(op, a->real, b->real));
  // What depends on kv_idx stands on the left, constants on the right, otherwise the order of nodes decides.
  bool swap = compare(*b, *a) < 0;
  if ((a->op == Op::real) != (b->op == Op::real)) swap = a->op == Op::real;
  if (a->uses_kv != b->uses_kv) swap = b->uses_kv;
  if (swap) {
    std::swap(a, b);
    op = mirror(op);
  }
  return make(op, Type::boolean, {std::move(a), std::move(b)});
}

NodePtr boolean_comparison(Op op, NodePtr a, NodePtr b) {
  const bool wants_equal = op == Op::equal;
  if (same(a, b)) return boolean(wants_equal);
  if (a->op == Op::boolean) std::swap(a, b);
  if (b->op == Op::boolean) return (b->integer != 0) == wants_equal ? a : negation(a);
  if (compare(*b, *a) < 0) std::swap(a, b);
  return make(op, Type::boolean, {std::move(a), std::move(b)});
}

/// Tables cost a memory access, so what needs none is asked first.
bool before(const NodePtr& a, const NodePtr& b) {
  if (a->uses_table != b->uses_table) return b->uses_table;
  return compare(*a, *b) < 0;
}

/// Flattens, sorts and removes repeats; `absorbing` decides the whole, its opposite is dropped.
NodePtr junction(Op op, const std::vector<NodePtr>& conditions, bool absorbing) {
  std::vector<NodePtr> terms;
  for (const NodePtr& c : conditions) {
    if (is_boolean_value(c, absorbing)) return c;
    if (c->op == Op::boolean) continue;
    if (c->op == op) {
      terms.insert(terms.end(), c->args.begin(), c->args.end());
    } else {
      terms.push_back(c);
    }
  }
  std::sort(terms.begin(), terms.end(), before);
  terms.erase(std::unique(terms.begin(), terms.end(), same), terms.end());
  if (terms.empty()) return boolean(!absorbing);
  if (terms.size() == 1) return terms[0];
  return make(op, Type::boolean, std::move(terms));
}

NodePtr select_condition(const NodePtr& c, const NodePtr& a, const NodePtr& b) {
  if (a->op == Op::boolean) return a->integer != 0 ? any({c, b}) : all({negation(c), b});
  if (b->op == Op::boolean) return b->integer != 0 ? any({negation(c), a}) : all({c, a});
  return make(Op::select, Type::boolean, {c, a, b});
}

}  // namespace

NodePtr comparison(Op op, const NodePtr& a, const NodePtr& b) {
  if (a->type == Type::boolean) return boolean_comparison(op, a, b);
  if (is_integer(a->type) && is_integer(b->type)) return integer_comparison(op, a, b);
  return float_comparison(op, to_float(a), to_float(b));
}

NodePtr all(const std::vector<NodePtr>& conditions) { return junction(Op::all, conditions, false); }
NodePtr any(const std::vector<NodePtr>& conditions) { return junction(Op::any, conditions, true); }

NodePtr negation(const NodePtr& c) {
  if (c->op == Op::boolean) return boolean(c->integer == 0);
  if (c->op == Op::negation) return c->args[0];
  if (c->op == Op::all || c->op == Op::any) {
    std::vector<NodePtr> terms;
    for (const NodePtr& a : c->args) terms.push_back(negation(a));
    return c->op == Op::all ? any(terms) : all(terms);
  }
  if (c->op == Op::select) return select(c->args[0], negation(c->args[1]), negation(c->args[2]));
  if (is_comparison(c->op)) {
    // With NaN, !(a < b) is not a >= b; the equalities are each other's opposite whatever the operands.
    const bool ordered = c->op != Op::equal && c->op != Op::not_equal;
    if (!ordered || c->args[0]->type != Type::f32) return comparison(inverse(c->op), c->args[0], c->args[1]);
  }
  return make(Op::negation, Type::boolean, {c});
}

NodePtr select(const NodePtr& c, const NodePtr& a, const NodePtr& b) {
  if (a->type != b->type && (a->type == Type::f32 || b->type == Type::f32)) return select(c, to_float(a), to_float(b));
  if (c->op == Op::boolean) return c->integer != 0 ? a : b;
  if (same(a, b)) return a;
  if (c->op == Op::negation || c->op == Op::not_equal) return select(negation(c), b, a);
  if (a->type == Type::boolean) return select_condition(c, a, b);
  return make(Op::select, widest(a->type, b->type), {c, a, b});
}

}  // namespace saccade::expr::build
