// What programs mean, at single elements.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "generator/expr/program.h"

namespace saccade::expr {
namespace {

constexpr int kLowest = std::numeric_limits<int>::min();

const Declarations kNames{
    .scalars = {{"n", Type::i32}, {"x", Type::f32}, {"big", Type::i64}},
    .tables = {{"row", DataType::i32, 1}, {"grid", DataType::f16, 2}, {"wide", DataType::i64, 1}},
};

class Evaluation : public ::testing::Test {
 protected:
  double score_of(std::string_view text, double score = 0) {
    const auto program = Program::parse(Kind::score, text, kNames);
    EXPECT_TRUE(program.ok()) << program.status().message();
    return program.ok() ? evaluate(*program, kNames, bindings_, point_, score) : NAN;
  }
  bool keeps(std::string_view text) {
    const auto program = Program::parse(Kind::mask, text, kNames);
    EXPECT_TRUE(program.ok()) << program.status().message();
    return program.ok() && evaluate(*program, kNames, bindings_, point_) != 0;
  }

  std::vector<std::int32_t> row_ = {10, 20, 30};
  std::vector<std::uint16_t> grid_ = {f16_from_float(0.5f), f16_from_float(1.5f), f16_from_float(2.5f),
                                      f16_from_float(3.5f)};
  std::vector<std::int64_t> wide_ = {(std::int64_t{1} << 60) + 1};
  Bindings bindings_{{5, 0.25, 1e15},
                     {{row_.data(), {3}, {1}}, {grid_.data(), {2, 2}, {2, 1}}, {wide_.data(), {1}, {1}}}};
  Point point_{1, 2, 7, 9, 40, 50};
};

TEST_F(Evaluation, KnowsThePosition) {
  EXPECT_EQ(score_of("float(b + 10 * h + 100 * q_idx + 1000 * kv_idx)"), 1 + 20 + 700 + 9000);
  EXPECT_EQ(score_of("float(len_q * len_kv)"), 2000);
}

TEST_F(Evaluation, DividesTowardsMinusInfinityAsPythonDoes) {
  const std::int64_t cases[][4] = {{7, 2, 3, 1},    {-7, 2, -4, 1}, {7, -2, -4, -1},
                                   {-7, -2, 3, -1}, {6, 3, 2, 0},   {-6, 3, -2, 0}};
  for (const auto& [a, b, quotient, remainder] : cases) {
    bindings_.scalars = {static_cast<double>(b), 0, static_cast<double>(a)};
    EXPECT_EQ(score_of("float(big // n)"), static_cast<double>(quotient)) << a << " " << b;
    EXPECT_EQ(score_of("float(big % n)"), static_cast<double>(remainder)) << a << " " << b;
  }
}

TEST_F(Evaluation, GivesZeroForDivisionByZero) {
  bindings_.scalars[0] = 0;
  EXPECT_EQ(score_of("float(q_idx // n)"), 0);
  EXPECT_EQ(score_of("float(q_idx % n)"), 0);
  EXPECT_TRUE(std::isinf(score_of("q_idx / n")));
}

TEST_F(Evaluation, WrapsAt32BitsAndWidensTo64) {
  bindings_.scalars = {kLowest, 0, 1};
  EXPECT_EQ(score_of("float(n - 1)"), 2147483647.0);
  EXPECT_EQ(score_of("float(n // -1)"), kLowest);
  EXPECT_EQ(score_of("float(abs(n))"), kLowest);
  EXPECT_EQ(score_of("float(n - big)"), -2147483649.0);
  EXPECT_TRUE(keeps("wide[0] == 1152921504606846977")) << "64-bit integers are exact";
}

TEST_F(Evaluation, ReadsZeroOutsideATable) {
  EXPECT_EQ(score_of("float(row[2])"), 30);
  EXPECT_EQ(score_of("float(row[3])"), 0);
  EXPECT_EQ(score_of("float(row[-1])"), 0);
  EXPECT_EQ(score_of("float(row[9223372036854775807])"), 0);
  EXPECT_EQ(score_of("grid[1, 0]"), 2.5);
  EXPECT_EQ(score_of("grid[0, 2]"), 0) << "not the next row";
  EXPECT_EQ(score_of("grid[2, 0]"), 0);
}

TEST_F(Evaluation, ConvertsBetweenTypes) {
  EXPECT_EQ(score_of("float(int(2.9) + int(-2.9))"), 0);
  EXPECT_EQ(score_of("float(int(q_idx == 7))"), 1);
  EXPECT_EQ(score_of("float(int(exp(score)))", 1000), 2147483647.0);
  EXPECT_EQ(score_of("float(int(log(score)))", -1), 0) << "NaN gives 0";
  EXPECT_EQ(score_of("q_idx / 2"), 3.5);
}

TEST_F(Evaluation, RoundsAnIntegerToFloatOnce) {
  // A little above the middle of two floats; the nearest double is the middle itself.
  wide_[0] = (std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1;
  EXPECT_TRUE(keeps("float(wide[0]) == 1152921642045800448.0")) << "2^60 + 2^37";
}

TEST_F(Evaluation, KnowsTheFunctions) {
  EXPECT_DOUBLE_EQ(score_of("exp(score)", 0.5), std::exp(0.5));
  EXPECT_DOUBLE_EQ(score_of("exp2(score)", 0.5), std::exp2(0.5));
  EXPECT_DOUBLE_EQ(score_of("log(score)", 0.5), std::log(0.5));
  EXPECT_DOUBLE_EQ(score_of("log2(score)", 0.5), -1);
  EXPECT_DOUBLE_EQ(score_of("sqrt(score)", 2), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(score_of("tanh(score)", 2), std::tanh(2.0));
  EXPECT_EQ(score_of("floor(score)", -1.5), -2);
  EXPECT_EQ(score_of("abs(score) + min(score, 1.0) + max(score, 1.0)", -2), 2 - 2 + 1);
  EXPECT_EQ(score_of("select(score > 0.0, 1, 2.5)", 1), 1);
}

// ---- Traps: see tests/TRAPS.md -----------------------------------------------------------------------------------

// Trap 37: a captured buffer one shorter than the sequence must read 0, not past its end.
TEST_F(Evaluation, ReadsZeroFromATableThatIsShorterThanTheSequence) {
  const std::vector<float> buffer(127, 1.0f);
  const Declarations names{{}, {{"buffer", DataType::f32, 1}}};
  const auto program = Program::parse(Kind::score, "score + buffer[kv_idx]", names);
  ASSERT_TRUE(program.ok());
  const Bindings bindings{{}, {{buffer.data(), {127}, {1}}}};
  EXPECT_EQ(evaluate(*program, names, bindings, {0, 0, 0, 126, 128, 128}, 2), 3);
  EXPECT_EQ(evaluate(*program, names, bindings, {0, 0, 0, 127, 128, 128}, 2), 2);
}

// Trap 59: a mask over more than 2^31 positions pairs is right in its far corner.
TEST_F(Evaluation, IsExactWherePairsAreCountedBeyond32Bits) {
  const auto program = Program::parse(Kind::mask, rules::chunked("64"), {});
  ASSERT_TRUE(program.ok());
  for (const std::int64_t q : {0L, 45000L, 97219L, 2147483000L})
    for (const std::int64_t kv : {q, q ^ 1, q ^ 63, q ^ 64}) {
      const Point p{0, 0, q, kv, 2147483647, 2147483647};
      EXPECT_EQ(evaluate(*program, {}, {}, p) != 0, q / 64 == kv / 64) << q << " " << kv;
      const TileRange tile{0, 0, q, q, kv, kv, p.len_q, p.len_kv};
      EXPECT_EQ(classify(*program, {}, {}, tile), q / 64 == kv / 64 ? TileClass::full : TileClass::empty);
    }
}

std::vector<int> keys_of_each_row(const std::string& mask, std::int64_t len_q, std::int64_t len_kv,
                                  const Declarations& names = {}, const Bindings& bindings = {}) {
  const auto program = Program::parse(Kind::mask, mask, names);
  EXPECT_TRUE(program.ok()) << program.status().message();
  std::vector<int> counts;
  for (std::int64_t q = 0; q < len_q && program.ok(); ++q) {
    int count = 0;
    for (std::int64_t kv = 0; kv < len_kv; ++kv)
      count += static_cast<int>(evaluate(*program, names, bindings, {0, 0, q, kv, len_q, len_kv}));
    counts.push_back(count);
  }
  return counts;
}

// Trap 89: a window of W tokens (W-1, 0) keeps min(i + 1, W) keys, not W + 1.
TEST_F(Evaluation, KeepsExactlyTheWindow) {
  for (const int window : {1, 4, 7}) {
    const std::vector<int> counts = keys_of_each_row(rules::window(std::to_string(window - 1), "0", false), 12, 12);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(counts[static_cast<std::size_t>(i)], std::min(i + 1, window)) << i;
  }
}

// Trap 91: the left bound is inclusive.
TEST_F(Evaluation, IncludesTheLeftEndOfTheWindow) {
  const auto program = Program::parse(Kind::mask, rules::window("3", "0", false), {});
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(evaluate(*program, {}, {}, {0, 0, 10, 7, 20, 20}), 1);
  EXPECT_EQ(evaluate(*program, {}, {}, {0, 0, 10, 6, 20, 20}), 0);
}

// Trap 95: (W, 0) is causal, and (-1, 0) is nothing but causal.
TEST_F(Evaluation, IsCausalWheneverTheRightBoundIsZero) {
  EXPECT_EQ(*Program::parse(Kind::mask, rules::window("-1", "0", true), {}),
            *Program::parse(Kind::mask, rules::causal_bottom_right(), {}));
  for (const char* left : {"0", "5", "w"}) {
    const Declarations names{{{"w", Type::i32}}, {}};
    const auto program = Program::parse(Kind::mask, rules::window(left, "0", false), names);
    ASSERT_TRUE(program.ok());
    for (std::int64_t kv = 4; kv < 9; ++kv) EXPECT_EQ(evaluate(*program, names, {{6}, {}}, {0, 0, 3, kv, 9, 9}), 0);
  }
}

// Traps 97 to 99: the order is scale, cap, mask; the cap saturates for any size of the score.
TEST_F(Evaluation, CapsScoresOfAnySize) {
  const Declarations names{{{"cap", Type::f32}}, {}};
  const auto program = Program::parse(Kind::score, rules::softcap("cap"), names);
  ASSERT_TRUE(program.ok());
  for (const double score : {0.0, 1e-3, 1.0, 50.0, 5e4, 3e38, -5e4}) {
    EXPECT_DOUBLE_EQ(evaluate(*program, names, {{50}, {}}, {}, score), 50 * std::tanh(score / 50)) << score;
  }
  EXPECT_EQ(evaluate(*program, names, {{50}, {}}, {}, INFINITY), 50);
}

}  // namespace
}  // namespace saccade::expr
