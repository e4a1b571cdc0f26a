// Integer sums, products and comparisons.
#include <map>
#include <numeric>

#include "generator/expr/build.h"

namespace saccade::expr::build {
namespace {

struct ByOrder {
  bool operator()(const NodePtr& a, const NodePtr& b) const { return compare(*a, *b) < 0; }
};

/// A sum being collected, in arithmetic wide enough for whatever a program of the permitted size can write down.
struct Collected {
  std::map<NodePtr, Int128, ByOrder> terms;
  Int128 constant = 0;

  void add(const NodePtr& n, Int128 factor) {
    if (n->op == Op::integer) {
      constant += factor * n->integer;
    } else if (n->op == Op::linear) {
      for (std::size_t i = 0; i < n->args.size(); ++i) add_term(n->args[i], factor * n->coefficients[i]);
      constant += factor * n->integer;
    } else {
      add_term(n, factor);
    }
  }
  void add_term(const NodePtr& n, Int128 factor) {
    Int128& coefficient = terms[n];
    coefficient += factor;
    if (coefficient == 0) terms.erase(n);
  }
};

std::int64_t wrap_to(Type type, Int128 value) {
  const auto low = static_cast<std::int64_t>(static_cast<std::uint64_t>(value));
  return type == Type::i32 ? wrap<int>(low) : low;
}

/// One side of a comparison: coefficients and constant are known to fit 64 bits.
struct Side {
  std::vector<NodePtr> terms;
  std::vector<std::int64_t> coefficients;
};

NodePtr make_linear(std::vector<NodePtr> terms, std::vector<std::int64_t> coefficients, std::int64_t constant) {
  if (terms.empty()) return integer(constant);
  if (terms.size() == 1 && coefficients[0] == 1 && constant == 0) return terms[0];
  Node n;
  n.op = Op::linear;
  bool narrow = fits_i32(constant);
  for (const NodePtr& t : terms) narrow &= t->type == Type::i32;
  for (const std::int64_t c : coefficients) narrow &= fits_i32(c);
  n.type = narrow ? Type::i32 : Type::i64;
  n.args = std::move(terms);
  n.coefficients = std::move(coefficients);
  n.integer = constant;
  return make(std::move(n));
}

Int128 floor_quotient(Int128 a, Int128 b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

Op mirrored(Op op) {
  switch (op) {
    case Op::less: return Op::greater;
    case Op::less_equal: return Op::greater_equal;
    case Op::greater: return Op::less;
    case Op::greater_equal: return Op::less_equal;
    default: return op;
  }
}

/// Which terms stay on the left: what depends on kv_idx, else on q_idx, else the first.
std::vector<bool> leading(const Side& sum) {
  std::vector<bool> lead(sum.terms.size(), false);
  bool any = false;
  for (std::size_t i = 0; i < lead.size(); ++i) any |= lead[i] = sum.terms[i]->uses_kv;
  if (any) return lead;
  for (std::size_t i = 0; i < lead.size(); ++i) any |= lead[i] = sum.terms[i]->uses_q;
  if (!any) lead[0] = true;
  return lead;
}

/// Whether `sum + constant op 0` is decided by the ranges alone: 1 true, 0 false, -1 not decided.
int decided(Op op, const Side& sum, std::int64_t constant) {
  const ExactRange r = exact_range(sum.terms, sum.coefficients, constant);
  switch (op) {
    case Op::less_equal: return r.hi <= 0 ? 1 : r.lo > 0 ? 0 : -1;
    case Op::greater_equal: return r.lo >= 0 ? 1 : r.hi < 0 ? 0 : -1;
    default: {
      const int equal = r.lo == 0 && r.hi == 0 ? 1 : r.lo > 0 || r.hi < 0 ? 0 : -1;
      return equal < 0 || op == Op::equal ? equal : 1 - equal;
    }
  }
}

/// `sum + constant op 0` with op one of <=, >=, == and != as a comparison of a left and a right side.
NodePtr split(Op op, const Side& sum, std::int64_t constant) {
  const std::vector<bool> lead = leading(sum);
  const auto first = static_cast<std::size_t>(std::find(lead.begin(), lead.end(), true) - lead.begin());
  const std::int64_t sign = sum.coefficients[first] < 0 ? -1 : 1;
  if (sign < 0) op = mirrored(op);
  Side left, right;
  for (std::size_t i = 0; i < lead.size(); ++i) {
    Side& side = lead[i] ? left : right;
    side.terms.push_back(sum.terms[i]);
    side.coefficients.push_back(lead[i] ? sign * sum.coefficients[i] : -sign * sum.coefficients[i]);
  }
  std::int64_t offset = -sign * constant;
  // Strict forms where they drop the constant; half-open bounds against plain numbers.
  if (op == Op::less_equal && (right.terms.empty() || offset == -1)) {
    op = Op::less;
    ++offset;
  } else if (op == Op::greater_equal && !right.terms.empty() && offset == 1) {
    op = Op::greater;
    --offset;
  }
  return make(op, Type::boolean,
              {make_linear(std::move(left.terms), std::move(left.coefficients), 0),
               make_linear(std::move(right.terms), std::move(right.coefficients), offset)});
}

}  // namespace

NodePtr linear(const std::vector<NodePtr>& terms, const std::vector<std::int64_t>& coefficients,
               std::int64_t constant) {
  Collected sum;
  sum.constant = constant;
  Type type = fits_i32(constant) ? Type::i32 : Type::i64;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    sum.add(terms[i], coefficients[i]);
    type = widest(type, fits_i32(coefficients[i]) ? terms[i]->type : Type::i64);
  }
  std::vector<NodePtr> kept;
  std::vector<std::int64_t> kept_coefficients;
  for (const auto& [term, coefficient] : sum.terms) {
    const std::int64_t wrapped = wrap_to(type, coefficient);
    if (wrapped == 0) continue;
    kept.push_back(term);
    kept_coefficients.push_back(wrapped);
  }
  return make_linear(std::move(kept), std::move(kept_coefficients), wrap_to(type, sum.constant));
}

NodePtr integer_product(const NodePtr& a, const NodePtr& b) {
  if (a->op == Op::integer) return linear({b}, {a->integer}, 0);
  if (b->op == Op::integer) return linear({a}, {b->integer}, 0);
  std::int64_t factor = 1;
  std::vector<NodePtr> factors;
  Type type = widest(a->type, b->type);
  for (const NodePtr& operand : {a, b}) {
    NodePtr core = operand;
    if (operand->op == Op::linear && operand->args.size() == 1 && operand->integer == 0) {
      factor = wrap_multiply(factor, operand->coefficients[0]);
      core = operand->args[0];
    }
    if (core->op == Op::product) {
      factors.insert(factors.end(), core->args.begin(), core->args.end());
    } else {
      factors.push_back(core);
    }
  }
  std::sort(factors.begin(), factors.end(), ByOrder());
  Type product_type = Type::i32;
  for (const NodePtr& f : factors) product_type = widest(product_type, f->type);
  return linear({make(Op::product, product_type, std::move(factors))}, {wrap_to(type, factor)}, 0);
}

NodePtr integer_comparison(Op written, const NodePtr& a, const NodePtr& b) {
  Op op = written;
  Collected difference;
  difference.add(a, 1);
  difference.add(b, -1);
  if (op == Op::less || op == Op::greater) {
    difference.constant += op == Op::less ? 1 : -1;
    op = op == Op::less ? Op::less_equal : Op::greater_equal;
  }
  // Close to the edge of 64 bits nothing may be moved.
  constexpr Int128 kSafe = Int128{1} << 62;
  bool safe = difference.constant > -kSafe && difference.constant < kSafe;
  Int128 divisor = 0;
  for (const auto& [term, c] : difference.terms) {
    safe &= c > -kSafe && c < kSafe;
    divisor = safe ? std::gcd(static_cast<std::int64_t>(divisor), static_cast<std::int64_t>(c)) : 1;
  }
  if (difference.terms.empty()) {
    const Int128 c = difference.constant;
    return boolean(op == Op::less_equal ? c <= 0 : op == Op::greater_equal ? c >= 0 : (op == Op::equal) == (c == 0));
  }
  if (!safe || divisor == 0) return make(written, Type::boolean, {a, b});
  const bool exact = difference.constant % divisor == 0;
  if (!exact && (op == Op::equal || op == Op::not_equal)) return boolean(op == Op::not_equal);
  // T * divisor + c <= 0 is T <= floor(-c / divisor); >= takes the ceiling.
  const Int128 constant = op == Op::greater_equal ? floor_quotient(difference.constant, divisor)
                                                  : -floor_quotient(-difference.constant, divisor);
  Side sum;
  for (const auto& [term, c] : difference.terms) {
    sum.terms.push_back(term);
    sum.coefficients.push_back(static_cast<std::int64_t>(c / divisor));
  }
  const int answer = decided(op, sum, static_cast<std::int64_t>(constant));
  if (answer >= 0) return boolean(answer != 0);
  return split(op, sum, static_cast<std::int64_t>(constant));
}

}  // namespace saccade::expr::build
