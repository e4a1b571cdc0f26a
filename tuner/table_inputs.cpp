// Made-up scalars and tables: valid for every expression, and shaped so that tiles are of every class.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>
#include <string_view>

#include "tuner/inputs.h"

namespace saccade::tuner {
namespace {

/// Splits "a, b[c, d]" at its own commas.
std::vector<std::string_view> split_arguments(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ',' && depth <= 0) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return parts;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

void note_variable(std::string_view word, IndexVariables& found) {
  if (word == "b") {
    found.batch = true;
  } else if (word == "h") {
    found.head = true;
  } else if (word == "q_idx" || word == "len_q") {
    found.q = true;
  } else if (word == "kv_idx" || word == "len_kv") {
    found.kv = true;
  } else if (std::isdigit(static_cast<unsigned char>(word.front())) == 0) {
    found.other = true;
  }
}

void note_variables(std::string_view index, IndexVariables& found) {
  for (std::size_t i = 0; i < index.size();) {
    std::size_t end = i;
    while (end < index.size() && is_word(index[end])) ++end;
    if (end > i) note_variable(index.substr(i, end - i), found);
    i = std::max(end, i + 1);
  }
}

/// The text between `text[open]` == '[' and its closing bracket.
std::string_view bracketed(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth == 0) return text.substr(open + 1, i - open - 1);
  }
  return {};
}

void note_reads(std::string_view text, std::string_view name, std::vector<IndexVariables>& found) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const std::size_t open = at + name.size();
    const bool starts_word = at == 0 || !is_word(text[at - 1]);
    if (!starts_word || open >= text.size() || text[open] != '[') continue;
    const std::vector<std::string_view> indices = split_arguments(bracketed(text, open));
    for (std::size_t i = 0; i < indices.size() && i < found.size(); ++i) note_variables(indices[i], found[i]);
  }
}

std::int64_t extent_for(const IndexVariables& variables, const Shape& shape) {
  const std::int64_t positions = (variables.q ? shape.seqlen_q : 0) + (variables.kv ? shape.seqlen_kv : 0);
  std::int64_t extent = std::max<std::int64_t>(positions, 1);
  if (variables.batch) extent = std::max(extent, shape.batch);
  if (variables.head) extent = std::max(extent, shape.heads_q);
  if (variables.other) extent = std::max(extent, shape.seqlen_q + shape.seqlen_kv);
  return extent;
}

class TableMaker {
 public:
  TableMaker(const expr::TableDeclaration& declaration, std::vector<IndexVariables> variables, const Shape& shape,
             std::uint64_t seed)
      : declaration_(declaration), variables_(std::move(variables)), shape_(shape), normal_(seed), random_(seed) {}

  expr::HostTable make(std::vector<std::byte>& data) {
    expr::HostTable table;
    // 16 Mi elements are made at most: outer dimensions beyond that repeat, as a broadcast bias does.
    constexpr std::int64_t kMaxElements = std::int64_t{1} << 24;
    std::int64_t elements = 1;
    for (int d = declaration_.rank - 1; d >= 0; --d) {
      table.extent[d] = extent_for(variables_[static_cast<std::size_t>(d)], shape_);
      const bool repeats = elements * table.extent[d] > kMaxElements && elements > 1;
      table.stride[d] = repeats ? 0 : elements;
      if (!repeats) elements *= table.extent[d];
      if (variables_[static_cast<std::size_t>(d)].q || variables_[static_cast<std::size_t>(d)].kv)
        has_positions_ = true;
    }
    data.resize(static_cast<std::size_t>(elements) * size_of(declaration_.dtype));
    const std::int64_t inner = table.extent[declaration_.rank - 1];
    for (std::int64_t i = 0; i < elements; ++i) {
      store_from_double(declaration_.dtype, data.data(), i, value(i % inner, i / inner, inner));
    }
    table.data = data.data();
    return table;
  }

 private:
  double value(std::int64_t inner, std::int64_t outer, std::int64_t inner_extent) {
    if (declaration_.dtype == DataType::boolean) return random_() % 4 != 0 ? 1 : 0;
    if (is_float(declaration_.dtype)) {
      // One value a head is a slope (ALiBi: 2^(-8 (h + 1) / heads)); anything else is a bias.
      if (!has_positions_) return std::exp2(-8.0 * static_cast<double>(inner + 1) / static_cast<double>(inner_extent));
      return 0.5 * normal_.next();
    }
    // Integers along a sequence number documents, whose ends fall inside tiles; others are lengths.
    if (has_positions_) {
      const std::int64_t document = std::max<std::int64_t>(inner_extent / 3 - 7 * (outer % 3), 1);
      return static_cast<double>(inner / document);
    }
    const std::int64_t longest = std::max<std::int64_t>(shape_.seqlen_kv, 1);
    return static_cast<double>(longest -
                               static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(longest / 2 + 1)));
  }

  const expr::TableDeclaration& declaration_;
  std::vector<IndexVariables> variables_;
  const Shape& shape_;
  NormalSource normal_;
  std::mt19937_64 random_;
  bool has_positions_ = false;
};

double made_up_scalar(expr::Type type, const Shape& shape) {
  if (type == expr::Type::f32) return 1.0;
  return static_cast<double>(std::max<std::int64_t>(shape.seqlen_kv / 4, 1));
}

OwnedBindings bindings_for(const Problem& problem, const Shape& shape, const expr::Bindings& given, std::uint64_t seed,
                           bool use_given_tables) {
  OwnedBindings owned;
  const expr::Declarations& declarations = problem.declarations;
  for (std::size_t i = 0; i < declarations.scalars.size(); ++i) {
    const bool known = i < given.scalars.size();
    owned.bindings.scalars.push_back(known ? given.scalars[i] : made_up_scalar(declarations.scalars[i].type, shape));
  }
  owned.table_data.resize(declarations.tables.size());
  for (std::size_t i = 0; i < declarations.tables.size(); ++i) {
    if (use_given_tables && i < given.tables.size() && given.tables[i].data != nullptr) {
      owned.bindings.tables.push_back(given.tables[i]);
      continue;
    }
    TableMaker maker(declarations.tables[i], index_variables(problem, static_cast<int>(i)), shape, seed + i);
    owned.bindings.tables.push_back(maker.make(owned.table_data[i]));
  }
  return owned;
}

/// A count of positions keeps its proportion to the length; flags and small counts stay.
double shrink(double value, std::int64_t full, std::int64_t cut) {
  if (full <= cut || std::fabs(value) <= 8) return value;
  const double scaled = std::round(value * static_cast<double>(cut) / static_cast<double>(full));
  return scaled == 0 ? std::copysign(1.0, value) : scaled;
}

}  // namespace

std::vector<IndexVariables> index_variables(const Problem& problem, int table) {
  const expr::TableDeclaration& declaration = problem.declarations.tables[static_cast<std::size_t>(table)];
  std::vector<IndexVariables> found(static_cast<std::size_t>(declaration.rank));
  note_reads(problem.mask.text(), declaration.name, found);
  note_reads(problem.score.text(), declaration.name, found);
  return found;
}

OwnedBindings race_bindings(const Problem& problem, const Shape& shape, const expr::Bindings& given,
                            std::uint64_t seed) {
  return bindings_for(problem, shape, given, seed, true);
}

OwnedBindings gate_bindings(const Problem& problem, const Shape& full, const Shape& gate, const expr::Bindings& given,
                            std::uint64_t seed, bool use_given_tables) {
  expr::Bindings scaled = given;
  const std::int64_t full_length = std::max(full.seqlen_q, full.seqlen_kv);
  const std::int64_t gate_length = std::max(gate.seqlen_q, gate.seqlen_kv);
  for (std::size_t i = 0; i < scaled.scalars.size() && i < problem.declarations.scalars.size(); ++i) {
    if (problem.declarations.scalars[i].type == expr::Type::f32) continue;
    scaled.scalars[i] = shrink(scaled.scalars[i], full_length, gate_length);
  }
  return bindings_for(problem, gate, scaled, seed, use_given_tables);
}

}  // namespace saccade::tuner
