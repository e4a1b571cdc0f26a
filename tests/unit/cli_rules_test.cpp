#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cli/named_rules.h"
#include "generator/expr/program.h"

namespace saccade::cli {
namespace {

expr::Declarations declarations() {
  expr::Declarations result;
  result.scalars = {{"left", expr::Type::i32}, {"cap", expr::Type::f32}};
  result.tables = {{"doc", DataType::i32, 2},
                   {"valid", DataType::i32, 1},
                   {"slopes", DataType::f32, 1},
                   {"bias4", DataType::f32, 4}};
  return result;
}

TEST(NamedRules, EveryNamedMaskIsAProgram) {
  for (const char* name : {"full", "causal", "causal-tl", "causal-br", "window:left,0", "window:3,-1", "window-br:3,4",
                           "prefix:7", "chunked:16", "document:doc", "padding:valid"}) {
    const auto text = mask_text(name, true);
    ASSERT_TRUE(text.ok()) << name;
    const auto program = expr::Program::parse(expr::Kind::mask, *text, declarations());
    EXPECT_TRUE(program.ok()) << name << ": " << program.status().message();
  }
}

TEST(NamedRules, EveryNamedScoreIsAProgram) {
  for (const char* name : {"softcap:50", "softcap:cap", "alibi", "alibi:slopes", "alibi-br", "bias:bias4"}) {
    const auto text = score_text(name, true);
    ASSERT_TRUE(text.ok()) << name;
    const auto program = expr::Program::parse(expr::Kind::score, *text, declarations());
    EXPECT_TRUE(program.ok()) << name << ": " << program.status().message();
  }
}

TEST(NamedRules, ArgumentsThatAreExpressionsStayWhole) {
  EXPECT_EQ(*mask_text("chunked:2*left", true), "q_idx // (2*left) == kv_idx // (2*left)");
  EXPECT_EQ(*score_text("softcap:cap*2", true), "(cap*2) * tanh(score / (cap*2))");
  EXPECT_EQ(*mask_text("prefix:left + 1", true), "kv_idx < (left + 1) || kv_idx <= q_idx");
}

TEST(NamedRules, RulesAreCombinedWhole) {
  const std::vector<std::string> escaping = {"true) || (true", "causal"};
  EXPECT_EQ(combined_mask(escaping, true).status().code(), StatusCode::invalid_argument);
  const std::vector<std::string> bomb(60, "score + score");
  EXPECT_EQ(combined_score(bomb, true).status().code(), StatusCode::invalid_argument);
  for (const char* none : {"chunked:0", "chunked:00"})
    EXPECT_EQ(mask_text(none, true).status().code(), StatusCode::invalid_argument) << none;
}

TEST(NamedRules, CausalAloneNeedsEqualLengths) {
  EXPECT_TRUE(mask_text("causal", true).ok());
  const Status status = mask_text("causal", false).status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_NE(status.message().find("causal-br"), std::string::npos);
}

TEST(NamedRules, WrongArgumentsNameTheUsage) {
  for (const char* name : {"window", "window:3", "window:3,", "window:1,2,3", "causal-br:1", "chunked:"}) {
    const Status status = mask_text(name, true).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << name;
    EXPECT_NE(status.message().find("takes"), std::string::npos) << status.message();
  }
}

TEST(NamedRules, AnythingElseIsAnExpression) {
  const std::string text = "kv_idx % 2 == 0 ? true : kv_idx <= q_idx";
  EXPECT_EQ(*mask_text(text, false), text);
}

TEST(NamedRules, MasksKeepWhatAllOfThemKeep) {
  const std::vector<std::string> masks = {"causal-tl", "kv_idx >= 2"};
  const auto text = combined_mask(masks, true);
  ASSERT_TRUE(text.ok());
  const auto program = expr::Program::parse(expr::Kind::mask, *text, {});
  ASSERT_TRUE(program.ok()) << program.status().message();
  for (std::int64_t q = 0; q < 5; ++q)
    for (std::int64_t kv = 0; kv < 5; ++kv)
      EXPECT_EQ(expr::evaluate(*program, {}, {}, {0, 0, q, kv, 5, 5}) != 0, kv <= q && kv >= 2);
}

TEST(NamedRules, ScoresAreAppliedInOrder) {
  const std::vector<std::string> scores = {"score + 3", "softcap:2", "score * score"};
  const auto text = combined_score(scores, true);
  ASSERT_TRUE(text.ok());
  const auto program = expr::Program::parse(expr::Kind::score, *text, {});
  ASSERT_TRUE(program.ok()) << *text << program.status().message();
  const double capped = 2 * std::tanh((0.25 + 3) / 2);
  EXPECT_NEAR(expr::evaluate(*program, {}, {}, {0, 0, 0, 0, 1, 1}, 0.25), capped * capped, 1e-6);
}

TEST(NamedRules, AlibiSlopesAreThePapers) {
  const std::vector<float> eight = alibi_slopes(8);
  for (int h = 0; h < 8; ++h)
    EXPECT_FLOAT_EQ(eight[static_cast<std::size_t>(h)], std::exp2(-static_cast<float>(h + 1)));
  // The authors' code for 12 heads: those of 8, then every other one of 16.
  const std::vector<float> twelve = alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12U);
  EXPECT_FLOAT_EQ(twelve[7], std::exp2(-8.0f));
  EXPECT_FLOAT_EQ(twelve[8], std::exp2(-0.5f));
  EXPECT_FLOAT_EQ(twelve[11], std::exp2(-3.5f));
  EXPECT_TRUE(alibi_slopes(0).empty());
}

}  // namespace
}  // namespace saccade::cli
