#include "generator/expr/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace saccade::expr {
namespace {

Value whole(long long value) { return {value, 0}; }

Value wrapped(const Node& n, long long value) { return whole(n.type == Type::i32 ? wrap<int>(value) : value); }

Value rounded(const Evaluation& at, double value) {
  return {0, at.precision == Precision::f32 ? static_cast<double>(static_cast<float>(value)) : value};
}

Value comparison(const Node& n, const Evaluation& at) {
  const Value a = evaluate(*n.args[0], at), b = evaluate(*n.args[1], at);
  return whole(n.args[0]->type == Type::f32 ? compares(n.op, a.f, b.f) : compares(n.op, a.i, b.i));
}

Value linear(const Node& n, const Evaluation& at) {
  auto total = static_cast<unsigned long long>(n.integer);
  for (std::size_t i = 0; i < n.args.size(); ++i)
    total += static_cast<unsigned long long>(wrap_multiply(n.coefficients[i], evaluate(*n.args[i], at).i));
  return wrapped(n, static_cast<long long>(total));
}

Value product(const Node& n, const Evaluation& at) {
  long long total = evaluate(*n.args[0], at).i;
  for (std::size_t i = 1; i < n.args.size(); ++i)
    total = wrapped(n, wrap_multiply(total, evaluate(*n.args[i], at).i)).i;
  return whole(total);
}

Value table(const Node& n, const Evaluation& at) {
  const auto slot = static_cast<std::size_t>(n.slot);
  if (slot >= at.bindings.tables.size() || at.bindings.tables[slot].data == nullptr) return {};
  const HostTable& table = at.bindings.tables[slot];
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < n.args.size(); ++i) {
    const long long index = evaluate(*n.args[i], at).i;
    if (index < 0 || index >= table.extent[i]) return {};
    offset += index * table.stride[i];
  }
  if (n.element == DataType::i64) {
    long long value;
    std::memcpy(&value, static_cast<const char*>(table.data) + offset * 8, sizeof(value));
    return whole(value);
  }
  const double value = load_as_double(n.element, table.data, offset);
  if (n.type != Type::f32) return whole(static_cast<long long>(value));
  return {0, n.element == DataType::f64 ? static_cast<double>(static_cast<float>(value)) : value};
}

Value scalar(const Node& n, const Evaluation& at) {
  const auto slot = static_cast<std::size_t>(n.slot);
  const double value = slot < at.bindings.scalars.size() ? at.bindings.scalars[slot] : 0;
  if (n.type == Type::f32) return {0, static_cast<double>(static_cast<float>(value))};
  return wrapped(n, static_cast<long long>(value));
}

long long truncated(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<long long>(std::clamp(value, -2147483648.0, 2147483647.0));
}

Value integer_binary(const Node& n, const Evaluation& at) {
  const long long a = evaluate(*n.args[0], at).i, b = evaluate(*n.args[1], at).i;
  switch (n.op) {
    case Op::floor_divide: return wrapped(n, saccade::floor_divide(a, b));
    case Op::floor_modulo: return whole(saccade::floor_modulo(a, b));
    case Op::minimum: return whole(minimum(a, b));
    default: return whole(maximum(a, b));
  }
}

Value float_operation(const Node& n, const Evaluation& at) {
  const double a = evaluate(*n.args[0], at).f;
  const double b = n.args.size() > 1 ? evaluate(*n.args[1], at).f : 0;
  switch (n.op) {
    case Op::add: return rounded(at, a + b);
    case Op::subtract: return rounded(at, a - b);
    case Op::multiply: return rounded(at, a * b);
    case Op::divide: return rounded(at, a / b);
    case Op::minimum: return {0, minimum(a, b)};
    case Op::maximum: return {0, maximum(a, b)};
    case Op::negative: return {0, -a};
    case Op::absolute: return {0, std::fabs(a)};
    case Op::floor: return {0, std::floor(a)};
    case Op::exp: return rounded(at, std::exp(a));
    case Op::exp2: return rounded(at, std::exp2(a));
    case Op::log: return rounded(at, std::log(a));
    case Op::log2: return rounded(at, std::log2(a));
    case Op::sqrt: return rounded(at, std::sqrt(a));
    default: return rounded(at, std::tanh(a));
  }
}

}  // namespace

Value evaluate(const Node& n, const Evaluation& at) {
  switch (n.op) {
    case Op::score: return {0, at.score};
    case Op::kv_idx: return whole(at.point.kv_idx);
    case Op::q_idx: return whole(at.point.q_idx);
    case Op::len_q: return whole(at.point.len_q);
    case Op::len_kv: return whole(at.point.len_kv);
    case Op::h: return whole(at.point.h);
    case Op::b: return whole(at.point.b);
    case Op::scalar: return scalar(n, at);
    case Op::table: return table(n, at);
    case Op::boolean:
    case Op::integer: return whole(n.integer);
    case Op::real: return {0, n.real};
    case Op::linear: return linear(n, at);
    case Op::product: return product(n, at);
    case Op::floor_divide:
    case Op::floor_modulo: return integer_binary(n, at);
    case Op::to_int: {
      const Value a = evaluate(*n.args[0], at);
      return whole(n.args[0]->type == Type::boolean ? a.i : truncated(a.f));
    }
    case Op::to_float: {
      const long long value = evaluate(*n.args[0], at).i;
      // At once, as kernels convert: by way of double a value beyond 2^53 would be rounded twice.
      return {0, at.precision == Precision::f32 ? static_cast<double>(static_cast<float>(value))
                                                : static_cast<double>(value)};
    }
    case Op::minimum:
    case Op::maximum: return n.type == Type::f32 ? float_operation(n, at) : integer_binary(n, at);
    case Op::absolute:
      if (n.type == Type::f32) return float_operation(n, at);
      return wrapped(n, absolute(evaluate(*n.args[0], at).i));
    case Op::select: return evaluate(*n.args[evaluate(*n.args[0], at).i != 0 ? 1 : 2], at);
    case Op::all:
    case Op::any: {
      const bool absorbing = n.op == Op::any;
      for (const NodePtr& a : n.args)
        if ((evaluate(*a, at).i != 0) == absorbing) return whole(absorbing);
      return whole(!absorbing);
    }
    case Op::negation: return whole(evaluate(*n.args[0], at).i == 0);
    default: return is_comparison(n.op) ? comparison(n, at) : float_operation(n, at);
  }
}

double evaluate(const Program& program, const Declarations&, const Bindings& bindings, const Point& point,
                double score) {
  // Masks decide: they round like kernels do, so that both decide alike. Scores are a number's exact value.
  const bool mask = program.kind() == Kind::mask;
  const Evaluation at{bindings, point, score, mask ? Precision::f32 : Precision::f64};
  const Value value = evaluate(*program.root(), at);
  return mask ? static_cast<double>(value.i) : value.f;
}

}  // namespace saccade::expr
