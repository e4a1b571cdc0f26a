#include "tuner/decision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace saccade::tuner {
namespace {

Contender contender(int order, double ratio, std::int64_t shared_bytes = 0) {
  Contender c;
  c.order = order;
  c.is_default = order == 0;
  c.ratio = ratio;
  c.error = 0.001;
  c.resources.shared_bytes = shared_bytes;
  return c;
}

TEST(Decision, ClearlyFasterCandidateWins) {
  const std::vector<Contender> field{contender(0, 1.0), contender(1, 0.9), contender(2, 0.95)};
  const Decision decision = decide(field, {.noise = 0.005, .tie_fraction = 0.015});
  EXPECT_EQ(decision.winner, 1);
  EXPECT_NEAR(decision.gain, 1 / 0.9 - 1, 1e-12);
}

TEST(Decision, DefaultStaysInsideTheTieBand) {
  const std::vector<Contender> field{contender(0, 1.0), contender(1, 0.99)};
  const Decision decision = decide(field, {.noise = 0.001, .tie_fraction = 0.015});
  EXPECT_EQ(decision.winner, 0);
  EXPECT_EQ(decision.gain, 0);
  EXPECT_NE(decision.reason.find("inside the band"), std::string::npos) << decision.reason;
}

TEST(Decision, DefaultStaysInsideTheMeasuredNoise) {
  const std::vector<Contender> field{contender(0, 1.0), contender(1, 0.96)};
  EXPECT_EQ(decide(field, {.noise = 0.06, .tie_fraction = 0.015}).winner, 0);
  EXPECT_EQ(decide(field, {.noise = 0.02, .tie_fraction = 0.015}).winner, 1);
}

TEST(Decision, OnABusyMachineTheDefaultStaysWhateverTheRatios) {
  const std::vector<Contender> field{contender(0, 1.0), contender(1, 0.46)};
  const Decision decision = decide(field, {.noise = 0.61, .tie_fraction = 0.02});
  EXPECT_EQ(decision.winner, 0);
  EXPECT_EQ(decision.gain, 0);
  EXPECT_NE(decision.reason.find("busy"), std::string::npos) << decision.reason;
}

TEST(Decision, ALeadWithinItsOwnErrorIsNoLead) {
  std::vector<Contender> field{contender(0, 1.0), contender(1, 0.95)};
  field[1].error = 0.06;
  EXPECT_EQ(decide(field, {.noise = 0.005, .tie_fraction = 0.015}).winner, 0);
  field[1].error = 0.01;
  EXPECT_EQ(decide(field, {.noise = 0.005, .tie_fraction = 0.015}).winner, 1);
}

TEST(Decision, AmongEqualsTheOneWithAClearLeadWins) {
  // The fastest is too uncertain to take the default's place; the second is not.
  std::vector<Contender> field{contender(0, 1.0), contender(1, 0.900), contender(2, 0.905)};
  field[1].error = 0.2;
  EXPECT_EQ(decide(field, {.noise = 0.005, .tie_fraction = 0.015}).winner, 2);
}

TEST(Decision, AmongEqualsFewerResourcesWin) {
  const std::vector<Contender> field{contender(0, 1.0), contender(1, 0.900, 96 * 1024), contender(2, 0.905, 64 * 1024)};
  EXPECT_EQ(decide(field, {.noise = 0.0, .tie_fraction = 0.015}).winner, 2);
}

TEST(Decision, AmongEqualsOfEqualResourcesTheEarlierWins) {
  const std::vector<Contender> field{contender(0, 1.0), contender(1, 0.905, 64), contender(2, 0.900, 64)};
  EXPECT_EQ(decide(field, {.noise = 0.0, .tie_fraction = 0.015}).winner, 1);
}

TEST(Decision, SwappingTiedTimesDoesNotChangeTheWinner) {
  const DecisionRules rules{.noise = 0.0, .tie_fraction = 0.015};
  const std::vector<Contender> one{contender(0, 1.0), contender(1, 0.90, 64), contender(2, 0.91, 32)};
  const std::vector<Contender> other{contender(0, 1.0), contender(1, 0.91, 64), contender(2, 0.90, 32)};
  EXPECT_EQ(decide(one, rules).winner, decide(other, rules).winner);
}

TEST(Decision, SmallerButNotFasterThanTheDefaultIsNoWinner) {
  // 0.990 ties with the fastest (0.980), yet its lead over the default is inside the band.
  const std::vector<Contender> field{contender(0, 1.0), contender(1, 0.980, 96), contender(2, 0.990, 16)};
  EXPECT_EQ(decide(field, {.noise = 0.0, .tie_fraction = 0.015}).winner, 1);
}

TEST(Decision, WinnerIsNeverSlowerThanTheDefault) {
  for (const double ratio : {0.5, 0.9, 0.98, 0.99, 1.0, 1.01, 1.5}) {
    const std::vector<Contender> field{contender(0, 1.0), contender(1, ratio)};
    EXPECT_GE(decide(field, {.noise = 0.0, .tie_fraction = 0.015}).gain, 0) << ratio;
  }
}

TEST(Decision, UnmeasuredContendersAreLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Contender> field{contender(0, 1.0), contender(1, nan)};
  EXPECT_EQ(decide(field, {}).winner, 0);
  EXPECT_EQ(decide({}, {}).winner, -1);
}

TEST(Elimination, NeedsMoreThanTheBandAndTheErrors) {
  const DecisionRules rules{.noise = 0.01, .tie_fraction = 0.02};
  EXPECT_FALSE(is_hopeless(contender(1, 1.01), contender(2, 1.0), rules));
  EXPECT_TRUE(is_hopeless(contender(1, 1.10), contender(2, 1.0), rules));
  Contender uncertain = contender(1, 1.10);
  uncertain.error = 0.2;
  EXPECT_FALSE(is_hopeless(uncertain, contender(2, 1.0), rules));
}

TEST(Elimination, WithoutErrorsOnlyTwiceTheTimeIsHopeless) {
  Contender slow = contender(1, 1.9);
  slow.error = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(is_hopeless(slow, contender(0, 1.0), {}));
  slow.ratio = 2.1;
  EXPECT_TRUE(is_hopeless(slow, contender(0, 1.0), {}));
}

TEST(Elimination, DefaultIsNeverHopeless) { EXPECT_FALSE(is_hopeless(contender(0, 9.0), contender(1, 1.0), {})); }

}  // namespace
}  // namespace saccade::tuner
