// Grammar, types and messages of the expression language.
#include <gtest/gtest.h>

#include "generator/expr/program.h"

namespace saccade::expr {
namespace {

const Declarations kNames{
    .scalars = {{"window", Type::i32}, {"cap", Type::f32}, {"big", Type::i64}},
    .tables = {{"doc", DataType::i32, 2}, {"slopes", DataType::f32, 1}, {"flags", DataType::boolean, 1}},
};

std::string canonical(Kind kind, std::string_view text) {
  const Expected<Program> program = Program::parse(kind, text, kNames);
  return program.ok() ? program->text() : "error: " + program.status().message();
}
std::string mask(std::string_view text) { return canonical(Kind::mask, text); }
std::string score(std::string_view text) { return canonical(Kind::score, text); }

struct Refusal {
  std::string_view text, message;
};

void expect_refusals(Kind kind, const std::vector<Refusal>& refusals) {
  for (const Refusal& r : refusals) {
    const Expected<Program> program = Program::parse(kind, r.text, kNames);
    ASSERT_FALSE(program.ok()) << r.text;
    EXPECT_EQ(program.status().code(), StatusCode::invalid_argument);
    EXPECT_NE(program.status().message().find(r.message), std::string::npos)
        << r.text << "\ngave " << program.status().message() << "\nwanted " << r.message;
  }
}

TEST(ExpressionParser, FollowsTheGrammarsPrecedence) {
  EXPECT_EQ(score("score - 1.5 - 2.5 * cap"), score("((score - 1.5) - (2.5 * cap))"));
  EXPECT_EQ(score("-score * cap"), score("(-score) * cap"));
  EXPECT_EQ(score("score / cap / 2.0"), score("(score / cap) / 2.0"));
  EXPECT_EQ(mask("q_idx < 4 || kv_idx < 3 && h == 1"), mask("(q_idx < 4) || ((kv_idx < 3) && (h == 1))"));
  EXPECT_EQ(mask("! q_idx < 4 && h == 1"), mask("(!(q_idx < 4)) && h == 1"));
  EXPECT_EQ(score("q_idx < 4 ? score : h == 1 ? 2.0 : 3.0"), score("q_idx < 4 ? score : (h == 1 ? 2.0 : 3.0)"));
  EXPECT_EQ(mask("q_idx // 4 * 2 <= kv_idx % 3 + 1"), mask("((q_idx // 4) * 2) <= ((kv_idx % 3) + 1)"));
}

TEST(ExpressionParser, TakesAnySpacingAndLines) {
  EXPECT_EQ(mask("kv_idx<=q_idx"), "kv_idx <= q_idx");
  EXPECT_EQ(mask("\n\tkv_idx\r\n <=\n  q_idx \n"), "kv_idx <= q_idx");
}

TEST(ExpressionParser, ReadsNumbersToTheBit) {
  EXPECT_EQ(score("score + .5"), "score + 0.5");
  EXPECT_EQ(score("score + 1e3"), "score + 1000.0");
  EXPECT_EQ(score("score + 0.1"), "score + 0.1");
  EXPECT_EQ(score("score + 1.e-45"), "score + 1e-45");
  EXPECT_EQ(mask("big == -9223372036854775808"), "big == -9223372036854775808");
  EXPECT_EQ(mask("big == 9223372036854775807"), "big == 9223372036854775807");
}

TEST(ExpressionParser, PointsAtTheFirstWrongCharacter) {
  const Expected<Program> program = Program::parse(Kind::mask, "kv_idx <= q_idx &&\n  kv_idx > windw", kNames);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().message(),
            "line 2, column 12: unknown name 'windw'; did you mean 'window'?\n"
            "    kv_idx > windw\n"
            "             ^");
}

TEST(ExpressionParser, ShowsTheEndOfUnfinishedText) {
  EXPECT_EQ(mask(""), "error: line 1, column 1: expected a value, found the end\n  \n  ^");
  EXPECT_EQ(mask("kv_idx <="), "error: line 1, column 10: expected a value, found the end\n  kv_idx <=\n           ^");
}

TEST(ExpressionParser, CutsLongLinesAroundThePlace) {
  const std::string text = std::string(5000, ' ') + "kv_idx < $" + std::string(5000, ' ');
  const Expected<Program> program = Program::parse(Kind::mask, text, kNames);
  ASSERT_FALSE(program.ok());
  EXPECT_NE(program.status().message().find("column 5010: unexpected character '$'"), std::string::npos);
  EXPECT_LT(program.status().message().size(), 300u);
}

TEST(ExpressionParser, RefusesWhatIsNoExpression) {
  expect_refusals(Kind::mask, {
                                  {"kv_idx < q_idx < 3", "comparisons cannot be chained; write a < b && b < c"},
                                  {"kv_idx = 3", "use '==' to compare"},
                                  {"kv_idx < 3 & h == 1", "use '&&'"},
                                  {"kv_idx < 3 | h == 1", "use '||'"},
                                  {"kv_idx < 3 and h == 1", "use '&&'"},
                                  {"kv_idx < 3 or h == 1", "use '||'"},
                                  {"(kv_idx < 3", "expected ')' to close the parenthesis, found the end"},
                                  {"kv_idx < 3)", "expected an operator or the end, found ')'"},
                                  {"kv_idx < 3 ? true", "expected ':' after the first branch"},
                                  {"doc[b, q_idx == 3", "expected ']' to close the index"},
                                  {"doc(b, q_idx) == 3", "expected '[' after the table 'doc'"},
                                  {"min(q_idx, 3 == 3", "expected ')' to close the arguments"},
                                  {"min == 3", "expected '(' after the function 'min'"},
                                  {"window[3] == 2", "'window' is a scalar and takes no index"},
                                  {"kv_idx < 3x", "a number cannot be followed by this"},
                                  {"kv_idx < 1.2.3", "a number cannot be followed by this"},
                                  {"kv_idx \xe2\x89\xa4 3", "unexpected byte 0xe2"},
                                  {std::string_view("kv_idx\0< 3", 10), "unexpected byte 0x00"},
                                  {"3 + !flags[0]", "write (!a)"},
                                  {"kv_idx < 99999999999999999999", "does not fit 64 bits"},
                                  {"kv_idx < 9223372036854775808", "does not fit 64 bits"},
                                  {"kv_idx < 1e39", "does not fit f32"},
                                  {"kv_idx < 1e999", "does not fit f32"},
                                  {"wobble(3) < 2", "unknown name 'wobble'; declare it as a scalar or a table"},
                                  {"q_id < 2", "did you mean 'q_idx'?"},
                              });
}

TEST(ExpressionParser, RefusesWrongTypes) {
  expect_refusals(Kind::mask, {
                                  {"kv_idx + 1", "a mask must be a condition (bool); this is i32"},
                                  {"cap", "a mask must be a condition (bool); this is f32"},
                                  {"score < 3", "'score' is only known in score programs"},
                                  {"kv_idx && h == 1", "'&&' needs a condition (bool), this is i32"},
                                  {"!kv_idx", "'!' needs a condition (bool), this is i32"},
                                  {"kv_idx ? true : false", "'?' needs a condition (bool), this is i32"},
                                  {"true ? 1 : false", "both branches must be conditions, or both numbers"},
                                  {"flags[0] + 1 < 2", "int(...) makes it 0 or 1"},
                                  {"flags[0] < 1", "'<' needs a number, this is a condition (bool)"},
                                  {"flags[0] == 1", "'==' needs a number, this is a condition (bool)"},
                                  {"cap // 2 == 1", "'//' needs an integer, this is f32"},
                                  {"q_idx % cap == 1", "'%' needs an integer, this is f32"},
                                  {"flags[cap]", "a table index needs an integer, this is f32"},
                                  {"flags[true]", "a table index needs a number"},
                                  {"doc[q_idx] == 1", "table 'doc' has rank 2, but 1 index is given"},
                                  {"flags[b, h]", "table 'flags' has rank 1, but 2 indices are given"},
                                  {"abs(1, 2) == 1", "'abs' takes 1 argument, but 2 given"},
                                  {"min(1) == 1", "'min' takes 2 arguments, but 1 given"},
                                  {"exp(flags[0]) < 1", "'exp' needs a number"},
                                  {"-flags[0]", "'-' needs a number"},
                                  {"select(1, 2, 3) == 1", "'select' needs a condition"},
                              });
  expect_refusals(Kind::score, {{"score < 1", "a score must be a number; this is a condition (bool)"}});
}

TEST(ExpressionParser, WidensIntegersToTheWidestOperand) {
  EXPECT_EQ(score("score + q_idx"), "score + q_idx");
  EXPECT_EQ(score("q_idx / 2"), "q_idx / 2.0");
  EXPECT_EQ(score("3"), "3.0");
  EXPECT_EQ(score("kv_idx"), "float(kv_idx)");
  EXPECT_EQ(score("select(h == 1, 2, score)"), "h == 1 ? 2.0 : score");
  EXPECT_EQ(score("float(flags[0]) + score"), "score + float(flags[0])");
}

TEST(ExpressionParser, SurvivesDeepNestingWithAnError) {
  const auto repeated = [](std::string_view piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += piece;
    return text;
  };
  for (const int depth : {250, 4000}) {
    EXPECT_NE(mask(repeated("(", depth) + "true" + repeated(")", depth)).find("nested more than 200"),
              std::string::npos);
    EXPECT_NE(mask(repeated("!", depth) + "flags[0]").find("nested more than 200"), std::string::npos);
    EXPECT_NE(score(repeated("-", depth) + "score").find("nested more than 200"), std::string::npos);
    EXPECT_NE(mask(repeated("true ? ", depth / 2 + 200)).find("error"), std::string::npos);
  }
  EXPECT_NE(score("score" + repeated(" + cap", 250)).find("more than 200 operations deep"), std::string::npos);
  EXPECT_EQ(mask(repeated("(", 150) + "kv_idx < 3" + repeated(")", 150)), "kv_idx < 3");
}

TEST(ExpressionParser, BoundsTheTextAndItsTokens) {
  EXPECT_NE(mask(std::string(70000, ' ')).find("at most 65536 are allowed"), std::string::npos);
  std::string chain = "kv_idx == 0";
  for (int i = 1; i < 1500; ++i) chain += " || kv_idx == " + std::to_string(7 * i);
  EXPECT_EQ(mask(chain).find("error"), std::string::npos) << "a long flat mask is fine";
  for (int i = 1; i < 1500; ++i) chain += "||q_idx==" + std::to_string(7 * i);
  EXPECT_NE(mask(chain).find("more than 8192 tokens"), std::string::npos);
}

TEST(ExpressionDeclarations, AreChecked) {
  const auto problem_of = [](const Declarations& d) {
    return Program::parse(Kind::mask, "true", d).status().message();
  };
  EXPECT_EQ(problem_of({{{"q_idx", Type::i32}}, {}}), "'q_idx' is a name of the expression language; choose another");
  EXPECT_EQ(problem_of({{}, {{"tanh", DataType::f32, 1}}}),
            "'tanh' is a name of the expression language; choose another");
  EXPECT_EQ(problem_of({{{"a", Type::i32}}, {{"a", DataType::f32, 1}}}), "'a' is declared twice");
  EXPECT_NE(problem_of({{{"1a", Type::i32}}, {}}).find("is not a name"), std::string::npos);
  EXPECT_NE(problem_of({{{"", Type::i32}}, {}}).find("is not a name"), std::string::npos);
  EXPECT_NE(problem_of({{{"a b", Type::i32}}, {}}).find("is not a name"), std::string::npos);
  EXPECT_NE(problem_of({{{std::string(65, 'a'), Type::i32}}, {}}).find("is not a name"), std::string::npos);
  EXPECT_NE(problem_of({{{"a", Type::boolean}}, {}}).find("must have type i32, i64 or f32"), std::string::npos);
  EXPECT_NE(problem_of({{}, {{"a", DataType::f32, 5}}}).find("ranks 1 to 4"), std::string::npos);
  EXPECT_NE(problem_of({{}, {{"a", DataType::f32, 0}}}).find("ranks 1 to 4"), std::string::npos);
  Declarations many;
  for (int i = 0; i < 17; ++i) many.scalars.push_back({"s" + std::to_string(i), Type::i32});
  EXPECT_NE(problem_of(many).find("at most 16"), std::string::npos);
  many.scalars.clear();
  for (int i = 0; i < 9; ++i) many.tables.push_back({"t" + std::to_string(i), DataType::i32, 1});
  EXPECT_NE(problem_of(many).find("at most 8"), std::string::npos);
}

}  // namespace
}  // namespace saccade::expr
