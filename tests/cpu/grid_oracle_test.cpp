// The oracle itself, against values worked out by hand: what judges every kernel must not be wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/attention_call.h"
#include "tuner/reference.h"

namespace saccade::test_support {
namespace {

using ::testing::Each;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Problem make_problem(DataType dtype, int head_dim, const std::string& mask = "true", const std::string& score = "score",
                     Layout layout = Layout::dense) {
  Problem problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = dtype;
  problem.head_dim_qk = problem.head_dim_v = head_dim;
  problem.layout = layout;
  problem.lse = true;
  problem.mask = expr::Program::parse(expr::Kind::mask, mask, {}).value();
  problem.score = expr::Program::parse(expr::Kind::score, score, {}).value();
  return problem;
}

HostResult exact(const AttentionCall& call) { return reference_float64(call.problem, call.shape, call.host_call()); }
HostResult plain(const AttentionCall& call) { return unfused(call.problem, call.shape, call.host_call()); }

/// One query of one dimension over keys 0, ln 2, ln 4 with values 1, 10, 100: weights 1/7, 2/7, 4/7.
AttentionCall weights_of_sevenths(const std::string& mask = "true", const std::string& score = "score") {
  AttentionCall call = make_call(make_problem(DataType::f32, 1, mask, score), {.seqlen_q = 1, .seqlen_kv = 3});
  call.scale = 1;
  call.q.set(0, 0, 0, 0, 1);
  for (int j = 0; j < 3; ++j) {
    call.k.set(0, 0, j, 0, j * std::log(2.0));
    call.v.set(0, 0, j, 0, std::pow(10, j));
  }
  return call;
}

TEST(Oracle, SoftmaxOfThreeKeysByHand) {
  const HostResult result = exact(weights_of_sevenths());
  EXPECT_NEAR(result.o[0], (1 + 2 * 10 + 4 * 100) / 7.0, 1e-5);
  EXPECT_NEAR(result.lse[0], std::log(7.0), 1e-7);
}

TEST(Oracle, ScaleThenScoreThenMask) {
  AttentionCall call = weights_of_sevenths("kv_idx != 2", "2.0 * score");
  call.scale = 0.5F;
  const HostResult result = exact(call);
  EXPECT_NEAR(result.o[0], (1 + 2 * 10) / 3.0, 1e-5);
  EXPECT_NEAR(result.lse[0], std::log(3.0), 1e-7);
}

TEST(Oracle, EmptyRowGivesZeroAndMinusInfLse) {
  for (const auto& result : {exact(weights_of_sevenths("kv_idx < 0")), plain(weights_of_sevenths("kv_idx < 0"))}) {
    EXPECT_EQ(result.o[0], 0);
    EXPECT_EQ(result.lse[0], -kInfinity);
  }
}

TEST(Oracle, MaskedKeysAreNotTouched) {
  AttentionCall call = weights_of_sevenths("kv_idx != 1");
  call.k.set(0, 0, 1, 0, kNaN);
  call.v.set(0, 0, 1, 0, kInfinity);
  const HostResult result = exact(call);
  EXPECT_NEAR(result.o[0], (1 + 4 * 100) / 5.0, 1e-4);
}

TEST(Oracle, NanInAKeptKeyReachesTheOutput) {
  for (const bool in_values : {false, true}) {
    AttentionCall call = weights_of_sevenths();
    (in_values ? call.v : call.k).set(0, 0, 1, 0, kNaN);
    EXPECT_TRUE(std::isnan(exact(call).o[0]));
    EXPECT_TRUE(std::isnan(plain(call).o[0]));
  }
}

TEST(Oracle, QueryHeadsShareTheKeysOfTheirGroup) {
  AttentionCall call = make_call(make_problem(DataType::f32, 1),
                                 {.batch = 2, .heads_q = 6, .heads_kv = 2, .seqlen_q = 1, .seqlen_kv = 1});
  Random none(0);
  for (TensorImage* image : {&call.q, &call.k}) image->fill_normal(none, 0, 1);
  for (int b = 0; b < 2; ++b) {
    for (int h = 0; h < 2; ++h) call.v.set(b, h, 0, 0, 10 * b + h);
  }
  EXPECT_THAT(exact(call).o, ::testing::ElementsAre(0, 0, 0, 1, 1, 1, 10, 10, 10, 11, 11, 11));
}

TEST(Oracle, VarlenNumbersOutputsByTokenAndLseByHead) {
  AttentionCall call =
      make_call(make_problem(DataType::f32, 1, "kv_idx <= q_idx", "score", Layout::varlen),
                {.heads_q = 2, .heads_kv = 1, .lengths_q = {2, 0, 1}, .lengths_kv = {2, 3, 0}},
                {.q = View::rows_outer, .k = View::rows_outer, .v = View::rows_outer, .o = View::rows_outer});
  Random none(0);
  call.q.fill_normal(none, 0);
  call.k.fill_normal(none, 0);
  for (int row = 0; row < 5; ++row) call.v.set(0, 0, row, 0, row + 1);
  const HostResult result = exact(call);
  EXPECT_THAT(result.o, ::testing::ElementsAre(1, 1, 1.5, 1.5, 0, 0));
  EXPECT_THAT(result.lse, ::testing::ElementsAre(0, std::log(2.0), -kInfinity, 0, std::log(2.0), -kInfinity));
}

TEST(Oracle, PlainComputationRoundsWhatItStores) {
  // 1/3 and 2/3 in bf16 are off by up to 2^-10 and 2^-9; the exact output is 5/3.
  AttentionCall call = make_call(make_problem(DataType::bf16, 1), {.seqlen_q = 1, .seqlen_kv = 3});
  Random none(0);
  call.q.fill_normal(none, 0);
  call.k.fill_normal(none, 0);
  for (int j = 0; j < 3; ++j) call.v.set(0, 0, j, 0, j == 0 ? 1 : 2);
  const double third = float_from_bf16(bf16_from_float(1.0F / 3));
  const double expected = float_from_bf16(bf16_from_float(static_cast<float>(5 * third)));
  EXPECT_EQ(plain(call).o[0], expected);
  EXPECT_NE(plain(call).o[0], exact(call).o[0]);
}

TEST(Oracle, AnUnrepresentableScoreDoesNotMakeTheYardstickInfinite) {
  AttentionCall call = make_call(make_problem(DataType::f16, 8), {.seqlen_q = 1, .seqlen_kv = 2});
  Random none(0);
  call.q.fill_normal(none, 0, 200);
  call.k.fill_normal(none, 0, 200);  // 8 * 200 * 200 = 320000 is beyond fp16
  call.v.fill_normal(none, 0, 3);
  call.scale = 1;
  EXPECT_EQ(plain(call).o[0], 3);
  EXPECT_NEAR(plain(call).lse[0], 320000 + std::log(2.0), 0.05);
}

TEST(Oracle, SizeOfOneRoundingByHand) {
  // Two keys of weight 1/2 and values 1 and -1: o is 0. Scores are 3, so a rounding moves each P by 3/2 * 2^-24, and its
  // own rounding by 1/2 * 2^-24: the root of 2 * ((3/2)^2 + (1/2)^2) is the root of 5. The sum of P |V| is 1.
  AttentionCall call = make_call(make_problem(DataType::f32, 1), {.seqlen_q = 1, .seqlen_kv = 2});
  call.scale = 1;
  call.q.set(0, 0, 0, 0, 1);
  for (int j = 0; j < 2; ++j) {
    call.k.set(0, 0, j, 0, 3);
    call.v.set(0, 0, j, 0, j == 0 ? 1 : -1);
  }
  EXPECT_DOUBLE_EQ(exact(call).o_rounding, 0x1p-24 * (std::sqrt(5) + 1));
  EXPECT_DOUBLE_EQ(exact(call).lse_rounding, 0x1p-24 * 3 * std::sqrt(0.5));
}

TEST(Oracle, TheSizeOfOneRoundingIsSmallBesideTwiceThePlainError) {
  for (const DataType dtype : {DataType::f32, DataType::f16, DataType::bf16}) {
    Random random(4);
    AttentionCall call = make_call(make_problem(dtype, 64), {.seqlen_q = 64, .seqlen_kv = 64});
    for (TensorImage* image : {&call.q, &call.k, &call.v}) image->fill_normal(random, 1);
    const HostResult right = exact(call), rounded = plain(call);
    double error = 0;
    for (std::size_t i = 0; i < right.o.size(); ++i) error = std::max(error, std::abs(right.o[i] - rounded.o[i]));
    EXPECT_LT(right.o_rounding, error) << name_of(dtype);
  }
}

TEST(Oracle, RowsOfNoSequenceAreEmpty) {
  const Problem problem = make_problem(DataType::f32, 4, "true", "score", Layout::varlen);
  Shape shape;
  shape.batch = 0;
  shape.total_q = 3;
  HostCall call;
  call.cu_seqlens_q = call.cu_seqlens_kv = {0};
  for (const unsigned threads : {1U, 4U}) {
    const HostResult result = reference_float64(problem, shape, call, threads);
    EXPECT_EQ(result.o, std::vector<double>(12, 0));
    EXPECT_EQ(result.lse, std::vector<double>(3, -kInfinity));
  }
}

TEST(Oracle, ManyThreadsGiveWhatOneGives) {
  Random random(5);
  AttentionCall call = make_call(make_problem(DataType::bf16, 16, "kv_idx <= q_idx + h"),
                                 {.batch = 3, .heads_q = 4, .heads_kv = 2, .seqlen_q = 20, .seqlen_kv = 30});
  for (TensorImage* image : {&call.q, &call.k, &call.v}) image->fill_normal(random, 1);
  using Computation = HostResult (*)(const Problem&, const Shape&, const HostCall&, unsigned threads);
  for (const Computation compute : {Computation{reference_float64}, Computation{unfused}}) {
    const HostResult one = compute(call.problem, call.shape, call.host_call(), 1);
    const HostResult many = compute(call.problem, call.shape, call.host_call(), 5);
    EXPECT_EQ(many.o, one.o);
    EXPECT_EQ(many.lse, one.lse);
    EXPECT_EQ(many.o_rounding, one.o_rounding);
    EXPECT_EQ(many.lse_rounding, one.lse_rounding);
  }
}

// ---- compare --------------------------------------------------------------------------------------------------------

class Compare : public ::testing::Test {
 protected:
  Compare() {
    Random random(11);
    call_ = make_call(make_problem(DataType::bf16, 4, "kv_idx <= q_idx - 2"), {.seqlen_q = 6, .seqlen_kv = 6});
    for (TensorImage* image : {&call_.q, &call_.k, &call_.v}) image->fill_normal(random, 1);
    exact_ = exact(call_);
    plain_ = plain(call_);
    actual_ = plain_;
  }
  ErrorReport report() const { return compare(call_.problem, actual_, exact_, plain_, true); }

  AttentionCall call_;
  HostResult exact_, plain_, actual_;
};

TEST_F(Compare, ThePlainResultPasses) { EXPECT_TRUE(report().pass) << report().detail; }

TEST_F(Compare, AnErrorBeyondTheBoundFailsAndNamesThePlace) {
  actual_.o[17] += 1.1 * report().o_bound + std::abs(exact_.o[17] - actual_.o[17]);
  EXPECT_FALSE(report().pass);
  EXPECT_NE(report().detail.find("row 4 column 1"), std::string::npos) << report().detail;
}

TEST_F(Compare, AnErrorWithinTheBoundPasses) {
  actual_.o[17] = exact_.o[17] + 0.99 * report().o_bound;
  EXPECT_TRUE(report().pass) << report().detail;
}

TEST_F(Compare, NanFails) {
  actual_.o[20] = kNaN;
  EXPECT_FALSE(report().pass);
  actual_.o[20] = exact_.o[20];
  actual_.lse[5] = kNaN;
  EXPECT_FALSE(report().pass);
}

TEST_F(Compare, NothingButZeroAndMinusInfIsRightForAnEmptyRow) {
  actual_.o[2] = 1e-30;
  EXPECT_FALSE(report().pass);
  actual_.o[2] = 0;
  actual_.lse[0] = -1e30;
  EXPECT_FALSE(report().pass);
  actual_.lse[0] = kNaN;
  EXPECT_FALSE(report().pass);
}

TEST_F(Compare, InfinityWhereAFiniteValueBelongsFails) {
  actual_.o[20] = kInfinity;
  EXPECT_FALSE(report().pass);
}

TEST_F(Compare, NanMustBeNan) {
  exact_.o[20] = plain_.o[20] = kNaN;
  EXPECT_FALSE(report().pass);
  actual_.o[20] = kNaN;
  EXPECT_TRUE(report().pass) << report().detail;
}

// The rule must be tight enough to see mistakes that kernels make: here an exact computation of something else.
TEST(ErrorRule, SeesEachCommonMistakeInEveryDtype) {
  const struct {
    const char *what, *mask, *wrong_mask, *score, *wrong_score;
  } mistakes[] = {
      {"causal without the diagonal", "kv_idx <= q_idx", "kv_idx < q_idx", "score", "score"},
      {"the other causal alignment", "kv_idx <= q_idx", "kv_idx <= q_idx + (len_kv - len_q)", "score", "score"},
      {"a window one key too wide", "q_idx - kv_idx < 16 && kv_idx <= q_idx", "q_idx - kv_idx < 17 && kv_idx <= q_idx",
       "score", "score"},
      {"the last key left out", "true", "kv_idx < len_kv - 1", "score", "score"},
      {"a key of the next tile left out", "true", "kv_idx != 32", "score", "score"},
      {"no softcap", "true", "true", "2.0 * tanh(score / 2.0)", "score"},
      {"scores in units of log2", "true", "true", "score", "score * 1.4427"},
      {"distance bias off by one", "true", "true", "score - 0.25 * abs(q_idx - kv_idx)",
       "score - 0.25 * abs(q_idx - kv_idx - 1)"},
  };
  for (const DataType dtype : {DataType::f32, DataType::f16, DataType::bf16}) {
    for (const auto& mistake : mistakes) {
      Random random(21);
      AttentionCall call = make_call(make_problem(dtype, 64, mistake.mask, mistake.score),
                                     {.heads_q = 2, .heads_kv = 2, .seqlen_q = 48, .seqlen_kv = 50});
      for (TensorImage* image : {&call.q, &call.k, &call.v}) image->fill_normal(random, 1);
      AttentionCall wrong = call;
      wrong.problem = make_problem(dtype, 64, mistake.wrong_mask, mistake.wrong_score);
      HostResult actual = exact(wrong);
      EXPECT_FALSE(compare(call.problem, actual, exact(call), plain(call), false).pass)
          << mistake.what << " in " << name_of(dtype);
      EXPECT_TRUE(compare(call.problem, exact(call), exact(call), plain(call), true).pass) << mistake.what;
    }
  }
}

TEST_F(Compare, LseIsOnlyLookedAtWhenAskedFor) {
  actual_.lse.clear();
  EXPECT_FALSE(compare(call_.problem, actual_, exact_, plain_, true).pass);
  EXPECT_TRUE(compare(call_.problem, actual_, exact_, plain_, false).pass);
}

TEST_F(Compare, MissingOutputsFail) {
  actual_.o.pop_back();
  EXPECT_FALSE(report().pass);
}

}  // namespace
}  // namespace saccade::test_support
