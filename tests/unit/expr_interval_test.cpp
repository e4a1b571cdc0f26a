// Tile classes and KV ranges: never against the elements, and exact where kernels depend on it.
#include <gtest/gtest.h>

#include <limits>

#include "generator/expr/program.h"
#include "tests/support/random_program.h"

namespace saccade::expr {
namespace {

struct Rule {
  std::string text;
  Declarations names = {};
  Bindings bindings = {};
};

/// What brute force says of a tile, and of the KV range of its rows.
struct Truth {
  TileClass tile = TileClass::mixed;
  std::int64_t first = 0, end = 0;  ///< of the kept keys; 0, 0 when there are none
};
Truth brute_force(const Program& mask, const Rule& rule, const TileRange& t) {
  int kept = 0;
  Truth truth;
  for (std::int64_t q = t.q_first; q <= t.q_last; ++q)
    for (std::int64_t kv = 0; kv < t.len_kv; ++kv) {
      if (evaluate(mask, rule.names, rule.bindings, {t.b, t.h, q, kv, t.len_q, t.len_kv}) == 0) continue;
      truth.first = truth.end == 0 ? kv : std::min(truth.first, kv);
      truth.end = std::max(truth.end, kv + 1);
      kept += kv >= t.kv_first && kv <= t.kv_last;
    }
  const auto pairs = (t.q_last - t.q_first + 1) * (t.kv_last - t.kv_first + 1);
  truth.tile = kept == 0 ? TileClass::empty : kept == pairs ? TileClass::full : TileClass::mixed;
  return truth;
}

/// Every tile of tile_m x tile_n for several lengths is classified as brute force says.
void expect_exact_tiles(const Rule& rule, bool exact_range) {
  const auto mask = Program::parse(Kind::mask, rule.text, rule.names);
  ASSERT_TRUE(mask.ok()) << mask.status().message();
  const std::int64_t lengths[][2] = {{64, 64}, {40, 96}, {96, 40}, {1, 70}, {33, 65}};
  const std::int64_t tiles[][2] = {{16, 16}, {8, 32}, {32, 8}, {1, 16}};
  for (const auto& [len_q, len_kv] : lengths)
    for (const auto& [tile_m, tile_n] : tiles)
      for (std::int64_t q = 0; q < len_q; q += tile_m)
        for (std::int64_t kv = 0; kv < len_kv; kv += tile_n) {
          const TileRange t{0,     1,     q, std::min(q + tile_m, len_q) - 1, kv, std::min(kv + tile_n, len_kv) - 1,
                            len_q, len_kv};
          const Truth truth = brute_force(*mask, rule, t);
          ASSERT_EQ(classify(*mask, rule.names, rule.bindings, t), truth.tile)
              << mask->text() << "\nq " << t.q_first << ".." << t.q_last << " of " << len_q << ", kv " << t.kv_first
              << ".." << t.kv_last << " of " << len_kv;
          const KvRange range = kv_range(*mask, rule.names, rule.bindings, t);
          ASSERT_TRUE(truth.end == 0 || (range.begin <= truth.first && truth.end <= range.end)) << mask->text();
          if (!exact_range) continue;
          ASSERT_EQ(range.begin, truth.first) << mask->text() << "\nq " << t.q_first << ".." << t.q_last;
          ASSERT_EQ(range.end, truth.end) << mask->text() << "\nq " << t.q_first << ".." << t.q_last;
        }
}

const Declarations kWindow{{{"w", Type::i32}}, {}};

TEST(TileClasses, AreExactForCausalOfBothAlignments) {
  expect_exact_tiles({rules::causal_top_left()}, true);
  expect_exact_tiles({rules::causal_bottom_right()}, true);
  expect_exact_tiles({"!(" + rules::causal_bottom_right() + ")"}, true);
}

TEST(TileClasses, AreExactForWindowsOutsideTheirCorners) {
  // One-sided windows are single comparisons. A two-sided one is exact unless a tile meets both of its sides.
  expect_exact_tiles({rules::window("7", "-1", false)}, true);
  expect_exact_tiles({rules::window("-1", "5", true)}, true);
  expect_exact_tiles({"q_idx - kv_idx < w", kWindow, {{9}, {}}}, true);
  expect_exact_tiles({rules::window("33", "0", false)}, true);
  expect_exact_tiles({rules::window("33", "0", true)}, true);
  expect_exact_tiles({rules::window("w", "0", false), kWindow, {{40}, {}}}, true);
  expect_exact_tiles({"abs(q_idx - kv_idx) <= 40"}, true);
}

TEST(TileClasses, AreExactForANegativeWindowBoundGivenAtRunTime) {
  expect_exact_tiles({rules::window("w", "0", true), kWindow, {{-1}, {}}}, true);
}

TEST(TileClasses, AreExactForChunks) {
  for (const char* chunk : {"8", "16", "32"}) expect_exact_tiles({rules::chunked(chunk)}, true);
  expect_exact_tiles({rules::chunked("w"), kWindow, {{16}, {}}}, true);
}

TEST(TileClasses, AreExactForPrefixes) { expect_exact_tiles({rules::prefix("16")}, true); }

TEST(TileClasses, AreExactForSortedDocumentsAtTileBoundaries) {
  std::vector<std::int32_t> documents;
  for (int i = 0; i < 96; ++i) documents.push_back(i / 32);
  const Rule rule{
      rules::document("doc"), {{}, {{"doc", DataType::i32, 2}}}, {{}, {{documents.data(), {1, 96}, {96, 1}}}}};
  expect_exact_tiles(rule, false);
}

TEST(TileClasses, AreExactForKeyPaddingByLength) {
  const std::vector<std::int32_t> lengths = {37};
  expect_exact_tiles({"kv_idx < n[b]", {{}, {{"n", DataType::i32, 1}}}, {{}, {{lengths.data(), {1}, {1}}}}}, true);
}

TEST(TileClasses, AreExactForScaledAndShiftedKeys) {
  expect_exact_tiles({"2 * kv_idx <= q_idx + 5"}, true);
  expect_exact_tiles({"kv_idx // 4 <= q_idx // 4"}, true);
  expect_exact_tiles({"kv_idx * w < 90", kWindow, {{3}, {}}}, true);
  expect_exact_tiles({"min(kv_idx, 50) < 20 || max(kv_idx, 3) > 60"}, false);
  expect_exact_tiles({"7 - kv_idx >= q_idx - 20"}, true);
}

TEST(KvRanges, FollowConjunctionsDisjunctionsAndSwitches) {
  const auto range = [](const std::string& text, std::int64_t q_first, std::int64_t q_last, std::int64_t h = 0) {
    const auto mask = Program::parse(Kind::mask, text, {});
    EXPECT_TRUE(mask.ok()) << mask.status().message();
    const KvRange r = kv_range(*mask, {}, {}, {0, h, q_first, q_last, 0, 0, 1000, 1000});
    return std::pair(r.begin, r.end);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(range("kv_idx <= q_idx && q_idx - kv_idx < 100", 300, 310), Pair(201, 311));
  EXPECT_EQ(range("kv_idx < 4 || q_idx - kv_idx < 100 && kv_idx <= q_idx", 300, 310), Pair(0, 311));
  EXPECT_EQ(range("kv_idx == q_idx", 5, 9), Pair(5, 10));
  EXPECT_EQ(range("kv_idx != q_idx", 5, 9), Pair(0, 1000));
  EXPECT_EQ(range("h == 1 && kv_idx < 7", 5, 9, 0), Pair(0, 0));
  EXPECT_EQ(range("h == 1 && kv_idx < 7", 5, 9, 1), Pair(0, 7));
  EXPECT_EQ(range("h == 1 ? kv_idx < 7 : kv_idx >= 990", 5, 9, 0), Pair(990, 1000));
  EXPECT_EQ(range("h == 1 ? kv_idx < 7 : kv_idx >= 990", 5, 9, 1), Pair(0, 7));
  EXPECT_EQ(range("q_idx > 6 && kv_idx < 7", 5, 6), Pair(0, 0));
  EXPECT_EQ(range("kv_idx // 10 == 3", 0, 0), Pair(30, 40));
  EXPECT_EQ(range("5 * kv_idx > 22 && 5 * kv_idx < 31", 0, 0), Pair(5, 7));
  EXPECT_EQ(range("kv_idx > 2000", 0, 0), Pair(0, 0));
}

TEST(KvRanges, GuardRunTimeFactorsAndDivisors) {
  const Declarations names{{{"c", Type::i32}}, {}};
  for (const char* text : {"kv_idx // c == 2", "kv_idx * c == 12", "kv_idx * c <= 12", "c * kv_idx >= q_idx"}) {
    const auto mask = Program::parse(Kind::mask, text, names);
    for (const int c : {-2147483647 - 1, -3, -1, 0, 1, 3, 4, 2147483647}) {
      const Rule rule{text, names, {{static_cast<double>(c)}, {}}};
      const TileRange t{0, 0, 3, 9, 8, 15, 40, 60};
      const Truth truth = brute_force(*mask, rule, t);
      const KvRange range = kv_range(*mask, names, rule.bindings, t);
      EXPECT_TRUE(truth.end == 0 || (range.begin <= truth.first && truth.end <= range.end)) << text << " c " << c;
      const TileClass found = classify(*mask, names, rule.bindings, t);
      EXPECT_TRUE(found == TileClass::mixed || found == truth.tile) << text << " c " << c;
    }
  }
}

TEST(TileClasses, LeaveTablesWithoutDataUnknown) {
  const Declarations names{{}, {{"doc", DataType::i32, 2}, {"n", DataType::i32, 1}}};
  const auto mask = Program::parse(Kind::mask, rules::document("doc") + " && kv_idx <= q_idx", names);
  ASSERT_TRUE(mask.ok());
  const Bindings none{{}, {{}, {}}};
  EXPECT_EQ(classify(*mask, names, none, {0, 0, 0, 15, 16, 31, 64, 64}), TileClass::empty) << "causal alone decides";
  EXPECT_EQ(classify(*mask, names, none, {0, 0, 16, 31, 0, 15, 64, 64}), TileClass::mixed);
  EXPECT_EQ(classify(*mask, names, {}, {0, 0, 16, 31, 0, 15, 64, 64}), TileClass::mixed) << "nothing bound at all";
  const auto length = Program::parse(Kind::mask, "kv_idx < n[b]", names);
  EXPECT_EQ(classify(*length, names, none, {0, 0, 0, 15, 0, 15, 64, 64}), TileClass::mixed);
  EXPECT_EQ(kv_range(*length, names, none, {0, 0, 0, 15, 0, 0, 64, 64}).end, 64);
}

TEST(TileClasses, ReadNoMoreOfATableThanATileIsWorth) {
  const std::vector<std::int32_t> ones(5000, 1);
  const Declarations names{{}, {{"t", DataType::i32, 1}}};
  const Bindings bindings{{}, {{ones.data(), {5000}, {1}}}};
  const auto mask = Program::parse(Kind::mask, "t[kv_idx] == 1", names);
  EXPECT_EQ(classify(*mask, names, bindings, {0, 0, 0, 0, 0, 511, 5000, 5000}), TileClass::full);
  EXPECT_EQ(classify(*mask, names, bindings, {0, 0, 0, 0, 0, 512, 5000, 5000}), TileClass::mixed);
}

TEST(TileClasses, CountElementsOutsideATableAsZero) {
  const std::vector<std::int32_t> ones(20, 1);
  const Declarations names{{}, {{"t", DataType::i32, 1}}};
  const Bindings bindings{{}, {{ones.data(), {20}, {1}}}};
  const auto mask = Program::parse(Kind::mask, "t[kv_idx] == 1", names);
  EXPECT_EQ(classify(*mask, names, bindings, {0, 0, 0, 0, 0, 19, 1, 40}), TileClass::full);
  EXPECT_EQ(classify(*mask, names, bindings, {0, 0, 0, 0, 10, 29, 1, 40}), TileClass::mixed);
  EXPECT_EQ(classify(*mask, names, bindings, {0, 0, 0, 0, 20, 39, 1, 40}), TileClass::empty);
}

TEST(TileClasses, NeverTrustNaN) {
  const std::vector<float> values = {1, 2, std::numeric_limits<float>::quiet_NaN(), 3};
  const Declarations names{{}, {{"t", DataType::f32, 1}}};
  const Bindings bindings{{}, {{values.data(), {4}, {1}}}};
  for (const char* text :
       {"t[kv_idx] < 9.0", "!(t[kv_idx] < 9.0)", "t[kv_idx] != 9.0", "t[kv_idx] == t[kv_idx] * 1.5",
        "min(t[kv_idx], 1.0) < 9.0", "abs(t[kv_idx]) >= 0.0", "select(h == 0, t[kv_idx], 1.0) < 9.0"}) {
    const Rule rule{text, names, bindings};
    const auto mask = Program::parse(Kind::mask, text, names);
    ASSERT_TRUE(mask.ok()) << mask.status().message();
    for (std::int64_t first = 0; first < 4; ++first)
      for (std::int64_t last = first; last < 4; ++last) {
        const TileRange t{0, 0, 0, 0, first, last, 1, 4};
        const TileClass found = classify(*mask, names, bindings, t);
        EXPECT_TRUE(found == TileClass::mixed || found == brute_force(*mask, rule, t).tile) << text << first << last;
      }
  }
}

/// Scalars and table entries at the ends of their types, where arithmetic wraps.
void push_to_the_ends(test_support::RandomProgram& program, test_support::Random& random) {
  using L = std::numeric_limits<std::int64_t>;
  const auto extreme = [&]() {
    return random.pick({std::int64_t{-2147483648LL}, std::int64_t{2147483647}, std::int64_t{2147483640},
                        std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 40, -(std::int64_t{1} << 53)});
  };
  for (double& s : program.scalars) s = static_cast<double>(extreme());
  for (test_support::RandomTable& t : program.tables) {
    if (t.dtype != DataType::i32 && t.dtype != DataType::i64 && t.dtype != DataType::u32) continue;
    for (std::size_t i = 0; i < t.bytes.size() / size_of(t.dtype); ++i) {
      if (random.one_in(2)) continue;
      const std::int64_t value = t.dtype == DataType::i64 ? random.pick({L::min(), L::max(), extreme()}) : extreme();
      __builtin_memcpy(t.bytes.data() + i * size_of(t.dtype), &value, size_of(t.dtype));
    }
  }
}

TEST(TileClasses, StaySoundWhereArithmeticWraps) {
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    test_support::Random random(seed);
    test_support::RandomProgram r = test_support::random_program(random, {2, 3, 12, 20});
    push_to_the_ends(r, random);
    const auto mask = Program::parse(Kind::mask, r.mask, r.declarations);
    ASSERT_TRUE(mask.ok());
    const Rule rule{r.mask, r.declarations, r.bindings()};
    for (int sample = 0; sample < 12; ++sample) {
      TileRange t{
          random.between(0, 1), random.between(0, 2), random.between(0, 11), 0, random.between(0, 19), 0, 12, 20};
      t.q_last = random.between(t.q_first, 11);
      t.kv_last = random.between(t.kv_first, 19);
      const Truth truth = brute_force(*mask, rule, t);
      const TileClass found = classify(*mask, rule.names, rule.bindings, t);
      ASSERT_TRUE(found == TileClass::mixed || found == truth.tile) << "seed " << seed << "\n" << mask->text();
      const KvRange range = kv_range(*mask, rule.names, rule.bindings, t);
      ASSERT_TRUE(truth.end == 0 || (range.begin <= truth.first && truth.end <= range.end)) << "seed " << seed << "\n"
                                                                                            << mask->text();
    }
  }
}

TEST(TileClasses, HoldForLengthsUpToTheLastPosition) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto causal = Program::parse(Kind::mask, rules::causal_bottom_right(), {});
  const TileRange corner{0, 0, kMost - 128, kMost - 1, kMost - 128, kMost - 1, kMost, kMost};
  EXPECT_EQ(classify(*causal, {}, {}, corner), TileClass::mixed);
  EXPECT_EQ(kv_range(*causal, {}, {}, corner).end, kMost);
  const TileRange left{0, 0, kMost - 128, kMost - 1, 0, 127, kMost, kMost};
  EXPECT_EQ(classify(*causal, {}, {}, left), TileClass::full);
  const TileRange right{0, 0, 0, 127, kMost - 128, kMost - 1, kMost, kMost};
  EXPECT_EQ(classify(*causal, {}, {}, right), TileClass::empty);
}

}  // namespace
}  // namespace saccade::expr
