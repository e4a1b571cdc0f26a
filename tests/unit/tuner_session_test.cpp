#include "tuner/session.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace saccade::tuner {
namespace {

/// Schedules with made-up times; its clock advances by what compiling and running would take.
class SyntheticRunner : public Runner {
 public:
  struct Behaviour {
    double us = 100;
    double compile_ms = 50;
    Fault fault = Fault::none;
    int crashes_after_samples = -1;
  };
  std::map<std::int64_t, Behaviour> by_stages;
  double clock_ms = 0;
  std::vector<std::int64_t> added;
  std::atomic<bool> cancel{false};
  int cancel_after_adds = -1;
  int cancel_after_samples = -1;
  int sample_count = 0;
  int runs_per_sample = 5;
  std::size_t prefetched = 0;
  bool prefetched_before_adding = false;

  void prefetch(std::span<const Schedule> schedules) override {
    prefetched += schedules.size();
    prefetched_before_adding = prefetched_before_adding || added.empty();
  }

  AddOutcome add(int id, const Schedule& schedule, double, const Limits& limits) override {
    AddOutcome outcome;
    if (limits.stop()) {
      outcome.fault = Fault::interrupted;
      return outcome;
    }
    const std::int64_t stages = schedule.params.at("stages");
    const Behaviour& behaviour = by_stages[stages];
    added.push_back(stages);
    if (static_cast<int>(added.size()) == cancel_after_adds) cancel = true;
    clock_ms += behaviour.compile_ms;
    if (behaviour.fault == Fault::none) clock_ms += behaviour.us / 1000;  // the warm run
    outcome.fault = behaviour.fault;
    outcome.reason = behaviour.fault == Fault::none ? "" : "made to fail";
    outcome.estimate_us = behaviour.us;
    if (outcome.fault == Fault::none) live_[id] = stages;
    return outcome;
  }

  RoundOutcome time(std::span<const int> ids, const Limits& limits) override {
    RoundOutcome outcome;
    for (const int id : ids) {
      if (limits.stop()) {
        outcome.interrupted = true;
        break;
      }
      if (!live_.contains(id)) continue;
      const Behaviour& behaviour = by_stages[live_[id]];
      if (behaviour.crashes_after_samples >= 0 && samples_[live_[id]] >= behaviour.crashes_after_samples) {
        outcome.failures.push_back({id, Fault::crashed, "killed by signal 11"});
        live_.erase(id);
        continue;
      }
      std::normal_distribution<double> normal(1.0, 0.002);
      const double us = behaviour.us * normal(random_);
      ++samples_[live_[id]];
      if (++sample_count == cancel_after_samples) cancel = true;
      clock_ms += us / 1000 * runs_per_sample;
      outcome.samples.push_back({id, us});
    }
    return outcome;
  }
  void drop(int id) override { live_.erase(id); }

 private:
  std::map<int, std::int64_t> live_;
  std::map<std::int64_t, int> samples_;
  std::mt19937 random_{7};
};

class SessionTest : public testing::Test {
 protected:
  /// `count` candidates with stages 1..count, predicted in that order.
  CandidatePlan plan(int count) {
    std::vector<RankedSchedule> ranked;
    for (int i = 1; i <= count; ++i) {
      RankedSchedule entry;
      entry.schedule = {"test.family", {{"stages", i}}};
      entry.cost.total_us = 100 + i;
      ranked.push_back(entry);
    }
    return plan_candidates(ranked, {.top = SelectionOptions::kEverything, .diverse = 0},
                           [](const Schedule&) { return std::nullopt; });
  }

  Expected<TuneReport> tune(int count, PolicyRules rules) {
    SessionCallbacks callbacks;
    callbacks.resources = [](const Schedule& schedule) {
      Resources resources;
      resources.shared_bytes = schedule.params.at("stages") * 1024;
      return resources;
    };
    callbacks.reject = [this](const Schedule& schedule, const std::string& reason) {
      rejected[schedule.params.at("stages")] = reason;
    };
    callbacks.recall = [this](const Schedule& schedule, const Schedule&) -> std::optional<Remembered> {
      const auto found = journal.find(schedule.params.at("stages"));
      if (found == journal.end()) return std::nullopt;
      return found->second;
    };
    callbacks.record = [this](const Schedule& schedule, const Schedule&, const Remembered& measured) {
      journal[schedule.params.at("stages")] = measured;
    };
    callbacks.progress = [this](const TuneProgress& p) { progress.push_back(p); };
    Limits limits;
    limits.now_ms = [this] { return runner.clock_ms; };
    limits.deadline_ms = rules.budget_ms;
    limits.cancel = &runner.cancel;
    Session session(runner, plan(count), rules, callbacks, limits, 0);
    return session.run();
  }

  static PolicyRules normal() { return rules_of(TuningPolicy::normal); }
  static std::int64_t stages_of(const TuneReport& report) { return report.outcome.schedule.params.at("stages"); }

  SyntheticRunner runner;
  std::map<std::int64_t, std::string> rejected;
  std::map<std::int64_t, Remembered> journal;
  std::vector<TuneProgress> progress;
};

TEST_F(SessionTest, FastestWinsAndIsConfirmed) {
  runner.by_stages[3].us = 80;
  const Expected<TuneReport> report = tune(5, normal());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(stages_of(*report), 3);
  EXPECT_TRUE(report->confirmed);
  EXPECT_TRUE(report->complete);
  EXPECT_NEAR(report->gain, 0.25, 0.01);
  EXPECT_EQ(report->candidates[2].state, CandidateState::winner);
}

TEST_F(SessionTest, EqualCandidatesLeaveTheDefault) {
  const Expected<TuneReport> report = tune(5, normal());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(stages_of(*report), 1);
  EXPECT_EQ(report->gain, 0);
}

TEST_F(SessionTest, CompilersStartOnEveryCandidateBeforeTheFirstIsChecked) {
  ASSERT_TRUE(tune(5, normal()).ok());
  EXPECT_TRUE(runner.prefetched_before_adding);
  EXPECT_EQ(runner.prefetched, 5u);
}

TEST_F(SessionTest, OneCandidateIsCheckedAndWins) {
  const Expected<TuneReport> report = tune(1, normal());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(stages_of(*report), 1);
  EXPECT_GT(report->default_us, 0);
}

TEST_F(SessionTest, FaultyCandidatesAreRejectedWithTheirReason) {
  runner.by_stages[2].fault = Fault::wrong_result;
  runner.by_stages[3].fault = Fault::compile_failed;
  runner.by_stages[4].fault = Fault::hung;
  runner.by_stages[5].us = 70;
  const Expected<TuneReport> report = tune(5, normal());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(stages_of(*report), 5);
  EXPECT_EQ(rejected.at(2), "wrong_result: made to fail");
  EXPECT_EQ(rejected.at(3), "compile_failed: made to fail");
  EXPECT_EQ(rejected.at(4), "hung: made to fail");
  EXPECT_EQ(report->candidates[3].state, CandidateState::failed);
  EXPECT_EQ(report->candidates[3].fault, Fault::hung);
}

TEST_F(SessionTest, RefusalsAreNotRemembered) {
  runner.by_stages[2].fault = Fault::refused;
  ASSERT_TRUE(tune(3, normal()).ok());
  EXPECT_TRUE(rejected.empty());
}

TEST_F(SessionTest, ABrokenDefaultIsReplacedByTheNext) {
  runner.by_stages[1].fault = Fault::wrong_result;
  const Expected<TuneReport> report = tune(3, normal());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(stages_of(*report), 2);
  EXPECT_EQ(report->default_index, 1);
  EXPECT_TRUE(rejected.contains(1));
}

TEST_F(SessionTest, ADefaultThatCrashesInTheRaceIsReplacedAndTheRaceRunAgain) {
  runner.by_stages[1].crashes_after_samples = 6;
  runner.by_stages[3].us = 80;
  const Expected<TuneReport> report = tune(4, normal());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(stages_of(*report), 3);
  EXPECT_EQ(report->default_index, 1);
  EXPECT_TRUE(rejected.contains(1));
}

TEST_F(SessionTest, WhenNothingWorksTheFirstReasonIsGiven) {
  for (int i = 1; i <= 3; ++i) runner.by_stages[i].fault = Fault::compile_failed;
  const Expected<TuneReport> report = tune(3, normal());
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("compile_failed"), std::string::npos) << report.status().message();
}

TEST_F(SessionTest, BudgetIsHonoured) {
  for (int i = 1; i <= 40; ++i) runner.by_stages[i].compile_ms = 500;
  PolicyRules rules = normal();
  rules.budget_ms = 5'000;
  const Expected<TuneReport> report = tune(40, rules);
  ASSERT_TRUE(report.ok());
  EXPECT_LE(runner.clock_ms, 5'000);
  EXPECT_GE(runner.added.size(), 5u);
  EXPECT_GT(report->rounds, 3) << "time must be left for the race";
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->candidates.back().state, CandidateState::not_tried);
}

TEST_F(SessionTest, TheDefaultsCompileIsNotCutShort) {
  runner.by_stages[1].compile_ms = 30'000;
  PolicyRules rules = normal();
  rules.budget_ms = 1'000;
  const Expected<TuneReport> report = tune(3, rules);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(stages_of(*report), 1);
  EXPECT_EQ(report->reason.find("faster"), std::string::npos);
}

TEST_F(SessionTest, ARunThatIsLongerThanTheBudgetIsMadeOnceAndRacesNobody) {
  for (int i = 1; i <= 8; ++i) runner.by_stages[i].us = 30e6;
  const Expected<TuneReport> report = tune(8, rules_of(TuningPolicy::quick));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(runner.added.size(), 1u) << "no control, no other candidate";
  EXPECT_EQ(runner.sample_count, 0);
  EXPECT_EQ(stages_of(*report), 1);
  EXPECT_EQ(report->rounds, 0);
  EXPECT_FALSE(report->complete);
  EXPECT_NE(report->reason.find("no room for a race"), std::string::npos) << report->reason;
}

TEST_F(SessionTest, RunsThatJustFitTheBudgetAreRaced) {
  for (const double us : {5e3, 50e3, 150e3}) {
    for (int i = 1; i <= 8; ++i) runner.by_stages[i] = {.us = us, .compile_ms = 10};
    runner.by_stages[2].us = us / 2;
    runner.clock_ms = 0;
    runner.runs_per_sample = 1;
    const Expected<TuneReport> report = tune(8, rules_of(TuningPolicy::quick));
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_GE(report->rounds, kLeastRounds) << us;
    EXPECT_EQ(stages_of(*report), 2) << us;
    EXPECT_LE(runner.clock_ms, 2'200) << us;
  }
}

TEST_F(SessionTest, CancelInTheRaceKeepsWhatWasMeasured) {
  runner.by_stages[2].us = 50;
  runner.cancel_after_samples = 30;
  const Expected<TuneReport> report = tune(4, normal());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->cancelled);
  EXPECT_FALSE(report->complete);
  EXPECT_FALSE(report->confirmed);
  EXPECT_EQ(stages_of(*report), 2);
}

TEST_F(SessionTest, CancelAfterTwoRoundsTrustsNoRatio) {
  runner.by_stages[2].us = 50;
  runner.cancel_after_samples = 8;
  const Expected<TuneReport> report = tune(3, normal());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(stages_of(*report), 1);
}

TEST_F(SessionTest, CancelBeforeTheRaceIsAnError) {
  runner.cancel_after_adds = 4;
  EXPECT_EQ(tune(10, normal()).status().code(), StatusCode::cancelled);
}

TEST_F(SessionTest, CancelWhileScreeningGivesTheBestSoFar) {
  runner.by_stages[12].us = 60;
  runner.cancel_after_adds = 40;
  const Expected<TuneReport> report = tune(100, rules_of(TuningPolicy::exhaustive));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(stages_of(*report), 12);
  EXPECT_FALSE(report->complete);
}

TEST_F(SessionTest, CancelBeforeAnythingIsAnError) {
  runner.cancel = true;
  EXPECT_EQ(tune(3, normal()).status().code(), StatusCode::cancelled);
}

TEST_F(SessionTest, ProgressNamesPhasesAndNeverExceedsItsTotal) {
  ASSERT_TRUE(tune(5, normal()).ok());
  std::set<std::string> phases;
  for (const TuneProgress& p : progress) {
    phases.insert(p.phase);
    EXPECT_LE(p.done, p.total) << p.phase;
    EXPECT_GE(p.eta_ms, 0);
  }
  EXPECT_TRUE(phases.contains("compile"));
  EXPECT_TRUE(phases.contains("race"));
}

TEST_F(SessionTest, ExhaustiveFindsTheBestOfMany) {
  runner.by_stages[90].us = 60;
  const Expected<TuneReport> report = tune(100, rules_of(TuningPolicy::exhaustive));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(stages_of(*report), 90);
  EXPECT_GE(journal.size(), 99u) << "every candidate but the default leaves a measurement";
}

TEST_F(SessionTest, ExhaustiveResumesWhereItWasCancelled) {
  runner.by_stages[20].us = 60;
  runner.cancel_after_adds = 40;
  ASSERT_TRUE(tune(100, rules_of(TuningPolicy::exhaustive)).ok());
  const std::size_t known = journal.size();
  EXPECT_GE(known, 24u);
  EXPECT_LE(known, 40u);

  runner.cancel = false;
  runner.cancel_after_adds = -1;
  runner.added.clear();
  const Expected<TuneReport> report = tune(100, rules_of(TuningPolicy::exhaustive));
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(stages_of(*report), 20) << "the best was measured by the first run";
  EXPECT_LE(runner.added.size(), 100 - known + 2 + 12) << "default, control and finalists besides the unmeasured";
}

TEST_F(SessionTest, ExhaustiveDoesNotRemeasureTheRejected) {
  runner.by_stages[5].fault = Fault::crashed;
  ASSERT_TRUE(tune(20, rules_of(TuningPolicy::exhaustive)).ok());
  EXPECT_TRUE(rejected.contains(5));
  EXPECT_FALSE(journal.contains(5));
}

}  // namespace
}  // namespace saccade::tuner
