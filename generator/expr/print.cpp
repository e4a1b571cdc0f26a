// Canonical text. Levels of precedence are the grammar's, so that the text parses back to the same tree.
#include <array>
#include <charconv>

#include "generator/expr/node.h"

namespace saccade::expr {
namespace {

enum Level { kSelect, kOr, kAnd, kNot, kCompare, kSum, kTerm, kUnary, kPrimary };

std::string_view symbol(Op op) {
  switch (op) {
    case Op::score: return "score";
    case Op::kv_idx: return "kv_idx";
    case Op::q_idx: return "q_idx";
    case Op::len_q: return "len_q";
    case Op::len_kv: return "len_kv";
    case Op::h: return "h";
    case Op::b: return "b";
    case Op::floor_divide: return " // ";
    case Op::floor_modulo: return " % ";
    case Op::to_int: return "int";
    case Op::add: return " + ";
    case Op::subtract: return " - ";
    case Op::product:
    case Op::multiply: return " * ";
    case Op::divide: return " / ";
    case Op::floor: return "floor";
    case Op::exp: return "exp";
    case Op::exp2: return "exp2";
    case Op::log: return "log";
    case Op::log2: return "log2";
    case Op::sqrt: return "sqrt";
    case Op::tanh: return "tanh";
    case Op::to_float: return "float";
    case Op::minimum: return "min";
    case Op::maximum: return "max";
    case Op::absolute: return "abs";
    case Op::equal: return " == ";
    case Op::not_equal: return " != ";
    case Op::less: return " < ";
    case Op::less_equal: return " <= ";
    case Op::greater: return " > ";
    case Op::greater_equal: return " >= ";
    case Op::all: return " && ";
    case Op::any: return " || ";
    default: return "";
  }
}

std::string real_text(float value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class Printer {
 public:
  std::string take() { return std::move(out_); }

  void print(const Node& n, Level least) {
    const bool parentheses = level(n) < least;
    if (parentheses) out_ += '(';
    body(n);
    if (parentheses) out_ += ')';
  }

 private:
  static Level level(const Node& n) {
    switch (n.op) {
      case Op::select: return kSelect;
      case Op::any: return kOr;
      case Op::all: return kAnd;
      case Op::negation: return kNot;
      case Op::equal:
      case Op::not_equal:
      case Op::less:
      case Op::less_equal:
      case Op::greater:
      case Op::greater_equal: return kCompare;
      case Op::linear: return n.args.size() > 1 || n.integer != 0 ? kSum : n.coefficients[0] == -1 ? kUnary : kTerm;
      case Op::add:
      case Op::subtract: return kSum;
      case Op::product:
      case Op::floor_divide:
      case Op::floor_modulo:
      case Op::multiply:
      case Op::divide: return kTerm;
      case Op::negative: return kUnary;
      case Op::integer: return n.integer < 0 ? kUnary : kPrimary;
      case Op::real: return n.real < 0 ? kUnary : kPrimary;
      default: return kPrimary;
    }
  }

  void body(const Node& n) {
    switch (n.op) {
      case Op::boolean: out_ += n.integer != 0 ? "true" : "false"; break;
      case Op::integer: out_ += std::to_string(n.integer); break;
      case Op::real: out_ += real_text(n.real); break;
      case Op::scalar: out_ += n.name; break;
      case Op::table: list(n.name + "[", n, "]"); break;
      case Op::linear: linear(n); break;
      case Op::add: float_sum(n); break;
      case Op::subtract: operands(n, kSum, kTerm); break;
      case Op::product:
      case Op::multiply:
      case Op::divide:
      case Op::floor_divide:
      case Op::floor_modulo: operands(n, kTerm, kUnary); break;
      case Op::negative:
        out_ += '-';
        print(*n.args[0], kUnary);
        break;
      case Op::equal:
      case Op::not_equal:
      case Op::less:
      case Op::less_equal:
      case Op::greater:
      case Op::greater_equal: operands(n, kSum, kSum); break;
      case Op::all: operands(n, kNot, kNot); break;
      case Op::any: operands(n, kAnd, kAnd); break;
      case Op::negation:
        out_ += '!';
        print(*n.args[0], kPrimary);
        break;
      case Op::select:
        print(*n.args[0], kOr);
        out_ += " ? ";
        print(*n.args[1], kSelect);
        out_ += " : ";
        print(*n.args[2], kSelect);
        break;
      default:
        if (n.args.empty()) {
          out_ += symbol(n.op);
        } else {
          list(std::string(symbol(n.op)) + "(", n, ")");
        }
    }
  }

  void list(const std::string& open, const Node& n, std::string_view close) {
    out_ += open;
    for (std::size_t i = 0; i < n.args.size(); ++i) {
      if (i > 0) out_ += ", ";
      operand(n, i, kSelect);
    }
    out_ += close;
  }

  void operands(const Node& n, Level first, Level rest) {
    for (std::size_t i = 0; i < n.args.size(); ++i) {
      if (i > 0) out_ += symbol(n.op);
      operand(n, i, i == 0 ? first : rest);
    }
  }

  /// float(x) of an integer is left out where the grammar widens anyway.
  void operand(const Node& n, std::size_t i, Level least) {
    const Node& a = *n.args[i];
    print(a.op == Op::to_float && a.args[0]->type != Type::boolean && widens(n, i) ? *a.args[0] : a, least);
  }
  static bool widens(const Node& n, std::size_t i) {
    switch (n.op) {
      case Op::divide:
      case Op::exp:
      case Op::exp2:
      case Op::log:
      case Op::log2:
      case Op::sqrt:
      case Op::tanh: return true;
      case Op::add:
      case Op::subtract:
      case Op::multiply:
      case Op::minimum:
      case Op::maximum:
      case Op::equal:
      case Op::not_equal:
      case Op::less:
      case Op::less_equal:
      case Op::greater:
      case Op::greater_equal: return n.args[1 - i]->op != Op::to_float;
      default: return false;
    }
  }

  void float_sum(const Node& n) {
    const Node& last = *n.args[1];
    if (last.op == Op::real && last.real < 0) {
      operand(n, 0, kSum);
      out_ += " - " + real_text(-last.real);
    } else {
      operands(n, kSum, kTerm);
    }
  }

  /// The first positive term leads; the rest follow in their order; the constant comes last, or first if all else is
  /// negative.
  void linear(const Node& n) {
    std::size_t lead = n.args.size();
    for (std::size_t i = n.args.size(); i-- > 0;)
      if (n.coefficients[i] > 0) lead = i;
    const bool constant_leads = lead == n.args.size() && n.integer > 0;
    bool first = true;
    if (constant_leads) {
      out_ += std::to_string(n.integer);
      first = false;
    }
    if (lead < n.args.size()) term(*n.args[lead], n.coefficients[lead], std::exchange(first, false));
    for (std::size_t i = 0; i < n.args.size(); ++i)
      if (i != lead) term(*n.args[i], n.coefficients[i], std::exchange(first, false));
    if (n.integer != 0 && !constant_leads) signed_text(n.integer);
  }

  void signed_text(std::int64_t value) {
    const std::string text = std::to_string(value);
    // The lowest integer has no positive counterpart to subtract.
    const bool subtract = value < 0 && value != kUnboundedBelow;
    out_ += subtract ? " - " + text.substr(1) : " + " + text;
  }

  void term(const Node& atom, std::int64_t coefficient, bool first) {
    const bool one = coefficient == 1 || coefficient == -1;
    if (first) {
      if (coefficient == -1) out_ += '-';
      if (!one) out_ += std::to_string(coefficient);
    } else if (one) {
      out_ += coefficient < 0 ? " - " : " + ";
    } else {
      signed_text(coefficient);
    }
    if (!one) out_ += " * ";
    print(atom, first && coefficient == 1 ? kSum : one && !first ? kTerm : kUnary);
  }

  std::string out_;
};

}  // namespace

std::string print(const Node& root) {
  Printer printer;
  printer.print(root, kSelect);
  return printer.take();
}

}  // namespace saccade::expr
