// Traps of sections A and B: rows without keys, NaN, LSE, causal alignment, decode. See tests/TRAPS.md.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/cpu/traps_fixture.h"

namespace saccade::test_support {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::string kBottomRight = "kv_idx <= q_idx + (len_kv - len_q)";

/// Row `row` of o of a call with one batch entry and one head.
std::vector<double> o_row(const HostResult& result, std::int64_t row, int head_dim) {
  const auto first = result.o.begin() + static_cast<std::ptrdiff_t>(row * head_dim);
  return {first, first + head_dim};
}

TEST_F(Traps, EmptyRowsOfAMaskTableGiveZeroAndMinusInfLse) {
  const expr::Declarations keep{.scalars = {}, .tables = {{"keep", DataType::boolean, 2}}};
  for (const DataType dtype : trap_dtypes()) {
    AttentionCall call =
        random_call({.dtype = dtype, .head_dim_qk = 8, .mask = "keep[q_idx, kv_idx]", .declarations = keep},
                    {.seqlen_q = 8, .seqlen_kv = 8});
    TableImage table = make_table(DataType::boolean, {8, 8});
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) table.set(i * 8 + j, 1);
    }
    call.tables = {table};
    const HostResult result = expect_right(call);
    ASSERT_EQ(result.lse.size(), 8U);
    for (std::int64_t row = 4; row < 8; ++row) {
      EXPECT_THAT(o_row(result, row, 8), Each(0.0));
      EXPECT_EQ(result.lse[static_cast<std::size_t>(row)], -kInfinity);
    }
  }
}

TEST_F(Traps, NanInAMaskedKeyNeverReachesTheOutput) {
  for (const DataType dtype : trap_dtypes()) {
    for (const double garbage : {kNaN, kInfinity, -kInfinity}) {
      for (const std::int64_t column : {0, 1, 7, 63, 64, 99}) {
        const expr::Declarations declarations{.scalars = {{"hole", expr::Type::i32}}, .tables = {}};
        AttentionCall call =
            random_call({.dtype = dtype, .head_dim_qk = 32, .mask = "kv_idx != hole", .declarations = declarations},
                        {.heads_q = 2, .heads_kv = 1, .seqlen_q = 70, .seqlen_kv = 100});
        call.scalars = {static_cast<double>(column)};
        poison_masked_keys(call, garbage);
        expect_right(call, "one key");
      }
    }
  }
}

TEST_F(Traps, NanInAWhollyMaskedTileNeverReachesTheOutput) {
  for (const DataType dtype : trap_dtypes()) {
    for (const char* mask : {"kv_idx < 5", "kv_idx >= 300", "kv_idx < 100 || kv_idx >= 290", "kv_idx < 0"}) {
      AttentionCall call = random_call({.dtype = dtype, .mask = mask}, {.seqlen_q = 130, .seqlen_kv = 320});
      poison_masked_keys(call, kNaN);
      expect_right(call, mask);
    }
  }
}

TEST_F(Traps, NanInAKeyReachesOnlyTheRowsThatKeepIt) {
  for (const DataType dtype : trap_dtypes()) {
    for (const bool in_values : {false, true}) {
      AttentionCall call =
          random_call({.dtype = dtype, .mask = "kv_idx <= q_idx"}, {.seqlen_q = 100, .seqlen_kv = 100});
      (in_values ? call.v : call.k).fill_row(0, 0, 40, kNaN);
      expect_right(call, in_values ? "NaN in V" : "NaN in K");
    }
  }
}

TEST_F(Traps, SplitsWithoutAnyKeptKeyMergeAway) {
  const expr::Declarations declarations{.scalars = {{"first", expr::Type::i32}}, .tables = {}};
  for (const DataType dtype : trap_dtypes()) {
    for (const double first : {0.0, 1.0, 4000.0, 4095.0, 4096.0}) {
      AttentionCall call = random_call({.dtype = dtype, .mask = "kv_idx >= first", .declarations = declarations},
                                       {.seqlen_q = 1, .seqlen_kv = 4096});
      call.scalars = {first};
      expect_right(call, "decode over mostly masked keys");
    }
  }
}

TEST_F(Traps, LseIsTheNaturalLogarithm) {
  for (const DataType dtype : trap_dtypes()) {
    for (const std::int64_t seqlen : {1, 128, 257}) {
      AttentionCall call = random_call({.dtype = dtype}, {.seqlen_q = seqlen, .seqlen_kv = seqlen});
      Random none(0);
      call.q.fill_normal(none, 0);
      for (const double lse : expect_right(call).lse) EXPECT_NEAR(lse, std::log(static_cast<double>(seqlen)), 1e-5);
    }
  }
}

TEST_F(Traps, QueriesBeforeTheFirstKeyOfBottomRightCausalAreEmpty) {
  for (const DataType dtype : trap_dtypes()) {
    for (const auto& [seqlen_q, seqlen_kv] : {std::pair<std::int64_t, std::int64_t>{5, 2}, {130, 3}, {257, 129}}) {
      const HostResult result = expect_right(
          random_call({.dtype = dtype, .mask = kBottomRight}, {.seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv}));
      ASSERT_EQ(result.lse.size(), static_cast<std::size_t>(seqlen_q));
      for (std::int64_t row = 0; row < seqlen_q - seqlen_kv; ++row) {
        EXPECT_EQ(result.lse[static_cast<std::size_t>(row)], -kInfinity) << row;
        EXPECT_THAT(o_row(result, row, 64), Each(0.0)) << row;
      }
    }
  }
}

TEST_F(Traps, AHugeNegativeScoreIsAnOrdinaryNumber) {
  AttentionCall call = random_call({.dtype = DataType::bf16, .head_dim_qk = 128}, {.seqlen_q = 1, .seqlen_kv = 1});
  for (int c = 0; c < 128; ++c) {
    call.q.set(0, 0, 0, c, 64);
    call.k.set(0, 0, 0, c, -64);
    call.v.set(0, 0, 0, c, 1);
  }
  const HostResult result = expect_right(call);
  ASSERT_EQ(result.lse.size(), 1U);
  EXPECT_THAT(result.o, Each(1.0));
  EXPECT_NEAR(result.lse[0], -524288 / std::sqrt(128.0), 0.05);
}

TEST_F(Traps, ScoresFarBelowZeroAreExact) {
  for (const DataType dtype : trap_dtypes()) {
    for (const std::int64_t seqlen : {2, 64, 192, 704, 832}) {
      for (const int head_dim : {32, 64, 128}) {
        AttentionCall call =
            random_call({.dtype = dtype, .head_dim_qk = head_dim}, {.seqlen_q = 65, .seqlen_kv = seqlen});
        const double c =
            std::sqrt(100 / std::sqrt(static_cast<double>(head_dim)));  // s = -c * c * sqrt(head_dim) = -100
        Random none(0);
        call.q.fill_normal(none, 0, c);
        call.k.fill_normal(none, 0, -c);
        expect_right(call, "scores of about -100");
      }
    }
  }
}

TEST_F(Traps, DistanceScoresStayFiniteAtOddLengths) {
  for (const std::int64_t seqlen : {257, 1025}) {
    expect_right(random_call({.mask = "kv_idx <= q_idx", .score = "score + (q_idx - kv_idx)"},
                             {.seqlen_q = seqlen, .seqlen_kv = seqlen}));
  }
}

TEST_F(Traps, PaddingSequencesWithoutKeysWriteZeros) {
  for (const DataType dtype : trap_dtypes()) {
    const AttentionCall call =
        random_call({.dtype = dtype, .layout = Layout::varlen},
                    {.heads_q = 2, .heads_kv = 1, .lengths_q = {1, 1, 1, 1}, .lengths_kv = {70, 3, 129, 0}});
    const HostResult result = expect_right(call);
    ASSERT_EQ(result.lse.size(), 8U);  // [heads, total_q]
    EXPECT_EQ(result.lse[3], -kInfinity);
    EXPECT_EQ(result.lse[7], -kInfinity);
    for (std::int64_t row = 6; row < 8; ++row) EXPECT_THAT(o_row(result, row, 64), Each(0.0));
  }
}

// ---- B. Causal alignment and decode ------------------------------------------------------------------------------

TEST_F(Traps, BothCausalAlignmentsKeepTheRightKeys) {
  Random none(0);
  const auto counts = [&](const std::string& mask, std::int64_t seqlen_q, std::int64_t seqlen_kv) {
    AttentionCall call = random_call({.mask = mask}, {.seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv});
    call.q.fill_normal(none, 0);
    return kept_counts(call);
  };
  EXPECT_THAT(counts("kv_idx <= q_idx", 2, 5), ElementsAre(1, 2));
  EXPECT_THAT(counts(kBottomRight, 2, 5), ElementsAre(4, 5));
  EXPECT_THAT(counts("kv_idx <= q_idx", 5, 2), ElementsAre(1, 2, 2, 2, 2));
  EXPECT_THAT(counts(kBottomRight, 5, 2), ElementsAre(0, 0, 0, 1, 2));
  EXPECT_THAT(counts(kBottomRight, 1, 7), ElementsAre(7));
  EXPECT_THAT(counts("kv_idx <= q_idx", 1, 7), ElementsAre(1));
  EXPECT_THAT(counts("kv_idx <= q_idx", 3, 128), ElementsAre(1, 2, 3));
  EXPECT_THAT(counts(kBottomRight, 3, 128), ElementsAre(126, 127, 128));
  for (const std::string& mask : {std::string("kv_idx <= q_idx"), kBottomRight}) {
    expect_right(random_call({.mask = mask}, {.seqlen_q = 130, .seqlen_kv = 257}), mask);
  }
}

TEST_F(Traps, ThreeQueriesOverACacheOf128KeysAreBottomRightAtHeadDim128) {
  expect_right(random_call({.head_dim_qk = 128, .mask = kBottomRight}, {.seqlen_q = 3, .seqlen_kv = 128}));
}

TEST_F(Traps, GarbageAfterTheFilledPartOfACacheIsNotRead) {
  // A cache buffer of 32 rows with 7 filled: once as a shorter view, once as all 32 rows with a length table.
  const Views cache{.q = View::heads_outer, .k = View::longer_rows, .v = View::longer_rows, .o = View::heads_outer};
  expect_right(random_call({.mask = kBottomRight}, {.seqlen_q = 7, .seqlen_kv = 7}, cache), "view");

  const expr::Declarations declarations{.scalars = {}, .tables = {{"kv_length", DataType::i32, 1}}};
  AttentionCall call = random_call({.mask = "kv_idx <= q_idx && kv_idx < kv_length[b]", .declarations = declarations},
                                   {.seqlen_q = 7, .seqlen_kv = 32});
  call.tables = {make_table(DataType::i32, {1})};
  call.tables[0].set(0, 7);
  poison_masked_keys(call, kNaN);
  expect_right(call, "length table");
}

TEST_F(Traps, RowsOfAPrefillChunkEqualSingleTokenDecode) {
  constexpr int kChunk = 5, kHeadDim = 64;
  for (const std::int64_t offset : {0, 63, 64, 65, 128}) {
    AttentionCall chunk = random_call({.mask = kBottomRight}, {.seqlen_q = kChunk, .seqlen_kv = offset + kChunk});
    const HostResult rows = expect_right(chunk, "chunk");
    ASSERT_EQ(rows.lse.size(), static_cast<std::size_t>(kChunk));
    for (std::int64_t r = 0; r < kChunk; ++r) {
      AttentionCall token = make_call(chunk.problem, {.seqlen_q = 1, .seqlen_kv = offset + r + 1});
      for (int c = 0; c < kHeadDim; ++c) {
        token.q.set(0, 0, 0, c, chunk.q.get(0, 0, r, c));
        for (std::int64_t j = 0; j <= offset + r; ++j) {
          token.k.set(0, 0, j, c, chunk.k.get(0, 0, j, c));
          token.v.set(0, 0, j, c, chunk.v.get(0, 0, j, c));
        }
      }
      const HostResult alone = expect_right(token, "decode");
      ASSERT_EQ(alone.lse.size(), 1U);
      EXPECT_NEAR(alone.lse[0], rows.lse[static_cast<std::size_t>(r)], 1e-4) << "offset " << offset << " row " << r;
      for (int c = 0; c < kHeadDim; ++c) {
        EXPECT_NEAR(alone.o[static_cast<std::size_t>(c)], rows.o[static_cast<std::size_t>(r * kHeadDim + c)], 0.03);
      }
    }
  }
}

}  // namespace
}  // namespace saccade::test_support
