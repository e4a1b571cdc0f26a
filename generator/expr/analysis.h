// The walk that turns a mask into interval arithmetic: its truth over a tile, and the KV range of some rows.
// Written once for two domains: the host's (values, for classify and kv_range) and the emitter's (C++ text). What
// kernels decide is therefore what the host decides.
#pragma once

#include <utility>
#include <vector>

#include "generator/expr/node.h"

namespace saccade::expr {

template <class Domain>
class Analysis {
 public:
  using Int = typename Domain::Int;
  using Real = typename Domain::Real;
  using Truth = typename Domain::Truth;

  explicit Analysis(Domain& domain) : d_(domain) {}

  Int integer(const Node& n) {
    if (is_point(n)) return d_.point_integer(n);
    switch (n.op) {
      case Op::q_idx: return d_.q_idx();
      case Op::kv_idx: return d_.kv_idx();
      case Op::table: return table<Int>(n);
      case Op::linear: return d_.wrapped(n, raw_sum(n));
      case Op::product: return product(n);
      case Op::floor_divide:
        return d_.floor_divide(n.type, integer(*n.args[0]), integer(*n.args[1]), is_point(*n.args[1]));
      case Op::floor_modulo: return d_.floor_modulo(n.type, integer(*n.args[0]), integer(*n.args[1]));
      case Op::to_int:
        return n.args[0]->type == Type::boolean ? d_.integer_of(truth(*n.args[0])) : d_.truncate(real(*n.args[0]));
      case Op::minimum:
      case Op::maximum: return d_.extremum(n.op, integer(*n.args[0]), integer(*n.args[1]));
      case Op::absolute: return d_.absolute(n.type, integer(*n.args[0]));
      default: return d_.select(truth(*n.args[0]), boxed_integer(*n.args[1]), boxed_integer(*n.args[2]));
    }
  }

  Real real(const Node& n) {
    if (is_point(n)) return d_.point_real(n);
    const Node& a = *n.args[0];
    switch (n.op) {
      case Op::table: return table<Real>(n);
      case Op::to_float: return a.type == Type::boolean ? d_.float_of(truth(a)) : d_.float_of(integer(a));
      case Op::select: return d_.select(truth(a), boxed_real(*n.args[1]), boxed_real(*n.args[2]));
      default: break;
    }
    if (n.args.size() == 1) return d_.float_function(n.op, real(a));
    return d_.float_function(n.op, real(a), real(*n.args[1]));
  }

  Truth truth(const Node& n) {
    if (is_point(n)) return d_.point_truth(n);
    switch (n.op) {
      case Op::table: return table<Truth>(n);
      case Op::all:
      case Op::any: return d_.junction(n.op, truths(n.args));
      case Op::negation: return d_.negate(truth(*n.args[0]));
      case Op::select: return d_.select(truth(*n.args[0]), truth(*n.args[1]), truth(*n.args[2]));
      default: break;
    }
    const Node &a = *n.args[0], &b = *n.args[1];
    if (a.type == Type::boolean) return d_.comparison(n.op, truth(a), truth(b));
    if (a.type == Type::f32) return d_.comparison(n.op, real(a), real(b));
    return d_.comparison(n.op, integer(a), integer(b));
  }

  std::vector<Truth> truths(const std::vector<NodePtr>& conditions) {
    std::vector<Truth> values;
    for (const NodePtr& c : conditions) values.push_back(truth(*c));
    return values;
  }

  /// The kv_idx at which `condition` can hold. The domain's kv_idx() must span the whole sequence.
  Int keys(const Node& condition) {
    if (!condition.uses_kv) return d_.where(truth(condition));
    switch (condition.op) {
      case Op::all: return d_.intersect(all_keys(condition));
      case Op::any: return d_.hull(all_keys(condition));
      case Op::select: {
        const NodePtr &c = condition.args[0], &a = condition.args[1], &b = condition.args[2];
        return d_.hull({d_.intersect({keys(*c), keys(*a)}), d_.intersect({keys(*build::negation(c)), keys(*b)})});
      }
      case Op::equal:
      case Op::less:
      case Op::less_equal:
      case Op::greater:
      case Op::greater_equal: {
        const Node &a = *condition.args[0], &b = *condition.args[1];
        if (!is_integer(a.type) || b.uses_kv) return d_.anywhere();
        return solve(a, d_.target(condition.op, integer(b)));
      }
      default: return d_.anywhere();
    }
  }

 private:
  bool is_point(const Node& n) const { return !n.ranged() && d_.is_known(n); }
  Int boxed_integer(const Node& n) { return is_point(n) ? d_.box_integer(integer(n)) : integer(n); }
  Real boxed_real(const Node& n) { return is_point(n) ? d_.box_real(real(n)) : real(n); }

  std::vector<Int> all_keys(const Node& junction) {
    std::vector<Int> ranges;
    for (const NodePtr& c : junction.args) ranges.push_back(keys(*c));
    return ranges;
  }

  /// A sum before it wraps. What varies comes first, so that the text's operators are those of intervals.
  Int raw_sum(const Node& linear) {
    auto sum = d_.new_sum(linear);
    for (const bool point : {false, true})
      for (std::size_t i = 0; i < linear.args.size(); ++i) {
        const Node& a = *linear.args[i];
        if (is_point(a) == point) sum.add(integer(a), linear.coefficients[i], point);
      }
    return sum.total();
  }

  Int product(const Node& n) {
    std::vector<Int> factors, points;
    for (const NodePtr& a : n.args) (is_point(*a) ? points : factors).push_back(integer(*a));
    factors.insert(factors.end(), points.begin(), points.end());
    return d_.product(n.type, factors);
  }

  template <class R>
  R table(const Node& n) {
    int dimension = -1, varying = 0;
    for (std::size_t i = 0; i < n.args.size(); ++i) {
      if (is_point(*n.args[i])) continue;
      dimension = static_cast<int>(i);
      ++varying;
    }
    if (varying != 1 || !d_.has_data(n)) return d_.template any_element<R>(n);
    const Int range = integer(*n.args[static_cast<std::size_t>(dimension)]);
    return d_.template table_range<R>(n, dimension, range);
  }

  /// The kv_idx at which the integer `n` can lie in `target`.
  Int solve(const Node& n, const Int& target) {
    switch (n.op) {
      case Op::kv_idx: return target;
      case Op::linear: return solve_sum(n, target);
      case Op::product: {
        if (n.args.size() != 2 || n.args[0]->uses_kv == n.args[1]->uses_kv) return d_.anywhere();
        const Node& x = *n.args[n.args[0]->uses_kv ? 0 : 1];
        const Int factor = integer(*n.args[n.args[0]->uses_kv ? 1 : 0]);
        return d_.unless_wrapped(n.type, d_.product(Type::i64, {integer(x), factor}),
                                 solve(x, d_.solve_product(target, factor)));
      }
      case Op::floor_divide:
        if (n.args[1]->uses_kv) return d_.anywhere();
        return solve(*n.args[0], d_.solve_quotient(target, integer(*n.args[1])));
      case Op::absolute:
        // |lowest| wraps.
        if (n.args[0]->range.lo == (n.type == Type::i64 ? kUnboundedBelow : IntegerLimits<int>::lowest)) {
          return d_.anywhere();
        }
        return solve(*n.args[0], d_.solve_absolute(target));
      case Op::minimum:
      case Op::maximum: {
        const bool first = n.args[0]->uses_kv;
        return solve(*n.args[first ? 0 : 1], d_.solve_extremum(n.op, target, integer(*n.args[first ? 1 : 0])));
      }
      case Op::select: {
        const auto branch = [&](const Node& b) {
          return b.uses_kv ? solve(b, target) : d_.where(d_.overlaps(integer(b), target));
        };
        return d_.hull({branch(*n.args[1]), branch(*n.args[2])});
      }
      default: return d_.anywhere();
    }
  }

  /// Solves for the first term that depends on kv_idx; the others are taken over the whole sequence.
  Int solve_sum(const Node& n, const Int& target) {
    std::size_t chosen = 0;
    while (!n.args[chosen]->uses_kv) ++chosen;
    Node others = n;
    others.args.erase(others.args.begin() + static_cast<std::ptrdiff_t>(chosen));
    others.coefficients.erase(others.coefficients.begin() + static_cast<std::ptrdiff_t>(chosen));
    const bool scaled = n.coefficients[chosen] != 1;
    Int rest = others.args.empty() ? target : d_.solve_sum(target, raw_sum(others));
    if (scaled) rest = d_.solve_product(rest, d_.point_integer(*build::integer(n.coefficients[chosen])));
    const Int solved = solve(*n.args[chosen], rest);
    if (n.never_wraps) return solved;
    return d_.unless_wrapped(n.type, raw_sum(n), solved);
  }

  Domain& d_;
};

}  // namespace saccade::expr
