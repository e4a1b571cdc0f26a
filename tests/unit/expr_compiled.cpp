#include "tests/unit/expr_compiled.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace saccade::test_support {
namespace {

constexpr std::string_view kPrelude = R"(
#include "tests/unit/expr_compiled.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>

struct Raw : saccade::test_support::RawPoint {
  explicit Raw(const RawPoint& p) : RawPoint(p) {}
  double scalar(int slot) const { return scalars[slot]; }
  double table(int slot, std::initializer_list<long long> index) const { return read(tables, slot, index.begin()); }
};
[[maybe_unused]] static long long floor_quotient(long long a, long long b) {
  return b == 0 ? 0 : static_cast<long long>(std::floor(static_cast<long double>(a) / static_cast<long double>(b)));
}
[[maybe_unused]] static long long floor_remainder(long long a, long long b) {
  return b == 0 ? 0 : a - b * floor_quotient(a, b);
}
)";

std::string source_text(const std::vector<CompiledRulesLibrary::Source>& sources) {
  std::string text(kPrelude);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    text += fmt::format("namespace saccade::given_{} {{\n{}", i, sources[i].rules_given_ranges);
    text += R"(
/// Ranges of keys must not depend on the queries, nor those of queries on the keys.
static TileClass tile_class(const KernelParams& p, const Tile& t) {
  const Tile keys{t.b, t.h, 0, 0, t.kv_first, t.kv_last, t.len_q, t.len_kv};
  const Tile queries{t.b, t.h, t.q_first, t.q_last, 0, 0, t.len_q, t.len_kv};
  return Rules::tile_class(p, t, Rules::query_ranges<1>(p, queries), Rules::key_ranges<1>(p, keys));
}
}
)";
    text += fmt::format("namespace saccade::rules_{} {{\n{}", i, sources[i].rules);
    text +=
        fmt::format("static bool raw_mask(const test_support::RawPoint& p) {{ const Raw r(p); (void)r; return {}; }}\n",
                    sources[i].mask_cpp);
    text += fmt::format(
        "static double raw_score(const test_support::RawPoint& p) {{ const Raw r(p); (void)r; return {}; }}\n",
        sources[i].score_cpp);
    text += "}\n";
  }
  text += "extern \"C\" const saccade::test_support::CompiledRules compiled_rules[] = {\n";
  for (std::size_t i = 0; i < sources.size(); ++i)
    text += fmt::format(
        "{{saccade::rules_{0}::Rules::keep, saccade::rules_{0}::Rules::score, saccade::rules_{0}::Rules::tile_class, "
        "saccade::given_{0}::tile_class, saccade::rules_{0}::Rules::kv_range, saccade::rules_{0}::raw_mask, "
        "saccade::rules_{0}::raw_score}},\n",
        i);
  return text + "};\n";
}

}  // namespace

CompiledRulesLibrary::CompiledRulesLibrary(const std::vector<Source>& sources) {
  std::string folder = (std::filesystem::temp_directory_path() / "saccade_rules_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return;
  const std::string source = folder + "/rules.cpp", object = folder + "/rules.so";
  std::ofstream(source) << source_text(sources);
  const std::string command = fmt::format(
      "'{}' -std=c++20 -O1 -shared -fPIC -w -fsanitize=undefined -fsanitize-undefined-trap-on-error "
      "-I'{}' -I'{}/template_include' '{}' -o '{}'",
      SACCADE_TEST_COMPILER, SACCADE_TEST_SOURCE_DIR, SACCADE_TEST_BINARY_DIR, source, object);
  if (std::system(command.c_str()) == 0) {
    handle_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  }
  if (handle_ != nullptr) {
    const auto* table = static_cast<const CompiledRules*>(dlsym(handle_, "compiled_rules"));
    entries_.assign(table, table + sources.size());
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

CompiledRulesLibrary::~CompiledRulesLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

KernelParams params_of(const expr::Declarations& declarations, const expr::Bindings& bindings) {
  KernelParams params{};
  for (std::size_t i = 0; i < declarations.scalars.size(); ++i) {
    if (declarations.scalars[i].type == expr::Type::f32) {
      params.scalars[i].f = static_cast<float>(bindings.scalars[i]);
    } else {
      params.scalars[i].i = static_cast<long long>(bindings.scalars[i]);
    }
  }
  for (std::size_t i = 0; i < declarations.tables.size(); ++i) {
    params.tables[i].data = bindings.tables[i].data;
    for (int d = 0; d < 4; ++d) {
      params.tables[i].extent[d] = bindings.tables[i].extent[d];
      params.tables[i].stride[d] = bindings.tables[i].stride[d];
    }
  }
  return params;
}

}  // namespace saccade::test_support
