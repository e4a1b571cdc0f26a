// The family cuda.fwd.sm90: its launches, the source it emits and its cost model. No GPU.
#include "tests/unit/cuda_sm90_support.h"

#include <cmath>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace saccade::sm90_tests {
namespace {

using cuda_sm90::Parameters;
using cuda_sm90::parameters_from;
using cuda_sm90::to_schedule;
using ::testing::HasSubstr;
using ::testing::Not;

Launch launch_of(const Problem& problem, const Target& target, const Shape& shape, const Parameters& parameters) {
  const LaunchGeometry geometry = family().launch_geometry(problem, target, shape, to_schedule(parameters));
  EXPECT_EQ(geometry.launches.size(), 1u);
  return geometry.launches.empty() ? Launch{} : geometry.launches.front();
}

/// Of each of the various cases, the first and the last candidate.
std::vector<std::pair<const Case*, Schedule>> some_candidates() {
  std::vector<std::pair<const Case*, Schedule>> result;
  for (const Case& one : various_cases()) {
    if (one.candidates.empty()) continue;
    result.emplace_back(&one, one.candidates.front());
    result.emplace_back(&one, one.candidates.back());
  }
  return result;
}

TEST(CudaSm90Family, ResourcesLaunchAndSourceAgree) {
  for (const auto& [one, schedule] : some_candidates()) {
    const Resources resources = family().resources(one->problem, h200(), schedule);
    const Launch launch = launch_of(one->problem, h200(), one->shape, *parameters_from(schedule));
    EXPECT_EQ(launch.block, static_cast<std::uint32_t>(resources.threads));
    EXPECT_EQ(launch.shared_bytes, resources.shared_bytes);
    const std::string source = family().emit(one->problem, h200(), schedule);
    EXPECT_THAT(source, HasSubstr(fmt::format("int shared_bytes = {};", launch.shared_bytes)));
    EXPECT_THAT(source, HasSubstr(fmt::format("__launch_bounds__({}, 1)\n{}(", launch.block, launch.symbol)));
  }
}

TEST(CudaSm90Family, TheProducerIsAWarpgroupOfItsOwn) {
  for (const auto& [warpgroups, threads] : {std::pair{1, 256}, {2, 384}, {3, 512}}) {
    const Schedule schedule = to_schedule({.warpgroups = warpgroups, .tile_n = 64});
    EXPECT_EQ(family().resources(problem_of(64, 64), h200(), schedule).threads, threads);
  }
}

TEST(CudaSm90Family, NothingToComputeIsNoLaunch) {
  const Problem dense = problem_of(64, 64), packed = varlen(dense);
  const Schedule schedule = to_schedule({});
  const auto launches = [&](const Problem& problem, const Shape& shape) {
    return family().launch_geometry(problem, h200(), shape, schedule).launches.size();
  };
  EXPECT_EQ(launches(dense, dense_shape(1, 1, 0)), 0u);
  EXPECT_EQ(launches(dense, dense_shape(0, 1, 128)), 0u);
  EXPECT_EQ(launches(dense, dense_shape(1, 0, 128)), 0u);
  EXPECT_EQ(launches(packed, dense_shape(2, 1, 128)), 0u) << "no rows in all";
  Shape no_keys = dense_shape(1, 1, 128);
  no_keys.seqlen_kv = 0;
  EXPECT_EQ(launches(dense, no_keys), 1u) << "zeros are still to be written";
}

TEST(CudaSm90Family, TheGridHasNoMoreBlocksThanRowTiles) {
  const Problem problem = causal(problem_of(64, 64));
  Target large = h200();
  large.sm_count = 1000;
  struct Expected {
    std::int64_t warpgroups, seqlen;
    std::uint32_t tiles_per_head;
  };
  for (const auto& [warpgroups, seqlen, tiles_per_head] :
       {Expected{1, 64, 1}, Expected{1, 65, 2}, Expected{1, 320, 5}, Expected{2, 128, 1}, Expected{2, 300, 3},
        Expected{3, 193, 2}}) {
    for (const std::int64_t row_order : {0, 1}) {
      const Launch launch = launch_of(problem, large, dense_shape(2, 3, seqlen),
                                      {.warpgroups = warpgroups, .tile_n = 64, .row_order = row_order});
      EXPECT_EQ(launch.grid, 6 * tiles_per_head) << warpgroups << " warpgroups, " << seqlen << " rows";
      EXPECT_EQ(launch.work_items, 6 * tiles_per_head) << warpgroups << " warpgroups, " << seqlen << " rows";
    }
  }
}

TEST(CudaSm90Family, TheGridHasNoMoreBlocksThanSms) {
  const Problem problem = causal(problem_of(64, 64));
  for (const int sm_count : {1, 78, 132}) {
    Target target = h200();
    target.sm_count = sm_count;
    for (const std::int64_t row_order : {0, 1}) {
      EXPECT_EQ(launch_of(problem, target, dense_shape(8, 32, 4096), {.row_order = row_order}).grid, sm_count);
    }
  }
  Target unknown = h200();
  unknown.sm_count = 0;
  EXPECT_EQ(launch_of(problem, unknown, dense_shape(8, 32, 4096), {}).grid, 1u);
}

TEST(CudaSm90Family, TensorMapsOfADenseProblemAreItsTensors) {
  Shape shape = dense_shape(3, 4, 130);
  shape.heads_kv = 2;
  shape.seqlen_kv = 300;
  const Launch launch = launch_of(problem_of(192, 112), h200(), shape, {.tile_n = 80, .stages_output = 1});
  ASSERT_TRUE(launch.tensor_maps.has_value());
  const auto map = [](std::int64_t batch, std::int64_t heads, std::int64_t rows, int head_dim, int box_rows) {
    return TensorMapSpec{batch, heads, rows, head_dim, box_rows, 64};
  };
  EXPECT_EQ(launch.tensor_maps->q, map(3, 4, 130, 192, 64));  // a warpgroup's rows
  EXPECT_EQ(launch.tensor_maps->k, map(3, 2, 300, 192, 80));
  EXPECT_EQ(launch.tensor_maps->v, map(3, 2, 300, 112, 80));
  EXPECT_EQ(launch.tensor_maps->o, map(3, 4, 130, 112, 16));  // a warp's rows
}

TEST(CudaSm90Family, TensorMapsOfAVarlenProblemAreOneBatchOfAllRows) {
  Shape shape = dense_shape(5, 4, 100);
  shape.heads_kv = 1;
  shape.total_q = 321;
  shape.total_kv = 456;
  const Launch launch = launch_of(varlen(problem_of(64, 128)), h200(), shape, {.tile_n = 96, .stages_output = 1});
  ASSERT_TRUE(launch.tensor_maps.has_value());
  EXPECT_EQ(launch.tensor_maps->q, (TensorMapSpec{1, 4, 321, 64, 64, 64}));
  EXPECT_EQ(launch.tensor_maps->k, (TensorMapSpec{1, 1, 456, 64, 96, 64}));
  EXPECT_EQ(launch.tensor_maps->v, (TensorMapSpec{1, 1, 456, 128, 96, 64}));
  EXPECT_EQ(launch.tensor_maps->o, (TensorMapSpec{1, 4, 321, 128, 16, 64}));
}

TEST(CudaSm90Family, OHasATensorMapOnlyWhereItIsStored) {
  const Shape shape = dense_shape(1, 2, 300);
  EXPECT_FALSE(launch_of(problem_of(64, 64), h200(), shape, {.stages_output = 0}).tensor_maps->o.has_value());
  EXPECT_TRUE(launch_of(problem_of(64, 64), h200(), shape, {.stages_output = 1}).tensor_maps->o.has_value());
}

TEST(CudaSm90Family, BoxesAreNarrowWhereHalfAPanelWouldBePadding) {
  for (const auto& [head_dim, columns] :
       {std::pair{8, 32}, {32, 32}, {40, 64}, {64, 64}, {72, 32}, {96, 32}, {112, 64}, {128, 64}, {256, 64}}) {
    const Launch launch = launch_of(problem_of(head_dim, 64), h200(), dense_shape(1, 2, 300), {.tile_n = 64});
    EXPECT_EQ(launch.tensor_maps->q.box_columns, columns) << head_dim;
    EXPECT_EQ(launch.tensor_maps->k.box_columns, columns) << head_dim;
    EXPECT_EQ(launch.tensor_maps->v.box_columns, 64) << head_dim;
  }
}

TEST(CudaSm90Family, RefusesMoreRowTilesThanItCanCount) {
  const std::int64_t most = (std::int64_t{1} << 30) - 1;  // of a dimension
  const Problem problem = problem_of(64, 64);
  const Schedule schedule = to_schedule({});  // 128 rows to a tile
  EXPECT_TRUE(family().legal(problem, h200(), dense_shape(most, 1, 256), schedule).ok());
  const Status status = family().legal(problem, h200(), dense_shape(most, 1, 257), schedule);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("{}", 3 * most)));
}

TEST(CudaSm90Family, RefusesMoreRowsOfAllSequencesThanItCanCount) {
  const Problem problem = varlen(problem_of(64, 64));
  const std::int64_t too_many = std::int64_t{1} << 31;
  for (const auto total : {&Shape::total_q, &Shape::total_kv}) {
    Shape shape = dense_shape(4, 1, 1000);
    shape.total_q = shape.total_kv = 4000;
    shape.*total = too_many - 1;
    EXPECT_TRUE(family().legal(problem, h200(), shape, to_schedule({})).ok());
    shape.*total = too_many;
    const Status status = family().legal(problem, h200(), shape, to_schedule({}));
    EXPECT_EQ(status.code(), StatusCode::unsupported);
    EXPECT_THAT(status.message(), HasSubstr("2147483648"));
  }
}

/// The text from one `asm volatile(` to the end of its statement, for each that multiplies.
std::vector<std::string> products_in(const std::string& source) {
  std::vector<std::string> products;
  for (std::size_t at = source.find("asm volatile("); at != std::string::npos;
       at = source.find("asm volatile(", at + 1)) {
    const std::string statement = source.substr(at, source.find(");\n", at) - at);
    if (statement.find("wgmma.mma_async") != std::string::npos) products.push_back(statement);
  }
  return products;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST(CudaSm90Family, TheSourceHasTheTwoProductsOfItsTiles) {
  for (const auto& [head_dim_v, value_n] : {std::pair{8, 16}, {40, 48}, {72, 80}, {128, 128}, {256, 256}}) {
    for (const std::int64_t tile_n : {48, 112, 192}) {
      for (const DataType type : {DataType::f16, DataType::bf16}) {
        const std::string source =
            family().emit(problem_of(64, head_dim_v, type), h200(), to_schedule({.tile_n = tile_n}));
        const auto products = products_in(source);
        ASSERT_EQ(products.size(), 2u);
        EXPECT_THAT(products[0], HasSubstr(fmt::format("m64n{}k16.f32.{}.{} ", tile_n, name_of(type), name_of(type))));
        EXPECT_THAT(products[1], HasSubstr(fmt::format("m64n{}k16.f32.{}.{} ", value_n, name_of(type), name_of(type))));
      }
    }
  }
}

/// PTX ISA, wgmma.mma_async: N/2 accumulators; A is a descriptor or four registers; B is a descriptor.
TEST(CudaSm90Family, EachProductNamesAllOfItsOperands) {
  const Problem problem = problem_of(64, 80);
  for (const std::int64_t q_in_registers : {0, 1}) {
    const auto products =
        products_in(family().emit(problem, h200(), to_schedule({.tile_n = 96, .q_in_registers = q_in_registers})));
    ASSERT_EQ(products.size(), 2u);
    EXPECT_EQ(count(products[0], "\"+f\""), 48u);
    EXPECT_EQ(count(products[1], "\"+f\""), 40u);
    EXPECT_EQ(count(products[0], "\"l\""), q_in_registers == 1 ? 1u : 2u);
    EXPECT_EQ(count(products[0], "\"r\""), q_in_registers == 1 ? 5u : 1u);  // with the predicate
    EXPECT_EQ(count(products[1], "\"l\""), 1u);
    EXPECT_EQ(count(products[1], "\"r\""), 5u);
    for (const std::string& product : products) {
      const std::size_t operands = count(product, "\"+f\"") + count(product, "\"l\"") + count(product, "\"r\"");
      EXPECT_EQ(count(product, "%"), operands);
      for (std::size_t i = 0; i < operands; ++i) {
        const std::string name = fmt::format("%{}", i);
        EXPECT_EQ(count(product, name + ",") + count(product, name + "}"), 1u) << name;
      }
    }
  }
}

TEST(CudaSm90Family, TheSourceIncludesNothingButTemplates) {
  const Problem problem = causal(problem_of(128, 128));
  const std::string source = family().emit(problem, h200(), best(problem, dense_shape(1, 16, 4096)));
  std::vector<std::string> texts = {source};
  std::set<std::string_view> names;
  for (const EmbeddedTemplate& one : included_templates(source)) {
    texts.emplace_back(one.text);
    names.insert(one.name);
  }
  for (const std::string& text : texts) {
    EXPECT_EQ(count(text, "#include"), count(text, "#include \"saccade_templates/"));
  }
  EXPECT_TRUE(names.contains("saccade_templates/cuda/forward_sm90.h"));
  EXPECT_TRUE(names.contains("saccade_templates/cuda/prims/wgmma.h"));
  EXPECT_TRUE(names.contains("saccade_templates/cuda/prims/tma.h"));
  for (const std::string_view name : names) EXPECT_EQ(name.find("/cpu/"), std::string_view::npos) << name;
}

TEST(CudaSm90Family, TheSourceSaysWhatItIsAndIsTheSameEachTime) {
  for (const auto& [one, schedule] : some_candidates()) {
    const std::string source = family().emit(one->problem, h200(), schedule);
    EXPECT_EQ(source, family().emit(*problem_from_json(to_json(one->problem)), h200(), schedule));
    EXPECT_THAT(source, HasSubstr(to_json(one->problem)));
    EXPECT_THAT(source, HasSubstr(to_json(schedule)));
    EXPECT_THAT(source, Not(HasSubstr("#error")));
  }
}

TEST(CudaSm90Family, EveryParameterIsInTheSource) {
  const Problem problem = causal(problem_of(64, 64));
  const Parameters base{.tile_n = 64};
  const auto without_comments = [&](const Parameters& parameters) {
    const std::string source = family().emit(problem, h200(), to_schedule(parameters));
    return source.substr(source.find("#include"));
  };
  const std::string plain = without_comments(base);
  for (const auto member :
       {&Parameters::warpgroups, &Parameters::q_slots, &Parameters::k_stages, &Parameters::v_stages,
        &Parameters::q_in_registers, &Parameters::ping_pong, &Parameters::stages_output, &Parameters::row_order}) {
    Parameters changed = base;
    changed.*member += 1;
    EXPECT_NE(without_comments(changed), plain) << to_json(to_schedule(changed));
  }
}

TEST(CudaSm90Family, ASourceOfABadScheduleIsAnError) {
  Schedule schedule = to_schedule({});
  schedule.params.erase("tile_n");
  EXPECT_THAT(family().emit(problem_of(64, 64), h200(), schedule), HasSubstr("#error"));
}

TEST(CudaSm90Family, FoldedRowTilesComeBeforeRisingOnesForCausalMasks) {
  for (const auto& [batch, head_dim] : {std::pair{1, 64}, {4, 64}, {1, 128}, {4, 128}}) {
    const Problem problem = causal(problem_of(head_dim, head_dim));
    const Shape shape = dense_shape(batch, 16, 4096);
    Schedule schedule = best(problem, shape);
    EXPECT_EQ(schedule.at("row_order"), 1) << batch << " " << head_dim;
    const auto cost = [&](std::int64_t row_order) {
      schedule.params["row_order"] = row_order;
      return predict_cost(family(), problem, h200(), shape, {}, schedule).total_us;
    };
    EXPECT_LT(cost(1), cost(0)) << batch << " " << head_dim;
  }
}

/// As measured: bench/NOTES.md, 2026-11-30.
TEST(CudaSm90Family, ThreeWarpgroupsArePreferredForLongSequencesAndTwoForShortOnes) {
  const auto choice = [](int head_dim, std::int64_t batch, std::int64_t seqlen) {
    const Schedule schedule = best(problem_of(head_dim, head_dim), dense_shape(batch, 2048 / head_dim, seqlen));
    return std::pair{schedule.at("warpgroups"), schedule.at("tile_n")};
  };
  EXPECT_EQ(choice(128, 32, 512), std::pair(2L, 128L));
  EXPECT_EQ(choice(128, 1, 16384), std::pair(3L, 80L));
  EXPECT_EQ(choice(64, 4, 4096), std::pair(3L, 128L));
}

TEST(CudaSm90Family, PackedSequencesThatAreNotThereCostAFiniteTime) {
  Problem problem = causal(problem_of(64, 64));
  problem.layout = Layout::varlen;
  Shape shape = dense_shape(0, 8, 0);  // padded totals may be there without sequences
  shape.total_q = shape.total_kv = 64;
  for (const Schedule& schedule : family().candidates(problem, h200(), shape)) {
    EXPECT_TRUE(std::isfinite(predict_cost(family(), problem, h200(), shape, {}, schedule).total_us))
        << to_json(schedule);
  }
}

TEST(CudaSm90Family, CostGrowsWithWorkAndFallsWithTheMask) {
  const auto cost = [&](const Problem& problem, std::int64_t seqlen) {
    const Shape shape = dense_shape(1, 16, seqlen);
    return predict_cost(family(), problem, h200(), shape, {}, best(problem, shape)).total_us;
  };
  const Problem full = problem_of(128, 128);
  EXPECT_GT(cost(full, 8192), 3 * cost(full, 4096));
  EXPECT_LT(cost(causal(full), 8192), 0.7 * cost(full, 8192));
}

}  // namespace
}  // namespace saccade::sm90_tests
