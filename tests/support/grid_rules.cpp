#include "tests/support/grid_rules.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace saccade::test_support {
namespace {

namespace named = expr::rules;

/// What a scalar of a rule stands for, and so which values make sense.
enum class ScalarUse : std::uint8_t { any_length, kv_length, small_count, chunk_length, cap, factor };
/// What a table of a rule stands for, and so its extents, dtypes and values.
enum class TableUse : std::uint8_t {
  documents,      ///< [batch, longest]: document of each token
  kv_lengths,     ///< [batch]: keys that are no padding
  key_flags,      ///< [batch, seqlen_kv]
  pair_flags,     ///< [batch, seqlen_q, seqlen_kv]
  head_flags,     ///< [batch, heads, seqlen_q, seqlen_kv], batch or heads or both shared
  block_flags,    ///< [blocks of 16 queries, blocks of 16 keys], some rows empty
  slopes,         ///< [heads]
  pair_bias,      ///< [batch, heads, seqlen_q, seqlen_kv], some axes shared
  distance_bias,  ///< [heads, distances]: distances beyond it read 0
  key_bias,       ///< [seqlen_kv] of small integers
};

struct NamedScalar {
  const char* name;
  ScalarUse use;
};
struct NamedTable {
  const char* name;
  TableUse use;
};
/// `$` after a table of flags stands for the comparison that its dtype needs: none for bool, `!= 0` for numbers.
struct RuleText {
  const char* name;
  std::vector<NamedScalar> scalars;
  std::vector<NamedTable> tables;
  std::string mask = "true";
  std::string score = "score";
};

std::string both(const std::string& a, const std::string& b) { return "(" + a + ") && (" + b + ")"; }

std::vector<RuleText> make_rule_texts() {
  using S = ScalarUse;
  using T = TableUse;
  const std::string causal = named::causal_top_left(), causal_br = named::causal_bottom_right();
  const std::string relative = "score + distance[h, q_idx - kv_idx + 60]";
  return {
      {"full", {}, {}},
      {"causal top-left", {}, {}, causal},
      {"causal bottom-right", {}, {}, causal_br},
      {"window top-left",
       {{"left", S::any_length}, {"right", S::small_count}},
       {},
       named::window("left", "right", false)},
      {"window bottom-right",
       {{"left", S::small_count}, {"right", S::small_count}},
       {},
       named::window("left", "right", true)},
      {"window 16, 0", {}, {}, named::window("16", "0", true)},
      {"window unbounded left", {}, {}, named::window("-1", "4", false)},
      {"prefix", {{"prefix_length", S::kv_length}}, {}, named::prefix("prefix_length")},
      {"chunked", {{"chunk", S::chunk_length}}, {}, named::chunked("chunk")},
      {"chunked causal", {{"chunk", S::chunk_length}}, {}, both(named::chunked("chunk"), causal)},
      {"document", {}, {{"doc", T::documents}}, named::document("doc")},
      {"document causal", {}, {{"doc", T::documents}}, both(named::document("doc"), causal)},
      {"key padding by length", {}, {{"kv_length", T::kv_lengths}}, "kv_idx < kv_length[b]"},
      {"key padding by flag", {}, {{"real", T::key_flags}}, both("real[b, kv_idx]$", causal_br)},
      {"mask table", {}, {{"keep", T::pair_flags}}, "keep[b, q_idx, kv_idx]$"},
      {"mask table by head", {}, {{"keep", T::head_flags}}, "keep[b, h, q_idx, kv_idx]$"},
      {"block sparse", {}, {{"blocks", T::block_flags}}, "blocks[q_idx // 16, kv_idx // 16] == 1"},
      {"sinks and window",
       {{"sinks", S::small_count}, {"left", S::any_length}},
       {},
       both("kv_idx < sinks || q_idx - kv_idx <= left", causal)},
      {"window on even heads", {{"left", S::small_count}}, {}, both(causal, "h % 2 == 1 || q_idx - kv_idx <= left")},
      {"dilated", {}, {}, "kv_idx <= q_idx && (q_idx - kv_idx) % 3 == 0"},
      {"checkerboard", {}, {}, "(q_idx + kv_idx) % 2 == 0"},
      {"nothing kept", {}, {}, "kv_idx < 0"},
      {"anti-causal", {}, {}, "!(kv_idx <= q_idx)"},
      {"distance band", {}, {}, "abs(q_idx - kv_idx) >= 5 && abs(q_idx - kv_idx) < 70"},
      {"shift by head and batch", {}, {}, "kv_idx <= q_idx + 3 * h - b"},
      {"alibi", {}, {{"slopes", T::slopes}}, "true", named::alibi("slopes", false)},
      {"alibi causal bottom-right", {}, {{"slopes", T::slopes}}, causal_br, named::alibi("slopes", true)},
      {"softcap", {{"cap", S::cap}}, {}, "true", named::softcap("cap")},
      {"softcap window",
       {{"cap", S::cap}, {"left", S::any_length}},
       {},
       both(causal_br, "q_idx - kv_idx <= left"),
       named::softcap("cap")},
      {"bias table", {}, {{"bias", T::pair_bias}}, "true", named::bias("bias")},
      {"bias table causal", {}, {{"bias", T::pair_bias}}, causal, named::bias("bias")},
      {"relative bias", {}, {{"distance", T::distance_bias}}, "true", relative},
      {"key bias", {}, {{"key_bias", T::key_bias}}, causal_br, "score + 0.25 * key_bias[kv_idx]"},
      {"temperature", {{"factor", S::factor}}, {}, "true", "score * factor"},
      {"finite penalty", {}, {}, "true", "score + select(kv_idx > q_idx, -1000000000.0, 0.0)"},
      {"discount across documents",
       {},
       {{"doc", T::documents}},
       causal,
       "score - select(doc[b, q_idx] == doc[b, kv_idx], 0.0, 2.5)"},
      {"everything at once",
       {{"cap", S::cap}, {"left", S::any_length}},
       {{"slopes", T::slopes}, {"doc", T::documents}},
       both(both(causal, "q_idx - kv_idx <= left"), named::document("doc")),
       "cap * tanh(score / cap) + slopes[h] * (kv_idx - q_idx)"},
  };
}

const std::vector<RuleText>& rule_texts() {
  static const std::vector<RuleText> texts = make_rule_texts();
  return texts;
}

expr::ScalarDeclaration declare(const NamedScalar& scalar, Random& random) {
  const bool real = scalar.use == ScalarUse::cap || scalar.use == ScalarUse::factor;
  return {scalar.name, real ? expr::Type::f32 : random.one_in(4) ? expr::Type::i64 : expr::Type::i32};
}

expr::TableDeclaration declare(const NamedTable& table, Random& random) {
  static const std::vector<DataType> integers = {DataType::i8, DataType::i16, DataType::i32, DataType::i64,
                                                 DataType::u8, DataType::u16, DataType::u32};
  static const std::vector<DataType> lengths = {DataType::i32, DataType::i64, DataType::i16, DataType::u32};
  static const std::vector<DataType> flags = {DataType::boolean, DataType::u8, DataType::i32};
  static const std::vector<DataType> reals = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
  switch (table.use) {
    case TableUse::documents: return {table.name, random.pick(integers), 2};
    case TableUse::kv_lengths: return {table.name, random.pick(lengths), 1};
    case TableUse::key_flags: return {table.name, random.pick(flags), 2};
    case TableUse::pair_flags: return {table.name, random.pick(flags), 3};
    case TableUse::head_flags: return {table.name, random.pick(flags), 4};
    case TableUse::block_flags: return {table.name, random.pick(integers), 2};
    case TableUse::slopes: return {table.name, random.pick(reals), 1};
    case TableUse::pair_bias: return {table.name, random.pick(reals), 4};
    case TableUse::distance_bias: return {table.name, random.pick(reals), 2};
    case TableUse::key_bias: return {table.name, random.pick({DataType::i8, DataType::i16, DataType::i32}), 1};
  }
  return {};
}

double draw(ScalarUse use, const Shape& shape, Random& random) {
  const std::int64_t longest = std::max(shape.seqlen_q, shape.seqlen_kv);
  switch (use) {
    case ScalarUse::any_length: return static_cast<double>(random.between(0, longest + 2));
    case ScalarUse::kv_length: return static_cast<double>(random.between(0, shape.seqlen_kv + 1));
    case ScalarUse::small_count: return static_cast<double>(random.between(0, 20));
    case ScalarUse::chunk_length: return static_cast<double>(random.pick({1, 7, 16, 32, 50, 64, 0}));
    case ScalarUse::cap: return random.pick({5.0, 30.0, 50.0});
    case ScalarUse::factor: return random.pick({0.5, 1.0, 1.5, -0.75});
  }
  return 0;
}

/// One time in four shorter than the index range, so that reads run out of the table and must give 0.
std::int64_t maybe_shorter(Random& random, std::int64_t size) {
  return random.one_in(4) ? random.between(0, size) : size;
}

template <class Value>
TableImage filled(DataType dtype, const std::vector<std::int64_t>& extent, const std::vector<bool>& shared,
                  Value value) {
  TableImage table = make_table(dtype, extent, shared);
  const std::int64_t elements = static_cast<std::int64_t>(table.bytes.size() / size_of(dtype));
  for (std::int64_t i = 0; i < elements; ++i) table.set(i, value(i));
  return table;
}

TableImage documents(DataType dtype, const Shape& shape, Random& random) {
  const std::int64_t longest = maybe_shorter(random, std::max(shape.seqlen_q, shape.seqlen_kv));
  const std::int64_t mean_length = random.pick({3, 20, 60});
  std::int64_t document = 1;
  return filled(dtype, {shape.batch, longest}, {}, [&](std::int64_t i) {
    if (i % std::max<std::int64_t>(1, longest) == 0) document = 1;
    if (random.one_in(mean_length)) ++document;
    return static_cast<double>(std::min<std::int64_t>(document, 100));
  });
}

TableImage draw(TableUse use, DataType dtype, const Shape& shape, Random& random) {
  const std::int64_t blocks_q = (shape.seqlen_q + 15) / 16, blocks_kv = (shape.seqlen_kv + 15) / 16;
  const auto flag = [&random](std::int64_t) { return random.one_in(3) ? 0.0 : 1.0; };
  const auto bias = [&random](std::int64_t) { return random.normal(); };
  switch (use) {
    case TableUse::documents: return documents(dtype, shape, random);
    case TableUse::kv_lengths:
      return filled(dtype, {maybe_shorter(random, shape.batch)}, {},
                    [&](std::int64_t) { return static_cast<double>(random.between(0, shape.seqlen_kv)); });
    case TableUse::key_flags: return filled(dtype, {shape.batch, maybe_shorter(random, shape.seqlen_kv)}, {}, flag);
    case TableUse::pair_flags:
      return filled(dtype, {shape.batch, maybe_shorter(random, shape.seqlen_q), shape.seqlen_kv},
                    {random.one_in(2), false, false}, flag);
    case TableUse::head_flags:
      return filled(dtype, {shape.batch, shape.heads_q, shape.seqlen_q, shape.seqlen_kv},
                    {random.one_in(2), random.one_in(2), false, false}, flag);
    case TableUse::block_flags:
      return filled(dtype, {blocks_q, maybe_shorter(random, blocks_kv)}, {},
                    [&, empty = false](std::int64_t i) mutable {
                      if (i % std::max<std::int64_t>(1, blocks_kv) == 0) empty = random.one_in(4);
                      return empty || random.one_in(2) ? 0.0 : 1.0;
                    });
    case TableUse::slopes:
      return filled(dtype, {maybe_shorter(random, shape.heads_q)}, {},
                    [](std::int64_t head) { return std::exp2(-0.5 * static_cast<double>(head + 1)); });
    case TableUse::pair_bias:
      return filled(dtype, {shape.batch, shape.heads_q, maybe_shorter(random, shape.seqlen_q), shape.seqlen_kv},
                    {random.one_in(2), random.one_in(2), random.one_in(4), false}, bias);
    case TableUse::distance_bias: return filled(dtype, {shape.heads_q, 121}, {}, bias);
    case TableUse::key_bias:
      return filled(dtype, {maybe_shorter(random, shape.seqlen_kv)}, {},
                    [&](std::int64_t) { return static_cast<double>(random.between(-8, 8)); });
  }
  return {};
}

}  // namespace

int grid_rule_count() { return static_cast<int>(rule_texts().size()); }

GridRule grid_rule(int index, Random& random) {
  const RuleText& text = rule_texts()[static_cast<std::size_t>(index)];
  GridRule rule;
  rule.name = text.name;
  rule.score = text.score;
  for (const NamedScalar& scalar : text.scalars) rule.declarations.scalars.push_back(declare(scalar, random));
  for (const NamedTable& table : text.tables) rule.declarations.tables.push_back(declare(table, random));
  const bool condition = !rule.declarations.tables.empty() && rule.declarations.tables[0].dtype == DataType::boolean;
  rule.mask = text.mask;
  if (const std::size_t at = rule.mask.find('$'); at != std::string::npos)
    rule.mask.replace(at, 1, condition ? "" : " != 0");
  rule.bind = [&text](AttentionCall& call, Random& values) {
    for (const NamedScalar& scalar : text.scalars) call.scalars.push_back(draw(scalar.use, call.shape, values));
    for (std::size_t i = 0; i < text.tables.size(); ++i) {
      const DataType dtype = call.problem.declarations.tables[i].dtype;
      call.tables.push_back(draw(text.tables[i].use, dtype, call.shape, values));
    }
  };
  return rule;
}

GridRule grid_rule(const std::string& name, Random& random) {
  for (int i = 0; i < grid_rule_count(); ++i) {
    if (rule_texts()[static_cast<std::size_t>(i)].name == name) return grid_rule(i, random);
  }
  GridRule unknown;
  unknown.name = name;
  unknown.mask = "no rule named '" + name + "'";
  return unknown;
}

}  // namespace saccade::test_support
