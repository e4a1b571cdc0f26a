// Made-up scalars and tables: valid for every expression, and shaped so that tiles are of every class.
#include <algorithm>
#include <array>
#include <cmath>

#include "generator/expr/node.h"
#include "tuner/inputs.h"

namespace saccade::tuner {
namespace {

void note_variables(const expr::Node& index, IndexVariables& found) {
  using expr::Op;
  switch (index.op) {
    case Op::b: found.batch = true; break;
    case Op::h: found.head = true; break;
    case Op::q_idx:
    case Op::len_q: found.q = true; break;
    case Op::kv_idx:
    case Op::len_kv: found.kv = true; break;
    case Op::boolean:
    case Op::integer:
    case Op::real:
    case Op::linear:
    case Op::product:
    case Op::floor_divide:
    case Op::floor_modulo: break;
    default: found.other = true;  // scalars, tables, functions: anything
  }
  for (const expr::NodePtr& operand : index.args) note_variables(*operand, found);
}

void note_reads(const expr::Node& node, int table, std::vector<IndexVariables>& found) {
  if (node.op == expr::Op::table && node.slot == table) {
    for (std::size_t i = 0; i < node.args.size() && i < found.size(); ++i) note_variables(*node.args[i], found[i]);
  }
  for (const expr::NodePtr& operand : node.args) note_reads(*operand, table, found);
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
  note_reads(*problem.mask.root(), table, found);
  note_reads(*problem.score.root(), table, found);
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
