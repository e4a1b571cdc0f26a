// C++ text of a mask's truth over a tile and of its KV range: Analysis over text.
#include <algorithm>

#include <fmt/format.h>

#include "generator/expr/analysis.h"
#include "generator/expr/emit.h"

namespace saccade::expr {
namespace {

std::string call(std::string_view name, const std::vector<std::string>& arguments) {
  std::string text(name);
  text += '(';
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i > 0) text += ", ";
    text += arguments[i];
  }
  return text + ')';
}

const char* comparison_name(Op op) {
  switch (op) {
    case Op::equal: return "equal";
    case Op::not_equal: return "not_equal";
    case Op::less: return "less";
    case Op::less_equal: return "less_equal";
    case Op::greater: return "greater";
    default: return "greater_equal";
  }
}

const char* float_name(Op op) {
  switch (op) {
    case Op::add: return "add";
    case Op::subtract: return "subtract";
    case Op::multiply: return "multiply";
    case Op::divide: return "divide";
    case Op::minimum: return "minimum";
    case Op::maximum: return "maximum";
    case Op::negative: return "negative";
    case Op::absolute: return "absolute";
    case Op::floor: return "floor";
    case Op::exp: return "exp";
    case Op::exp2: return "exp2";
    case Op::log: return "log";
    case Op::log2: return "log2";
    case Op::sqrt: return "sqrt";
    default: return "tanh";
  }
}

class TextDomain {
 public:
  using Int = std::string;
  using Real = std::string;
  using Truth = std::string;

  explicit TextDomain(TableRanges ranges = TableRanges::read) : point_("t", uses), ranges_(ranges) {}

  bool has_data(const Node&) const { return true; }
  bool is_known(const Node&) const { return true; }

  std::string q_idx() {
    uses.position = uses.q_idx = true;
    return "q_idx";
  }
  std::string kv_idx() {
    uses.position = uses.kv_idx = true;
    return "kv_idx";
  }
  std::string point_integer(const Node& n) { return point_.emit(n); }
  std::string point_real(const Node& n) { return point_.emit(n); }
  std::string point_truth(const Node& n) {
    if (n.op == Op::boolean) return n.integer != 0 ? "TileClass::full" : "TileClass::empty";
    return "certain(" + point_.emit(n) + ")";
  }
  std::string box_integer(const std::string& a) const { return "IntInterval(" + a + ")"; }
  std::string box_real(const std::string& a) const { return "FloatInterval(" + a + ")"; }

  template <class R>
  std::string any_element(const Node& table) const {
    return "any_element<" + element_type(table.element) + ">()";
  }
  template <class R>
  std::string table_range(const Node& table, int dimension, const std::string& range) {
    uses.params = true;
    std::vector<std::string> arguments{"p", slot_name(table.name)};
    for (std::size_t i = 0; i < table.args.size(); ++i)
      arguments.push_back(static_cast<int>(i) == dimension ? range : point_.emit(*table.args[i]));
    const bool of_both = table.uses_q && table.uses_kv;
    const char* lanes = ranges_ == TableRanges::read ? "" : of_both ? ", 1" : ", lanes";
    const std::string read =
        call(fmt::format("table_range<{}, {}, {}{}>", element_type(table.element), table.args.size(), dimension, lanes),
             arguments);
    if (ranges_ == TableRanges::read || of_both) return read;
    const std::string place =
        table.uses_kv ? "keys." + place_of(table, read, keys) : "queries." + place_of(table, read, queries);
    return table.type == Type::i32 ? "IntInterval(" + place + ")" : place;
  }

  struct Sum {
    using Terms = std::vector<std::pair<std::string, std::int64_t>>;
    Terms terms, points;
    std::int64_t constant;
    bool plain;
    void add(const std::string& value, std::int64_t coefficient, bool point) {
      (point ? points : terms).emplace_back(value, coefficient);
    }
    std::string total() const {
      return plain ? plain_sum(terms, points, constant) : checked_sum(terms, points, constant);
    }
  };
  Sum new_sum(const Node& linear) const { return {{}, {}, linear.integer, linear.plain_sum}; }
  std::string wrapped(const Node& linear, const std::string& raw) const {
    const bool exact = linear.type == Type::i64 || linear.never_wraps;
    return exact ? raw : "wrap<int>(" + raw + ")";
  }
  std::string product(Type type, const std::vector<std::string>& factors) const {
    std::string text = factors[0];
    for (std::size_t i = 1; i < factors.size(); ++i) {
      text = call("wrap_multiply", {text, factors[i]});
      if (type == Type::i32) text = call("wrap<int>", {text});
    }
    return text;
  }
  std::string floor_divide(Type type, const std::string& a, const std::string& b, bool) const {
    return call("floor_divide<" + cpp_type(type) + ">", {a, b});
  }
  std::string floor_modulo(Type type, const std::string& a, const std::string& b) const {
    return call("floor_modulo<" + cpp_type(type) + ">", {a, b});
  }
  std::string extremum(Op op, const std::string& a, const std::string& b) const {
    return call(op == Op::minimum ? "minimum" : "maximum", {a, b});
  }
  std::string absolute(Type type, const std::string& a) const { return call("absolute<" + cpp_type(type) + ">", {a}); }
  std::string integer_of(const std::string& a) const { return call("integer_of", {a}); }
  std::string truncate(const std::string& a) const { return call("truncate", {a}); }
  std::string float_of(const std::string& a) const { return call("float_of", {a}); }
  std::string float_function(Op op, const std::string& a) const { return call(float_name(op), {a}); }
  std::string float_function(Op op, const std::string& a, const std::string& b) const {
    return call(float_name(op), {a, b});
  }

  std::string select(const std::string& c, const std::string& a, const std::string& b) const {
    return call("select", {c, a, b});
  }
  std::string comparison(Op op, const std::string& a, const std::string& b) const {
    return call(comparison_name(op), {a, b});
  }
  std::string negate(const std::string& a) const { return call("negate", {a}); }
  std::string junction(Op op, const std::vector<std::string>& terms) const {
    return call(op == Op::all ? "all_of" : "any_of", terms);
  }

  std::string anywhere() const { return "anywhere()"; }
  std::string where(const std::string& condition) const {
    if (condition == "TileClass::full") return anywhere();
    return condition == "TileClass::empty" ? "nowhere()" : call("where", {condition});
  }
  std::string overlaps(const std::string& a, const std::string& b) const { return call("overlap", {a, b}); }
  std::string intersect(std::vector<std::string> ranges) const {
    std::erase(ranges, anywhere());
    return ranges.empty() ? anywhere() : ranges.size() == 1 ? ranges[0] : call("intersect", ranges);
  }
  std::string hull(std::vector<std::string> ranges) const {
    if (std::find(ranges.begin(), ranges.end(), anywhere()) != ranges.end()) return anywhere();
    std::erase(ranges, "nowhere()");
    return ranges.empty() ? "nowhere()" : ranges.size() == 1 ? ranges[0] : call("hull", ranges);
  }
  std::string target(Op op, const std::string& bound) const {
    switch (op) {
      case Op::equal: return "IntInterval(" + bound + ")";
      case Op::less: return call("below", {bound});
      case Op::less_equal: return call("at_most", {bound});
      case Op::greater: return call("above", {bound});
      default: return call("at_least", {bound});
    }
  }
  std::string solve_sum(const std::string& target, const std::string& others) const {
    return call("solve_sum", {target, others});
  }
  std::string solve_product(const std::string& target, const std::string& factor) const {
    return call("solve_product", {target, factor});
  }
  std::string solve_quotient(const std::string& target, const std::string& divisor) const {
    return call("solve_quotient", {target, divisor});
  }
  std::string solve_absolute(const std::string& target) const { return call("solve_absolute", {target}); }
  std::string solve_extremum(Op op, const std::string& target, const std::string& other) const {
    return call(op == Op::minimum ? "solve_minimum" : "solve_maximum", {target, other});
  }
  std::string unless_wrapped(Type type, const std::string& expression, const std::string& solved) const {
    return call("unless_wrapped<" + cpp_type(type) + ">", {expression, solved});
  }

  Uses uses;
  std::vector<RangeRead> keys, queries;

 private:
  /// Where `read` stands among `reads`.
  static std::string place_of(const Node& table, const std::string& read, std::vector<RangeRead>& reads) {
    const auto same = std::find_if(reads.begin(), reads.end(), [&](const RangeRead& r) { return r.text == read; });
    const auto index = same - reads.begin();
    if (same == reads.end()) reads.push_back({table.type, read});
    return fmt::format("range_{}", index);
  }

  static std::string scaled(const std::string& value, std::int64_t magnitude, bool point) {
    if (magnitude == 1) return value;
    return point ? fmt::format("{} * wide({})", integer_text(magnitude), value)
                 : fmt::format("{} * {}", integer_text(magnitude), value);
  }

  /// Operators of intervals; points convert as they are added. The sum starts with an interval if there is one.
  static std::string plain_sum(const Sum::Terms& terms, const Sum::Terms& points, std::int64_t constant) {
    std::string text;
    const auto append = [&](const std::string& value, std::int64_t c, bool point) {
      const bool lowest = c == IntegerLimits<int>::lowest || c == kUnboundedBelow;
      const std::int64_t magnitude = c < 0 && !lowest ? -c : c;
      const std::string sign = c < 0 && !lowest ? (text.empty() ? "-" : " - ") : (text.empty() ? "" : " + ");
      text += sign + scaled(value, magnitude, point);
    };
    for (const auto& [value, c] : terms) append(value, c, false);
    for (const auto& [value, c] : points)
      append(text.empty() ? "wide(" + value + ")" : primary(value), c, !text.empty());
    if (constant != 0 || text.empty()) {
      const bool subtract = constant < 0 && constant != IntegerLimits<int>::lowest && constant != kUnboundedBelow;
      if (text.empty()) {
        text = integer_text(constant);
      } else {
        text += subtract ? " - " + integer_text(-constant) : " + " + integer_text(constant);
      }
    }
    return text;
  }
  /// Point terms are element text of unknown precedence.
  static std::string primary(const std::string& value) {
    return value.find(' ') == std::string::npos ? value : "(" + value + ")";
  }

  static std::string checked_sum(const Sum::Terms& terms, const Sum::Terms& points, std::int64_t constant) {
    std::vector<std::string> arguments;
    for (const Sum::Terms* list : {&terms, &points})
      for (const auto& [value, c] : *list)
        arguments.push_back(c == 1 ? value : call("wrap_multiply", {integer_text(c), value}));
    if (constant != 0 || arguments.empty()) arguments.push_back(integer_text(constant));
    return call("wrap_sum", arguments);
  }

  ElementEmitter point_;
  TableRanges ranges_;
};

/// A junction whose cheap terms (no table) may decide it asks them first and returns early.
bool splits(const Node& mask) {
  if (mask.op != Op::all && mask.op != Op::any) return false;
  return mask.args.back()->uses_table && !mask.args.front()->uses_table;
}

}  // namespace

TileClassText emit_tile_class(const Node& mask, TableRanges ranges) {
  TextDomain domain(ranges);
  Analysis<TextDomain> analysis(domain);
  FunctionText text;
  if (splits(mask)) {
    std::vector<std::string> cheap, costly;
    for (const NodePtr& c : mask.args) (c->uses_table ? costly : cheap).push_back(analysis.truth(*c));
    const std::string first = cheap.size() == 1 ? cheap[0] : domain.junction(mask.op, cheap);
    costly.insert(costly.begin(), "without_tables");
    text.statements.push_back("const TileClass without_tables = " + first + ";");
    text.statements.push_back(fmt::format("if (without_tables == TileClass::{}) return without_tables;",
                                          mask.op == Op::all ? "empty" : "full"));
    text.statements.push_back("return " + domain.junction(mask.op, costly) + ";");
  } else {
    text.statements.push_back("return " + analysis.truth(mask) + ";");
  }
  text.uses = domain.uses;
  return {text, domain.keys, domain.queries};
}

FunctionText emit_kv_range(const Node& mask) {
  TextDomain domain;
  Analysis<TextDomain> analysis(domain);
  FunctionText text;
  text.statements.push_back("return clamp_kv(" + analysis.keys(mask) + ", t.len_kv);");
  domain.uses.position = true;
  text.uses = domain.uses;
  return text;
}

}  // namespace saccade::expr
