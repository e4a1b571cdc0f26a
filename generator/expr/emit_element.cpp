// C++ text of a program at one element.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "generator/expr/emit.h"

namespace saccade::expr {
namespace {

const char* function_name(Op op) {
  switch (op) {
    case Op::floor: return "math::floor";
    case Op::exp: return "math::exp";
    case Op::exp2: return "math::exp2";
    case Op::log: return "math::log";
    case Op::log2: return "math::log2";
    case Op::sqrt: return "math::sqrt";
    default: return "math::tanh";
  }
}

/// Whether every partial sum, in the order of the text, stays within 32 bits: then plain `int` arithmetic is exact.
bool never_overflows(const Node& n, const std::vector<std::size_t>& order) {
  std::vector<NodePtr> terms;
  std::vector<std::int64_t> coefficients;
  for (const std::size_t i : order) {
    terms.push_back(n.args[i]);
    coefficients.push_back(n.coefficients[i]);
    if (!fits(exact_range({n.args[i]}, {n.coefficients[i]}, 0), Type::i32)) return false;
    if (!fits(exact_range(terms, coefficients, 0), Type::i32)) return false;
  }
  return fits(exact_range(terms, coefficients, n.integer), Type::i32);
}

/// The indices of a linear's terms in the order of its text: one that is added first, if there is one, and where another
/// order than the canonical makes the sum plain `int` arithmetic, that.
std::vector<std::size_t> order_of_terms(const Node& n) {
  constexpr std::size_t kMostTerms = 5;  // to try in every order
  std::vector<std::size_t> canonical(n.args.size());
  std::iota(canonical.begin(), canonical.end(), std::size_t{0});
  const auto added = std::find_if(n.coefficients.begin(), n.coefficients.end(), [](auto c) { return c > 0; });
  if (added != n.coefficients.end()) {
    const auto first = canonical.begin() + (added - n.coefficients.begin());
    std::rotate(canonical.begin(), first, first + 1);
  }
  if (n.type != Type::i32 || !n.never_wraps || canonical.size() > kMostTerms) return canonical;
  std::vector<std::size_t> order = canonical;
  while (!never_overflows(n, order)) {
    std::next_permutation(order.begin(), order.end());
    if (order == canonical) break;
  }
  return order;
}

/// Whether the integer `n` is kv_idx (1) or -kv_idx (-1) plus what is the same for a whole row, in plain `int` arithmetic;
/// otherwise 0. It is that for every position, kv_base included.
int sign_of_kv_idx(const Node& n) {
  if (n.op == Op::kv_idx) return 1;
  if (n.op != Op::linear || n.type != Type::i32 || !n.plain_sum || !never_overflows(n, order_of_terms(n))) return 0;
  std::int64_t sign = 0;
  for (std::size_t i = 0; i < n.args.size(); ++i) {
    if (!n.args[i]->uses_kv) continue;
    if (sign != 0 || n.args[i]->op != Op::kv_idx) return 0;
    sign = n.coefficients[i];
  }
  return sign == 1 || sign == -1 ? static_cast<int>(sign) : 0;
}

}  // namespace

std::string integer_text(std::int64_t value) {
  if (value == kUnboundedBelow) return "(-9223372036854775807LL - 1)";
  if (value == IntegerLimits<int>::lowest) return "(-2147483647 - 1)";
  const bool narrow = value > IntegerLimits<int>::lowest && value <= IntegerLimits<int>::highest;
  return narrow ? std::to_string(value) : std::to_string(value) + "LL";
}

std::string cpp_type(Type type) {
  switch (type) {
    case Type::boolean: return "bool";
    case Type::i32: return "int";
    case Type::i64: return "long long";
    default: return "float";
  }
}

std::string element_type(DataType element) {
  switch (element) {
    case DataType::f32: return "float";
    case DataType::f64: return "double";
    case DataType::i8: return "signed char";
    case DataType::i16: return "short";
    case DataType::i32: return "int";
    case DataType::i64: return "long long";
    case DataType::u8: return "unsigned char";
    case DataType::u16: return "unsigned short";
    case DataType::u32: return "unsigned";
    case DataType::boolean: return "element::boolean";
    default: return fmt::format("element::{}", saccade::name_of(element));
  }
}

// The prefixes keep a user's names apart from keywords, macros and everything in the templates.
std::string scalar_name(const std::string& name) { return "scalar_" + name; }
std::string slot_name(const std::string& name) { return "slot_" + name; }

std::string ElementEmitter::emit(const Node& n, Bind least) {
  const Accuracy around = accuracy_;
  if (n.type != Type::f32 || n.op == Op::floor) accuracy_ = Accuracy::exact;
  Text t = body(n);
  accuracy_ = around;
  return t.bind < least ? "(" + t.text + ")" : std::move(t.text);
}

ElementEmitter::Text ElementEmitter::infix(const Node& n, const char* symbol, Bind bind) {
  // Left-associative: the right operand binds tighter.
  const auto tighter = static_cast<Bind>(static_cast<int>(bind) + 1);
  std::string text = emit(*n.args[0], n.op == Op::equal || n.op == Op::not_equal ? tighter : bind);
  for (std::size_t i = 1; i < n.args.size(); ++i) text += symbol + emit(*n.args[i], tighter);
  return {std::move(text), bind};
}

/// `c || kv_idx >= bound`, as run-time windows have it, where c and bound are the same for a whole row: kv_idx >= (c ? the
/// lowest : bound), one comparison for each element.
bool ElementEmitter::is_optional_bound(const Node& n) {
  if (n.op != Op::any || n.args.size() != 2) return false;
  const Node& condition = *n.args[0];
  const Node& bound = *n.args[1];
  return !condition.uses_kv && !n.uses_table && (bound.op == Op::less_equal || bound.op == Op::greater_equal) &&
         bound.args[0]->op == Op::kv_idx && !bound.args[1]->uses_kv && bound.args[1]->type == Type::i32;
}

ElementEmitter::Text ElementEmitter::optional_bound(const Node& n) {
  const Node& bound = *n.args[1];
  const bool upper = bound.op == Op::less_equal;
  const std::string none = integer_text(upper ? IntegerLimits<int>::highest : IntegerLimits<int>::lowest);
  return {fmt::format("{} {} ({} ? {} : {})", emit(*bound.args[0]),
                      upper ? "<=" : ">=", emit(*n.args[0], Bind::disjunction), none, emit(*bound.args[1])),
          Bind::relational};
}

/// & and |, since && and || become a branch for each element: on a GPU 13 instructions instead of 3, registers to hold both
/// outcomes, and table reads that wait for one another.
ElementEmitter::Text ElementEmitter::junction(const Node& n) {
  const bool conjunction = n.op == Op::all;
  // Parentheses that the language does not ask for: for the reader.
  std::string text = emit(*n.args[0], Bind::unary);
  for (std::size_t i = 1; i < n.args.size(); ++i) text += (conjunction ? " & " : " | ") + emit(*n.args[i], Bind::unary);
  return {std::move(text), conjunction ? Bind::conjunction : Bind::disjunction};
}

ElementEmitter::Text ElementEmitter::call(const std::string& name, const Node& n) {
  std::string text = name + "(";
  for (std::size_t i = 0; i < n.args.size(); ++i) text += (i > 0 ? ", " : "") + emit(*n.args[i]);
  return {text + ")"};
}

ElementEmitter::Text ElementEmitter::table(const Node& n) {
  uses_.params = true;
  std::string text = fmt::format("table_load<{}, {}>(p, {}", element_type(n.element), n.args.size(), slot_name(n.name));
  for (const NodePtr& index : n.args) text += ", " + emit(*index);
  return {text + ")"};
}

std::string ElementEmitter::term(const Node& atom, std::int64_t coefficient, bool first, bool widen) {
  const bool one = coefficient == 1 || coefficient == -1;
  std::string value = emit(atom, one && (first ? coefficient == 1 : true) ? Bind::term : Bind::unary);
  if (widen && (first || !one)) value = "wide(" + emit(atom) + ")";
  std::string sign = coefficient < 0 ? (first ? "-" : " - ") : (first ? "" : " + ");
  if (one) return sign + value;
  // -2^31 and -2^63 have no positive literal.
  if (coefficient == IntegerLimits<int>::lowest || coefficient == kUnboundedBelow) {
    return fmt::format("{}{} * {}", first ? "" : " + ", integer_text(coefficient), value);
  }
  return fmt::format("{}{} * {}", sign, integer_text(coefficient < 0 ? -coefficient : coefficient), value);
}

ElementEmitter::Text ElementEmitter::linear(const Node& n) {
  const std::vector<std::size_t> order = order_of_terms(n);
  if (!n.plain_sum) {
    std::string text = "wrap_sum(";
    for (const std::size_t i : order) {
      const std::string value = emit(*n.args[i]);
      const std::int64_t c = n.coefficients[i];
      text += i == order[0] ? "" : ", ";
      text += c == 1 ? value : fmt::format("wrap_multiply({}, {})", integer_text(c), value);
    }
    if (n.integer != 0) text += ", " + integer_text(n.integer);
    text += ")";
    return {n.type == Type::i32 ? "wrap<int>(" + text + ")" : text};
  }
  const bool widen = n.type == Type::i64 || !never_overflows(n, order);
  std::string text;
  for (const std::size_t i : order) text += term(*n.args[i], n.coefficients[i], i == order[0], widen);
  if (n.integer != 0) {
    const bool subtract = n.integer < 0 && n.integer != IntegerLimits<int>::lowest && n.integer != kUnboundedBelow;
    text += subtract ? " - " + integer_text(-n.integer) : " + " + integer_text(n.integer);
  }
  if (widen && n.type == Type::i32) return {"wrap<int>(" + text + ")"};
  const bool alone = order.size() == 1 && n.integer == 0;
  return {text, alone ? (n.coefficients[0] == -1 ? Bind::unary : Bind::term) : Bind::sum};
}

ElementEmitter::Text ElementEmitter::quotient(const Node& n) {
  const bool divide = n.op == Op::floor_divide;
  if (n.args[0]->range.lo >= 0 && n.args[1]->range.lo >= 1) return infix(n, divide ? " / " : " % ", Bind::term);
  return call(fmt::format("{}<{}>", divide ? "floor_divide" : "floor_modulo", cpp_type(n.type)), n);
}

/// By a number that is the same for a whole row, targets may multiply by its reciprocal.
ElementEmitter::Text ElementEmitter::division(const Node& n) {
  if (accuracy_ == Accuracy::exact) return infix(n, " / ", Bind::term);
  const Node& divisor = *n.args[1];
  const bool varies = any_node(divisor, [](const Node& d) { return d.op == Op::score || d.op == Op::kv_idx; });
  return call(varies ? "math::divide" : "math::divide_by", n);
}

ElementEmitter::Text ElementEmitter::to_float(const Node& integer) {
  const bool near = accuracy_ == Accuracy::two_ulps;
  if (near && integer.op == Op::absolute && integer.args[0]->range.lo > IntegerLimits<int>::lowest &&
      sign_of_kv_idx(*integer.args[0]) != 0) {
    return {"absolute(" + to_float(*integer.args[0]).text + ")"};
  }
  const int sign = near ? sign_of_kv_idx(integer) : 0;
  if (sign == 0) return {"static_cast<float>(" + emit(integer) + ")"};
  kv_field_ = "kv_base";
  std::string text = "static_cast<float>(" + emit(integer) + ")";
  kv_field_ = "kv_idx";
  return {fmt::format("{} {} {}.kv_offset", text, sign > 0 ? '+' : '-', position_), Bind::sum};
}

ElementEmitter::Text ElementEmitter::body(const Node& n) {
  const auto position = [&](const char* field) {
    uses_.position = true;
    return Text{position_ + "." + field};
  };
  switch (n.op) {
    case Op::score: return {"score"};
    case Op::kv_idx: return position(kv_field_);
    case Op::q_idx: return position("q_idx");
    case Op::len_q: return position("len_q");
    case Op::len_kv: return position("len_kv");
    case Op::h: return position("h");
    case Op::b: return position("b");
    case Op::scalar:
      uses_.params = true;
      uses_.scalars.insert(n.slot);
      return {scalar_name(n.name)};
    case Op::table: return table(n);
    case Op::boolean: return {n.integer != 0 ? "true" : "false"};
    case Op::integer: return {integer_text(n.integer), n.integer < 0 ? Bind::unary : Bind::primary};
    case Op::real: return {print(n) + "f", n.real < 0 ? Bind::unary : Bind::primary};
    case Op::linear: return linear(n);
    case Op::product: {
      std::string text = emit(*n.args[0]);
      for (std::size_t i = 1; i < n.args.size(); ++i) {
        text = fmt::format("wrap_multiply({}, {})", text, emit(*n.args[i]));
        if (n.type == Type::i32) text.insert(0, "wrap<int>(").append(")");
      }
      return {text};
    }
    case Op::floor_divide:
    case Op::floor_modulo: return quotient(n);
    case Op::to_int: return call(n.args[0]->type == Type::boolean ? "static_cast<int>" : "math::truncate", n);
    case Op::to_float: return to_float(*n.args[0]);
    case Op::add: return infix(n, " + ", Bind::sum);
    case Op::subtract: return infix(n, " - ", Bind::sum);
    case Op::multiply: return infix(n, " * ", Bind::term);
    case Op::divide: return division(n);
    // A space, so that two signs never read as a decrement.
    case Op::negative: {
      const std::string operand = emit(*n.args[0], Bind::unary);
      return {(operand[0] == '-' ? "- " : "-") + operand, Bind::unary};
    }
    case Op::minimum:
    case Op::maximum:
      return call(fmt::format("{}<{}>", n.op == Op::minimum ? "minimum" : "maximum", cpp_type(n.type)), n);
    case Op::absolute: return call(n.type == Type::f32 ? "absolute" : "absolute<" + cpp_type(n.type) + ">", n);
    case Op::select:
      return {emit(*n.args[0], Bind::disjunction) + " ? " + emit(*n.args[1]) + " : " + emit(*n.args[2]), Bind::select};
    case Op::equal: return infix(n, " == ", Bind::equality);
    case Op::not_equal: return infix(n, " != ", Bind::equality);
    case Op::less: return infix(n, " < ", Bind::relational);
    case Op::less_equal: return infix(n, " <= ", Bind::relational);
    case Op::greater: return infix(n, " > ", Bind::relational);
    case Op::greater_equal: return infix(n, " >= ", Bind::relational);
    case Op::all:
    case Op::any: return is_optional_bound(n) ? optional_bound(n) : junction(n);
    case Op::negation: return {"!" + emit(*n.args[0], Bind::primary), Bind::unary};
    default: return call(function_name(n.op), n);
  }
}

}  // namespace saccade::expr
