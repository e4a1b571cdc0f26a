// Shapes, and the share of tiles that a mask leaves.
#include <gtest/gtest.h>

#include "generator/shape.h"

namespace saccade {
namespace {

Problem masked(const std::string& mask, const expr::Declarations& names = {}) {
  Problem p;
  p.declarations = names;
  const auto program = expr::Program::parse(expr::Kind::mask, mask, names);
  EXPECT_TRUE(program.ok()) << program.status().message();
  p.mask = *program;
  return p;
}
Shape square(std::int64_t length) {
  Shape s;
  s.seqlen_q = s.seqlen_kv = length;
  return s;
}

TEST(ShapeValidation, TakesZeroSizesAndRefusesTheImpossible) {
  Problem dense, varlen;
  varlen.layout = Layout::varlen;
  EXPECT_TRUE(validate(Shape(), dense).ok());
  EXPECT_TRUE(validate(Shape{0, 0, 0, 0, 0, 0, 0, 2}, dense).ok());
  EXPECT_TRUE(validate(Shape{2, 28, 4, 100, 50, 130, 90, 16}, varlen).ok());
  const auto message = [](const Shape& s, const Problem& p) { return validate(s, p).message(); };
  EXPECT_EQ(message({-1, 1, 1, 0, 0, 0, 0, 16}, dense), "batch is -1; 0 to 1073741823 is possible");
  EXPECT_EQ(message({1, 1, 1, 0, 1LL << 30, 0, 0, 16}, dense), "seqlen_kv is 1073741824; 0 to 1073741823 is possible");
  EXPECT_EQ(message({1, 6, 4, 8, 8, 0, 0, 16}, dense),
            "heads_q is 6 and heads_kv is 4; heads_q must be a multiple of heads_kv");
  EXPECT_EQ(message({1, 6, 0, 8, 8, 0, 0, 16}, dense),
            "heads_q is 6 and heads_kv is 0; heads_q must be a multiple of heads_kv");
  EXPECT_EQ(message({1, 1, 1, 8, 8, 8, 0, 16}, dense), "total_q is 8; a dense problem has none (0)");
  EXPECT_EQ(message({2, 1, 1, 8, 8, -1, 8, 16}, varlen), "total_q is -1; 0 to 1099511627776 is possible");
  EXPECT_EQ(message({2, 8, 4, 8, 8, 8, (1LL << 38) + 1, 16}, varlen),
            "total_kv is 274877906945; at most 2^40 rows of all 4 heads are possible");
  EXPECT_EQ(message({1, 1, 1, 8, 8, 0, 0, 3}, dense), "alignment is 3; 1, 2, 4, 8 or 16 bytes are possible");
}

TEST(ShapeValidation, TakesVarlenCallsThatArePadded) {
  Problem varlen;
  varlen.layout = Layout::varlen;
  EXPECT_TRUE(validate({4, 8, 2, 4096, 4096, 100, 50, 16}, varlen).ok()) << "a bound above every length";
  EXPECT_TRUE(validate({2, 8, 2, 1, 100, 64, 1000, 16}, varlen).ok()) << "rows of no sequence";
  EXPECT_TRUE(validate({0, 8, 2, 0, 0, 64, 64, 16}, varlen).ok());
  EXPECT_TRUE(validate({2, 8, 2, 16, 16, 0, 0, 16}, varlen).ok());
}

TEST(ShapeValidation, RefusesProductsThatNoMemoryHoldsAndTakesThoseThatAreZero) {
  constexpr std::int64_t kMost = (1LL << 30) - 1;
  Problem dense, varlen;
  varlen.layout = Layout::varlen;
  const auto message = [](const Shape& s, const Problem& p) { return validate(s, p).message(); };
  EXPECT_EQ(message({kMost, kMost, kMost, kMost, 0, 0, 0, 16}, dense),
            "batch x heads_q x seqlen_q is 1073741823 x 1073741823 x 1073741823; at most 2^40 is possible");
  EXPECT_EQ(message({1 << 20, 1 << 10, 1 << 10, 1, 1025, 0, 0, 16}, dense),
            "batch x heads_kv x seqlen_kv is 1048576 x 1024 x 1025; at most 2^40 is possible");
  EXPECT_EQ(message({4, 1 << 10, 1 << 10, (1 << 28) + 1, 1, 1 << 30, 4, 16}, varlen),
            "batch x heads_q x seqlen_q is 4 x 1024 x 268435457; at most 2^40 is possible");
  EXPECT_TRUE(validate({4, 1 << 10, 1 << 10, 1 << 28, 1, 1 << 30, 4, 16}, varlen).ok());
  EXPECT_TRUE(validate({1 << 20, 1 << 10, 1 << 10, 1 << 10, 1 << 10, 0, 0, 16}, dense).ok());
  EXPECT_TRUE(validate({kMost, kMost, kMost, 0, 0, 0, 0, 16}, dense).ok());
}

TEST(MaskDensity, IsWholeWithoutAMaskAndNothingWithoutPairs) {
  EXPECT_EQ(mask_density(Problem(), square(4096), {}, 128, 64).computed, 1);
  EXPECT_EQ(mask_density(Problem(), square(4096), {}, 128, 64).mixed, 0);
  EXPECT_EQ(mask_density(masked("kv_idx <= q_idx"), square(0), {}, 128, 64).computed, 0);
}

/// What counting every tile gives.
MaskDensity counted(const Problem& p, const Shape& s, const expr::Bindings& bindings, int m, int n) {
  MaskDensity d{0, 0};
  for (std::int64_t q = 0; q < s.seqlen_q; q += m)
    for (std::int64_t kv = 0; kv < s.seqlen_kv; kv += n) {
      const expr::TileRange t{
          0, 0, q, std::min(q + m, s.seqlen_q) - 1, kv, std::min(kv + n, s.seqlen_kv) - 1, s.seqlen_q, s.seqlen_kv};
      const auto pairs = static_cast<double>((t.q_last - t.q_first + 1) * (t.kv_last - t.kv_first + 1));
      const TileClass found = classify(p.mask, p.declarations, bindings, t);
      if (found != TileClass::empty) d.computed += pairs;
      if (found == TileClass::mixed) d.mixed += pairs;
    }
  const auto all = static_cast<double>(s.seqlen_q) * static_cast<double>(s.seqlen_kv);
  return {d.computed / all, d.mixed / all};
}

TEST(MaskDensity, IsCloseToCountingEveryTile) {
  const char* masks[] = {"kv_idx <= q_idx", "kv_idx <= q_idx && q_idx - kv_idx < 512", "q_idx // 256 == kv_idx // 256",
                         "kv_idx < 128 || kv_idx <= q_idx", "abs(q_idx - kv_idx) > 700"};
  for (const char* mask : masks)
    for (const std::int64_t length : {100, 512, 2048, 8192}) {
      const Problem p = masked(mask);
      const Shape s = square(length);
      const MaskDensity sampled = mask_density(p, s, {}, 128, 64), exact = counted(p, s, {}, 128, 64);
      EXPECT_NEAR(sampled.computed, exact.computed, 0.06) << mask << " " << length;
      EXPECT_NEAR(sampled.mixed, exact.mixed, 0.06) << mask << " " << length;
      const MaskDensity again = mask_density(p, s, {}, 128, 64);
      EXPECT_EQ(again.computed, sampled.computed) << "sampling is deterministic";
    }
}

TEST(MaskDensity, KnowsHowTheRowTilesDiffer) {
  EXPECT_TRUE(mask_density(Problem(), square(4096), {}, 128, 64).rows.empty());
  EXPECT_TRUE(mask_density(masked("kv_idx <= q_idx"), square(0), {}, 128, 64).rows.empty());
  const std::vector<double> causal = mask_density(masked("kv_idx <= q_idx"), square(1024), {}, 128, 128).rows;
  ASSERT_EQ(causal.size(), 8u) << "each, where they are few";
  for (std::size_t row = 0; row < causal.size(); ++row)
    EXPECT_NEAR(causal[row], static_cast<double>(row + 1) / 8, 1e-9) << row;
  const std::vector<double> window = mask_density(masked("abs(q_idx - kv_idx) < 512"), square(8192), {}, 128, 64).rows;
  EXPECT_NEAR(window.front(), (512.0 + 128) / 8192, 1e-9);
  EXPECT_NEAR(window.back(), (512.0 + 128) / 8192, 1e-9);
  EXPECT_NEAR(window[window.size() / 2], (1024.0 + 128) / 8192, 0.01);
  const std::vector<double> heads =
      mask_density(masked("h == 0 || kv_idx < 512"), {1, 2, 2, 1024, 1024}, {}, 128, 128).rows;
  for (const double row : heads) EXPECT_NEAR(row, 0.75, 1e-9) << "the mean of both heads";
}

TEST(MaskDensity, KnowsTheLongestRowTile) {
  EXPECT_EQ(mask_density(Problem(), square(4096), {}, 128, 64).longest, 1);
  EXPECT_EQ(mask_density(masked("kv_idx <= q_idx"), square(4096), {}, 128, 64).longest, 1);
  const Problem window = masked("kv_idx <= q_idx && q_idx - kv_idx < 512");
  EXPECT_NEAR(mask_density(window, square(4096), {}, 128, 64).longest, (512.0 + 128) / 4096, 0.02);
  EXPECT_EQ(mask_density(masked("kv_idx <= q_idx"), square(0), {}, 128, 64).longest, 0);
}

TEST(MaskDensity, CountsTablesWithoutDataAsMixed) {
  const Problem p = masked(expr::rules::document("doc"), {{}, {{"doc", DataType::i32, 2}}});
  const MaskDensity d = mask_density(p, square(1024), {{}, {{}}}, 128, 64);
  EXPECT_EQ(d.computed, 1);
  EXPECT_EQ(d.mixed, 1);
}

TEST(MaskDensity, PlansVarlenWithTheMeanLength) {
  Problem p = masked("kv_idx <= q_idx");
  p.layout = Layout::varlen;
  const Shape s{4, 1, 1, 4096, 4096, 4 * 128, 4 * 128, 16};
  const MaskDensity d = mask_density(p, s, {}, 128, 128);
  EXPECT_EQ(d.computed, 1) << "one mixed tile a sequence";
  EXPECT_EQ(d.mixed, 1);
}

}  // namespace
}  // namespace saccade
