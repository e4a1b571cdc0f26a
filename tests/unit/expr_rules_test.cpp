// The named constructors, each against the rule written by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "generator/expr/program.h"

namespace saccade::expr {
namespace {

using Keeps = std::function<bool(const Point&)>;

struct Context {
  Declarations names;
  Bindings bindings;
};

void expect_rule(const std::string& text, const Keeps& keeps, const Context& context = {}) {
  const auto program = Program::parse(Kind::mask, text, context.names);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const std::int64_t lengths[][2] = {{1, 7}, {2, 5}, {5, 2}, {13, 13}, {3, 40}, {40, 9}};
  for (const auto& [len_q, len_kv] : lengths)
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t q = 0; q < len_q; ++q)
        for (std::int64_t kv = 0; kv < len_kv; ++kv) {
          const Point p{b, 1, q, kv, len_q, len_kv};
          ASSERT_EQ(evaluate(*program, context.names, context.bindings, p) != 0, keeps(p))
              << text << "\nq " << q << " of " << len_q << ", kv " << kv << " of " << len_kv;
        }
}

TEST(NamedRules, CausalTopLeft) {
  expect_rule(rules::causal_top_left(), [](const Point& p) { return p.kv_idx <= p.q_idx; });
}

TEST(NamedRules, CausalBottomRight) {
  expect_rule(rules::causal_bottom_right(), [](const Point& p) { return p.kv_idx <= p.q_idx + p.len_kv - p.len_q; });
}

TEST(NamedRules, CausalAlignmentsDifferExactlyWhereLengthsDo) {
  const auto rows = [](const std::string& text, std::int64_t len_q, std::int64_t len_kv) {
    const auto program = Program::parse(Kind::mask, text, {});
    std::string kept;
    for (std::int64_t q = 0; q < len_q; ++q) {
      for (std::int64_t kv = 0; kv < len_kv; ++kv)
        kept += evaluate(*program, {}, {}, {0, 0, q, kv, len_q, len_kv}) != 0 ? '1' : '0';
      kept += ' ';
    }
    return kept;
  };
  EXPECT_EQ(rows(rules::causal_top_left(), 2, 5), "10000 11000 ");
  EXPECT_EQ(rows(rules::causal_bottom_right(), 2, 5), "11110 11111 ");
  EXPECT_EQ(rows(rules::causal_bottom_right(), 5, 2), "00 00 00 10 11 ");
}

TEST(NamedRules, Window) {
  for (const int left : {-1, 0, 3})
    for (const int right : {-1, 0, 2})
      for (const bool bottom_right : {false, true}) {
        const Keeps keeps = [=](const Point& p) {
          const std::int64_t i = p.q_idx + (bottom_right ? p.len_kv - p.len_q : 0);
          return (left < 0 || p.kv_idx >= i - left) && (right < 0 || p.kv_idx <= i + right);
        };
        expect_rule(rules::window(std::to_string(left), std::to_string(right), bottom_right), keeps);
        // The same bounds as run-time values.
        const Context context{{{{"l", Type::i32}, {"r", Type::i64}}, {}},
                              {{static_cast<double>(left), static_cast<double>(right)}, {}}};
        expect_rule(rules::window("l", "r", bottom_right), keeps, context);
      }
}

TEST(NamedRules, Prefix) {
  for (const int length : {0, 1, 6, 100}) {
    const Keeps keeps = [=](const Point& p) { return p.kv_idx < length || p.kv_idx <= p.q_idx; };
    expect_rule(rules::prefix(std::to_string(length)), keeps);
    expect_rule(rules::prefix("n"), keeps, {{{{"n", Type::i32}}, {}}, {{static_cast<double>(length)}, {}}});
  }
}

TEST(NamedRules, Chunked) {
  for (const int chunk : {1, 4, 64}) {
    const Keeps keeps = [=](const Point& p) { return p.q_idx / chunk == p.kv_idx / chunk; };
    expect_rule(rules::chunked(std::to_string(chunk)), keeps);
    expect_rule(rules::chunked("c"), keeps, {{{{"c", Type::i32}}, {}}, {{static_cast<double>(chunk)}, {}}});
  }
}

TEST(NamedRules, Document) {
  std::vector<std::int16_t> documents;
  for (int i = 0; i < 2 * 40; ++i) documents.push_back(static_cast<std::int16_t>(i % 40 / (i < 40 ? 7 : 11)));
  const auto document = [&](std::int64_t b, std::int64_t i) { return documents[static_cast<std::size_t>(b * 40 + i)]; };
  expect_rule(rules::document("doc"), [&](const Point& p) { return document(p.b, p.q_idx) == document(p.b, p.kv_idx); },
              {{{}, {{"doc", DataType::i16, 2}}}, {{}, {{documents.data(), {2, 40}, {40, 1}}}}});
}

TEST(NamedRules, CombineWithAndOrNot) {
  const Keeps causal = [](const Point& p) { return p.kv_idx <= p.q_idx; };
  const Keeps chunk = [](const Point& p) { return p.kv_idx / 4 == p.q_idx / 4; };
  const std::string a = rules::causal_top_left(), b = rules::chunked("4"), c = rules::prefix("3");
  expect_rule("(" + a + ") && (" + b + ")", [&](const Point& p) { return causal(p) && chunk(p); });
  expect_rule("(" + a + ") || (" + b + ")", [&](const Point& p) { return causal(p) || chunk(p); });
  expect_rule("!(" + a + ")", [&](const Point& p) { return !causal(p); });
  expect_rule("(" + c + ") && !(" + b + ")", [&](const Point& p) { return (p.kv_idx < 3 || causal(p)) && !chunk(p); });
}

TEST(NamedRules, AlibiSoftcapAndBias) {
  const std::vector<float> slopes = {0.5f, 0.25f, 0.125f};
  std::vector<float> bias(2 * 3 * 4 * 5);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = 0.01f * static_cast<float>(i);
  const Declarations names{{{"cap", Type::f32}}, {{"slopes", DataType::f32, 1}, {"bias", DataType::f32, 4}}};
  const Bindings bindings{{30}, {{slopes.data(), {3}, {1}}, {bias.data(), {2, 3, 4, 5}, {60, 20, 5, 1}}}};
  const auto value = [&](const std::string& text, const Point& p, double score) {
    const auto program = Program::parse(Kind::score, text, names);
    EXPECT_TRUE(program.ok()) << program.status().message();
    return evaluate(*program, names, bindings, p, score);
  };
  for (std::int64_t h = 0; h < 3; ++h)
    for (std::int64_t q = 0; q < 4; ++q)
      for (std::int64_t kv = 0; kv < 5; ++kv) {
        const Point p{1, h, q, kv, 4, 5};
        const double slope = slopes[static_cast<std::size_t>(h)];
        EXPECT_EQ(value(rules::alibi("slopes", false), p, 1.5), 1.5 + slope * static_cast<double>(kv - q));
        EXPECT_EQ(value(rules::alibi("slopes", true), p, 1.5), 1.5 + slope * static_cast<double>(kv - q - 1));
        EXPECT_DOUBLE_EQ(value(rules::softcap("cap"), p, 45), 30 * std::tanh(1.5));
        const double expected = 1.5 + bias[static_cast<std::size_t>(60 + 20 * h + 5 * q + kv)];
        EXPECT_EQ(value(rules::bias("bias"), p, 1.5), expected);
      }
}

TEST(NamedRules, BiasBroadcastsOverStrideZero) {
  const std::vector<float> row = {1, 2, 3};
  const Declarations names{{}, {{"bias", DataType::f32, 4}}};
  const Bindings bindings{{}, {{row.data(), {9, 9, 9, 3}, {0, 0, 0, 1}}}};
  const auto program = Program::parse(Kind::score, rules::bias("bias"), names);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(evaluate(*program, names, bindings, {8, 7, 6, 2, 9, 3}, 10), 13);
}

// Trap 67: asking for a mask and causal together keeps what both keep.
TEST(NamedRules, AMaskAndCausalTogetherLoseNeither) {
  const std::vector<std::uint8_t> flags = {1, 0, 1, 0, 1};
  const Context context{{{}, {{"keep", DataType::boolean, 1}}}, {{}, {{flags.data(), {5}, {1}}}}};
  expect_rule(
      "keep[kv_idx] && (" + rules::causal_top_left() + ")",
      [&](const Point& p) {
        return p.kv_idx < 5 && flags[static_cast<std::size_t>(p.kv_idx)] != 0 && p.kv_idx <= p.q_idx;
      },
      context);
}

}  // namespace
}  // namespace saccade::expr
