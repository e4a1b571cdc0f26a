// `struct Rules`: the four functions around the text of the other emitters, laid out as clang-format would.
#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "generator/expr/emit.h"

namespace saccade::expr {
namespace {

constexpr std::size_t kColumns = 120;

/// A place where a line may end: after a comma or a logical operator, outside template arguments.
struct BreakPoint {
  std::size_t at;      ///< index of the first character of the next line
  std::size_t column;  ///< where the next line starts: after the innermost open bracket, or the statement's own
  std::size_t depth;   ///< open brackets
};

/// The break points of `line`, whose first `indent` characters are spaces. `open` holds columns after brackets that
/// earlier lines left open, and is brought up to the end of `line` by the caller.
std::vector<BreakPoint> break_points(const std::string& line, std::size_t base, std::vector<std::size_t> open) {
  std::vector<BreakPoint> points;
  int angles = 0;
  for (std::size_t i = 1; i < line.size(); ++i) {
    const bool spaced = line[i - 1] == ' ';
    if (line[i] == '<' && !spaced) ++angles;
    if (line[i] == '>' && !spaced) --angles;
    if (line[i] == '(') open.push_back(i + 1);
    if (line[i] == ')' && !open.empty()) open.pop_back();
    const std::string_view ended = std::string_view(line).substr(0, i + 1);
    const bool operation = ended.ends_with("& ") || ended.ends_with("| ") || ended.ends_with(" ? ") ||
                           ended.ends_with(" : ") || ended.ends_with(" + ") || ended.ends_with(" - ");
    if (angles == 0 && (operation || ended.ends_with(", "))) {
      points.push_back({i + 1, open.empty() ? base : open.back(), open.size()});
    }
  }
  return points;
}

/// Columns after the brackets that are open at the end of `line`.
std::vector<std::size_t> still_open(const std::string& line, std::vector<std::size_t> open) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '(') open.push_back(i + 1);
    if (line[i] == ')' && !open.empty()) open.pop_back();
  }
  return open;
}

/// Breaks a statement at the outermost brackets that make its lines fit, as late as possible.
std::vector<std::string> broken(const std::string& statement, std::size_t indent) {
  std::vector<std::string> lines;
  std::vector<std::size_t> open;
  const std::size_t base = indent + (statement.starts_with("return ") ? 7 : 4);
  std::string line = std::string(indent, ' ') + statement;
  while (line.size() > kColumns) {
    const BreakPoint* best = nullptr;
    const std::vector<BreakPoint> points = break_points(line, base, open);
    for (const BreakPoint& p : points) {
      if (p.at > kColumns + 1) break;
      if (best == nullptr || p.depth <= best->depth) best = &p;
    }
    if (best == nullptr && !points.empty()) best = &points.front();
    if (best == nullptr) break;
    std::string head = line.substr(0, best->at);
    open = still_open(head, open);
    head.erase(head.find_last_not_of(' ') + 1);
    lines.push_back(head);
    // Deep in brackets the alignment gives way, so that lines keep room.
    line = std::string(std::min<std::size_t>(best->column, 80), ' ') + line.substr(best->at);
  }
  lines.push_back(line);
  return lines;
}

std::string documentation(std::string_view canonical) {
  std::string text;
  constexpr std::size_t kWidth = kColumns - 6;
  while (!canonical.empty()) {
    std::size_t length = canonical.size();
    if (length > kWidth) {
      const std::size_t space = canonical.rfind(' ', kWidth);
      length = space == std::string_view::npos || space == 0 ? kWidth : space;
    }
    text += fmt::format("  /// {}\n", canonical.substr(0, length));
    canonical.remove_prefix(length);
    while (canonical.starts_with(' ')) canonical.remove_prefix(1);
  }
  return text;
}

/// One function: its documentation, its head with unused parameters unnamed, the locals it needs, its statements.
struct Function {
  std::string result, name;
  std::string position;  ///< "Element" or "Tile"
  std::string extra;     ///< further parameters
  std::string_view program;
};

std::vector<std::string> scalar_locals(const Uses& uses, const Declarations& declarations) {
  std::vector<std::string> locals;
  for (const int slot : uses.scalars) {
    const ScalarDeclaration& s = declarations.scalars[static_cast<std::size_t>(slot)];
    const std::string field = fmt::format("p.scalars[{}].{}", slot, s.type == Type::f32 ? "f" : "i");
    const std::string value = s.type == Type::i32 ? "wrap<int>(" + field + ")" : field;
    locals.push_back(fmt::format("const {} {} = {};", cpp_type(s.type), scalar_name(s.name), value));
  }
  return locals;
}

std::string function_text(const Function& f, const Uses& uses, const std::vector<std::string>& locals,
                          const std::vector<std::string>& statements) {
  const std::string letter = f.position == "Element" ? "e" : "t";
  const std::string head =
      fmt::format("SACCADE_FN static {} {}(const KernelParams&{}, const {}&{}{}) {{", f.result, f.name,
                  uses.params ? " p" : "", f.position, uses.position ? " " + letter : "", f.extra);
  std::string text = documentation(f.program);
  if (locals.empty() && statements.size() == 1) {
    const std::string line = "  " + head + " " + statements[0] + " }";
    if (line.size() <= kColumns) return text + line + "\n";
  }
  for (const std::string& line : broken(head, 2)) text += line + "\n";
  for (const auto* list : {&locals, &statements})
    for (const std::string& statement : *list)
      for (const std::string& line : broken(statement, 4)) text += line + "\n";
  return text + "  }\n";
}

std::string element_function(Function f, const Node& root, const Declarations& declarations, Accuracy accuracy) {
  Uses uses;
  ElementEmitter emitter("e", uses, accuracy);
  const std::string value = emitter.emit(root);
  return function_text(f, uses, scalar_locals(uses, declarations), {"return " + value + ";"});
}

/// Whether `text` names `word`, other than as a member.
bool mentions(std::string_view text, std::string_view word) {
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]))) return true;
  }
  return false;
}

/// Drops what the analysis visited but the text no longer needs, since unbounded parts fall out of KV ranges.
Uses still_used(Uses uses, const std::vector<std::string>& statements, const Declarations& declarations) {
  std::string text;
  for (const std::string& s : statements) text += s + "\n";
  uses.q_idx = uses.q_idx && mentions(text, "q_idx");
  uses.kv_idx = uses.kv_idx && mentions(text, "kv_idx");
  std::erase_if(uses.scalars, [&](int slot) {
    return !mentions(text, scalar_name(declarations.scalars[static_cast<std::size_t>(slot)].name));
  });
  uses.params = !uses.scalars.empty() || mentions(text, "p");
  uses.position = uses.q_idx || uses.kv_idx || text.find("t.") != std::string::npos;
  return uses;
}

std::string tile_function(Function f, const FunctionText& body, const Declarations& declarations,
                          const std::string& kv_interval) {
  const Uses uses = still_used(body.uses, body.statements, declarations);
  std::vector<std::string> locals = scalar_locals(uses, declarations);
  if (uses.q_idx) locals.push_back("const IntInterval q_idx{t.q_first, t.q_last};");
  if (uses.kv_idx) locals.push_back("const IntInterval kv_idx{" + kv_interval + "};");
  return function_text(f, uses, locals, body.statements);
}

/// What holds a range of a table, in few bytes, and what it is computed as.
const char* kept_type(Type element) {
  return element == Type::i32   ? "NarrowInterval"
         : element == Type::i64 ? "IntInterval"
         : element == Type::f32 ? "FloatInterval"
                                : "TileClass";
}

/// The struct of what is read apart from tile_class for its `side`, "keys" or "queries", and the function that reads it.
std::string range_reader(const std::string& type, const std::string& side, const std::string& name,
                         const std::vector<RangeRead>& reads, const Uses& uses, const Declarations& declarations) {
  std::string text = fmt::format("  struct {} {{", type);
  for (std::size_t i = 0; i < reads.size(); ++i) text += fmt::format("\n    {} range_{};", kept_type(reads[i].type), i);
  text += reads.empty() ? "};\n" : "\n  };\n";
  FunctionText body{.statements = {}, .uses = uses};
  std::string results;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    std::string read = reads[i].text;
    for (std::size_t at; (at = read.find(side + ".")) != std::string::npos;) read.erase(at, side.size() + 1);
    body.statements.push_back(fmt::format("const {} range_{} = {};", kept_type(reads[i].type), i, read));
    results += fmt::format("{}range_{}", i > 0 ? ", " : "", i);
  }
  body.statements.push_back("return {" + results + "};");
  return text + "  template <int lanes>\n" +
         tile_function({type, name, "Tile", "", ""}, body, declarations, "t.kv_first, t.kv_last");
}

std::string tile_class_functions(const Program& mask, const Declarations& declarations, TableRanges ranges) {
  const TileClassText text = emit_tile_class(*mask.root(), ranges);
  Function f{"TileClass", "tile_class", "Tile", "", mask.text()};
  if (ranges == TableRanges::read) return tile_function(f, text.body, declarations, "t.kv_first, t.kv_last");
  f.extra = ", const QueryRanges& queries, const KeyRanges& keys";
  const bool by_head =
      std::any_of(text.keys.begin(), text.keys.end(), [](const RangeRead& r) { return mentions(r.text, "t.h"); });
  return fmt::format("  static constexpr bool key_ranges_by_head = {};\n", by_head) +
         range_reader("KeyRanges", "keys", "key_ranges", text.keys, text.body.uses, declarations) + "\n" +
         range_reader("QueryRanges", "queries", "query_ranges", text.queries, text.body.uses, declarations) + "\n" +
         tile_function(f, text.body, declarations, "t.kv_first, t.kv_last");
}

std::string slots(const Program& mask, const Program& score, const Declarations& declarations) {
  std::string text;
  for (std::size_t i = 0; i < declarations.tables.size(); ++i) {
    const auto slot = static_cast<int>(i);
    if (!mask.uses_table(slot) && !score.uses_table(slot)) continue;
    text += fmt::format("  static constexpr int {} = {};\n", slot_name(declarations.tables[i].name), i);
  }
  return text;
}

}  // namespace

std::string emit_rules(const Program& mask, const Program& score, const Declarations& declarations,
                       TableRanges ranges) {
  std::string text = "struct Rules {\n";
  text += fmt::format("  static constexpr bool has_mask = {}, has_score = {};\n", !mask.is_identity(),
                      !score.is_identity());
  text += slots(mask, score, declarations) + "\n";
  text += element_function({"bool", "keep", "Element", "", mask.text()}, *mask.root(), declarations, Accuracy::exact) +
          "\n";
  text += element_function({"float", "score", "Element", ", float score", score.text()}, *score.root(), declarations,
                           Accuracy::two_ulps);
  text += "\n";
  text += tile_class_functions(mask, declarations, ranges) + "\n";
  text += tile_function({"KvRange", "kv_range", "Tile", "", mask.text()}, emit_kv_range(*mask.root()), declarations,
                        "0, t.len_kv - 1");
  return text + "};\n";
}

}  // namespace saccade::expr
