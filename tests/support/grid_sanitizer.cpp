#include <utility>

#include "tests/support/grid.h"

namespace saccade::test_support {
namespace {

/// Lengths that cut tiles off on either side, leave some out, or have none.
const std::vector<std::pair<int, int>> kLengths = {{1, 70}, {65, 130}, {130, 65}, {17, 0}, {40, 300}};

const std::vector<const char*> kRules = {"full",
                                         "causal bottom-right",
                                         "window top-left",
                                         "nothing kept",
                                         "bias table",
                                         "document causal",
                                         "everything at once",
                                         "softcap window",
                                         "mask table by head",
                                         "relative bias"};

CallSizes sizes_of(Layout layout, std::pair<int, int> lengths) {
  const auto [q, kv] = lengths;
  if (layout == Layout::dense) return {.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = q, .seqlen_kv = kv};
  return {.heads_q = 4, .heads_kv = 2, .lengths_q = {0, q, 3}, .lengths_kv = {5, kv, 0}};
}

Views views_of(int turn) {
  switch (turn % 5) {
    case 0: return {};
    case 1: return {View::packed, View::packed, View::packed, View::rows_outer};
    case 2: return {View::aligned_8, View::aligned_8, View::gapped_rows, View::aligned_8};
    case 3: return {View::rows_outer, View::aligned_4, View::longer_rows, View::rows_outer};
    default: return {View::aligned_2, View::expanded_heads, View::aligned_2, View::aligned_2};
  }
}

}  // namespace

std::vector<GridCase> make_sanitizer_subset(const GridOptions& options) {
  Random random(options.seed);
  std::vector<GridCase> cases;
  int turn = 0;
  for (const int head_dim : {8, 40, 64, 80, 96, 128, 160, 192, 256}) {
    for (const int repeat : {0, 1, 2}) {
      auto kernel = std::make_shared<GridKernel>();
      kernel->index = turn;
      use_rule(*kernel, grid_rule(kRules[static_cast<std::size_t>(turn) % kRules.size()], random));
      Problem& problem = kernel->problem;
      problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype =
          turn % 2 == 0 ? DataType::f16 : DataType::bf16;
      problem.head_dim_qk = head_dim;
      problem.head_dim_v = repeat == 2 ? 264 - head_dim : head_dim;
      problem.layout = turn % 3 == 1 ? Layout::varlen : Layout::dense;
      problem.lse = turn % 4 < 2;
      for (int n = 0; n < 4; ++n) {
        GridCase item;
        item.index = static_cast<int>(cases.size());
        item.kernel = kernel;
        item.seed = random.bits();
        item.sizes = sizes_of(problem.layout, kLengths[static_cast<std::size_t>(turn + n) % kLengths.size()]);
        item.views = views_of(turn + n);
        cases.push_back(item);
      }
      ++turn;
    }
  }
  return cases;
}

}  // namespace saccade::test_support
