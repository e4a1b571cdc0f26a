// Traps of sections G, H, K and L: bias and mask inputs, precision, sliding window, softcap. See tests/TRAPS.md.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/cpu/traps_fixture.h"

namespace saccade::test_support {
namespace {

const std::string kCausal = "kv_idx <= q_idx";

void make_scores_equal(AttentionCall& call) {
  Random none(0);
  call.q.fill_normal(none, 0);
}

// ---- G. Bias and mask inputs ----------------------------------------------------------------------------------------

TEST_F(Traps, AMaskTableAndCausalBothApply) {
  const expr::Declarations declarations{.scalars = {}, .tables = {{"keep", DataType::boolean, 2}}};
  AttentionCall call = random_call({.mask = "keep[q_idx, kv_idx] && kv_idx <= q_idx", .declarations = declarations},
                                   {.seqlen_q = 64, .seqlen_kv = 64});
  make_scores_equal(call);
  call.tables = {make_table(DataType::boolean, {64, 64})};
  for (std::int64_t i = 0; i < 64 * 64; ++i) call.tables[0].set(i, i % 64 % 2 == 0 ? 1 : 0);
  const std::vector<int> counts = kept_counts(call);
  ASSERT_EQ(counts.size(), 64U);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(counts[static_cast<std::size_t>(i)], i / 2 + 1) << i;
}

TEST_F(Traps, AScoreProgramMayIgnoreTheScore) {
  const expr::Declarations declarations{.scalars = {}, .tables = {{"bias", DataType::f32, 1}}};
  AttentionCall call =
      random_call({.score = "bias[kv_idx]", .declarations = declarations}, {.seqlen_q = 40, .seqlen_kv = 40});
  call.tables = {make_table(DataType::f32, {40})};
  for (std::int64_t j = 0; j < 40; ++j) call.tables[0].set(j, j == 11 ? 100 : 0);
  const HostResult result = expect_right(call);
  ASSERT_EQ(result.o.size(), 40U * 64U);
  for (std::int64_t i = 0; i < 40; ++i) {
    for (int c = 0; c < 64; ++c) EXPECT_EQ(result.o[static_cast<std::size_t>(i * 64 + c)], call.v.get(0, 0, 11, c));
  }
}

TEST_F(Traps, ABiasTableMayBroadcastOverAnyAxis) {
  const expr::Declarations declarations{.scalars = {}, .tables = {{"bias", DataType::bf16, 4}}};
  for (int shared = 0; shared < 16; ++shared) {
    AttentionCall call = random_call({.score = expr::rules::bias("bias"), .declarations = declarations},
                                     {.batch = 2, .heads_q = 2, .heads_kv = 2, .seqlen_q = 9, .seqlen_kv = 33});
    call.tables = {make_table(DataType::bf16, {2, 2, 9, 33},
                              {(shared & 1) != 0, (shared & 2) != 0, (shared & 4) != 0, (shared & 8) != 0})};
    Random random(3);
    for (std::size_t i = 0; i < call.tables[0].bytes.size() / 2; ++i)
      call.tables[0].set(static_cast<std::int64_t>(i), random.normal());
    expect_right(call, "shared axes " + std::to_string(shared));
  }
}

// ---- H. Precision and dtype -----------------------------------------------------------------------------------------

TEST_F(Traps, AHugeFinitePenaltyIsNotMinusInfinity) {
  for (const DataType dtype : trap_dtypes()) {
    expect_right(random_call({.dtype = dtype, .score = "score + select(kv_idx > q_idx, -1000000000.0, 0.0)"},
                             {.seqlen_q = 65, .seqlen_kv = 65}));
    // Every key of every row has the same penalty: all weigh the same, none is masked.
    AttentionCall call = random_call({.dtype = dtype, .score = "score - 65504.0"}, {.seqlen_q = 3, .seqlen_kv = 50});
    make_scores_equal(call);
    const HostResult result = expect_right(call);
    for (const double lse : result.lse) EXPECT_NEAR(lse, std::log(50.0) - 65504, 0.05);
  }
}

TEST_F(Traps, InputsOfScaleTenStayWithinTheErrorRule) {
  for (const DataType dtype : trap_dtypes()) {
    AttentionCall call = random_call({.dtype = dtype, .head_dim_qk = 128, .mask = kCausal},
                                     {.heads_q = 2, .heads_kv = 2, .seqlen_q = 240, .seqlen_kv = 240});
    Random random(5);
    for (TensorImage* image : {&call.q, &call.k, &call.v}) image->fill_normal(random, 10);
    expect_right(call);
  }
}

// ---- K. Sliding window ----------------------------------------------------------------------------------------------

TEST_F(Traps, AWindowOfWKeepsExactlyWKeys) {
  const expr::Declarations declarations{.scalars = {{"left", expr::Type::i32}, {"right", expr::Type::i32}},
                                        .tables = {}};
  for (const int window : {1, 2, 16, 17, 64, 100, 300}) {
    AttentionCall call =
        random_call({.mask = expr::rules::window("left", "right", false), .declarations = declarations},
                    {.seqlen_q = 200, .seqlen_kv = 200});
    make_scores_equal(call);
    call.scalars = {static_cast<double>(window - 1), 0};
    const std::vector<int> counts = kept_counts(call);
    ASSERT_EQ(counts.size(), 200U);
    for (int i = 0; i < 200; ++i)
      EXPECT_EQ(counts[static_cast<std::size_t>(i)], std::min(i + 1, window)) << "row " << i << " window " << window;
  }
}

TEST_F(Traps, BothBoundsOfAWindowAreInclusive) {
  AttentionCall call = random_call({.mask = expr::rules::window("3", "2", false)}, {.seqlen_q = 50, .seqlen_kv = 50});
  make_scores_equal(call);
  const std::vector<int> counts = kept_counts(call);
  ASSERT_EQ(counts.size(), 50U);
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(counts[static_cast<std::size_t>(i)], std::min(i + 2, 49) - std::max(i - 3, 0) + 1) << i;
}

TEST_F(Traps, AWindowUnboundedOnTheLeftIsStillCausal) {
  for (const char* left : {"-1", "1000"}) {
    AttentionCall call =
        random_call({.mask = expr::rules::window(left, "0", false)}, {.seqlen_q = 130, .seqlen_kv = 130});
    make_scores_equal(call);
    const std::vector<int> counts = kept_counts(call);
    ASSERT_EQ(counts.size(), 130U);
    for (int i = 0; i < 130; ++i) EXPECT_EQ(counts[static_cast<std::size_t>(i)], i + 1) << left;
  }
}

TEST_F(Traps, LayersThatAlternateBetweenWindowAndFullKeepTheirOwnMask) {
  const expr::Declarations declarations{.scalars = {{"left", expr::Type::i32}}, .tables = {}};
  const CallSizes sizes{.seqlen_q = 96, .seqlen_kv = 96};
  for (int layer = 0; layer < 6; ++layer) {
    const bool windowed = layer % 2 == 0;
    AttentionCall call =
        windowed ? random_call({.mask = expr::rules::window("left", "0", false), .declarations = declarations}, sizes)
                 : random_call({.mask = kCausal}, sizes);
    make_scores_equal(call);
    if (windowed) call.scalars = {static_cast<double>(8 * (layer + 1))};  // a run-time value: no layer compiles anew
    const std::vector<int> counts = kept_counts(call);
    ASSERT_EQ(counts.size(), 96U);
    EXPECT_EQ(counts.back(), windowed ? 8 * (layer + 1) + 1 : 96) << layer;
  }
}

// ---- L. Softcap and sinks -------------------------------------------------------------------------------------------

TEST_F(Traps, SoftcapComesAfterScaleAndBeforeMask) {
  const expr::Declarations declarations{.scalars = {{"cap", expr::Type::f32}}, .tables = {}};
  const TrapProblem capped{.mask = kCausal, .score = expr::rules::softcap("cap"), .declarations = declarations};
  AttentionCall call = random_call(capped, {.seqlen_q = 2, .seqlen_kv = 2});
  for (std::int64_t i = 0; i < 2; ++i) {
    call.q.fill_row(0, 0, i, 1);
    call.k.fill_row(0, 0, i, static_cast<double>(i + 1));
  }
  call.scalars = {20};
  call.scale = 0.5F;  // s = 32 and 64: capped to 20 tanh(1.6) and 20 tanh(3.2); the mask still hides key 1 from row 0
  const HostResult result = expect_right(call);
  ASSERT_EQ(result.lse.size(), 2U);
  const double first = 20 * std::tanh(1.6), second = 20 * std::tanh(3.2);
  EXPECT_NEAR(result.lse[0], first, 1e-2);
  EXPECT_NEAR(result.lse[1], second + std::log1p(std::exp(first - second)), 1e-2);
}

TEST_F(Traps, SoftcapDoesNotOverflowFarBeyondTheCap) {
  const expr::Declarations declarations{.scalars = {{"cap", expr::Type::f32}}, .tables = {}};
  for (const DataType dtype : trap_dtypes()) {
    for (const double cap : {1.0, 30.0, 50.0}) {
      AttentionCall call =
          random_call({.dtype = dtype, .score = expr::rules::softcap("cap"), .declarations = declarations},
                      {.seqlen_q = 70, .seqlen_kv = 70});
      Random random(9);
      const double deviation = std::sqrt(300 * cap);  // scores up to about 1000 times the cap, of both signs
      call.q.fill_normal(random, deviation);
      call.k.fill_normal(random, deviation);
      call.scalars = {cap};
      expect_right(call, "cap " + std::to_string(cap));
    }
  }
}

TEST_F(Traps, ABiasOnKeyZeroIsNoSink) {
  // A sink takes weight without a value; a bias on key 0 takes it with V of key 0. The program says which.
  AttentionCall call =
      random_call({.score = "score + select(kv_idx == 0, 50.0, 0.0)"}, {.seqlen_q = 5, .seqlen_kv = 40});
  make_scores_equal(call);
  const HostResult result = expect_right(call);
  ASSERT_EQ(result.o.size(), 5U * 64U);
  for (int c = 0; c < 64; ++c) EXPECT_EQ(result.o[static_cast<std::size_t>(c)], call.v.get(0, 0, 0, c));
}

}  // namespace
}  // namespace saccade::test_support
