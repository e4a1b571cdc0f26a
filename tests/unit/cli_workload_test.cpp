#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cli/unfused_host.h"
#include "cli/verification.h"
#include "cli/workload.h"

namespace saccade::cli {
namespace {

ProblemOptions small_options() {
  ProblemOptions options;
  options.head_dim = 24;
  options.heads = 4;
  options.heads_kv = 2;
  options.batch = 2;
  options.seqlen_q = 37;
  options.seqlen_kv = 53;
  options.mask = {"causal-br"};
  options.lse = true;
  return options;
}

Workload filled(const ProblemOptions& options, std::uint64_t seed) {
  SCOPED_TRACE(seed);
  auto workload = workload_from_options(options);
  EXPECT_TRUE(workload.ok()) << workload.status().message();
  EXPECT_TRUE(fill_normal(*workload, seed).ok());
  return *std::move(workload);
}

Status status_of(const ProblemOptions& options) { return workload_from_options(options).status(); }

TEST(Workload, FlagsBecomeAProblemAndAShape) {
  ProblemOptions options = small_options();
  options.dtype = "bfloat16";
  options.head_dim_v = 16;
  const auto workload = workload_from_options(options);
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  EXPECT_EQ(workload->problem.q_dtype, DataType::bf16);
  EXPECT_EQ(workload->problem.head_dim_v, 16);
  EXPECT_EQ(workload->shape.heads_kv, 2);
  EXPECT_EQ(workload->shape.alignment, 16);
  EXPECT_FLOAT_EQ(workload->scale, 1 / std::sqrt(24.0f));
}

TEST(Workload, AnyFiniteScaleIsTakenAsItIs) {
  ProblemOptions options = small_options();
  for (const double scale : {-0.125, 0.0, 2.5}) {
    options.scale = scale;
    const auto workload = workload_from_options(options);
    ASSERT_TRUE(workload.ok()) << workload.status().message();
    EXPECT_EQ(workload->scale, static_cast<float>(scale));
  }
}

TEST(Workload, ScalarsTakeTheTypeOfTheirLiteral) {
  ProblemOptions options = small_options();
  options.scalars = {"s0=7", "s1=3000000000", "s2=0.5", "s3:f32=2", "s4:i64=1", "s5:i32"};
  const auto workload = workload_from_options(options);
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  const auto& declared = workload->problem.declarations.scalars;
  const std::vector<expr::Type> expected = {expr::Type::i32, expr::Type::i64, expr::Type::f32,
                                            expr::Type::f32, expr::Type::i64, expr::Type::i32};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(declared[i].type, expected[i]) << declared[i].name;
  EXPECT_EQ(workload->scalars[1], 3e9);
  EXPECT_FALSE(workload->scalars[5].has_value());
  EXPECT_NE(workload->complete().message().find("scalar 's5' has no value"), std::string::npos);
}

TEST(Workload, BadFlagsAreErrorsThatNameThem) {
  const auto expect = [](auto change, const char* words) {
    ProblemOptions options = small_options();
    change(options);
    const Status status = status_of(options);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << words;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  expect([](auto& o) { o.dtype = "f17"; }, "--dtype f17");
  expect([](auto& o) { o.layout = "paged"; }, "--layout paged");
  expect([](auto& o) { o.heads_kv = 3; }, "heads");
  expect([](auto& o) { o.scalars = {"a=x"}; }, "--scalar a: 'x' is no number");
  expect([](auto& o) { o.scalars = {"a:i32=1.5"}; }, "'1.5' is no i32");
  expect([](auto& o) { o.scalars = {"a:i64=9007199254740993"}; }, "within 2^53");
  expect([](auto& o) { o.scalars = {"a:u8=1"}; }, "type 'u8'");
  expect([](auto& o) { o.scalars = {"a=1", "a=2"}; }, "given twice");
  expect([](auto& o) { o.scalars = {"a"}; }, "write NAME=VALUE");
  expect([](auto& o) { o.tables = {"t:i32"}; }, "write NAME=FILE");
  expect([](auto& o) { o.tables = {"t:i32:9"}; }, "rank");
  expect([](auto& o) { o.lengths = {1, 2}; }, "--lengths is for --layout varlen");
  expect([](auto& o) { o.layout = "varlen"; }, "needs --lengths");
  expect([](auto& o) { o.layout = "varlen", o.lengths = {5, -1}; }, "at least 0");
  expect([](auto& o) { o.layout = "varlen", o.lengths = {5, 6}, o.lengths_kv = {5}; }, "--lengths-kv has 1");
  expect([](auto& o) { o.mask = {"kv_idx <= nothing"}; }, "nothing");
  expect([](auto& o) { o.scale = std::numeric_limits<double>::infinity(); }, "--scale inf");
  expect([](auto& o) { o.scale = std::numeric_limits<double>::quiet_NaN(); }, "--scale nan");
  expect([](auto& o) { o.scale = -1e300; }, "--scale -1e+300");
  expect([](auto& o) { o.problem = "{\"head_dim\":64,\"nonsense\":1}"; }, "nonsense");
}

TEST(Workload, AJsonProblemTakesValuesForWhatItDeclares) {
  ProblemOptions options;
  options.problem =
      R"({"dtype":"f32","head_dim":64,"mask":"q_idx - kv_idx < window","scalars":[{"name":"window","type":"i64"}]})";
  options.scalars = {"window=5"};
  const auto workload = workload_from_options(options);
  ASSERT_TRUE(workload.ok()) << workload.status().message();
  EXPECT_EQ(workload->scalars[0], 5.0);
  options.scalars = {"other=5"};
  EXPECT_NE(status_of(options).message().find("declares no such scalar"), std::string::npos);
}

TEST(Workload, FlopsCountThePairsThatTheMaskKeeps) {
  ProblemOptions options = small_options();
  options.mask = {"causal-tl"};
  options.seqlen_q = options.seqlen_kv = 10;
  Workload workload = filled(options, 1);
  count_flops(workload);
  EXPECT_EQ(workload.flops, 2.0 * (24 + 24) * 55 * 4 * 2);
}

TEST(Workload, TensorsThatDoNotFitAreRefused) {
  const auto attach = [](std::vector<std::int64_t> q, std::vector<std::int64_t> k, std::vector<std::int64_t> v,
                         DataType dtype = DataType::f32) {
    auto workload = workload_from_options(small_options());
    auto q_tensor = make_tensor(dtype, std::move(q)), k_tensor = make_tensor(DataType::f32, std::move(k)),
         v_tensor = make_tensor(DataType::f32, std::move(v));
    return attach_tensors(*workload, *std::move(q_tensor), *std::move(k_tensor), *std::move(v_tensor),
                          TensorOrder::batch_heads_rows)
        .message();
  };
  EXPECT_EQ(attach({2, 4, 5, 24}, {2, 2, 7, 24}, {2, 2, 7, 24}), "");
  EXPECT_NE(attach({2, 4, 5, 24}, {2, 2, 7, 24}, {2, 2, 8, 24}).find("must agree"), std::string::npos);
  EXPECT_NE(attach({1, 4, 5, 24}, {2, 2, 7, 24}, {2, 2, 7, 24}).find("batches of 1, 2 and 2"), std::string::npos);
  EXPECT_NE(attach({2, 4, 5, 32}, {2, 2, 7, 24}, {2, 2, 7, 24}).find("head_dim is 32"), std::string::npos);
  EXPECT_NE(attach({4, 5, 24}, {2, 2, 7, 24}, {2, 2, 7, 24}).find("q has shape [4, 5, 24]"), std::string::npos);
  EXPECT_NE(attach({2, 4, 5, 24}, {2, 2, 7, 24}, {2, 2, 7, 24}, DataType::f16).find("q is f16"), std::string::npos);
  EXPECT_NE(attach({2, 5, 5, 24}, {2, 2, 7, 24}, {2, 2, 7, 24}), "");
}

TEST(ReferenceRows, AreTheRowsOfTheWholeResult) {
  for (const bool varlen : {false, true}) {
    ProblemOptions options = small_options();
    if (varlen) {
      options.layout = "varlen";
      options.lengths = {5, 0, 9};
      options.lengths_kv = {7, 3, 9};
    }
    const Workload workload = filled(options, 11);
    const HostCall call = workload.host_call();
    const HostResult exact = reference_float64(workload.problem, workload.shape, call);
    const HostResult plain = unfused(workload.problem, workload.shape, call);
    std::vector<ReferenceRow> rows;
    for (std::int64_t b = 0; b < workload.shape.batch; ++b)
      for (std::int64_t h = 0; h < workload.shape.heads_q; ++h)
        for (std::int64_t i = sequence_rows(workload, b).len_q; i-- > 0;) rows.push_back({b, h, i});
    const HostResult exact_rows = reference_float64(workload.problem, workload.shape, call, rows);
    const HostResult plain_rows = unfused(workload.problem, workload.shape, call, rows);
    const auto head_dim = static_cast<std::size_t>(workload.problem.head_dim_v);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const ReferenceRowIndex index = reference_row_index(workload.problem, workload.shape, call, rows[r]);
      EXPECT_EQ(exact_rows.lse[r], exact.lse[static_cast<std::size_t>(index.lse)]);
      for (std::size_t c = 0; c < head_dim; ++c) {
        ASSERT_EQ(exact_rows.o[r * head_dim + c], exact.o[static_cast<std::size_t>(index.o) * head_dim + c]);
        ASSERT_EQ(plain_rows.o[r * head_dim + c], plain.o[static_cast<std::size_t>(index.o) * head_dim + c]);
      }
    }
  }
}

TEST(Verification, AcceptsTheOracleAndFindsOneWrongElement) {
  const Workload workload = filled(small_options(), 5);
  HostResult result = reference_float64(workload.problem, workload.shape, workload.host_call());
  const Verification good = verify(workload, result, kDefaultPairBudget);
  EXPECT_TRUE(good.pass()) << good.report.detail;
  EXPECT_EQ(good.rows_checked, good.rows);
  result.o[1234] += 1e-3;
  EXPECT_FALSE(verify(workload, result, kDefaultPairBudget).pass());
}

TEST(Verification, ASampleHasTheFirstAndLastRowsAndSeesNanAnywhere) {
  const Workload workload = filled(small_options(), 6);
  const HostResult exact = reference_float64(workload.problem, workload.shape, workload.host_call());
  constexpr std::int64_t kFewPairs = 500;
  const Verification sampled = verify(workload, exact, kFewPairs);
  EXPECT_TRUE(sampled.pass()) << sampled.report.detail;
  EXPECT_LT(sampled.rows_checked, sampled.rows / 4);
  for (const std::size_t row : {std::size_t{0}, std::size_t{36}}) {
    HostResult wrong = exact;
    wrong.o[row * 24] += 0.1;
    EXPECT_FALSE(verify(workload, wrong, kFewPairs).pass()) << row;
  }
  HostResult stray = exact;
  stray.o[17 * 24] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(verify(workload, stray, kFewPairs).pass());
}

TEST(Verification, ANanOfTheInputsIsNoStrayNan) {
  Workload workload = filled(small_options(), 6);
  constexpr std::int64_t kFewPairs = 500, kRow = 17;  // not of the sample
  store_from_double(DataType::f32, workload.q.data.data(), kRow * 24, std::numeric_limits<double>::quiet_NaN());
  const HostResult exact = reference_float64(workload.problem, workload.shape, workload.host_call());
  ASSERT_TRUE(std::isnan(exact.o[kRow * 24]));
  const Verification sampled = verify(workload, exact, kFewPairs);
  EXPECT_TRUE(sampled.pass()) << sampled.report.detail;
  HostResult wrong = exact;
  wrong.o[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(verify(workload, wrong, kFewPairs).pass()) << "a checked row";
}

TEST(UnfusedHost, AgreesWithTheOracle) {
  struct Case {
    ProblemOptions options;
    UnfusedScore score;
  };
  std::vector<Case> cases(4);
  for (Case& c : cases) c.options = small_options();
  cases[1].options.score = {"softcap:2"};
  cases[1].score.softcap = 2;
  cases[2].options.score = {"alibi-br"};
  cases[2].score.slopes = {0.25f, 0.0625f, 0.015625f, 0.00390625f};
  cases[3].options.layout = "varlen";
  cases[3].options.lengths = {40, 0, 3};
  for (const Case& c : cases) {
    const Workload workload = filled(c.options, 3);
    const HostResult exact = reference_float64(workload.problem, workload.shape, workload.host_call());
    const auto plain = run_unfused(workload, c.score, 2, 1);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    ASSERT_EQ(plain->o.size(), exact.o.size());
    for (std::size_t i = 0; i < exact.o.size(); ++i) ASSERT_NEAR(plain->o[i], exact.o[i], 2e-5) << i;
  }
}

TEST(UnfusedHost, AMaskThatDependsOnTheHeadIsRefused) {
  ProblemOptions options = small_options();
  options.mask = {"kv_idx >= h"};
  EXPECT_EQ(run_unfused(filled(options, 3), {}, 1, 1).status().code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace saccade::cli
