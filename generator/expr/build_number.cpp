// Arithmetic: the f32 operators, and the entry points that choose between integers and f32.
#include <cmath>

#include "generator/expr/build.h"

namespace saccade::expr::build {
namespace {

bool both_integers(const NodePtr& a, const NodePtr& b) { return is_integer(a->type) && is_integer(b->type); }
bool both_real(const NodePtr& a, const NodePtr& b) { return a->op == Op::real && b->op == Op::real; }
bool is_real(const NodePtr& n, float value) { return n->op == Op::real && n->real == value; }

/// The folded constant, unless it is not a finite number (which has no literal): then the operation stays.
NodePtr fold(Op op, double value, const NodePtr& a, const NodePtr& b) {
  const auto rounded = static_cast<float>(value);
  return std::isfinite(rounded) ? real(rounded) : make(op, Type::f32, {a, b});
}

/// Constants first for products, last for sums; otherwise the order of nodes. Exact: IEEE + and * commute.
NodePtr sorted(Op op, NodePtr a, NodePtr b) {
  const bool constant_first = op == Op::multiply;
  bool swap = compare(*b, *a) < 0;
  if (a->op == Op::real || b->op == Op::real) swap = (b->op == Op::real) == constant_first;
  if (swap) std::swap(a, b);
  return make(op, Type::f32, {std::move(a), std::move(b)});
}

NodePtr float_sum(const NodePtr& a, const NodePtr& b) {
  if (both_real(a, b)) return fold(Op::add, double{a->real} + b->real, a, b);
  if (is_real(a, 0)) return b;
  if (is_real(b, 0)) return a;
  if (a->op == Op::negative) return difference(b, a->args[0]);
  if (b->op == Op::negative) return difference(a, b->args[0]);
  return sorted(Op::add, a, b);
}

NodePtr float_product(const NodePtr& a, const NodePtr& b) {
  if (both_real(a, b)) return fold(Op::multiply, double{a->real} * b->real, a, b);
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    if (is_real(x, 1)) return y;
    if (is_real(x, -1)) return negative(y);
  }
  return sorted(Op::multiply, a, b);
}

std::int64_t integer_extremum(Op op, std::int64_t a, std::int64_t b) {
  return op == Op::minimum ? std::min(a, b) : std::max(a, b);
}

}  // namespace

NodePtr to_float(const NodePtr& a) {
  if (a->type == Type::f32) return a;
  if (a->op == Op::integer || a->op == Op::boolean) return real(static_cast<float>(a->integer));
  return make(Op::to_float, Type::f32, {a});
}

NodePtr to_int(const NodePtr& a) {
  if (is_integer(a->type)) return a;
  if (a->op == Op::boolean) return integer(a->integer);
  if (a->op == Op::real) {
    const double whole = std::trunc(a->real);
    return integer(static_cast<std::int64_t>(std::clamp(whole, -2147483648.0, 2147483647.0)));
  }
  return make(Op::to_int, Type::i32, {a});
}

NodePtr sum(const NodePtr& a, const NodePtr& b) {
  if (both_integers(a, b)) return linear({a, b}, {1, 1}, 0);
  return float_sum(to_float(a), to_float(b));
}

NodePtr difference(const NodePtr& a, const NodePtr& b) {
  if (both_integers(a, b)) return linear({a, b}, {1, -1}, 0);
  const NodePtr x = to_float(a), y = to_float(b);
  if (both_real(x, y)) return fold(Op::subtract, double{x->real} - y->real, x, y);
  if (y->op == Op::real) return float_sum(x, real(-y->real));
  if (y->op == Op::negative) return float_sum(x, y->args[0]);
  if (is_real(x, 0)) return negative(y);
  return make(Op::subtract, Type::f32, {x, y});
}

NodePtr multiply(const NodePtr& a, const NodePtr& b) {
  if (both_integers(a, b)) return integer_product(a, b);
  return float_product(to_float(a), to_float(b));
}

NodePtr divide(const NodePtr& a, const NodePtr& b) {
  const NodePtr x = to_float(a), y = to_float(b);
  if (both_real(x, y) && y->real != 0) return fold(Op::divide, double{x->real} / y->real, x, y);
  if (is_real(y, 1)) return x;
  return make(Op::divide, Type::f32, {x, y});
}

NodePtr negative(const NodePtr& a) {
  if (is_integer(a->type)) return linear({a}, {-1}, 0);
  if (a->op == Op::real) return real(-a->real);
  if (a->op == Op::negative) return a->args[0];
  return make(Op::negative, Type::f32, {a});
}

NodePtr floor_divide(const NodePtr& a, const NodePtr& b) {
  if (is_integer_value(b, 1)) return a;
  if (is_integer_value(b, -1)) return negative(a);
  if (is_integer_value(b, 0) || is_integer_value(a, 0)) return integer(0);
  const Type type = widest(a->type, b->type);
  if (a->op == Op::integer && b->op == Op::integer) return integer(saccade::floor_divide(a->integer, b->integer));
  return make(Op::floor_divide, type, {a, b});
}

NodePtr floor_modulo(const NodePtr& a, const NodePtr& b) {
  if (is_integer_value(b, 1) || is_integer_value(b, -1) || is_integer_value(b, 0) || is_integer_value(a, 0)) {
    return integer(0);
  }
  const Type type = widest(a->type, b->type);
  if (a->op == Op::integer && b->op == Op::integer) return integer(saccade::floor_modulo(a->integer, b->integer));
  return make(Op::floor_modulo, type, {a, b});
}

NodePtr extremum(Op op, const NodePtr& a, const NodePtr& b) {
  if (both_integers(a, b)) {
    if (a->op == Op::integer && b->op == Op::integer) return integer(integer_extremum(op, a->integer, b->integer));
    if (same(a, b)) return a;
    const bool swap = compare(*b, *a) < 0;
    return make(op, widest(a->type, b->type), swap ? std::vector{b, a} : std::vector{a, b});
  }
  NodePtr x = to_float(a), y = to_float(b);
  if (both_real(x, y)) return real(op == Op::minimum ? std::min(x->real, y->real) : std::max(x->real, y->real));
  if (same(x, y)) return x;
  if (compare(*y, *x) < 0) std::swap(x, y);
  return make(op, Type::f32, {std::move(x), std::move(y)});
}

NodePtr absolute(const NodePtr& a) {
  if (is_integer(a->type)) {
    if (a->op == Op::integer && a->integer != kUnboundedBelow) return integer(std::abs(a->integer));
    if (a->range.lo >= 0) return a;
    if (a->op == Op::linear && a->coefficients[0] < 0) return absolute(negative(a));
  }
  if (a->op == Op::real) return real(std::fabs(a->real));
  if (a->op == Op::negative) return absolute(a->args[0]);
  if (a->op == Op::absolute && a->type == Type::f32) return a;
  return make(Op::absolute, a->type, {a});
}

NodePtr function(Op op, const NodePtr& a) {
  if (op == Op::floor && is_integer(a->type)) return a;
  const NodePtr x = to_float(a);
  if (op == Op::floor && (x->op == Op::to_float || x->op == Op::floor)) return x;
  if (op == Op::floor && x->op == Op::real) return real(std::floor(x->real));
  if (op == Op::sqrt && x->op == Op::real && x->real >= 0) return real(std::sqrt(x->real));
  return make(op, Type::f32, {x});
}

}  // namespace saccade::expr::build
