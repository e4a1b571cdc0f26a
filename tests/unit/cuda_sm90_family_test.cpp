// The family cuda.fwd.sm90: what it takes and refuses, its parameters and its candidates. No GPU.
#include "tests/unit/cuda_sm90_support.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace saccade::sm90_tests {
namespace {

using cuda_sm90::Parameters;
using cuda_sm90::parameters_from;
using cuda_sm90::to_schedule;
using ::testing::HasSubstr;

Case case_of(const Problem& problem) {
  Shape shape = dense_shape(2, 8, 1000);
  if (problem.layout == Layout::varlen) shape.total_q = shape.total_kv = 1500;
  return {problem, shape, family().candidates(problem, h200(), shape)};
}

}  // namespace

const std::vector<Case>& various_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> made;
    for (const auto& [qk, v] : {std::pair{8, 8},
                                {40, 40},
                                {64, 64},
                                {72, 72},
                                {96, 96},
                                {112, 112},
                                {128, 128},
                                {192, 192},
                                {256, 256},
                                {192, 128}}) {
      const Problem plain = problem_of(qk, v);
      for (const Problem& problem : {plain, causal(plain), masked(plain, expr::rules::window("256", "0", true)),
                                     document(plain), softcapped(plain), softcapped(causal(plain))}) {
        made.push_back(case_of(problem));
        made.push_back(case_of(varlen(problem)));
      }
    }
    return made;
  }();
  return cases;
}

namespace {

TEST(CudaSm90Family, TakesSixteenBitHeadDimsInStepsOfEightOnHopper) {
  for (const DataType type : {DataType::f16, DataType::bf16}) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      const Status status = family().supports(problem_of(head_dim, 264 - head_dim, type), h200());
      EXPECT_TRUE(status.ok()) << head_dim << ": " << status.message();
    }
  }
}

TEST(CudaSm90Family, RefusesEveryOtherArchitectureAndNamesTheOneItNeeds) {
  for (const std::string& arch : known_cuda_archs()) {
    if (arch == "sm_90a") continue;
    const Status status = family().supports(problem_of(64, 64), *cuda_target(arch));
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_THAT(status.message(), HasSubstr("sm_90a"));
    EXPECT_THAT(status.message(), HasSubstr(arch));
  }
  EXPECT_THAT(family().supports(problem_of(64, 64), Target{}).message(), HasSubstr("NVIDIA"));
}

TEST(CudaSm90Family, RefusesOtherTypesAndHeadDimsWithTheReason) {
  const auto reason = [](const Problem& problem) {
    const Status status = family().supports(problem, h200());
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    return status.message();
  };
  EXPECT_THAT(reason(problem_of(64, 64, DataType::f32)), HasSubstr("f32"));
  EXPECT_THAT(reason(problem_of(100, 128)), HasSubstr("104"));
  EXPECT_THAT(reason(problem_of(64, 264)), HasSubstr("256"));
  EXPECT_THAT(reason(problem_of(1, 64)), HasSubstr("8"));
  Problem mixed = problem_of(64, 64);
  mixed.k_dtype = DataType::f16;
  EXPECT_THAT(reason(mixed), HasSubstr("one dtype"));
}

TEST(CudaSm90Family, IsChosenOnHopperAndNowhereElse) {
  const Shape shape = dense_shape(1, 8, 17);
  EXPECT_EQ(*choose_family(problem_of(64, 64), h200(), &shape), &kCudaForwardSm90);
  EXPECT_EQ(*choose_family(problem_of(64, 64), h200()), &kCudaForwardSm90);
  EXPECT_EQ(*choose_family(problem_of(64, 64), *cuda_target("sm_80"), &shape), &kCudaForwardSm80);
}

TEST(CudaSm90Family, LeavesUnalignedTensorsAndFewQueriesToTheNextFamily) {
  Shape unaligned = dense_shape(1, 8, 1000);
  unaligned.alignment = 8;
  Shape decoding = dense_shape(1, 8, 1000);
  decoding.seqlen_q = 16;
  for (const auto& [shape, reason] : {std::pair{unaligned, "multiples of 16 bytes, and 8"}, {decoding, "16 queries"}}) {
    const Problem problem = problem_of(64, 64);
    EXPECT_EQ(*choose_family(problem, h200(), &shape), &kCudaForwardSm80);
    const auto answers = ask_families(problem, h200(), &shape);
    const auto own = std::find_if(answers.begin(), answers.end(),
                                  [](const FamilyAnswer& answer) { return answer.family == &kCudaForwardSm90; });
    ASSERT_NE(own, answers.end());
    EXPECT_EQ(own->status.code(), StatusCode::unsupported);
    EXPECT_THAT(own->status.message(), HasSubstr(reason));
    EXPECT_TRUE(ask_families(problem, h200()).front().status.ok()) << "asked without a shape";
  }
  // A schedule from elsewhere must not read unaligned tensors; few queries are only a matter of speed.
  const Schedule schedule = best(problem_of(64, 64), dense_shape(1, 8, 1000));
  EXPECT_FALSE(family().legal(problem_of(64, 64), h200(), unaligned, schedule).ok());
  EXPECT_TRUE(family().legal(problem_of(64, 64), h200(), decoding, schedule).ok());
}

TEST(CudaSm90Family, ParametersSurviveTheWayThroughASchedule) {
  const Parameters parameters{.warpgroups = 3,
                              .tile_n = 80,
                              .q_slots = 4,
                              .k_stages = 3,
                              .v_stages = 4,
                              .q_in_registers = 1,
                              .ping_pong = 1,
                              .stages_output = 1,
                              .row_order = 1};
  const auto back = parameters_from(to_schedule(parameters));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, parameters);
}

TEST(CudaSm90Family, EachParameterMustBeThereAndWithinItsRange) {
  const Schedule good = to_schedule({});
  for (const auto& entry : good.params) {
    const std::string& name = entry.first;
    Schedule missing = good;
    missing.params.erase(name);
    EXPECT_EQ(parameters_from(missing).status().code(), StatusCode::invalid_argument);
    EXPECT_THAT(parameters_from(missing).status().message(), HasSubstr(name + " is missing"));
    for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{257}, std::int64_t{1} << 32}) {
      Schedule outside = good;
      outside.params[name] = value;
      ASSERT_FALSE(parameters_from(outside).ok()) << name << " = " << value;
      EXPECT_EQ(parameters_from(outside).status().code(), StatusCode::invalid_argument);
      EXPECT_THAT(parameters_from(outside).status().message(), HasSubstr(fmt::format("{} = {}", name, value)));
    }
  }
}

TEST(CudaSm90Family, UnknownParametersAndForeignFamiliesAreRefused) {
  Schedule unknown = to_schedule({});
  unknown.params["load_bytes"] = 16;
  EXPECT_THAT(parameters_from(unknown).status().message(), HasSubstr("load_bytes"));
  Schedule foreign = to_schedule({});
  foreign.family = "cuda.fwd.sm80";
  EXPECT_THAT(parameters_from(foreign).status().message(), HasSubstr("cuda.fwd.sm80"));
  EXPECT_EQ(family().legal(problem_of(64, 64), h200(), dense_shape(1, 2, 300), foreign).code(),
            StatusCode::invalid_argument);
}

TEST(CudaSm90Family, RefusesSchedulesThatDoNotFit) {
  const Problem problem = problem_of(128, 128);
  const Shape shape = dense_shape(1, 2, 300);
  const Schedule good = best(problem, shape);
  ASSERT_TRUE(family().legal(problem, h200(), shape, good).ok());
  const auto with = [&](std::initializer_list<std::pair<const char*, std::int64_t>> changes) {
    Schedule changed = good;
    for (const auto& [name, value] : changes) changed.params[name] = value;
    return family().legal(problem, h200(), shape, changed).message();
  };
  EXPECT_THAT(with({{"tile_n", 40}}), HasSubstr("multiple of 16"));
  EXPECT_THAT(with({{"warpgroups", 1}, {"ping_pong", 1}}), HasSubstr("take turns"));
  EXPECT_THAT(with({{"warpgroups", 2}, {"q_slots", 3}, {"ping_pong", 0}}), HasSubstr("only when they take turns"));
  EXPECT_THAT(with({{"k_stages", 8}}), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(with({{"warpgroups", 3}, {"q_slots", 3}, {"k_stages", 1}, {"v_stages", 1}, {"stages_output", 0}}),
              HasSubstr("registers"));
}

TEST(CudaSm90Family, OOfPackedSequencesDoesNotLeaveThroughATensorMap) {
  Problem problem = problem_of(64, 64);
  EXPECT_EQ(best(problem, dense_shape(2, 8, 1000)).params.at("stages_output"), 1);
  problem.layout = Layout::varlen;
  Shape shape = dense_shape(4, 8, 500);
  shape.total_q = shape.total_kv = 1000;
  Schedule schedule = best(problem, shape);
  EXPECT_EQ(schedule.params.at("stages_output"), 0);
  schedule.params["stages_output"] = 1;
  EXPECT_THAT(family().legal(problem, h200(), shape, schedule).message(), HasSubstr("where a sequence"));
}

/// A readable trace of what a failure is about.
std::string text_of(const Problem& problem, const Schedule& schedule) { return to_json(problem) + to_json(schedule); }

TEST(CudaSm90Family, EveryCandidateIsLegal) {
  for (const auto& [problem, shape, candidates] : various_cases()) {
    EXPECT_FALSE(candidates.empty()) << to_json(problem);
    for (const Schedule& schedule : candidates) {
      const Status status = family().legal(problem, h200(), shape, schedule);
      ASSERT_TRUE(status.ok()) << status.message() << text_of(problem, schedule);
    }
  }
}

TEST(CudaSm90Family, CandidatesComeInTheSameOrderAndEachOnce) {
  for (const auto& [problem, shape, candidates] : various_cases()) {
    EXPECT_EQ(family().candidates(*problem_from_json(to_json(problem)), h200(), shape), candidates) << to_json(problem);
    EXPECT_EQ(std::set<Schedule>(candidates.begin(), candidates.end()).size(), candidates.size()) << to_json(problem);
  }
}

TEST(CudaSm90Family, EveryCandidateFitsTheSharedMemoryOfABlock) {
  constexpr std::int64_t kMost = 227 * 1024;  // CUDA programming guide, compute capability 9.0
  for (const auto& [problem, shape, candidates] : various_cases()) {
    for (const Schedule& schedule : candidates) {
      const Parameters p = *parameters_from(schedule);
      const std::int64_t bytes = family().resources(problem, h200(), schedule).shared_bytes;
      ASSERT_LE(bytes, kMost) << text_of(problem, schedule);
      // The tensors' own elements at the least.
      const std::int64_t elements = p.q_slots * 64 * problem.head_dim_qk +
                                    p.tile_n * (p.k_stages * problem.head_dim_qk + p.v_stages * problem.head_dim_v) +
                                    p.stages_output * p.tile_m() * std::min(problem.head_dim_v, 128);
      ASSERT_GT(bytes, 2 * elements) << text_of(problem, schedule);
    }
  }
}

/// PTX ISA, setmaxnreg: 24 to 256 in steps of 8. More than the block was launched with is waited for in vain.
TEST(CudaSm90Family, WarpsShareOutNoMoreRegistersThanTheBlockHas) {
  for (const auto& [problem, shape, candidates] : various_cases()) {
    for (const Schedule& schedule : candidates) {
      const Parameters p = *parameters_from(schedule);
      const auto [producer, consumer] = cuda_sm90::register_shares(problem, p);
      for (const int share : {producer, consumer}) {
        ASSERT_TRUE(share >= 24 && share <= 256 && share % 8 == 0) << share << text_of(problem, schedule);
      }
      const Resources resources = family().resources(problem, h200(), schedule);
      const std::int64_t launched = std::int64_t{resources.threads} * resources.registers_per_thread;
      ASSERT_LE(launched, 65536) << text_of(problem, schedule);
      ASSERT_LE(128 * (producer + p.warpgroups * consumer), launched) << text_of(problem, schedule);
    }
  }
}

TEST(CudaSm90Family, AConsumersRegistersFitItsShare) {
  for (const auto& [problem, shape, candidates] : various_cases()) {
    for (const Schedule& schedule : candidates) {
      const Parameters p = *parameters_from(schedule);
      const int share = cuda_sm90::register_shares(problem, p).consumer;
      ASSERT_LE(cuda_sm90::register_estimate(problem, p), share) << text_of(problem, schedule);
      // 64 rows of S and of O in f32 over the 128 threads of a warpgroup, whatever the estimate.
      ASSERT_LT(64 * (p.tile_n + problem.head_dim_v) / 128, share) << text_of(problem, schedule);
    }
  }
}

TEST(CudaSm90Family, OnlyMasksHaveFoldedCandidates) {
  const auto orders = [](const Problem& problem) {
    std::set<std::int64_t> found;
    for (const Schedule& schedule : family().candidates(problem, h200(), dense_shape(2, 8, 1000))) {
      found.insert(schedule.at("row_order"));
    }
    return found;
  };
  EXPECT_EQ(orders(problem_of(128, 128)), std::set<std::int64_t>({0}));
  EXPECT_EQ(orders(causal(problem_of(128, 128))), std::set<std::int64_t>({0, 1}));
}

TEST(CudaSm90Family, UnalignedTensorsHaveNoCandidates) {
  for (const int alignment : {1, 2, 4, 8}) {
    Shape shape = dense_shape(1, 2, 300);
    shape.alignment = alignment;
    EXPECT_TRUE(family().candidates(problem_of(64, 64), h200(), shape).empty()) << alignment;
  }
}

}  // namespace
}  // namespace saccade::sm90_tests
