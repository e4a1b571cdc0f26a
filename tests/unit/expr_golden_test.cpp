// The emitted text of well-known rules, byte for byte. SACCADE_UPDATE_GOLDEN=1 writes the files anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "generator/expr/program.h"

namespace saccade::expr {
namespace {

struct Golden {
  const char* name;
  std::string mask = "true";
  std::string score = "score";
  TableRanges ranges = TableRanges::read;
};

const Declarations kNames{
    .scalars = {{"left", Type::i32}, {"right", Type::i32}, {"cap", Type::f32}, {"length", Type::i64}},
    .tables = {{"doc", DataType::i32, 2},
               {"slopes", DataType::f32, 1},
               {"bias", DataType::bf16, 4},
               {"keep", DataType::boolean, 1}},
};

std::vector<Golden> goldens() {
  return {
      {"full"},
      {"causal_top_left", rules::causal_top_left()},
      {"causal_bottom_right", rules::causal_bottom_right()},
      {"window_fixed", rules::window("4095", "0", false)},
      {"window_run_time", rules::window("left", "right", true)},
      {"prefix", rules::prefix("length")},
      {"chunked_fixed", rules::chunked("256")},
      {"chunked_run_time", rules::chunked("left")},
      {"causal_document", "(" + rules::causal_bottom_right() + ") && (" + rules::document("doc") + ")"},
      {"causal_document_given", "(" + rules::causal_bottom_right() + ") && (" + rules::document("doc") + ")", "score",
       TableRanges::given},
      {"tables_given",
       "doc[h, doc[b, kv_idx]] == doc[h, q_idx] && keep[kv_idx] && slopes[q_idx] > 0.5 && doc[b, q_idx - kv_idx] > 0",
       "score", TableRanges::given},
      {"causal_given", rules::causal_bottom_right(), "score", TableRanges::given},
      {"key_flags_or_near", "keep[kv_idx] || abs(q_idx - kv_idx) <= left"},
      {"alibi", rules::causal_bottom_right(), rules::alibi("slopes", true)},
      {"softcap_window", rules::window("1023", "0", true), rules::softcap("cap")},
      {"bias", "true", rules::bias("bias")},
      {"distances", "float(kv_idx - q_idx) > cap",
       "score - cap * (q_idx - kv_idx) - cap * abs(q_idx - kv_idx) + exp(kv_idx) + float(2 * kv_idx) + floor(kv_idx + "
       "cap)"},
      {"divisions", "kv_idx / 3.0 < q_idx", "floor(q_idx / 3.0) + select(score / cap > 1, score / cap, cap / score)"},
      {"dilated", "kv_idx <= q_idx && (q_idx - kv_idx) % 4 == 0"},
      {"wrapping", "kv_idx * left < q_idx * q_idx + length", "select(score > cap, cap, score) * 0.5"},
  };
}

class GoldenRules : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenRules, KeepTheirText) {
  const Golden& golden = GetParam();
  const auto mask = Program::parse(Kind::mask, golden.mask, kNames);
  const auto score = Program::parse(Kind::score, golden.score, kNames);
  ASSERT_TRUE(mask.ok() && score.ok());
  const std::string text = emit_rules(*mask, *score, kNames, golden.ranges);
  const std::string path = std::string(SACCADE_TEST_GOLDEN_DIR "/rules_") + golden.name + ".txt";
  if (std::getenv("SACCADE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; SACCADE_UPDATE_GOLDEN=1 writes it";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << path;
  for (std::size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
    EXPECT_LE(end - start, 120u) << text.substr(start, end - start);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenRules, ::testing::ValuesIn(goldens()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace saccade::expr
