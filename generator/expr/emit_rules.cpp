// `struct Rules`: the four functions around the text of the other emitters, laid out as clang-format would.
#include <algorithm>

#include <fmt/format.h>

#include "generator/expr/emit.h"

namespace saccade::expr {
namespace {

constexpr std::size_t kColumns = 120;

/// Breaks a statement after commas and logical operators; what follows is aligned with the innermost open bracket, or
/// with the operand after `return`.
std::vector<std::string> broken(const std::string& statement, std::size_t indent) {
  std::vector<std::string> lines;
  std::string line(indent, ' ');
  std::vector<std::size_t> open;  // columns after open brackets
  std::size_t base = indent + 4;
  if (statement.starts_with("return ")) base = indent + 7;
  std::size_t at = 0;
  while (at < statement.size()) {
    // A piece ends where a break is allowed.
    std::size_t end = at;
    while (end < statement.size()) {
      const std::string_view rest = std::string_view(statement).substr(end);
      if (rest.starts_with(", ") || rest.starts_with("( ")) {
        end += 2;
        break;
      }
      if (rest.starts_with(" && ") || rest.starts_with(" || ") || rest.starts_with(" ? ") || rest.starts_with(" : ")) {
        end += rest[1] == '?' || rest[1] == ':' ? 3 : 4;
        break;
      }
      ++end;
    }
    const std::string piece = statement.substr(at, end - at);
    const std::size_t visible = piece.size() - (piece.ends_with(' ') ? 1 : 0);
    if (line.size() + visible > kColumns && line.find_first_not_of(' ') != std::string::npos) {
      line.erase(line.find_last_not_of(' ') + 1);
      lines.push_back(line);
      line.assign(std::min<std::size_t>(open.empty() ? base : open.back(), 80), ' ');
    }
    for (const char c : piece) {
      line += c;
      if (c == '(') open.push_back(line.size());
      if (c == ')' && !open.empty()) open.pop_back();
    }
    at = end;
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
      fmt::format("  SACCADE_FN static {} {}(const KernelParams&{}, const {}&{}{}) {{", f.result, f.name,
                  uses.params ? " p" : "", f.position, uses.position ? " " + letter : "", f.extra);
  std::string text = documentation(f.program);
  if (locals.empty() && statements.size() == 1) {
    const std::string line = head + " " + statements[0] + " }";
    if (line.size() <= kColumns) return text + line + "\n";
  }
  text += head + "\n";
  for (const auto* list : {&locals, &statements})
    for (const std::string& statement : *list)
      for (const std::string& line : broken(statement, 4)) text += line + "\n";
  return text + "  }\n";
}

std::string element_function(Function f, const Node& root, const Declarations& declarations) {
  Uses uses;
  ElementEmitter emitter("e", declarations, uses);
  const std::string value = emitter.emit(root);
  return function_text(f, uses, scalar_locals(uses, declarations), {"return " + value + ";"});
}

std::string tile_function(Function f, const FunctionText& body, const Declarations& declarations,
                          const std::string& kv_interval) {
  std::vector<std::string> locals = scalar_locals(body.uses, declarations);
  if (body.uses.q_idx) locals.push_back("const IntInterval q_idx{t.q_first, t.q_last};");
  if (body.uses.kv_idx) locals.push_back("const IntInterval kv_idx{" + kv_interval + "};");
  return function_text(f, body.uses, locals, body.statements);
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

std::string emit_rules(const Program& mask, const Program& score, const Declarations& declarations) {
  std::string text = "struct Rules {\n";
  text += fmt::format("  static constexpr bool has_mask = {}, has_score = {};\n", !mask.is_identity(),
                      !score.is_identity());
  text += slots(mask, score, declarations) + "\n";
  text += element_function({"bool", "keep", "Element", "", mask.text()}, *mask.root(), declarations) + "\n";
  text += element_function({"float", "score", "Element", ", float score", score.text()}, *score.root(), declarations);
  text += "\n";
  text += tile_function({"TileClass", "tile_class", "Tile", "", mask.text()},
                        emit_tile_class(*mask.root(), declarations), declarations, "t.kv_first, t.kv_last");
  text += "\n";
  text += tile_function({"KvRange", "kv_range", "Tile", "", mask.text()}, emit_kv_range(*mask.root(), declarations),
                        declarations, "0, t.len_kv - 1");
  return text + "};\n";
}

}  // namespace saccade::expr
