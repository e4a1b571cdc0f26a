#include "tuner/candidates.h"

#include <gtest/gtest.h>

#include <set>

namespace saccade::tuner {
namespace {

RankedSchedule ranked(std::int64_t tile_m, std::int64_t stages, double cost_us) {
  RankedSchedule entry;
  entry.schedule = {"test.family", {{"tile_m", tile_m}, {"tile_n", 64}, {"stages", stages}}};
  entry.cost.total_us = cost_us;
  return entry;
}

const RejectionLookup kNothingRejected = [](const Schedule&) { return std::nullopt; };

TEST(CandidatePlan, DefaultIsTheCheapest) {
  const CandidatePlan plan = plan_candidates({ranked(64, 2, 10), ranked(64, 3, 11)}, {.top = 6}, kNothingRejected);
  ASSERT_EQ(plan.candidates.size(), 2u);
  EXPECT_EQ(plan.candidates[0].origin, Origin::standard);
  EXPECT_EQ(plan.candidates[1].origin, Origin::ranked);
}

TEST(CandidatePlan, OtherTileShapesJoinTheTop) {
  const std::vector<RankedSchedule> all{ranked(64, 1, 10),  ranked(64, 2, 11),  ranked(64, 3, 12),
                                        ranked(128, 2, 13), ranked(128, 3, 14), ranked(32, 2, 15)};
  const CandidatePlan plan = plan_candidates(all, {.top = 2, .diverse = 4}, kNothingRejected);
  ASSERT_EQ(plan.candidates.size(), 4u);
  EXPECT_EQ(plan.candidates[2].schedule.params.at("tile_m"), 128);
  EXPECT_EQ(plan.candidates[2].origin, Origin::diverse);
  EXPECT_EQ(plan.candidates[3].schedule.params.at("tile_m"), 32);
}

TEST(CandidatePlan, HopelesslyPredictedShapesStayOut) {
  const CandidatePlan plan =
      plan_candidates({ranked(64, 1, 10), ranked(128, 1, 25)}, {.top = 1, .diverse = 4}, kNothingRejected);
  EXPECT_EQ(plan.candidates.size(), 1u);
}

TEST(CandidatePlan, RejectedOnesAreReplacedByTheNext) {
  const RejectionLookup lookup = [](const Schedule& schedule) -> std::optional<std::string> {
    if (schedule.params.at("stages") == 1) return "spills";
    return std::nullopt;
  };
  const CandidatePlan plan =
      plan_candidates({ranked(64, 1, 10), ranked(64, 2, 11), ranked(64, 3, 12)}, {.top = 2}, lookup);
  ASSERT_EQ(plan.candidates.size(), 2u);
  EXPECT_EQ(plan.candidates[0].schedule.params.at("stages"), 2);
  EXPECT_EQ(plan.candidates[0].origin, Origin::standard);
  ASSERT_EQ(plan.rejected.size(), 1u);
  EXPECT_EQ(plan.rejected[0].reason, "spills");
}

TEST(CandidatePlan, EverythingMeansEverything) {
  std::vector<RankedSchedule> all;
  for (int i = 0; i < 300; ++i) all.push_back(ranked(64, i, 10 + i));
  EXPECT_EQ(plan_candidates(all, {.top = SelectionOptions::kEverything}, kNothingRejected).candidates.size(), 300u);
}

TEST(CandidatePlan, OfNothingIsEmpty) { EXPECT_TRUE(plan_candidates({}, {}, kNothingRejected).candidates.empty()); }

}  // namespace
}  // namespace saccade::tuner
