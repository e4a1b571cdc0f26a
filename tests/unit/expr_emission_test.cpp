// What kernels decide (the emitted rules, compiled) against what the host decides, and both against the program as
// written.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/expr_compiled.h"

namespace saccade::test_support {
namespace {

using expr::Kind;
using expr::Program;

struct Case {
  RandomProgramSizes sizes;
  RandomProgram random;
  Program mask{Kind::mask}, score{Kind::score};
};

double read_table(const void* program, int slot, const long long* index) {
  const RandomTable& t = static_cast<const RandomProgram*>(program)->tables[static_cast<std::size_t>(slot)];
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < t.extent.size(); ++i) {
    if (index[i] < 0 || index[i] >= t.extent[i]) return 0;
    offset = offset * t.extent[i] + index[i];
  }
  return load_as_double(t.dtype, t.bytes.data(), offset);
}

class EmittedRules : public ::testing::Test {
 protected:
  static constexpr int kPrograms = 120;

  static void SetUpTestSuite() {
    seed_ = 20260;
    if (const char* given = std::getenv("SACCADE_TEST_SEED")) seed_ = std::strtoull(given, nullptr, 10);
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    Random random(seed_);
    std::vector<CompiledRulesLibrary::Source> sources;
    for (int i = 0; i < kPrograms; ++i) {
      Case c;
      c.sizes.len_q = random.between(1, 48);
      c.sizes.len_kv = random.between(1, 48);
      c.random = random_program(random, c.sizes);
      const auto mask = Program::parse(Kind::mask, c.random.mask, c.random.declarations);
      const auto score = Program::parse(Kind::score, c.random.score, c.random.declarations);
      ASSERT_TRUE(mask.ok()) << c.random.mask << "\n" << mask.status().message();
      ASSERT_TRUE(score.ok()) << c.random.score << "\n" << score.status().message();
      c.mask = *mask;
      c.score = *score;
      sources.push_back({emit_rules(c.mask, c.score, c.random.declarations),
                         emit_rules(c.mask, c.score, c.random.declarations, expr::TableRanges::given),
                         c.random.mask_cpp, c.random.score_cpp});
      cases_.push_back(std::move(c));
    }
    library_ = std::make_unique<CompiledRulesLibrary>(sources);
    ASSERT_EQ(library_->size(), cases_.size()) << "the emitted rules did not compile";
  }
  static void TearDownTestSuite() {
    library_.reset();
    cases_.clear();
  }

  void SetUp() override { ASSERT_TRUE(library_ && library_->size() == cases_.size()); }

  static std::string describe(std::size_t i) {
    return "program " + std::to_string(i) + " of seed " + std::to_string(seed_) + "\n  mask  " + cases_[i].random.mask +
           "\n  canon " + cases_[i].mask.text() + "\n  score " + cases_[i].random.score + "\n  canon " +
           cases_[i].score.text();
  }

  static std::uint64_t seed_;
  static std::vector<Case> cases_;
  static std::unique_ptr<CompiledRulesLibrary> library_;
};
std::uint64_t EmittedRules::seed_ = 0;
std::vector<Case> EmittedRules::cases_;
std::unique_ptr<CompiledRulesLibrary> EmittedRules::library_;

TEST_F(EmittedRules, KeepWhatTheTextAsWrittenKeeps) {
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const Case& c = cases_[i];
    const expr::Bindings bindings = c.random.bindings();
    const KernelParams params = params_of(c.random.declarations, bindings);
    for (int b = 0; b < 2; ++b)
      for (int h = 0; h < 3; ++h)
        for (int q = 0; q < c.sizes.len_q; ++q)
          for (int kv = 0; kv < c.sizes.len_kv; ++kv) {
            const Element e{b, h, q, kv, static_cast<int>(c.sizes.len_q), static_cast<int>(c.sizes.len_kv)};
            const RawPoint raw{b,          h,        q, kv, c.sizes.len_q, c.sizes.len_kv, 0, c.random.scalars.data(),
                               read_table, &c.random};
            const bool written = (*library_)[i].raw_mask(raw);
            ASSERT_EQ((*library_)[i].keep(params, e), written)
                << describe(i) << "\n b h q kv " << b << h << q << " " << kv;
            const expr::Point point{b, h, q, kv, c.sizes.len_q, c.sizes.len_kv};
            ASSERT_EQ(evaluate(c.mask, c.random.declarations, bindings, point), written ? 1 : 0)
                << describe(i) << "\n b h q kv " << b << h << q << " " << kv;
          }
  }
}

TEST_F(EmittedRules, ScoreLikeTheTextAsWritten) {
  Random random(seed_ + 1);
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const Case& c = cases_[i];
    const expr::Bindings bindings = c.random.bindings();
    const KernelParams params = params_of(c.random.declarations, bindings);
    for (int sample = 0; sample < 300; ++sample) {
      const auto b = random.between(0, 1), h = random.between(0, 2), q = random.between(0, c.sizes.len_q - 1),
                 kv = random.between(0, c.sizes.len_kv - 1);
      const double score = static_cast<float>(3 * random.normal());
      const RawPoint raw{b,          h,        q, kv, c.sizes.len_q, c.sizes.len_kv, score, c.random.scalars.data(),
                         read_table, &c.random};
      const double written = (*library_)[i].raw_score(raw);
      const double exact =
          evaluate(c.score, c.random.declarations, bindings, {b, h, q, kv, c.sizes.len_q, c.sizes.len_kv}, score);
      ASSERT_NEAR(exact, written, 1e-9 * std::max(1.0, std::abs(written))) << describe(i);
      const auto base = static_cast<int>(random.between(0, kv));
      const Element e{.b = static_cast<int>(b),
                      .h = static_cast<int>(h),
                      .q_idx = static_cast<int>(q),
                      .kv_idx = static_cast<int>(kv),
                      .len_q = static_cast<int>(c.sizes.len_q),
                      .len_kv = static_cast<int>(c.sizes.len_kv),
                      .kv_base = base,
                      .kv_offset = static_cast<float>(kv - base)};
      const float kernel = (*library_)[i].score(params, e, static_cast<float>(score));
      ASSERT_NEAR(kernel, exact, 2e-5 * std::max(1.0, std::abs(exact))) << describe(i);
    }
  }
}

/// Random tiles of the case's S, ends within the lengths.
Tile random_tile(Random& random, const RandomProgramSizes& sizes) {
  Tile t{};
  t.b = static_cast<int>(random.between(0, 1));
  t.h = static_cast<int>(random.between(0, 2));
  t.len_q = static_cast<int>(sizes.len_q);
  t.len_kv = static_cast<int>(sizes.len_kv);
  t.q_first = static_cast<int>(random.between(0, sizes.len_q - 1));
  t.q_last = static_cast<int>(random.between(t.q_first, sizes.len_q - 1));
  t.kv_first = static_cast<int>(random.between(0, sizes.len_kv - 1));
  t.kv_last = static_cast<int>(random.between(t.kv_first, sizes.len_kv - 1));
  return t;
}
expr::TileRange range_of(const Tile& t) {
  return {t.b, t.h, t.q_first, t.q_last, t.kv_first, t.kv_last, t.len_q, t.len_kv};
}

TEST_F(EmittedRules, ClassifyTilesLikeTheHost) {
  Random random(seed_ + 2);
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const Case& c = cases_[i];
    const expr::Bindings bindings = c.random.bindings();
    const KernelParams params = params_of(c.random.declarations, bindings);
    for (int sample = 0; sample < 300; ++sample) {
      const Tile t = random_tile(random, c.sizes);
      const TileClass expected = classify(c.mask, c.random.declarations, bindings, range_of(t));
      ASSERT_EQ((*library_)[i].tile_class(params, t), expected) << describe(i);
      ASSERT_EQ((*library_)[i].tile_class_of_ranges(params, t), expected) << describe(i);
      const KvRange kernel = (*library_)[i].kv_range(params, t);
      const expr::KvRange host = kv_range(c.mask, c.random.declarations, bindings, range_of(t));
      ASSERT_EQ(kernel.begin, host.begin) << describe(i);
      ASSERT_EQ(kernel.end, host.end) << describe(i);
    }
  }
}

/// Integer scalars at the ends of their types.
std::vector<double> extreme_scalars(Random& random, const expr::Declarations& declarations) {
  std::vector<double> values;
  for (const expr::ScalarDeclaration& s : declarations.scalars) {
    const std::int64_t value = random.pick({std::int64_t{-2147483648LL}, std::int64_t{2147483647}, std::int64_t{-1},
                                            std::int64_t{0}, std::int64_t{1} << 40, -(std::int64_t{1} << 53)});
    const bool wide = s.type != expr::Type::i32;
    values.push_back(static_cast<double>(wide ? value : wrap<int>(value)));
  }
  return values;
}

TEST_F(EmittedRules, AgreeWithTheHostWhereArithmeticWraps) {
  Random random(seed_ + 4);
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const Case& c = cases_[i];
    expr::Bindings bindings = c.random.bindings();
    for (int sample = 0; sample < 100; ++sample) {
      bindings.scalars = extreme_scalars(random, c.random.declarations);
      const KernelParams params = params_of(c.random.declarations, bindings);
      const Tile t = random_tile(random, c.sizes);
      const Element e{t.b, t.h, t.q_first, t.kv_first, t.len_q, t.len_kv};
      const expr::Point point{t.b, t.h, t.q_first, t.kv_first, t.len_q, t.len_kv};
      ASSERT_EQ((*library_)[i].keep(params, e), evaluate(c.mask, c.random.declarations, bindings, point) != 0)
          << describe(i);
      const TileClass expected = classify(c.mask, c.random.declarations, bindings, range_of(t));
      ASSERT_EQ((*library_)[i].tile_class(params, t), expected) << describe(i);
      ASSERT_EQ((*library_)[i].tile_class_of_ranges(params, t), expected) << describe(i);
      const KvRange kernel = (*library_)[i].kv_range(params, t);
      const expr::KvRange host = kv_range(c.mask, c.random.declarations, bindings, range_of(t));
      ASSERT_EQ(kernel.begin, host.begin) << describe(i);
      ASSERT_EQ(kernel.end, host.end) << describe(i);
    }
  }
}

TEST_F(EmittedRules, NeverClassifyAgainstTheElements) {
  Random random(seed_ + 3);
  int decided = 0, narrowed = 0;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const Case& c = cases_[i];
    const KernelParams params = params_of(c.random.declarations, c.random.bindings());
    for (int sample = 0; sample < 100; ++sample) {
      const Tile t = random_tile(random, c.sizes);
      const TileClass found = (*library_)[i].tile_class(params, t);
      const KvRange range = (*library_)[i].kv_range(params, t);
      ASSERT_LE(0, range.begin);
      ASSERT_LE(range.end, t.len_kv);
      decided += found != TileClass::mixed;
      narrowed += range.end - range.begin < t.len_kv;
      for (int q = t.q_first; q <= t.q_last; ++q)
        for (int kv = 0; kv < t.len_kv; ++kv) {
          const bool kept = (*library_)[i].keep(params, {t.b, t.h, q, kv, t.len_q, t.len_kv});
          ASSERT_TRUE(!kept || (range.begin <= kv && kv < range.end)) << describe(i) << "\nq " << q << " kv " << kv;
          if (kv < t.kv_first || kv > t.kv_last || found == TileClass::mixed) continue;
          ASSERT_EQ(kept, found == TileClass::full) << describe(i) << "\nq " << q << " kv " << kv;
        }
    }
  }
  // A classifier that never decides would be sound too.
  EXPECT_GT(decided, 1000);
  EXPECT_GT(narrowed, 1000);
}

}  // namespace
}  // namespace saccade::test_support
