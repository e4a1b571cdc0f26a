#include "tuner/inputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace saccade::tuner {
namespace {

Problem problem_with(const std::string& mask, const std::string& score, expr::Declarations declarations,
                     Layout layout = Layout::dense) {
  Problem problem;
  problem.layout = layout;
  problem.declarations = std::move(declarations);
  const auto parse = [&](expr::Kind kind, const std::string& text) {
    const Expected<expr::Program> program = expr::Program::parse(kind, text, problem.declarations);
    EXPECT_TRUE(program.ok()) << program.status().message();
    return program.ok() ? *program : expr::Program(kind);
  };
  problem.mask = parse(expr::Kind::mask, mask);
  problem.score = parse(expr::Kind::score, score);
  return problem;
}

TEST(GateShape, CutsLengthsToOddOnesAndKeepsFeatures) {
  const Shape shape{.batch = 8, .heads_q = 32, .heads_kv = 8, .seqlen_q = 4096, .seqlen_kv = 4096};
  const Shape cut = gate_shape(Problem(), shape, {});
  EXPECT_EQ(cut.seqlen_q, cut.seqlen_kv);
  EXPECT_LT(cut.seqlen_q, 500);
  EXPECT_EQ(cut.seqlen_q % 2, 1);
  EXPECT_EQ(cut.heads_q / cut.heads_kv, 4) << "grouping stays";
  EXPECT_EQ(cut.alignment, shape.alignment);
}

TEST(GateShape, KeepsShortLengthsAndTheirOrder) {
  const Shape decode{.batch = 64, .heads_q = 8, .heads_kv = 8, .seqlen_q = 1, .seqlen_kv = 8192};
  const Shape cut = gate_shape(Problem(), decode, {});
  EXPECT_EQ(cut.seqlen_q, 1);
  EXPECT_GT(cut.seqlen_kv, 100);
  const Shape longer_q{.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 9000, .seqlen_kv = 1000};
  const Shape cut_q = gate_shape(Problem(), longer_q, {});
  EXPECT_GT(cut_q.seqlen_q, cut_q.seqlen_kv);
}

TEST(GateShape, VarlenIsRaggedWithAnEmptySequence) {
  Problem problem;
  problem.layout = Layout::varlen;
  const Shape shape{
      .batch = 8, .heads_q = 4, .heads_kv = 4, .seqlen_q = 2048, .seqlen_kv = 2048, .total_q = 9000, .total_kv = 9000};
  const Shape cut = gate_shape(problem, shape, {});
  const Lengths lengths = gate_lengths(problem, cut);
  ASSERT_EQ(lengths.cu_seqlens_q.size(), static_cast<std::size_t>(cut.batch + 1));
  EXPECT_EQ(lengths.cu_seqlens_q.back(), cut.total_q);
  EXPECT_EQ(lengths.cu_seqlens_q[1], lengths.cu_seqlens_q[2]) << "an empty sequence";
  EXPECT_TRUE(validate(cut, problem).ok());
}

TEST(Lengths, MatchTotalsAndMaxima) {
  Problem problem;
  problem.layout = Layout::varlen;
  for (const std::int64_t total : {5000, 2048, 7 * 2048, 8 * 2048, 3333}) {
    const Shape shape{.batch = 8,
                      .heads_q = 1,
                      .heads_kv = 1,
                      .seqlen_q = 2048,
                      .seqlen_kv = 2048,
                      .total_q = total,
                      .total_kv = total};
    const Lengths lengths = lengths_of(problem, shape);
    EXPECT_EQ(lengths.cu_seqlens_q.back(), total);
    std::int64_t longest = 0;
    for (std::size_t i = 1; i < lengths.cu_seqlens_q.size(); ++i) {
      const std::int64_t length = lengths.cu_seqlens_q[i] - lengths.cu_seqlens_q[i - 1];
      EXPECT_GE(length, 0);
      longest = std::max(longest, length);
    }
    EXPECT_EQ(longest, 2048) << total;
  }
}

TEST(Lengths, OfAPaddedCallStayWithinItsBounds) {
  Problem problem;
  problem.layout = Layout::varlen;
  for (const std::int64_t total : {0, 100, 5000}) {
    const Shape shape{.batch = 2,
                      .heads_q = 1,
                      .heads_kv = 1,
                      .seqlen_q = 2048,
                      .seqlen_kv = 2048,
                      .total_q = total,
                      .total_kv = total};
    const Lengths lengths = lengths_of(problem, shape);
    EXPECT_EQ(lengths.cu_seqlens_q.back(), std::min<std::int64_t>(total, 2 * 2048));
    for (std::size_t i = 1; i < lengths.cu_seqlens_q.size(); ++i) {
      EXPECT_GE(lengths.cu_seqlens_q[i], lengths.cu_seqlens_q[i - 1]);
      EXPECT_LE(lengths.cu_seqlens_q[i] - lengths.cu_seqlens_q[i - 1], 2048);
    }
  }
}

TEST(RaceShape, ShortensLongRunsButKeepsTheMachineFull) {
  const Shape shape{.batch = 16, .heads_q = 32, .heads_kv = 8, .seqlen_q = 4096, .seqlen_kv = 4096};
  const Shape cut = race_shape(Problem(), shape, {}, {.run_limit_us = 10'000}, 1e6, 132);
  EXPECT_LT(cut.batch * cut.heads_q, shape.batch * shape.heads_q);
  EXPECT_GE(cut.batch * cut.heads_q * 32, 8 * 132);
  EXPECT_EQ(cut.heads_q / cut.heads_kv, 4);
  EXPECT_EQ(cut.seqlen_kv, 4096);
  EXPECT_EQ(race_shape(Problem(), shape, {}, {.run_limit_us = 10'000}, 5'000, 132), shape);
}

TEST(RaceShape, TakesFewerQueryRowsWhereTheMaskLetsIt) {
  const Shape shape{.batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 131072, .seqlen_kv = 131072};
  const Measurement quick{.run_limit_us = 10'000};
  constexpr double kPredictedUs = 40e6;
  for (const char* mask : {"true", "kv_idx <= q_idx + (len_kv - len_q)", "abs(q_idx - kv_idx) < 4096"}) {
    const Shape cut = race_shape(problem_with(mask, "score", {}), shape, {}, quick, kPredictedUs, 2);
    EXPECT_LE(cut.seqlen_q, 512) << mask;
    EXPECT_GE(cut.seqlen_q * cut.heads_q / 128, 2 * 2) << mask;
    EXPECT_EQ(cut.seqlen_kv, shape.seqlen_kv) << mask;
    EXPECT_TRUE(validate(cut, Problem()).ok());
  }
  // Counted from the top, the first rows have almost no keys: they would stand for nothing.
  EXPECT_EQ(race_shape(problem_with("kv_idx <= q_idx", "score", {}), shape, {}, quick, kPredictedUs, 2).seqlen_q,
            shape.seqlen_q);
}

TEST(RaceShape, OfVarlenKeepsTheShareOfLongSequences) {
  const Problem varlen = problem_with("true", "score", {}, Layout::varlen);
  const Shape shape{.batch = 4,
                    .heads_q = 1,
                    .heads_kv = 1,
                    .seqlen_q = 131072,
                    .seqlen_kv = 131072,
                    .total_q = 262144,
                    .total_kv = 262144};
  const Shape cut = race_shape(varlen, shape, {}, {.run_limit_us = 10'000}, 40e6, 2);
  EXPECT_LT(cut.seqlen_q, 4096);
  EXPECT_EQ(cut.seqlen_kv, shape.seqlen_kv);
  EXPECT_GE(cut.total_q, cut.seqlen_q);
  EXPECT_LE(cut.total_q, 2 * cut.seqlen_q);
  EXPECT_TRUE(validate(cut, varlen).ok());
}

TEST(TensorLayout, StridesAreAlignedAsPromisedAndNoMore) {
  for (const int alignment : {2, 4, 8, 16}) {
    for (const int head_dim : {31, 40, 64, 128}) {
      const TensorLayout layout = tensor_layout(Layout::dense, 2, 3, 5, head_dim, DataType::bf16, alignment, 1);
      const std::int64_t row_bytes = layout.stride.row * 2;
      EXPECT_GE(layout.stride.row, head_dim);
      EXPECT_EQ(row_bytes % alignment, 0);
      if (alignment < 16) {
        EXPECT_NE(row_bytes % (2 * alignment), 0) << alignment << " " << head_dim;
      }
    }
  }
}

TEST(MadeUpTables, HaveTheExtentsTheirIndicesNeed) {
  expr::Declarations declarations;
  declarations.tables = {{"doc", DataType::i32, 2}, {"slope", DataType::f32, 1}, {"lens", DataType::i32, 1}};
  const Problem problem = problem_with("doc[b, q_idx] == doc[b, kv_idx] && kv_idx < lens[b]",
                                       "score + slope[h] * (kv_idx - q_idx)", declarations);
  const Shape shape{.batch = 3, .heads_q = 8, .heads_kv = 8, .seqlen_q = 200, .seqlen_kv = 300};
  const OwnedBindings owned = race_bindings(problem, shape, {}, 1);
  ASSERT_EQ(owned.bindings.tables.size(), 3u);
  EXPECT_GE(owned.bindings.tables[0].extent[0], 3);
  EXPECT_GE(owned.bindings.tables[0].extent[1], 300);
  EXPECT_GE(owned.bindings.tables[1].extent[0], 8);
  EXPECT_GE(owned.bindings.tables[2].extent[0], 3);
  std::set<double> documents;
  for (int i = 0; i < 300; ++i) documents.insert(load_as_double(DataType::i32, owned.bindings.tables[0].data, i));
  EXPECT_GT(documents.size(), 1u) << "segments end inside the sequence";
  EXPECT_LT(documents.size(), 20u);
  EXPECT_NEAR(load_as_double(DataType::f32, owned.bindings.tables[1].data, 0), 0.5, 1e-6) << "ALiBi's first slope";
}

TEST(MadeUpTables, LargeOnesRepeatInsteadOfFillingTheMemory) {
  expr::Declarations declarations;
  declarations.tables = {{"bias", DataType::bf16, 4}};
  const Problem problem = problem_with("true", "score + bias[b, h, q_idx, kv_idx]", declarations);
  const Shape shape{.batch = 64, .heads_q = 64, .heads_kv = 64, .seqlen_q = 4096, .seqlen_kv = 4096};
  const OwnedBindings owned = race_bindings(problem, shape, {}, 1);
  EXPECT_EQ(owned.bindings.tables[0].stride[0], 0);
  EXPECT_GE(owned.bindings.tables[0].extent[0], 64);
  EXPECT_LE(owned.table_data[0].size(), std::size_t{64} << 20);
}

TEST(GateScalars, CountsShrinkWithTheLengthAndFlagsStay) {
  expr::Declarations declarations;
  declarations.scalars = {{"window", expr::Type::i32}, {"sinks", expr::Type::i32}, {"cap", expr::Type::f32}};
  const Problem problem =
      problem_with("q_idx - kv_idx < window || kv_idx < sinks", "cap * tanh(score / cap)", declarations);
  const Shape full{.batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 8192, .seqlen_kv = 8192};
  const Shape gate = gate_shape(problem, full, {});
  expr::Bindings given;
  given.scalars = {4096, 4, 50};
  const OwnedBindings owned = gate_bindings(problem, full, gate, given, 1, false);
  EXPECT_NEAR(owned.bindings.scalars[0], gate.seqlen_kv / 2.0, 1);
  EXPECT_EQ(owned.bindings.scalars[1], 4);
  EXPECT_EQ(owned.bindings.scalars[2], 50);
}

TEST(NormalSource, IsReproducibleWithUnitVariance) {
  NormalSource a(5), b(5);
  double sum = 0, squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double x = a.next();
    EXPECT_EQ(x, b.next());
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
}

}  // namespace
}  // namespace saccade::tuner
