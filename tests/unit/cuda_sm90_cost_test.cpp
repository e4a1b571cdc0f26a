// What the cost model of cuda.fwd.sm90 holds of schedules, each with a measurement on the H200 behind it (bench/NOTES.md, the sweep).
#include <gtest/gtest.h>

#include <cmath>

#include "generator/families/cuda_common.h"
#include "tests/unit/cuda_sm90_modelled.h"
#include "tests/unit/cuda_sm90_support.h"

namespace saccade::sm90_tests {

double modelled_rising_over_folded(int heads, int tiles) {
  const Problem problem = causal(problem_of(128, 128));
  const Shape shape = dense_shape(1, heads, 128 * tiles);
  MaskDensities densities(problem, shape, {});
  Schedule schedule = best(problem, shape);
  schedule.params["warpgroups"] = 2;
  schedule.params["tile_n"] = 128;
  const auto efficiency = [&](std::int64_t row_order) {
    schedule.params["row_order"] = row_order;
    return family().cost(problem, h200(), shape, densities, schedule).wave_efficiency;
  };
  return efficiency(1) / efficiency(0);
}

namespace {

Schedule first_choice(const Problem& problem, const Shape& shape) {
  for (const RankedSchedule& ranked : rank_candidates(family(), problem, h200(), shape, {}))
    if (family().legal(problem, h200(), shape, ranked.schedule).ok()) return ranked.schedule;
  return {};
}

TEST(Sm90Cost, FewRowTilesWithCostlyScoresGoToOneWarpgroup) {
  EXPECT_EQ(first_choice(softcapped(causal(problem_of(256, 256))), dense_shape(1, 16, 1024)).params.at("warpgroups"),
            1);
  EXPECT_EQ(first_choice(softcapped(causal(problem_of(256, 256))), dense_shape(1, 16, 8192)).params.at("warpgroups"),
            2);
}

TEST(Sm90Cost, TheOrderOfRowTilesIsTheOneThatDealsThemOutEvenly) {
  const auto order = [](const Problem& problem, std::int64_t heads, std::int64_t length) {
    return first_choice(problem, dense_shape(1, heads, length)).params.at("row_order");
  };
  const Problem whole = causal(problem_of(128, 128)),
                window = masked(problem_of(128, 128), "kv_idx <= q_idx && kv_idx >= q_idx - 1023");
  EXPECT_EQ(order(whole, 32, 4096), 1) << "pairs";
  EXPECT_EQ(order(whole, 32, 512), 0) << "one round: 3% faster";
  EXPECT_EQ(order(window, 32, 2048), 1) << "half of the rows grow: 5% faster";
  EXPECT_EQ(order(window, 32, 4096), 0) << "most are even: 2.5% faster";
  EXPECT_EQ(order(window, 32, 8192), 0) << "0.6% faster";
}

TEST(Sm90Cost, TheLongestShapesAreRankedFromASampleOfTheirRowTiles) {
  const Problem problem = causal(problem_of(128, 128));
  for (const Shape& shape : {dense_shape(1, 1, (1LL << 30) - 1), dense_shape(1, 64, 1 << 24)}) {
    const auto ranked = rank_candidates(family(), problem, h200(), shape, {});
    ASSERT_FALSE(ranked.empty());
    EXPECT_TRUE(std::isfinite(ranked.front().cost.total_us));
  }
}

TEST(Sm90Cost, KeysThatFillTheirLastTileArePreferred) {
  for (const std::int64_t length : {320, 512, 1024})
    EXPECT_EQ(length % first_choice(problem_of(64, 64), dense_shape(32, 16, length)).params.at("tile_n"), 0) << length;
}

TEST(Sm90Cost, IsFiniteAndPositiveForShapesWithoutWork) {
  for (const Problem& problem : {problem_of(128, 128), causal(problem_of(128, 128)), varlen(problem_of(128, 128))}) {
    for (Shape shape : {dense_shape(0, 8, 512), dense_shape(2, 0, 512), dense_shape(2, 8, 0)}) {
      MaskDensities densities(problem, shape, {});
      for (const Schedule& schedule : family().candidates(problem, h200(), dense_shape(2, 8, 512))) {
        const double us = family().cost(problem, h200(), shape, densities, schedule).total_us;
        ASSERT_TRUE(std::isfinite(us) && us > 0) << us;
      }
    }
  }
}

TEST(ElementWork, CountsWhatVariesByElement) {
  const auto work_of = [](const char* text, const expr::Declarations& names = {}) {
    return element_work(*expr::Program::parse(expr::Kind::score, text, names));
  };
  EXPECT_EQ(work_of("score"), 0);
  EXPECT_EQ(work_of("score + 1.0"), 1);
  const expr::Declarations cap{{{"cap", expr::Type::f32}}, {}};
  EXPECT_EQ(work_of("cap * tanh(score / cap)", cap), 10) << "one product, one scaling, tanh";
  EXPECT_EQ(work_of("score + exp(cap)", cap), 1) << "exp is the same for all elements";
  EXPECT_GT(work_of("exp(score) / exp(0.5 * score)"), 3 * 8);
}

}  // namespace
}  // namespace saccade::sm90_tests
