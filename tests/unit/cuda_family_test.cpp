// The family cuda.fwd.sm80 and the list of families: what they take, refuse, choose and emit. No GPU.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/families/families.h"

namespace saccade {
namespace {

using ::testing::HasSubstr;

const Family& family() { return kCudaForwardSm80; }
Target h200() { return *cuda_target("sm_90a"); }

Problem problem_of(int head_dim_qk, int head_dim_v, DataType type = DataType::bf16) {
  Problem problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = type;
  problem.head_dim_qk = head_dim_qk;
  problem.head_dim_v = head_dim_v;
  return problem;
}

Problem causal_problem(int head_dim) {
  Problem problem = problem_of(head_dim, head_dim);
  problem.mask = *expr::Program::parse(expr::Kind::mask, expr::rules::causal_bottom_right(), {});
  return problem;
}

Shape shape_of(std::int64_t batch, std::int64_t heads, std::int64_t seqlen) {
  Shape shape;
  shape.batch = batch;
  shape.heads_q = shape.heads_kv = heads;
  shape.seqlen_q = shape.seqlen_kv = seqlen;
  return shape;
}

Schedule best(const Problem& problem, const Target& target, const Shape& shape) {
  const auto ranked = rank_candidates(family(), problem, target, shape, {});
  EXPECT_FALSE(ranked.empty());
  return ranked.empty() ? Schedule{} : ranked.front().schedule;
}

TEST(CudaFamily, TakesEveryHeadDimInStepsOfEight) {
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    EXPECT_TRUE(family().supports(problem_of(head_dim, 256 + 8 - head_dim), h200()).ok()) << head_dim;
  }
}

TEST(CudaFamily, RefusesOtherHeadDimsAndNamesTheNearest) {
  EXPECT_THAT(family().supports(problem_of(100, 128), h200()).message(), HasSubstr("104"));
  EXPECT_THAT(family().supports(problem_of(64, 264), h200()).message(), HasSubstr("256"));
  EXPECT_THAT(family().supports(problem_of(1, 64), h200()).message(), HasSubstr("8"));
}

TEST(CudaFamily, RefusesOtherTypesMixesAndOldDevices) {
  EXPECT_THAT(family().supports(problem_of(64, 64, DataType::f32), h200()).message(), HasSubstr("f32"));
  Problem mixed = problem_of(64, 64);
  mixed.v_dtype = DataType::f16;
  EXPECT_THAT(family().supports(mixed, h200()).message(), HasSubstr("one dtype"));
  Target old = h200();
  old.compute_capability = 75;
  EXPECT_EQ(family().supports(problem_of(64, 64), old).code(), StatusCode::unsupported);
}

TEST(CudaFamily, EveryProblemHasLegalCandidatesOnEveryArchitecture) {
  const Shape shape = shape_of(2, 8, 1000);
  for (const std::string& arch : known_cuda_archs()) {
    for (const auto& [qk, v] :
         {std::pair{8, 8}, {8, 256}, {256, 8}, {40, 72}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
      const Problem problem = problem_of(qk, v);
      const auto candidates = family().candidates(problem, *cuda_target(arch), shape);
      ASSERT_FALSE(candidates.empty()) << arch << " " << qk << "/" << v;
      for (const Schedule& schedule : candidates) {
        const Status status = family().legal(problem, *cuda_target(arch), shape, schedule);
        EXPECT_TRUE(status.ok()) << status.message() << to_json(schedule);
      }
      EXPECT_EQ(std::set<Schedule>(candidates.begin(), candidates.end()).size(), candidates.size());
    }
  }
}

TEST(CudaFamily, CandidatesRespectTheAlignmentOfTheTensors) {
  for (const int alignment : {2, 4, 8, 16}) {
    Shape shape = shape_of(1, 2, 300);
    shape.alignment = alignment;
    for (const Schedule& schedule : family().candidates(problem_of(64, 64), h200(), shape)) {
      EXPECT_EQ(schedule.at("load_bytes"), alignment);
    }
  }
  Schedule schedule = best(problem_of(64, 64), h200(), shape_of(1, 2, 300));
  Shape unaligned = shape_of(1, 2, 300);
  unaligned.alignment = 8;
  EXPECT_THAT(family().legal(problem_of(64, 64), h200(), unaligned, schedule).message(), HasSubstr("load_bytes"));
}

TEST(CudaFamily, RefusesSchedulesThatDoNotFit) {
  const Problem problem = problem_of(128, 128);
  const Shape shape = shape_of(1, 2, 300);
  const Schedule good = best(problem, h200(), shape);
  const auto with = [&](const char* name, std::int64_t value) {
    Schedule changed = good;
    changed.params[name] = value;
    return family().legal(problem, h200(), shape, changed);
  };
  EXPECT_THAT(with("tile_n", 40).message(), HasSubstr("multiple of 16"));
  EXPECT_THAT(with("stages", 8).message(), HasSubstr("shared memory"));
  EXPECT_THAT(with("min_blocks_per_sm", 16).message(), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(with("warps", 2).message(), HasSubstr("registers"));
  EXPECT_THAT(with("q_in_registers", 24).message(), HasSubstr("q_in_registers"));
  EXPECT_THAT(with("load_bytes", 5).message(), HasSubstr("load_bytes"));
  EXPECT_THAT(with("no_such_thing", 1).message(), HasSubstr("no_such_thing"));
  EXPECT_EQ(with("tile_m", -128).code(), StatusCode::invalid_argument);
  Schedule missing = good;
  missing.params.erase("warps");
  EXPECT_THAT(family().legal(problem, h200(), shape, missing).message(), HasSubstr("warps"));
  Schedule foreign = good;
  foreign.family = "cpu.fwd";
  EXPECT_FALSE(family().legal(problem, h200(), shape, foreign).ok());
}

TEST(CudaFamily, EmittedSourceSaysWhatItIsAndIsDeterministic) {
  const Problem problem = causal_problem(128);
  const Schedule schedule = best(problem, h200(), shape_of(1, 16, 4096));
  const std::string source = family().emit(problem, h200(), schedule);
  EXPECT_EQ(source, family().emit(problem, h200(), schedule));
  for (const std::string& part :
       {std::string("cuda.fwd.sm80"), to_json(problem), to_json(schedule), std::string("struct Rules"),
        std::string("using Element = cuda::bf16"), std::string("__launch_bounds__")}) {
    EXPECT_THAT(source, HasSubstr(part));
  }
}

TEST(CudaFamily, EmittedSourceFindsAllItsTemplatesEmbedded) {
  const Problem problem = problem_of(64, 64);
  const auto included = included_templates(family().emit(problem, h200(), best(problem, h200(), shape_of(1, 1, 128))));
  std::set<std::string_view> names;
  for (const EmbeddedTemplate& one : included) names.insert(one.name);
  EXPECT_TRUE(names.contains("saccade_templates/cuda/forward_sm80.h"));
  EXPECT_TRUE(names.contains("saccade_templates/cuda/prims/mma.h"));
  EXPECT_TRUE(names.contains("saccade_templates/common/params.h"));
  EXPECT_TRUE(
      std::is_sorted(included.begin(), included.end(), [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (const std::string_view name : names) EXPECT_EQ(name.find("/cpu/"), std::string_view::npos) << name;
}

TEST(CudaFamily, GridHoldsWholeBatchesUpToItsLimit) {
  const Problem problem = problem_of(16, 16);
  const Shape small = shape_of(3, 5, 130);
  const Schedule schedule = best(problem, h200(), small);
  const std::int64_t tiles = (130 + schedule.at("tile_m") - 1) / schedule.at("tile_m");
  EXPECT_EQ(family().launch_geometry(problem, h200(), small, schedule).launches.at(0).grid, 15 * tiles);

  const Shape huge = shape_of((std::int64_t{1} << 30) - 1, 7, 1);  // more blocks than a grid has
  ASSERT_TRUE(family().legal(problem, h200(), huge, schedule).ok());
  const std::uint32_t grid = family().launch_geometry(problem, h200(), huge, schedule).launches.at(0).grid;
  EXPECT_LE(grid, 0x7fffffffu);
  EXPECT_GT(grid, 0x7fffffffu - 8);
  EXPECT_EQ(grid % 7, 0u);
}

TEST(CudaFamily, NothingToComputeIsNoLaunch) {
  const Problem problem = problem_of(64, 64);
  const Schedule schedule = best(problem, h200(), shape_of(1, 1, 128));
  EXPECT_TRUE(family().launch_geometry(problem, h200(), shape_of(1, 1, 0), schedule).launches.empty());
  EXPECT_TRUE(family().launch_geometry(problem, h200(), shape_of(0, 1, 128), schedule).launches.empty());
  Shape no_keys = shape_of(1, 1, 128);
  no_keys.seqlen_kv = 0;  // zeros are still to be written
  EXPECT_EQ(family().launch_geometry(problem, h200(), no_keys, schedule).launches.size(), 1u);
}

TEST(CudaFamily, CostGrowsWithWorkAndFallsWithTheMask) {
  const Schedule schedule = best(problem_of(128, 128), h200(), shape_of(1, 16, 4096));
  const auto cost = [&](const Problem& problem, std::int64_t seqlen) {
    return predict_cost(family(), problem, h200(), shape_of(1, 16, seqlen), {}, schedule).total_us;
  };
  EXPECT_GT(cost(problem_of(128, 128), 8192), 3 * cost(problem_of(128, 128), 4096));
  EXPECT_LT(cost(causal_problem(128), 8192), 0.7 * cost(problem_of(128, 128), 8192));
}

TEST(Families, AreFoundByNameAndAskedInOrder) {
  for (const Family* one : families()) EXPECT_EQ(find_family(one->name), one);
  EXPECT_EQ(find_family("cuda.fwd.sm30"), nullptr);
  const auto answers = ask_families(problem_of(64, 64), h200());
  ASSERT_FALSE(answers.empty());
  for (const FamilyAnswer& answer : answers) EXPECT_EQ(answer.family->target_kind, Target::Kind::cuda);
}

TEST(Families, ChoiceOrTheReasonThatThereIsNone) {
  const auto chosen = choose_family(problem_of(64, 64), h200());
  ASSERT_TRUE(chosen.ok());
  EXPECT_TRUE((*chosen)->supports(problem_of(64, 64), h200()).ok());
  const auto refused = choose_family(problem_of(300, 300), h200());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::unsupported);
  EXPECT_THAT(refused.status().message(), HasSubstr("256"));
}

TEST(Families, RankingIsByCostAndKeepsTheOrderOfEquals) {
  const auto ranked = rank_candidates(family(), problem_of(64, 64), h200(), shape_of(1, 8, 2048), {});
  ASSERT_GT(ranked.size(), 10u);
  for (std::size_t i = 1; i < ranked.size(); ++i) EXPECT_LE(ranked[i - 1].cost.total_us, ranked[i].cost.total_us);
}

}  // namespace
}  // namespace saccade
