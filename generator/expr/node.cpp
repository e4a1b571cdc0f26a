#include "generator/expr/node.h"

#include <algorithm>
#include <cmath>

namespace saccade::expr {
namespace {

template <class T>
int order(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

/// Takes x_idx and len_x together: x_idx - len_x lies in [1 - 2^31, -1].
void add_position(ExactRange& range, std::int64_t index_coefficient, std::int64_t length_coefficient) {
  constexpr std::int64_t kMost = IntegerLimits<int>::highest;
  if (index_coefficient > 0 && length_coefficient < 0) {
    const std::int64_t pairs = std::min(index_coefficient, -length_coefficient);
    range.lo -= static_cast<Int128>(pairs) * kMost;
    range.hi -= pairs;
    index_coefficient -= pairs;
    length_coefficient += pairs;
  } else if (index_coefficient < 0 && length_coefficient > 0) {
    const std::int64_t pairs = std::min(-index_coefficient, length_coefficient);
    range.hi += static_cast<Int128>(pairs) * kMost;
    range.lo += pairs;
    index_coefficient += pairs;
    length_coefficient -= pairs;
  }
  const auto index = static_cast<Int128>(index_coefficient) * (kMost - 1);
  const auto length = static_cast<Int128>(length_coefficient) * kMost;
  range.lo += std::min<Int128>(index, 0) + std::min<Int128>(length, 0);
  range.hi += std::max<Int128>(index, 0) + std::max<Int128>(length, 0);
}

}  // namespace

int compare(const Node& a, const Node& b) {
  if (&a == &b) return 0;
  if (int c = order(a.op, b.op)) return c;
  if (int c = order(a.type, b.type)) return c;
  if (int c = order(a.slot, b.slot)) return c;
  if (int c = order(a.args.size(), b.args.size())) return c;
  for (std::size_t i = 0; i < a.args.size(); ++i)
    if (int c = compare(*a.args[i], *b.args[i])) return c;
  if (int c = order(a.coefficients, b.coefficients)) return c;
  if (int c = order(a.integer, b.integer)) return c;
  if (int c = order(a.real, b.real)) return c;
  return order(std::signbit(a.real), std::signbit(b.real));
}

Type type_of(DataType element) {
  switch (element) {
    case DataType::boolean: return Type::boolean;
    case DataType::i8:
    case DataType::i16:
    case DataType::i32:
    case DataType::u8:
    case DataType::u16: return Type::i32;
    case DataType::i64:
    case DataType::u32: return Type::i64;
    default: return Type::f32;
  }
}

ExactRange exact_range(const std::vector<NodePtr>& terms, const std::vector<std::int64_t>& coefficients,
                       std::int64_t constant) {
  ExactRange range{constant, constant};
  std::int64_t q_idx = 0, len_q = 0, kv_idx = 0, len_kv = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::int64_t c = coefficients[i];
    switch (terms[i]->op) {
      case Op::q_idx: q_idx = c; break;
      case Op::len_q: len_q = c; break;
      case Op::kv_idx: kv_idx = c; break;
      case Op::len_kv: len_kv = c; break;
      default: {
        const auto first = static_cast<Int128>(c) * terms[i]->range.lo;
        const auto last = static_cast<Int128>(c) * terms[i]->range.hi;
        range.lo += std::min(first, last);
        range.hi += std::max(first, last);
      }
    }
  }
  add_position(range, q_idx, len_q);
  add_position(range, kv_idx, len_kv);
  return range;
}

bool fits(const ExactRange& range, Type type) {
  const bool narrow = type == Type::i32;
  const Int128 lowest = narrow ? IntegerLimits<int>::lowest : IntegerLimits<long long>::lowest;
  const Int128 highest = narrow ? IntegerLimits<int>::highest : IntegerLimits<long long>::highest;
  return range.lo >= lowest && range.hi <= highest;
}

Program::Program(Kind kind)
    : kind_(kind),
      root_(kind == Kind::mask ? build::boolean(true) : build::variable(Op::score)),
      text_(print(*root_)) {}

bool Program::is_identity() const {
  return kind_ == Kind::mask ? root_->op == Op::boolean && root_->integer != 0 : root_->op == Op::score;
}

bool Program::reads_tables() const { return root_->uses_table; }

bool Program::uses_batch() const {
  return any_node(*root_, [](const Node& n) { return n.op == Op::b; });
}

bool Program::uses_head() const {
  return any_node(*root_, [](const Node& n) { return n.op == Op::h; });
}

bool Program::uses_table(int index) const {
  return any_node(*root_, [&](const Node& n) { return n.op == Op::table && n.slot == index; });
}

bool Program::uses_scalar(int index) const {
  return any_node(*root_, [&](const Node& n) { return n.op == Op::scalar && n.slot == index; });
}

}  // namespace saccade::expr
