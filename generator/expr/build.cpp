// Leaves and the derived fields of every node.
#include "generator/expr/build.h"

namespace saccade::expr::build {
namespace {

IntInterval whole(Type type) { return type == Type::i64 ? any_integer<long long>() : any_integer<int>(); }

IntInterval element_range(DataType element) {
  switch (element) {
    case DataType::i8: return {-128, 127};
    case DataType::u8: return {0, 255};
    case DataType::i16: return {-32768, 32767};
    case DataType::u16: return {0, 65535};
    case DataType::u32: return {0, 4294967295LL};
    default: return whole(type_of(element));
  }
}

IntInterval linear_range(const Node& n) {
  const ExactRange exact = exact_range(n.args, n.coefficients, n.integer);
  if (!fits(exact, n.type)) return whole(n.type);
  return {static_cast<long long>(exact.lo), static_cast<long long>(exact.hi)};
}

bool is_plain_sum(const Node& n) {
  Int128 most = n.integer < 0 ? -Int128{n.integer} : Int128{n.integer};
  for (std::size_t i = 0; i < n.args.size(); ++i) {
    if (n.args[i]->type != Type::i32) return false;
    const Int128 c = n.coefficients[i];
    most += (c < 0 ? -c : c) << 31;
  }
  return most < Int128{1} << 62;
}

IntInterval product_range(const Node& n) {
  IntInterval range = n.args[0]->range;
  for (std::size_t i = 1; i < n.args.size(); ++i) {
    range = wrap_multiply(range, n.args[i]->range);
    if (n.type == Type::i32) range = wrap<int>(range);
  }
  return range;
}

template <class T>
IntInterval binary_range(const Node& n) {
  const IntInterval a = n.args[0]->range, b = n.args[1]->range;
  switch (n.op) {
    case Op::floor_divide: return saccade::floor_divide<T>(a, b);
    case Op::floor_modulo: return saccade::floor_modulo<T>(a, b);
    case Op::minimum: return saccade::minimum(a, b);
    default: return saccade::maximum(a, b);
  }
}

IntInterval range_of(const Node& n) {
  constexpr long long kMost = IntegerLimits<int>::highest;
  switch (n.op) {
    case Op::kv_idx:
    case Op::q_idx: return {0, kMost - 1};
    case Op::len_q:
    case Op::len_kv:
    case Op::h:
    case Op::b: return {0, kMost};
    case Op::integer: return n.integer;
    case Op::table: return element_range(n.element);
    case Op::linear: return linear_range(n);
    case Op::product: return product_range(n);
    case Op::floor_divide:
    case Op::floor_modulo:
    case Op::minimum:
    case Op::maximum: return n.type == Type::i64 ? binary_range<long long>(n) : binary_range<int>(n);
    case Op::absolute:
      return n.type == Type::i64 ? saccade::absolute<long long>(n.args[0]->range)
                                 : saccade::absolute<int>(n.args[0]->range);
    case Op::select: return hull(n.args[1]->range, n.args[2]->range);
    case Op::to_int: return n.args[0]->type == Type::boolean ? IntInterval(0, 1) : whole(Type::i32);
    default: return whole(n.type);
  }
}

}  // namespace

NodePtr make(Node n) {
  n.uses_q = n.op == Op::q_idx;
  n.uses_kv = n.op == Op::kv_idx;
  n.uses_table = n.op == Op::table;
  n.uses_head = n.op == Op::h || n.op == Op::b;
  for (const NodePtr& a : n.args) {
    n.uses_q |= a->uses_q;
    n.uses_kv |= a->uses_kv;
    n.uses_table |= a->uses_table;
    n.uses_head |= a->uses_head;
    n.depth = std::max(n.depth, a->depth + 1);
  }
  if (is_integer(n.type)) n.range = range_of(n);
  if (n.op == Op::linear) {
    n.plain_sum = is_plain_sum(n);
    n.never_wraps = n.plain_sum && fits(exact_range(n.args, n.coefficients, n.integer), n.type);
  }
  return std::make_shared<const Node>(std::move(n));
}

NodePtr make(Op op, Type type, std::vector<NodePtr> args) {
  Node n;
  n.op = op;
  n.type = type;
  n.args = std::move(args);
  return make(std::move(n));
}

NodePtr boolean(bool value) {
  Node n;
  n.op = Op::boolean;
  n.integer = value ? 1 : 0;
  return make(std::move(n));
}

NodePtr integer(std::int64_t value) {
  Node n;
  n.op = Op::integer;
  n.type = fits_i32(value) ? Type::i32 : Type::i64;
  n.integer = value;
  return make(std::move(n));
}

NodePtr real(float value) {
  Node n;
  n.op = Op::real;
  n.type = Type::f32;
  n.real = value;
  return make(std::move(n));
}

NodePtr variable(Op op) { return make(op, op == Op::score ? Type::f32 : Type::i32, {}); }

NodePtr scalar(int slot, const ScalarDeclaration& declaration) {
  Node n;
  n.op = Op::scalar;
  n.type = declaration.type;
  n.slot = slot;
  n.name = declaration.name;
  return make(std::move(n));
}

NodePtr table(int slot, const TableDeclaration& declaration, std::vector<NodePtr> indices) {
  Node n;
  n.op = Op::table;
  n.type = type_of(declaration.dtype);
  n.element = declaration.dtype;
  n.slot = slot;
  n.name = declaration.name;
  n.args = std::move(indices);
  return make(std::move(n));
}

}  // namespace saccade::expr::build
