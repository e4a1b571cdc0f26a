#include <algorithm>
#include <string>

#include "tests/support/grid_rules.h"
#include "tests/support/random_program.h"

namespace saccade::test_support {
namespace {

/// What the program's own bounds are made for; the grid's lengths are about as large.
constexpr RandomProgramSizes kSizes{.batch = 3, .heads = 8, .len_q = 300, .len_kv = 300};

double draw_scalar(expr::Type type, const Shape& shape, Random& random) {
  const auto whole = static_cast<double>(random.between(-2, shape.seqlen_kv));
  return type == expr::Type::f32 ? 0.25 * whole : whole;
}

/// Leading axes are indexed by b or h, the last by positions; any of them may be too short, so that reads give 0.
TableImage draw_table(const expr::TableDeclaration& declaration, const Shape& shape, Random& random) {
  std::vector<std::int64_t> extent;
  std::vector<bool> shared;
  for (int axis = 0; axis < declaration.rank; ++axis) {
    const bool last = axis + 1 == declaration.rank;
    const std::int64_t longest = std::max(shape.seqlen_q, shape.seqlen_kv);
    extent.push_back(last ? std::max<std::int64_t>(0, longest - random.between(0, 1))
                          : random.between(1, std::max(shape.heads_q, shape.batch) + 1));
    shared.push_back(!last && random.one_in(3));
  }
  TableImage table = make_table(declaration.dtype, extent, shared);
  const std::int64_t elements = static_cast<std::int64_t>(table.bytes.size() / size_of(declaration.dtype));
  const bool runs = random.one_in(2);  // such as document numbers
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::int64_t step = runs ? i % extent.back() * 6 / extent.back() : random.between(0, 7);
    const bool condition = declaration.dtype == DataType::boolean;
    table.set(i, condition                     ? static_cast<double>(step % 2)
                 : is_float(declaration.dtype) ? 0.25 * static_cast<double>(step) - 0.5
                                               : static_cast<double>(step));
  }
  return table;
}

}  // namespace

GridRule random_grid_rule(Random& random) {
  const RandomProgram program = random_program(random, kSizes);
  GridRule rule;
  rule.name = "random program";
  rule.declarations = program.declarations;
  rule.mask = program.mask;
  rule.score = random.one_in(3) ? "score" : program.score;
  rule.bind = [](AttentionCall& call, Random& values) {
    const expr::Declarations& declarations = call.problem.declarations;
    for (const auto& scalar : declarations.scalars)
      call.scalars.push_back(draw_scalar(scalar.type, call.shape, values));
    for (const auto& table : declarations.tables) call.tables.push_back(draw_table(table, call.shape, values));
  };
  return rule;
}

}  // namespace saccade::test_support
