// Recursive descent over the grammar of program.h. Nodes are simplified as they are built, so what comes out is
// canonical.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "generator/expr/declarations.h"
#include "generator/expr/lexer.h"
#include "generator/expr/node.h"

namespace saccade::expr {
namespace {

constexpr int kMaxDepth = 200;

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

class Parser {
 public:
  Parser(Kind kind, std::string_view source, std::vector<Token> tokens, const Declarations& declarations)
      : kind_(kind), source_(source), tokens_(std::move(tokens)), declarations_(declarations) {}

  Expected<NodePtr> run() {
    NodePtr root = expression();
    if (root && peek().kind != Token::Kind::end) root = fail(peek(), after_expression());
    if (root && kind_ == Kind::mask && root->type != Type::boolean) {
      root = fail(tokens_[0], fmt::format("a mask must be a condition (bool); this is {}", name_of(root->type)));
    }
    if (root && kind_ == Kind::score && root->type == Type::boolean) {
      root = fail(tokens_[0], "a score must be a number; this is a condition (bool)");
    }
    if (!root) return error_;
    return kind_ == Kind::score ? build::to_float(root) : root;
  }

 private:
  // Every parsing function returns null after an error, which is in error_.

  const Token& peek() const { return tokens_[at_]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool next_is(std::string_view symbol) const { return peek().kind == Token::Kind::symbol && peek().text == symbol; }
  bool accept(std::string_view symbol) {
    if (!next_is(symbol)) return false;
    take();
    return true;
  }

  NodePtr fail(const Token& where, std::string_view message) {
    if (error_.ok()) error_ = error_at(source_, where.offset, message);
    return nullptr;
  }

  static std::string shown(const Token& token) {
    return token.kind == Token::Kind::end ? "the end" : fmt::format("'{}'", token.text.substr(0, kMaxNameBytes));
  }
  std::string after_expression() const {
    const std::string_view text = peek().text;
    if (text == "and" || text == "or") return fmt::format("use '{}'", text == "and" ? "&&" : "||");
    if (text == "if") return "use 'condition ? a : b'";
    return fmt::format("expected an operator or the end, found {}", shown(peek()));
  }

  bool expect(std::string_view symbol, const char* what) {
    if (accept(symbol)) return true;
    fail(peek(), fmt::format("expected '{}' {}, found {}", symbol, what, shown(peek())));
    return false;
  }

  /// Refuses trees deeper than what recursion over them may take.
  NodePtr checked(const Token& where, NodePtr node) {
    if (node && node->depth > kMaxDepth) {
      return fail(where, fmt::format("the expression is more than {} operations deep", kMaxDepth));
    }
    return node;
  }

  bool want_condition(const Token& where, const NodePtr& node, std::string_view what) {
    if (node->type == Type::boolean) return true;
    fail(where, fmt::format("{} needs a condition (bool), this is {}", what, name_of(node->type)));
    return false;
  }
  bool want_number(const Token& where, const NodePtr& node, std::string_view what) {
    if (node->type != Type::boolean) return true;
    fail(where, fmt::format("{} needs a number, this is a condition (bool); int(...) makes it 0 or 1", what));
    return false;
  }
  bool want_integer(const Token& where, const NodePtr& node, std::string_view what) {
    if (!want_number(where, node, what)) return false;
    if (is_integer(node->type)) return true;
    fail(where, fmt::format("{} needs an integer, this is f32; int(...) truncates, floor(a / b) divides", what));
    return false;
  }

  NodePtr expression() {
    if (++nesting_ > kMaxDepth) return fail(peek(), fmt::format("nested more than {} levels deep", kMaxDepth));
    const Token where = peek();
    NodePtr condition = disjunction();
    if (condition && accept("?")) condition = choice(where, condition);
    --nesting_;
    return condition;
  }

  NodePtr choice(const Token& where, const NodePtr& condition) {
    if (!want_condition(where, condition, "'?'")) return nullptr;
    const Token where_a = peek();
    const NodePtr a = expression();
    if (!a || !expect(":", "after the first branch of '?'")) return nullptr;
    const Token where_b = peek();
    const NodePtr b = expression();
    if (!b) return nullptr;
    return make_select(where, condition, a, where_a, b, where_b);
  }

  NodePtr make_select(const Token& where, const NodePtr& condition, const NodePtr& a, const Token& where_a,
                      const NodePtr& b, const Token& where_b) {
    if ((a->type == Type::boolean) != (b->type == Type::boolean)) {
      const bool first = a->type == Type::boolean;
      return fail(first ? where_b : where_a, "both branches must be conditions, or both numbers");
    }
    return checked(where, build::select(condition, a, b));
  }

  NodePtr disjunction() { return junction("||", &Parser::conjunction, build::any); }
  NodePtr conjunction() { return junction("&&", &Parser::inversion, build::all); }

  NodePtr junction(std::string_view symbol, NodePtr (Parser::*operand)(),
                   NodePtr (*combine)(const std::vector<NodePtr>&)) {
    const Token where = peek();
    std::vector<NodePtr> terms;
    do {
      const Token where_term = peek();
      const NodePtr term = (this->*operand)();
      if (!term) return nullptr;
      const bool alone = terms.empty() && !next_is(symbol);
      if (!alone && !want_condition(where_term, term, fmt::format("'{}'", symbol))) return nullptr;
      terms.push_back(term);
    } while (accept(symbol));
    return terms.size() == 1 ? terms[0] : checked(where, combine(terms));
  }

  NodePtr inversion() {
    const Token where = peek();
    if (!next_is("!")) return comparison();
    if (++nesting_ > kMaxDepth) return fail(where, fmt::format("nested more than {} levels deep", kMaxDepth));
    take();
    const Token where_operand = peek();
    const NodePtr operand = inversion();
    --nesting_;
    if (!operand || !want_condition(where_operand, operand, "'!'")) return nullptr;
    return checked(where, build::negation(operand));
  }

  static bool comparison_op(const Token& token, Op& op) {
    constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::equal},  {"!=", Op::not_equal},
                                                        {"<", Op::less},    {"<=", Op::less_equal},
                                                        {">", Op::greater}, {">=", Op::greater_equal}};
    if (token.kind != Token::Kind::symbol) return false;
    for (const auto& [text, value] : kOps)
      if (text == token.text) return op = value, true;
    return false;
  }

  NodePtr comparison() {
    const Token where_a = peek();
    NodePtr a = sum();
    Op op = Op::equal;
    if (!a || !comparison_op(peek(), op)) return a;
    const Token symbol = take();
    const Token where_b = peek();
    const NodePtr b = sum();
    if (!b) return nullptr;
    Op again = Op::equal;
    if (comparison_op(peek(), again)) {
      return fail(peek(), "comparisons cannot be chained; write a < b && b < c");
    }
    const bool equality = op == Op::equal || op == Op::not_equal;
    if (equality && a->type == Type::boolean && b->type == Type::boolean) {
      return checked(symbol, build::comparison(op, a, b));
    }
    const std::string what = fmt::format("'{}'", symbol.text);
    if (!want_number(where_a, a, what) || !want_number(where_b, b, what)) return nullptr;
    return checked(symbol, build::comparison(op, a, b));
  }

  NodePtr sum() {
    const Token where = peek();
    NodePtr a = product();
    while (a && (next_is("+") || next_is("-"))) {
      const Token symbol = take();
      const Token where_b = peek();
      const NodePtr b = product();
      const std::string what = fmt::format("'{}'", symbol.text);
      if (!b || !want_number(where, a, what) || !want_number(where_b, b, what)) return nullptr;
      a = checked(symbol, symbol.text == "+" ? build::sum(a, b) : build::difference(a, b));
    }
    return a;
  }

  NodePtr product() {
    const Token where = peek();
    NodePtr a = unary();
    while (a && (next_is("*") || next_is("/") || next_is("//") || next_is("%"))) {
      const Token symbol = take();
      const Token where_b = peek();
      const NodePtr b = unary();
      if (!b) return nullptr;
      const std::string what = fmt::format("'{}'", symbol.text);
      const bool whole = symbol.text == "//" || symbol.text == "%";
      const auto want = whole ? &Parser::want_integer : &Parser::want_number;
      if (!(this->*want)(where, a, what) || !(this->*want)(where_b, b, what)) return nullptr;
      const auto combine = symbol.text == "*"    ? build::multiply
                           : symbol.text == "/"  ? build::divide
                           : symbol.text == "//" ? build::floor_divide
                                                 : build::floor_modulo;
      a = checked(symbol, combine(a, b));
    }
    return a;
  }

  NodePtr unary() {
    const Token where = peek();
    if (!next_is("-")) return primary();
    if (++nesting_ > kMaxDepth) return fail(where, fmt::format("nested more than {} levels deep", kMaxDepth));
    take();
    const Token where_operand = peek();
    NodePtr operand;
    if (peek().kind == Token::Kind::integer && peek().integer == std::uint64_t{1} << 63) {
      take();
      operand = build::integer(kUnboundedBelow);
    } else if (NodePtr positive = unary(); positive && want_number(where_operand, positive, "'-'")) {
      operand = checked(where, build::negative(positive));
    }
    --nesting_;
    return operand;
  }

  NodePtr primary() {
    const Token token = take();
    switch (token.kind) {
      case Token::Kind::integer:
        if (token.integer > std::uint64_t{kUnboundedAbove}) return fail(token, "this integer does not fit 64 bits");
        return build::integer(static_cast<std::int64_t>(token.integer));
      case Token::Kind::real: return build::real(token.real);
      case Token::Kind::name: return name(token);
      default: break;
    }
    if (token.kind == Token::Kind::symbol && token.text == "(") {
      NodePtr inner = expression();
      return inner && expect(")", "to close the parenthesis") ? inner : nullptr;
    }
    if (token.text == "!") return fail(token, "'!' binds looser than comparisons and arithmetic; write (!a)");
    return fail(token, fmt::format("expected a value, found {}", shown(token)));
  }

  NodePtr name(const Token& token) {
    if (token.text == "true" || token.text == "false") return build::boolean(token.text == "true");
    for (const Name& v : kVariables) {
      if (v.name != token.text) continue;
      if (v.op == Op::score && kind_ == Kind::mask) return fail(token, "'score' is only known in score programs");
      return build::variable(v.op);
    }
    for (const Name& f : kFunctions)
      if (f.name == token.text) return call(token, f);
    for (std::size_t i = 0; i < declarations_.scalars.size(); ++i)
      if (declarations_.scalars[i].name == token.text) return scalar(token, i);
    for (std::size_t i = 0; i < declarations_.tables.size(); ++i)
      if (declarations_.tables[i].name == token.text) return table(token, i);
    return fail(token, unknown(token.text));
  }

  NodePtr scalar(const Token& token, std::size_t slot) {
    if (next_is("[")) return fail(token, fmt::format("'{}' is a scalar and takes no index", token.text));
    return build::scalar(static_cast<int>(slot), declarations_.scalars[slot]);
  }

  std::string unknown(std::string_view text) const {
    std::string_view best;
    std::size_t distance = std::max<std::size_t>(1, std::min<std::size_t>(text.size() / 3, 2)) + 1;
    const auto consider = [&](std::string_view candidate) {
      if (text.size() > kMaxNameBytes) return;
      if (const std::size_t d = edit_distance(text, candidate); d < distance) {
        distance = d;
        best = candidate;
      }
    };
    for (const Name& v : kVariables) consider(v.name);
    for (const Name& f : kFunctions) consider(f.name);
    for (const ScalarDeclaration& s : declarations_.scalars) consider(s.name);
    for (const TableDeclaration& t : declarations_.tables) consider(t.name);
    std::string message = fmt::format("unknown name '{}'", text.substr(0, kMaxNameBytes));
    if (!best.empty()) return message + fmt::format("; did you mean '{}'?", best);
    return message + "; declare it as a scalar or a table";
  }

  struct Argument {
    Token where;
    NodePtr node;
  };
  /// Comma-separated expressions up to `close`; false after an error.
  bool arguments(std::vector<Argument>& list, std::string_view close, const char* what) {
    do {
      const Token where = peek();
      NodePtr node = expression();
      if (!node) return false;
      list.push_back({where, std::move(node)});
    } while (accept(","));
    return expect(close, what);
  }

  NodePtr table(const Token& token, std::size_t slot) {
    const TableDeclaration& declaration = declarations_.tables[slot];
    std::vector<Argument> list;
    if (!expect("[", fmt::format("after the table '{}'", token.text).c_str())) return nullptr;
    if (!arguments(list, "]", "to close the index")) return nullptr;
    if (static_cast<int>(list.size()) != declaration.rank) {
      return fail(token, fmt::format("table '{}' has rank {}, but {} {} given", token.text, declaration.rank,
                                     list.size(), list.size() == 1 ? "index is" : "indices are"));
    }
    std::vector<NodePtr> indices;
    for (const Argument& a : list) {
      if (!want_integer(a.where, a.node, "a table index")) return nullptr;
      indices.push_back(a.node);
    }
    return checked(token, build::table(static_cast<int>(slot), declaration, std::move(indices)));
  }

  NodePtr call(const Token& token, const Name& function) {
    std::vector<Argument> list;
    if (!expect("(", fmt::format("after the function '{}'", token.text).c_str())) return nullptr;
    if (!arguments(list, ")", "to close the arguments")) return nullptr;
    if (static_cast<int>(list.size()) != function.arguments) {
      return fail(token, fmt::format("'{}' takes {} argument{}, but {} given", token.text, function.arguments,
                                     function.arguments == 1 ? "" : "s", list.size()));
    }
    if (function.op == Op::select) {
      if (!want_condition(list[0].where, list[0].node, "'select'")) return nullptr;
      return make_select(token, list[0].node, list[1].node, list[1].where, list[2].node, list[2].where);
    }
    const bool converts = function.op == Op::to_float || function.op == Op::to_int;
    for (const Argument& a : list)
      if (!converts && !want_number(a.where, a.node, fmt::format("'{}'", token.text))) return nullptr;
    return checked(token, apply(function.op, list));
  }

  static NodePtr apply(Op op, const std::vector<Argument>& list) {
    switch (op) {
      case Op::minimum:
      case Op::maximum: return build::extremum(op, list[0].node, list[1].node);
      case Op::absolute: return build::absolute(list[0].node);
      case Op::to_float: return build::to_float(list[0].node);
      case Op::to_int: return build::to_int(list[0].node);
      default: return build::function(op, list[0].node);
    }
  }

  Kind kind_;
  std::string_view source_;
  std::vector<Token> tokens_;
  const Declarations& declarations_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  Status error_;
};

Expected<NodePtr> parse_tree(Kind kind, std::string_view text, const Declarations& declarations) {
  SACCADE_ASSIGN(std::vector<Token> tokens, tokenize(text));
  return Parser(kind, text, std::move(tokens), declarations).run();
}

}  // namespace

Expected<Program> Program::parse(Kind kind, std::string_view text, const Declarations& declarations) {
  SACCADE_TRY(validate(declarations));
  Program program(kind);
  SACCADE_ASSIGN(program.root_, parse_tree(kind, text, declarations));
  program.text_ = print(*program.root_);
  // The canonical text can be longer and deeper than the source; it must stay readable, since it is what gets stored.
  constexpr std::size_t kSurelyReadable = 4096;
  if (program.text_.size() > kSurelyReadable || program.root_->depth > kMaxDepth / 4) {
    const Expected<NodePtr> again = parse_tree(kind, program.text_, declarations);
    if (!again.ok()) {
      return Status::invalid_argument("the program grows beyond its limits when written out: " +
                                      again.status().message());
    }
  }
  return program;
}

}  // namespace saccade::expr
