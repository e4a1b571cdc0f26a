#include "tuner/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace saccade::tuner {
namespace {

TEST(Median, OfOddAndEvenCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(Median, OfNothingIsNaN) {
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_TRUE(std::isnan(median_absolute_deviation({}, 1)));
}

TEST(Estimate, OneInterruptMovesNeitherMedianNorError) {
  const Estimate clean = estimate({100, 101, 99, 100, 102, 98, 100, 101, 99});
  const Estimate disturbed = estimate({100, 101, 99, 100, 102, 98, 100, 101, 5000});
  EXPECT_NEAR(disturbed.median, clean.median, 1);
  EXPECT_LT(disturbed.error, 3);
}

TEST(Estimate, IsUncertainBelowThreeSamples) {
  EXPECT_TRUE(std::isinf(estimate({1, 1}).error));
  EXPECT_TRUE(std::isfinite(estimate({1, 1, 1}).error));
}

TEST(Estimate, MoreSamplesOfTheSameSpreadNarrowTheError) {
  std::vector<double> few, many;
  for (int i = 0; i < 9; ++i) few.push_back(100 + i % 3);
  for (int i = 0; i < 90; ++i) many.push_back(100 + i % 3);
  EXPECT_LT(estimate(many).error, estimate(few).error / 2);
}

}  // namespace
}  // namespace saccade::tuner
