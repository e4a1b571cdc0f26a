// Any text: an error, or a program whose canonical text is its own, that evaluates, classifies soundly and emits.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "generator/expr/program.h"

namespace {

using namespace saccade;

void require(bool holds, const char* what, const expr::Program& program) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, program.text().c_str());
  std::abort();
}

struct Names {
  std::vector<std::int32_t> doc = {0, 0, 1, 1, 2, -5, 2147483647, -2147483647 - 1};
  std::vector<float> slopes = {0.5f, -1.0f, 1e30f};
  std::vector<std::int64_t> wide = {0, INT64_MAX, INT64_MIN};
  std::vector<std::uint8_t> flags = {1, 0, 1};
  std::vector<std::uint8_t> small = {0x7f, 0x80, 0x01, 0x45};
  expr::Declarations declarations{
      .scalars = {{"n", expr::Type::i32}, {"m", expr::Type::i64}, {"x", expr::Type::f32}},
      .tables = {{"doc", DataType::i32, 2},
                 {"slopes", DataType::f32, 1},
                 {"wide", DataType::i64, 1},
                 {"flags", DataType::boolean, 1},
                 {"small", DataType::e4m3, 1}},
  };
  expr::Bindings bindings{{-3, 9007199254740992.0, 0.25},
                          {{doc.data(), {2, 4}, {4, 1}},
                           {slopes.data(), {3}, {1}},
                           {wide.data(), {3}, {1}},
                           {flags.data(), {3}, {1}},
                           {small.data(), {4}, {1}}}};
};

void check_tile(const expr::Program& mask, const Names& names) {
  const expr::TileRange tile{1, 0, 2, 4, 1, 3, 5, 6};
  const TileClass found = expr::classify(mask, names.declarations, names.bindings, tile);
  const expr::KvRange range = expr::kv_range(mask, names.declarations, names.bindings, tile);
  for (std::int64_t q = tile.q_first; q <= tile.q_last; ++q)
    for (std::int64_t kv = 0; kv < tile.len_kv; ++kv) {
      const expr::Point point{tile.b, tile.h, q, kv, tile.len_q, tile.len_kv};
      const bool kept = expr::evaluate(mask, names.declarations, names.bindings, point) != 0;
      require(!kept || (range.begin <= kv && kv < range.end), "kv_range excludes a kept key", mask);
      if (kv < tile.kv_first || kv > tile.kv_last) continue;
      require(found != TileClass::empty || !kept, "an empty tile keeps", mask);
      require(found != TileClass::full || kept, "a full tile does not keep", mask);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Names names;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const expr::Kind kind : {expr::Kind::mask, expr::Kind::score}) {
    const auto program = expr::Program::parse(kind, text, names.declarations);
    if (!program.ok()) continue;
    const auto again = expr::Program::parse(kind, program->text(), names.declarations);
    require(again.ok() && *again == *program, "canonical text is not its own canonical text", *program);
    if (kind == expr::Kind::mask) {
      check_tile(*program, names);
      (void)expr::emit_rules(*program, expr::Program(expr::Kind::score), names.declarations);
    } else {
      (void)expr::evaluate(*program, names.declarations, names.bindings, {1, 2, 3, 4, 5, 6}, 1.5);
      (void)expr::emit_rules(expr::Program(expr::Kind::mask), *program, names.declarations);
    }
  }
  return 0;
}
