#include "tuner/race.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

namespace saccade::tuner {
namespace {

constexpr int kControl = 100;

/// Times from a table: a base per id, common drift per round and seeded noise per sample. The clock is its own.
class SyntheticRunner : public Runner {
 public:
  std::map<int, double> base_us;
  std::map<int, int> fails_in_round;
  double noise = 0.002;
  double drift_per_round = 0.03;
  double clock_ms = 0;
  std::vector<std::vector<int>> visited;
  std::set<int> dropped;

  void prefetch(std::span<const Schedule>) override {}
  AddOutcome add(int, const Schedule&, double, const Limits&) override { return {}; }
  void drop(int id) override { dropped.insert(id); }

  RoundOutcome time(std::span<const int> ids, const Limits& limits) override {
    visited.emplace_back(ids.begin(), ids.end());
    const int round = static_cast<int>(visited.size());
    RoundOutcome outcome;
    for (const int id : ids) {
      if (limits.stop()) {
        outcome.interrupted = true;
        break;
      }
      if (fails_in_round.contains(id) && fails_in_round[id] == round) {
        outcome.failures.push_back({id, Fault::crashed, "signal 11"});
        continue;
      }
      std::normal_distribution<double> normal(1.0, noise);
      const double us = base_us.at(id) * (1 + drift_per_round * round) * normal(random_);
      clock_ms += us / 1000;
      outcome.samples.push_back({id, us});
    }
    return outcome;
  }

 private:
  std::mt19937 random_{20240517};
};

std::vector<RaceEntry> entries(int count) {
  std::vector<RaceEntry> result;
  for (int i = 0; i < count; ++i) result.push_back({i, i, {}});
  return result;
}

RaceResult race(SyntheticRunner& runner, int count, const RaceRules& rules = {}, const Limits& limits = {}) {
  return run_race(runner, entries(count), kControl, rules, limits, nullptr);
}

TEST(Race, RatiosSurviveACommonDrift) {
  SyntheticRunner runner;
  runner.base_us = {{0, 100}, {kControl, 100}, {1, 90}};
  const RaceResult result = race(runner, 2);
  EXPECT_NEAR(result.lines[1].ratio, 0.9, 0.005);
  EXPECT_LT(result.noise, 0.005);
}

TEST(Race, SlowCandidatesLeaveEarlyAndAreDropped) {
  SyntheticRunner runner;
  runner.base_us = {{0, 100}, {kControl, 100}, {1, 150}, {2, 101}, {3, 300}};
  const RaceResult result = race(runner, 4);
  EXPECT_GT(result.lines[1].eliminated_round, 0);
  EXPECT_LT(result.lines[1].eliminated_round, 6);
  EXPECT_EQ(result.lines[3].eliminated_round, 1) << "three times the time needs no second look";
  EXPECT_EQ(result.lines[2].eliminated_round, 0);
  EXPECT_TRUE(runner.dropped.contains(1));
  EXPECT_TRUE(runner.dropped.contains(3));
  EXPECT_FALSE(runner.dropped.contains(2));
}

TEST(Race, EndsWhenOnlyTheDefaultIsLeft) {
  SyntheticRunner runner;
  runner.base_us = {{0, 100}, {kControl, 100}, {1, 150}};
  const RaceRules rules{.min_rounds = 7, .max_rounds = 40};
  EXPECT_EQ(race(runner, 2, rules).rounds, 7);
}

TEST(Race, OrderRotatesSoThatNoEntryAlwaysFollowsTheSame) {
  SyntheticRunner runner;
  runner.base_us = {{0, 100}, {kControl, 100}, {1, 100}, {2, 100}};
  race(runner, 3, {.max_rounds = 8});
  std::set<int> first;
  for (const std::vector<int>& ids : runner.visited) first.insert(ids.front());
  EXPECT_EQ(first.size(), 4u);
}

TEST(Race, NoisyMachineGivesAWideNoiseEstimate) {
  SyntheticRunner quiet, noisy;
  quiet.base_us = noisy.base_us = {{0, 100}, {kControl, 100}, {1, 100}};
  noisy.noise = 0.1;
  EXPECT_GT(race(noisy, 2, {.max_rounds = 10}).noise, 3 * race(quiet, 2, {.max_rounds = 10}).noise);
}

TEST(Race, ACrashRemovesOnlyItsCandidate) {
  SyntheticRunner runner;
  runner.base_us = {{0, 100}, {kControl, 100}, {1, 90}, {2, 95}};
  runner.fails_in_round[1] = 2;
  const RaceResult result = race(runner, 3);
  EXPECT_EQ(result.lines[1].fault, Fault::crashed);
  EXPECT_EQ(result.lines[1].reason, "signal 11");
  EXPECT_EQ(result.lines[2].fault, Fault::none);
  EXPECT_NEAR(result.lines[2].ratio, 0.95, 0.01);
  EXPECT_FALSE(result.default_failed);
}

TEST(Race, ACrashOfTheControlIsTheDefaults) {
  SyntheticRunner runner;
  runner.base_us = {{0, 100}, {kControl, 100}, {1, 90}};
  runner.fails_in_round[kControl] = 3;
  EXPECT_TRUE(race(runner, 2).default_failed);
}

TEST(Race, SpentBudgetKeepsWhatWasMeasured) {
  SyntheticRunner runner;
  runner.base_us = {{0, 1000}, {kControl, 1000}, {1, 900}};
  Limits limits;
  limits.now_ms = [&] { return runner.clock_ms; };
  limits.deadline_ms = 20;
  const RaceResult result = race(runner, 2, {}, limits);
  EXPECT_TRUE(result.interrupted);
  EXPECT_GE(result.rounds, 4);
  EXPECT_LE(result.rounds, 8);
  EXPECT_NEAR(result.lines[1].ratio, 0.9, 0.01);
  EXPECT_LT(runner.clock_ms, 22);
}

TEST(Race, CancelStopsIt) {
  SyntheticRunner runner;
  runner.base_us = {{0, 100}, {kControl, 100}, {1, 100}};
  std::atomic<bool> cancel{false};
  Limits limits;
  limits.cancel = &cancel;
  const RaceResult result = run_race(runner, entries(2), kControl, {}, limits, [&](int round, int) {
    if (round == 4) cancel = true;
  });
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.rounds, 5);
  EXPECT_GE(result.lines[1].samples_us.size(), 4u);
}

TEST(Noise, WithoutAControlIsInfinite) { EXPECT_TRUE(std::isinf(noise_of({}))); }

}  // namespace
}  // namespace saccade::tuner
