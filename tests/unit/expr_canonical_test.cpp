// Canonical form: equivalent texts give one program, and canonical text is its own canonical text.
#include <gtest/gtest.h>

#include "generator/expr/program.h"
#include "tests/support/random_program.h"

namespace saccade::expr {
namespace {

const Declarations kNames{
    .scalars = {{"w", Type::i32}, {"cap", Type::f32}, {"big", Type::i64}},
    .tables = {{"doc", DataType::i32, 2}, {"slopes", DataType::f32, 1}, {"flags", DataType::boolean, 1}},
};

std::string canonical(Kind kind, std::string_view text) {
  const Expected<Program> program = Program::parse(kind, text, kNames);
  return program.ok() ? program->text() : "error: " + program.status().message();
}

/// All texts mean the first one, which is canonical.
void expect_same(Kind kind, const std::vector<std::string_view>& texts) {
  for (const std::string_view text : texts) EXPECT_EQ(canonical(kind, text), texts[0]) << text;
}
void expect_same_mask(const std::vector<std::string_view>& texts) { expect_same(Kind::mask, texts); }
void expect_same_score(const std::vector<std::string_view>& texts) { expect_same(Kind::score, texts); }

TEST(CanonicalForm, PutsWhatDependsOnTheKeyLeft) {
  expect_same_mask({"kv_idx <= q_idx", "q_idx >= kv_idx", "q_idx - kv_idx >= 0", "0 <= q_idx - kv_idx",
                    "kv_idx - q_idx <= 0", "kv_idx < q_idx + 1", "kv_idx + 3 <= q_idx + 3", "2 * kv_idx <= 2 * q_idx",
                    "2*kv_idx <= 2*q_idx + 1", "!(kv_idx > q_idx)", "!(q_idx < kv_idx)", "-kv_idx >= -q_idx"});
  expect_same_mask({"kv_idx <= q_idx - len_q + len_kv", "kv_idx <= q_idx + (len_kv - len_q)",
                    "kv_idx - len_kv <= q_idx - len_q", "len_q - q_idx <= len_kv - kv_idx"});
  expect_same_mask({"kv_idx > q_idx - w", "q_idx - kv_idx < w", "q_idx < kv_idx + w", "w > q_idx - kv_idx",
                    "q_idx - kv_idx <= w - 1", "kv_idx >= q_idx - w + 1"});
  expect_same_mask(
      {"doc[b, kv_idx] == doc[b, q_idx]", "doc[b, q_idx] == doc[b, kv_idx]", "doc[b, q_idx] - doc[b, kv_idx] == 0"});
  expect_same_mask({"kv_idx // w == q_idx // w", "q_idx // w == kv_idx // w"});
}

TEST(CanonicalForm, WritesBoundsAgainstNumbersHalfOpen) {
  expect_same_mask(
      {"kv_idx < 5", "kv_idx <= 4", "5 > kv_idx", "!(kv_idx >= 5)", "3 * kv_idx < 15", "3 * kv_idx <= 14"});
  expect_same_mask({"kv_idx >= 5", "kv_idx > 4", "4 < kv_idx", "2 * kv_idx >= 9"});
}

TEST(CanonicalForm, DecidesWhatRangesDecide) {
  expect_same_mask({"true", "kv_idx >= 0", "q_idx > -1", "kv_idx < len_kv", "q_idx + 1 <= len_q", "kv_idx == kv_idx",
                    "w - w == 0", "b >= 0 || flags[h]", "kv_idx <= 2147483647", "2 * kv_idx != 2 * q_idx + 1",
                    "kv_idx % 4 < 4", "min(kv_idx, 3) <= 3", "abs(w) * 0 == 0", "len_kv > kv_idx && true"});
  expect_same_mask({"false", "kv_idx < 0", "2 * kv_idx == 3", "!true", "flags[h] && q_idx < 0", "1 == 2", "1.5 > 2.0",
                    "kv_idx - len_kv >= 0"});
}

TEST(CanonicalForm, SimplifiesConditions) {
  expect_same_mask({"flags[h]", "true && flags[h]", "flags[h] || false", "!!flags[h]", "flags[h] == true",
                    "flags[h] != false", "flags[h] && flags[h]", "(flags[h] ? true : false)",
                    "select(true, flags[h], kv_idx < 3)", "!(!flags[h] || false)"});
  expect_same_mask({"!flags[h]", "flags[h] == false", "true != flags[h]", "(flags[h] ? false : true)"});
  expect_same_mask({"kv_idx < 3 && flags[h]", "flags[h] && kv_idx < 3", "!(kv_idx >= 3 || !flags[h])",
                    "flags[h] && (kv_idx < 3 && flags[h])", "(flags[h] ? kv_idx < 3 : false)"});
  expect_same_mask({"kv_idx < 3 || flags[h]", "flags[h] ? true : kv_idx < 3", "!flags[h] ? kv_idx < 3 : true"});
}

TEST(CanonicalForm, AsksTablesLast) {
  expect_same_mask({"h == 1 && kv_idx <= q_idx && doc[b, kv_idx] == doc[b, q_idx]",
                    "h == 1 && doc[b, q_idx] == doc[b, kv_idx] && kv_idx <= q_idx"});
}

TEST(CanonicalForm, CollectsIntegerSums) {
  expect_same_mask({"abs(kv_idx - q_idx) <= w", "abs(q_idx - kv_idx) <= w", "abs(q_idx + 1 - kv_idx - 1) <= w"});
  expect_same_score({"float(2 * q_idx + 3)", "float(q_idx + 3 + q_idx)", "float(1 + 2 * (q_idx + 1))",
                     "float(q_idx - (-q_idx - 3))", "float(3 + q_idx * 2)"});
  expect_same_score({"float(q_idx * w)", "float(w * q_idx)", "float(2 * q_idx * w - w * q_idx)"});
  expect_same_score({"float(3 - q_idx)", "float(-(q_idx - 3))"});
  expect_same_score({"float(-q_idx - 3)", "float(-(3 + q_idx))"});
}

TEST(CanonicalForm, LeavesFloatSumsAsTheyAre) {
  EXPECT_NE(canonical(Kind::score, "(score + 0.1) + 0.2"), canonical(Kind::score, "score + (0.1 + 0.2)"));
  EXPECT_NE(canonical(Kind::score, "score * 0.1 * 3.0"), canonical(Kind::score, "score * (0.1 * 3.0)"));
  EXPECT_EQ(canonical(Kind::score, "score - score"), "score - score");  // NaN and infinity
  EXPECT_EQ(canonical(Kind::score, "score * 0.0"), "0.0 * score");
  expect_same_score({"score + 0.5 * kv_idx", "0.5 * kv_idx + score", "kv_idx * 0.5 + score * 1.0",
                     "score + 0.0 + kv_idx * 0.5", "score - -(0.5 * kv_idx)", "score / 1 + 0.5 * kv_idx"});
  expect_same_score({"score - 0.5", "score + -0.5", "-0.5 + score"});
  expect_same_score({"cap * tanh(score / cap)", "tanh(score / cap) * cap"});
  EXPECT_EQ(canonical(Kind::score, "1.0 / 3.0"), "0.33333334");
  EXPECT_EQ(canonical(Kind::score, "1.0 / 0.0"), "1.0 / 0.0") << "infinity has no literal";
}

TEST(CanonicalForm, KeepsNegatedFloatComparisons) {
  // With NaN, !(a < b) and a >= b differ.
  EXPECT_EQ(canonical(Kind::mask, "!(slopes[h] < cap)"), "!(cap > slopes[h])");
  EXPECT_EQ(canonical(Kind::mask, "!(slopes[kv_idx] == cap)"), "slopes[kv_idx] != cap");
}

TEST(CanonicalForm, NeverMovesTermsAcrossTheEdgeOf64Bits) {
  EXPECT_EQ(canonical(Kind::mask, "big < -9223372036854775807"), "big < -9223372036854775807");
  EXPECT_EQ(canonical(Kind::mask, "kv_idx - 2147483647 < 5"), "true");
  EXPECT_EQ(canonical(Kind::mask, "kv_idx < -2147483648"), "false");
}

TEST(CanonicalForm, ComparesAndHashesByText) {
  const auto a = Program::parse(Kind::mask, "q_idx >= kv_idx", kNames);
  const auto b = Program::parse(Kind::mask, "kv_idx <= q_idx", {});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(*a, *b);
  EXPECT_NE(*a, Program(Kind::mask));
  EXPECT_TRUE(Program(Kind::mask).is_identity());
  EXPECT_TRUE(Program(Kind::score).is_identity());
  EXPECT_EQ(Program(Kind::score).text(), "score");
  EXPECT_TRUE(Program::parse(Kind::score, "1 * score + 0", {})->is_identity());
}

TEST(CanonicalForm, KnowsWhatAProgramUses) {
  const auto p = Program::parse(Kind::mask, "q_idx - kv_idx < w && flags[h] && big - big == 0", kNames);
  ASSERT_TRUE(p.ok());
  EXPECT_TRUE(p->uses_scalar(0));
  EXPECT_FALSE(p->uses_scalar(1));
  EXPECT_FALSE(p->uses_scalar(2)) << "what cancels is not used";
  EXPECT_TRUE(p->uses_table(2));
  EXPECT_FALSE(p->uses_table(0));
}

TEST(CanonicalForm, IsItsOwnCanonicalForm) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    test_support::Random random(seed);
    const test_support::RandomProgram r = test_support::random_program(random, {});
    for (const Kind kind : {Kind::mask, Kind::score}) {
      const auto once = Program::parse(kind, kind == Kind::mask ? r.mask : r.score, r.declarations);
      ASSERT_TRUE(once.ok()) << once.status().message();
      const auto twice = Program::parse(kind, once->text(), r.declarations);
      ASSERT_TRUE(twice.ok()) << "seed " << seed << "\n" << once->text() << "\n" << twice.status().message();
      ASSERT_EQ(twice->text(), once->text()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace saccade::expr
