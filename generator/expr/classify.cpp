// The host's tile classes and KV ranges: Analysis over interval values.
#include <algorithm>
#include <type_traits>

#include "generator/expr/analysis.h"
#include "generator/expr/evaluate.h"
#include "saccade_templates/common/table.h"

namespace saccade::expr {
namespace {

/// Calls `visit` with a value of the table element's storage type.
template <class Visitor>
auto with_element(DataType type, Visitor&& visit) {
  switch (type) {
    case DataType::f32: return visit(float{});
    case DataType::f16: return visit(element::f16{});
    case DataType::bf16: return visit(element::bf16{});
    case DataType::e4m3: return visit(element::e4m3{});
    case DataType::e5m2: return visit(element::e5m2{});
    case DataType::f64: return visit(double{});
    case DataType::i8: return visit(static_cast<signed char>(0));
    case DataType::i16: return visit(short{});
    case DataType::i32: return visit(int{});
    case DataType::i64: return visit(static_cast<long long>(0));
    case DataType::u8: return visit(static_cast<unsigned char>(0));
    case DataType::u16: return visit(static_cast<unsigned short>(0));
    case DataType::u32: return visit(0u);
    default: return visit(element::boolean{});
  }
}

template <class R>
R unknown() {
  if constexpr (std::is_same_v<R, TileClass>) {
    return TileClass::mixed;
  } else if constexpr (std::is_same_v<R, FloatInterval>) {
    return any_float();
  } else {
    return any_integer<long long>();
  }
}

/// `value` as an R. The types always agree, since a table's element type decides the program's type.
template <class R, class From>
R as(const From& value) {
  if constexpr (std::is_same_v<R, From>) {
    return value;
  } else {
    return unknown<R>();
  }
}

class HostDomain {
 public:
  using Int = IntInterval;
  using Real = FloatInterval;
  using Truth = TileClass;

  HostDomain(const Bindings& bindings, const Point& point, Int q, Int kv)
      : bindings_(bindings), point_(point), q_(q), kv_(kv) {}

  bool has_data(const Node& table) const {
    const auto slot = static_cast<std::size_t>(table.slot);
    return slot < bindings_.tables.size() && bindings_.tables[slot].data != nullptr;
  }
  bool is_known(const Node& n) const {
    return !n.uses_table || !any_node(n, [&](const Node& m) { return m.op == Op::table && !has_data(m); });
  }

  Int q_idx() const { return q_; }
  Int kv_idx() const { return kv_; }
  Int point_integer(const Node& n) const { return at(n).i; }
  Real point_real(const Node& n) const { return static_cast<float>(at(n).f); }
  Truth point_truth(const Node& n) const { return certain(at(n).i != 0); }
  Int box_integer(Int a) const { return a; }
  Real box_real(Real a) const { return a; }

  template <class R>
  R any_element(const Node& table) const {
    return with_element(table.element, [](auto e) { return as<R>(saccade::any_element<decltype(e)>()); });
  }
  template <class R>
  R table_range(const Node& table, int dimension, Int range) const {
    const HostTable& host = bindings_.tables[static_cast<std::size_t>(table.slot)];
    TableArgument argument{};
    argument.data = host.data;
    Int index[kMaxTableRank] = {0, 0, 0, 0};
    for (std::size_t i = 0; i < table.args.size(); ++i) {
      argument.extent[i] = host.extent[i];
      argument.stride[i] = host.stride[i];
      index[i] = static_cast<int>(i) == dimension ? range : Int(at(*table.args[i]).i);
    }
    return with_element(table.element, [&](auto e) {
      return as<R>(
          saccade::table_range_of<decltype(e), 1>(argument, index, static_cast<int>(table.args.size()), dimension));
    });
  }

  struct Sum {
    Int so_far;
    bool plain;
    void add(Int value, std::int64_t coefficient, bool) {
      so_far = plain ? so_far + coefficient * value : wrap_sum(so_far, wrap_multiply(Int(coefficient), value));
    }
    Int total() const { return so_far; }
  };
  Sum new_sum(const Node& linear) const { return {linear.integer, linear.plain_sum}; }
  Int wrapped(const Node& linear, Int raw) const { return linear.type == Type::i32 ? wrap<int>(raw) : raw; }
  Int product(Type type, const std::vector<Int>& factors) const {
    Int total = factors[0];
    for (std::size_t i = 1; i < factors.size(); ++i) {
      total = wrap_multiply(total, factors[i]);
      if (type == Type::i32) total = wrap<int>(total);
    }
    return total;
  }
  Int floor_divide(Type type, Int a, Int b, bool point) const {
    if (type == Type::i64) {
      return point ? saccade::floor_divide<long long>(a, b.lo) : saccade::floor_divide<long long>(a, b);
    }
    return point ? saccade::floor_divide<int>(a, static_cast<int>(b.lo)) : saccade::floor_divide<int>(a, b);
  }
  Int floor_modulo(Type type, Int a, Int b) const {
    return type == Type::i64 ? saccade::floor_modulo<long long>(a, b) : saccade::floor_modulo<int>(a, b);
  }
  Int extremum(Op op, Int a, Int b) const { return op == Op::minimum ? minimum(a, b) : maximum(a, b); }
  Int absolute(Type type, Int a) const {
    return type == Type::i64 ? saccade::absolute<long long>(a) : saccade::absolute<int>(a);
  }
  Int integer_of(Truth a) const { return saccade::integer_of(a); }
  Int truncate(Real a) const { return saccade::truncate(a); }

  Real float_of(Int a) const { return saccade::float_of(a); }
  Real float_of(Truth a) const { return saccade::float_of(a); }
  Real float_function(Op op, Real a) const {
    switch (op) {
      case Op::negative: return negative(a);
      case Op::absolute: return saccade::absolute(a);
      case Op::floor: return floor(a);
      case Op::exp: return exp(a);
      case Op::exp2: return exp2(a);
      case Op::log: return log(a);
      case Op::log2: return log2(a);
      case Op::sqrt: return sqrt(a);
      default: return tanh(a);
    }
  }
  Real float_function(Op op, Real a, Real b) const {
    switch (op) {
      case Op::add: return add(a, b);
      case Op::subtract: return subtract(a, b);
      case Op::multiply: return multiply(a, b);
      case Op::divide: return divide(a, b);
      case Op::minimum: return minimum(a, b);
      default: return maximum(a, b);
    }
  }

  template <class T>
  T select(Truth c, T a, T b) const {
    return saccade::select(c, a, b);
  }
  template <class T>
  Truth comparison(Op op, T a, T b) const {
    if (op == Op::equal) return equal(a, b);
    if (op == Op::not_equal) return not_equal(a, b);
    if constexpr (std::is_same_v<T, Truth>) {
      return Truth::mixed;
    } else {
      switch (op) {
        case Op::less: return less(a, b);
        case Op::less_equal: return less_equal(a, b);
        case Op::greater: return greater(a, b);
        default: return greater_equal(a, b);
      }
    }
  }
  Truth negate(Truth a) const { return saccade::negate(a); }
  Truth junction(Op op, const std::vector<Truth>& terms) const {
    Truth result = terms[0];
    for (const Truth t : terms) result = op == Op::all ? all_of(result, t) : any_of(result, t);
    return result;
  }

  Int anywhere() const { return saccade::anywhere(); }
  Int where(Truth condition) const { return saccade::where(condition); }
  Truth overlaps(Int a, Int b) const { return overlap(a, b); }
  Int intersect(const std::vector<Int>& ranges) const {
    Int result = ranges[0];
    for (const Int& r : ranges) result = saccade::intersect(result, r);
    return result;
  }
  Int hull(const std::vector<Int>& ranges) const {
    Int result = ranges[0];
    for (const Int& r : ranges) result = saccade::hull(result, r);
    return result;
  }
  Int target(Op op, Int bound) const {
    switch (op) {
      case Op::equal: return bound;
      case Op::less: return below(bound);
      case Op::less_equal: return at_most(bound);
      case Op::greater: return above(bound);
      default: return at_least(bound);
    }
  }
  Int solve_sum(Int target, Int others) const { return saccade::solve_sum(target, others); }
  Int solve_product(Int target, Int factor) const { return saccade::solve_product(target, factor); }
  Int solve_quotient(Int target, Int divisor) const { return saccade::solve_quotient(target, divisor); }
  Int solve_absolute(Int target) const { return saccade::solve_absolute(target); }
  Int solve_extremum(Op op, Int target, Int other) const {
    return op == Op::minimum ? solve_minimum(target, other) : solve_maximum(target, other);
  }
  Int unless_wrapped(Type type, Int expression, Int solved) const {
    return type == Type::i64 ? saccade::unless_wrapped<long long>(expression, solved)
                             : saccade::unless_wrapped<int>(expression, solved);
  }

 private:
  Value at(const Node& n) const { return evaluate(n, Evaluation{bindings_, point_, 0, Precision::f32}); }

  const Bindings& bindings_;
  Point point_;
  Int q_, kv_;
};

Point point_of(const TileRange& tile) {
  Point point;
  point.b = tile.b;
  point.h = tile.h;
  point.len_q = tile.len_q;
  point.len_kv = tile.len_kv;
  return point;
}

}  // namespace

TileClass classify(const Program& mask, const Declarations&, const Bindings& bindings, const TileRange& tile) {
  HostDomain domain(bindings, point_of(tile), {tile.q_first, tile.q_last}, {tile.kv_first, tile.kv_last});
  return Analysis<HostDomain>(domain).truth(*mask.root());
}

KvRange kv_range(const Program& mask, const Declarations&, const Bindings& bindings, const TileRange& rows) {
  HostDomain domain(bindings, point_of(rows), {rows.q_first, rows.q_last}, {0, rows.len_kv - 1});
  const IntInterval kept = Analysis<HostDomain>(domain).keys(*mask.root());
  const long long begin = std::max<long long>(kept.lo, 0), last = std::min<long long>(kept.hi, rows.len_kv - 1);
  if (begin > last) return {};
  return {begin, last + 1};
}

}  // namespace saccade::expr
