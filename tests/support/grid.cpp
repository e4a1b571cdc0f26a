#include "tests/support/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace saccade::test_support {
namespace {

const std::vector<int> kGroups = {1, 1, 1, 2, 3, 5, 6, 7, 12, 16, 28};
const std::vector<std::int64_t> kLengths = {0,   1,   2,   3,   5,   7,   8,   9,   15,  16,  17,  31,  32,  33,
                                            47,  48,  49,  63,  64,  65,  79,  80,  95,  96,  97,  112, 127, 128,
                                            129, 144, 159, 160, 161, 191, 192, 193, 224, 255, 256, 257, 300};

std::int64_t length_near(Random& random, std::int64_t most) {
  for (;;) {
    const std::int64_t length = random.pick(kLengths);
    if (length <= most) return length;
  }
}

int head_dim(Target::Kind target, Random& random) {
  static const std::vector<int> cpu = {1,  2,  3,  5,  8,   12,  16,  24,  31,  32,  40,  48,  63,  64, 65,
                                       72, 80, 88, 96, 100, 112, 127, 128, 136, 160, 192, 200, 255, 256};
  static const std::vector<int> cuda = {8,   16,  24,  32,  40,  48,  56,  64,  72,  80,  88,  96,  104,
                                        112, 120, 128, 136, 144, 160, 176, 192, 208, 224, 240, 248, 256};
  if (random.one_in(3)) return random.pick({64, 128, 80, 96});
  return random.pick(target == Target::Kind::cpu ? cpu : cuda);
}

DataType storage_type(Target::Kind target, Random& random) {
  return target == Target::Kind::cpu ? random.pick({DataType::f32, DataType::f16, DataType::bf16})
                                     : random.pick({DataType::f16, DataType::bf16});
}

GridKernel make_kernel(int index, const GridOptions& options, Random& random) {
  GridKernel kernel;
  kernel.index = index;
  // Every named rule comes several times over, with other dtypes and head dims; one kernel in three is a random
  // program.
  use_rule(kernel,
           index % 3 == 2 ? random_grid_rule(random) : grid_rule((index - index / 3) % grid_rule_count(), random));
  Problem& problem = kernel.problem;
  const DataType dtype = storage_type(options.target, random);
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = dtype;
  if (random.one_in(25)) {
    problem.o_dtype = DataType::f32;
    kernel.may_refuse = dtype != DataType::f32;
  }
  problem.head_dim_qk = head_dim(options.target, random);
  problem.head_dim_v = random.one_in(2) ? problem.head_dim_qk : head_dim(options.target, random);
  problem.layout = random.one_in(4) ? Layout::varlen : Layout::dense;
  problem.lse = random.one_in(2);
  return kernel;
}

bool shares_memory(const Views& views) {
  const auto shared = [](View view) {
    return view == View::expanded_heads || view == View::expanded_batch || view == View::expanded_rows;
  };
  return shared(views.k) || shared(views.v);
}

View input_view(Random& random) {
  return random.pick({View::heads_outer, View::heads_outer, View::rows_outer, View::rows_outer, View::packed,
                      View::gapped_rows, View::longer_rows, View::expanded_heads, View::expanded_batch,
                      View::expanded_rows, View::aligned_8, View::aligned_4, View::aligned_2});
}

View output_view(Random& random) {
  return random.pick({View::heads_outer, View::rows_outer, View::rows_outer, View::packed, View::gapped_rows,
                      View::longer_rows, View::aligned_8, View::aligned_2});
}

Views draw_views(Random& random) {
  if (random.one_in(3)) return {};
  if (random.one_in(4)) return {View::packed, View::packed, View::packed, View::rows_outer};
  // Unaligned views slow a whole call down to their alignment, so half the calls have none of them.
  Views views{input_view(random), input_view(random), input_view(random), output_view(random)};
  if (random.one_in(2)) {
    for (View* view : {&views.q, &views.k, &views.v, &views.o}) {
      if (*view >= View::aligned_8) *view = View::rows_outer;
    }
  }
  return views;
}

/// Multiply-adds of a case that the oracle can afford two thousand times: about 5 ms.
std::int64_t affordable(Random& random) { return random.one_in(30) ? 40'000'000 : 4'000'000; }

CallSizes draw_sizes(const Problem& problem, Random& random) {
  CallSizes sizes;
  const std::int64_t budget = affordable(random) / (problem.head_dim_qk + problem.head_dim_v + 40);
  std::int64_t seqlen_q = length_near(random, 300), seqlen_kv = random.one_in(3) ? seqlen_q : length_near(random, 300);
  if (random.one_in(8)) seqlen_q = 1;  // decode
  if (random.one_in(6))
    seqlen_kv = random.between(0, std::min<std::int64_t>(2100, budget / std::max<std::int64_t>(1, seqlen_q)));
  const std::int64_t pairs = std::max<std::int64_t>(1, seqlen_q * seqlen_kv);
  const std::int64_t most_heads = std::clamp<std::int64_t>(budget / pairs, 1, 60);
  std::int64_t group = random.pick(kGroups);
  while (group > most_heads) group = random.pick(kGroups);
  sizes.heads_kv = random.between(1, std::clamp<std::int64_t>(most_heads / group, 1, 4));
  sizes.heads_q = sizes.heads_kv * group;
  sizes.batch = random.between(1, std::clamp<std::int64_t>(most_heads / sizes.heads_q, 1, 3));
  sizes.seqlen_q = seqlen_q;
  sizes.seqlen_kv = seqlen_kv;
  if (problem.layout == Layout::dense) return sizes;
  for (std::int64_t b = random.between(0, 4); b >= 0; --b) {
    const std::int64_t q = random.one_in(5) ? 0 : random.one_in(4) ? seqlen_q : random.between(0, seqlen_q);
    const std::int64_t kv = random.one_in(6) ? 0 : random.one_in(3) ? q : random.between(0, seqlen_kv);
    sizes.lengths_q.push_back(static_cast<std::int32_t>(q));
    sizes.lengths_kv.push_back(static_cast<std::int32_t>(kv));
  }
  return sizes;
}

DataStyle draw_style(Random& random) {
  return random.pick({DataStyle::normal, DataStyle::normal, DataStyle::normal, DataStyle::normal,
                      DataStyle::large_scores, DataStyle::equal_scores, DataStyle::peaked, DataStyle::large_values,
                      DataStyle::small});
}

GridCase make_case(const std::shared_ptr<const GridKernel>& kernel, Random& random) {
  GridCase item;
  item.kernel = kernel;
  item.seed = random.bits();
  item.sizes = draw_sizes(kernel->problem, random);
  item.views = draw_views(random);
  item.style = draw_style(random);
  item.own_scale = random.one_in(6);
  if (!kernel->problem.mask.is_identity() && !shares_memory(item.views)) {
    item.unused = random.pick({Unused::finite, Unused::nan, Unused::nan, Unused::infinity});
  }
  return item;
}

void fill_peaked(AttentionCall& call, Random& random) {
  call.k.fill_normal(random, 1);
  const bool same_batch = call.problem.layout == Layout::dense;
  const std::int64_t group =
      std::max<std::int64_t>(1, call.shape.heads_q / std::max<std::int64_t>(1, call.shape.heads_kv));
  const double gain = random.pick({2.0, 5.0, 12.0});
  for (std::int64_t b = 0; b < call.q.extent.batch; ++b) {
    for (std::int64_t h = 0; h < call.q.extent.heads; ++h) {
      for (std::int64_t i = 0; i < call.q.extent.rows; ++i) {
        const std::int64_t rows = call.k.extent.rows;
        const std::int64_t j = rows > 0 ? random.between(0, rows - 1) : 0;
        for (int c = 0; c < call.q.extent.head_dim; ++c) {
          call.q.set(b, h, i, c, rows > 0 ? gain * call.k.get(same_batch ? b : 0, h / group, j, c) : 1.0);
        }
      }
    }
  }
}

void fill(AttentionCall& call, DataStyle style, Random& random) {
  const double deviation = style == DataStyle::small ? 1e-3 : style == DataStyle::large_scores ? 45 : 1;
  if (style == DataStyle::peaked) {
    fill_peaked(call, random);
  } else {
    call.q.fill_normal(random, style == DataStyle::equal_scores ? 0 : deviation);
    call.k.fill_normal(random, deviation);
  }
  if (style == DataStyle::large_values) {
    call.v.fill_normal(random, 30, 1000);
  } else {
    call.v.fill_normal(random, style == DataStyle::small ? 1e-3 : 1);
  }
}

const char* name_of(DataStyle style) {
  switch (style) {
    case DataStyle::normal: return "normal";
    case DataStyle::large_scores: return "large scores";
    case DataStyle::equal_scores: return "equal scores";
    case DataStyle::peaked: return "peaked";
    case DataStyle::large_values: return "large values";
    case DataStyle::small: return "small";
  }
  return "?";
}

/// Batch, heads, their product and the number of query tiles beyond 65535, at lengths of a few tokens; zero sizes.
std::vector<CallSizes> extreme_sizes() {
  return {{.batch = 65537, .heads_q = 1, .heads_kv = 1, .seqlen_q = 2, .seqlen_kv = 3},
          {.batch = 1, .heads_q = 65538, .heads_kv = 1, .seqlen_q = 1, .seqlen_kv = 2},
          {.batch = 1, .heads_q = 65537, .heads_kv = 65537, .seqlen_q = 2, .seqlen_kv = 1},
          {.batch = 331, .heads_q = 200, .heads_kv = 100, .seqlen_q = 1, .seqlen_kv = 3},
          {.batch = 0, .heads_q = 4, .heads_kv = 2, .seqlen_q = 5, .seqlen_kv = 5},
          {.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 0, .seqlen_kv = 5},
          {.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 5, .seqlen_kv = 0},
          {.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 0, .seqlen_kv = 0},
          {.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 300'000, .seqlen_kv = 1},
          {.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 1, .seqlen_kv = 400'000},
          {.batch = 1, .heads_q = 8, .heads_kv = 1, .seqlen_q = 3, .seqlen_kv = 65'537}};
}

void add_extreme_cases(const GridOptions& options, std::vector<GridCase>& cases, int first_kernel, Random& random) {
  for (const char* text : {"true", "kv_idx <= q_idx + (len_kv - len_q)"}) {
    auto kernel = std::make_shared<GridKernel>();
    kernel->index = first_kernel++;
    GridRule rule;
    rule.name = std::string("extreme sizes, ") + text;
    rule.mask = text;
    use_rule(*kernel, std::move(rule));
    Problem& problem = kernel->problem;
    problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype =
        options.target == Target::Kind::cpu ? DataType::f32 : DataType::bf16;
    problem.head_dim_qk = problem.head_dim_v = 8;
    problem.lse = true;
    for (const CallSizes& sizes : extreme_sizes()) {
      GridCase item;
      item.kernel = kernel;
      item.seed = random.bits();
      item.sizes = sizes;
      cases.push_back(item);
    }
  }
}

/// As many rows of no sequence as a shape allows, up to 7, most of them after the last sequence.
void leave_rows_unused(CallSizes& sizes) {
  if (sizes.lengths_q.empty()) return;
  const std::int64_t longest = *std::max_element(sizes.lengths_q.begin(), sizes.lengths_q.end());
  const std::int64_t total = std::accumulate(sizes.lengths_q.begin(), sizes.lengths_q.end(), std::int64_t{0});
  const std::int64_t room = longest * static_cast<std::int64_t>(sizes.lengths_q.size()) - total;
  const auto unused = static_cast<std::int32_t>(std::min<std::int64_t>(room, 7));
  sizes.rows_before = unused / 3;
  sizes.rows_after = unused - sizes.rows_before;
}

}  // namespace

void use_rule(GridKernel& kernel, GridRule rule) {
  kernel.rule = std::move(rule);
  kernel.label = kernel.rule.name;
  kernel.problem.declarations = kernel.rule.declarations;
  auto mask = expr::Program::parse(expr::Kind::mask, kernel.rule.mask, kernel.rule.declarations);
  auto score = expr::Program::parse(expr::Kind::score, kernel.rule.score, kernel.rule.declarations);
  if (mask.ok()) kernel.problem.mask = *mask;
  if (score.ok()) kernel.problem.score = *score;
  if (!mask.ok()) kernel.label = "INVALID MASK: " + mask.status().message();
  if (!score.ok()) kernel.label = "INVALID SCORE: " + score.status().message();
}

AttentionCall GridCase::make() const {
  Random random(seed);
  AttentionCall call = make_call(kernel->problem, sizes, views);
  kernel->rule.bind(call, random);
  fill(call, style, random);
  if (own_scale) call.scale = static_cast<float>(random.pick({0.01, 0.3, 1.0, -0.2, 0.0}));
  if (unused == Unused::nan) poison_masked_keys(call, std::numeric_limits<double>::quiet_NaN());
  if (unused == Unused::infinity) poison_masked_keys(call, -std::numeric_limits<double>::infinity());
  return call;
}

std::string GridCase::label() const {
  return fmt::format("{}, {} data{}, views {} {} {} {}", kernel->label, name_of(style),
                     unused == Unused::finite ? ""
                     : unused == Unused::nan  ? ", NaN in masked keys"
                                              : ", Inf in masked keys",
                     test_support::name_of(views.q), test_support::name_of(views.k), test_support::name_of(views.v),
                     test_support::name_of(views.o));
}

std::vector<GridCase> make_grid(const GridOptions& options) {
  Random random(options.seed);
  std::vector<GridCase> cases;
  for (int i = 0; i < options.kernels; ++i) {
    const auto kernel = std::make_shared<const GridKernel>(make_kernel(i, options, random));
    for (int n = 0; n < options.cases_per_kernel; ++n) cases.push_back(make_case(kernel, random));
  }
  add_extreme_cases(options, cases, options.kernels, random);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].index = static_cast<int>(i);
    if (i % 3 == 0) leave_rows_unused(cases[i].sizes);
  }
  return cases;
}

}  // namespace saccade::test_support
