#include "bench/regret_problems.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

namespace saccade::bench {
namespace {

enum class Rule { full, causal, window, alibi, softcap, document };

struct Entry {
  DataType dtype;
  int head_dim;
  Rule rule;
  std::int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv;
  bool varlen = false;
};

constexpr DataType kF32 = DataType::f32, kF16 = DataType::f16, kBf16 = DataType::bf16;

constexpr Entry kCpu[] = {
    {kF32, 64, Rule::full, 1, 4, 4, 512, 512},     {kF32, 64, Rule::causal, 1, 4, 4, 1024, 1024},
    {kF32, 128, Rule::full, 1, 2, 2, 512, 512},    {kF32, 128, Rule::causal, 1, 2, 2, 1024, 1024},
    {kF32, 32, Rule::full, 4, 12, 12, 128, 128},   {kF32, 64, Rule::window, 1, 4, 4, 1024, 1024},
    {kF32, 64, Rule::alibi, 1, 4, 4, 512, 512},    {kF32, 64, Rule::causal, 4, 8, 2, 1, 2048},
    {kBf16, 64, Rule::full, 1, 4, 4, 512, 512},    {kBf16, 64, Rule::causal, 1, 4, 4, 1024, 1024},
    {kBf16, 128, Rule::full, 1, 2, 2, 512, 512},   {kBf16, 128, Rule::causal, 1, 4, 1, 512, 512},
    {kBf16, 128, Rule::causal, 1, 8, 2, 1, 4096},  {kBf16, 128, Rule::causal, 8, 8, 8, 1, 1024},
    {kF16, 64, Rule::full, 1, 4, 4, 512, 512},     {kF16, 64, Rule::causal, 2, 4, 4, 512, 512, true},
    {kF16, 128, Rule::softcap, 1, 2, 1, 512, 512}, {kF16, 80, Rule::causal, 1, 4, 4, 512, 512},
    {kF32, 64, Rule::document, 1, 4, 4, 768, 768}, {kF32, 96, Rule::causal, 1, 4, 4, 16, 1024},
};

constexpr Entry kCuda[] = {
    {kBf16, 64, Rule::full, 32, 32, 32, 512, 512},
    {kBf16, 64, Rule::full, 4, 32, 32, 4096, 4096},
    {kBf16, 64, Rule::causal, 16, 32, 32, 1024, 1024},
    {kBf16, 64, Rule::causal, 1, 32, 32, 16384, 16384},
    {kBf16, 128, Rule::full, 32, 16, 16, 512, 512},
    {kBf16, 128, Rule::full, 8, 16, 16, 2048, 2048},
    {kBf16, 128, Rule::full, 1, 16, 16, 16384, 16384},
    {kBf16, 128, Rule::causal, 32, 16, 16, 512, 512},
    {kBf16, 128, Rule::causal, 8, 16, 16, 2048, 2048},
    {kBf16, 128, Rule::causal, 2, 16, 16, 8192, 8192},
    {kBf16, 256, Rule::full, 4, 8, 8, 4096, 4096},
    {kBf16, 256, Rule::causal, 16, 8, 8, 1024, 1024},
    {kF16, 128, Rule::full, 4, 16, 16, 4096, 4096},
    {kBf16, 128, Rule::causal, 4, 32, 8, 4096, 4096},
    {kBf16, 128, Rule::window, 2, 32, 8, 8192, 8192},
    {kF16, 128, Rule::alibi, 4, 32, 32, 2048, 2048},
    {kBf16, 128, Rule::causal, 16, 16, 16, 2048, 2048, true},
    {kBf16, 64, Rule::document, 2, 32, 32, 4096, 4096},
    {kBf16, 128, Rule::causal, 1, 32, 8, 512, 8192},
    {kBf16, 256, Rule::softcap, 1, 8, 4, 4096, 4096},
};

std::string_view name_of(Rule rule) {
  switch (rule) {
    case Rule::full: return "full";
    case Rule::causal: return "causal";
    case Rule::window: return "window";
    case Rule::alibi: return "alibi";
    case Rule::softcap: return "softcap";
    case Rule::document: return "document";
  }
  return "?";
}

/// The list is written here: a rule that does not parse is a mistake in this file.
expr::Program must_parse(expr::Kind kind, const std::string& text, const expr::Declarations& declarations) {
  Expected<expr::Program> program = expr::Program::parse(kind, text, declarations);
  if (!program.ok()) std::abort();
  return std::move(program).value();
}

void apply(Rule rule, std::int64_t seqlen_kv, RegretProblem& made) {
  Problem& problem = made.problem;
  expr::Declarations& declarations = problem.declarations;
  std::string mask = "true", score = "score";
  if (rule != Rule::full && rule != Rule::document) mask = expr::rules::causal_bottom_right();
  if (rule == Rule::window) {
    declarations.scalars = {{"window", expr::Type::i32}};
    made.scalars = {static_cast<double>(seqlen_kv / 8)};
    mask = "(" + mask + ") && (" + expr::rules::window("window", "0", true) + ")";
  } else if (rule == Rule::alibi) {
    declarations.tables = {{"slopes", DataType::f32, 1}};
    score = expr::rules::alibi("slopes", true);
  } else if (rule == Rule::softcap) {
    declarations.scalars = {{"cap", expr::Type::f32}};
    made.scalars = {50};
    score = expr::rules::softcap("cap");
  } else if (rule == Rule::document) {
    declarations.tables = {{"document", DataType::i32, 2}};
    mask = expr::rules::document("document");
  }
  problem.mask = must_parse(expr::Kind::mask, mask, declarations);
  problem.score = must_parse(expr::Kind::score, score, declarations);
}

RegretProblem make(const Entry& entry) {
  RegretProblem made;
  Problem& problem = made.problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = entry.dtype;
  problem.head_dim_qk = problem.head_dim_v = entry.head_dim;
  problem.layout = entry.varlen ? Layout::varlen : Layout::dense;
  made.shape = {.batch = entry.batch,
                .heads_q = entry.heads_q,
                .heads_kv = entry.heads_kv,
                .seqlen_q = entry.seqlen_q,
                .seqlen_kv = entry.seqlen_kv};
  if (entry.varlen) {
    // Sequences are three quarters of the longest on average.
    made.shape.total_q = entry.batch * entry.seqlen_q * 3 / 4;
    made.shape.total_kv = entry.batch * entry.seqlen_kv * 3 / 4;
  }
  apply(entry.rule, entry.seqlen_kv, made);
  auto bindings = std::make_shared<expr::Bindings>();
  bindings->scalars = made.scalars;
  made.bound = std::move(bindings);
  made.name = fmt::format("{} d{} {}{} b{} h{}/{} s{}x{}", saccade::name_of(entry.dtype), entry.head_dim,
                          name_of(entry.rule), entry.varlen ? " varlen" : "", entry.batch, entry.heads_q,
                          entry.heads_kv, entry.seqlen_q, entry.seqlen_kv);
  return made;
}

}  // namespace

std::vector<RegretProblem> regret_problems(bool is_cuda) {
  std::vector<RegretProblem> problems;
  if (is_cuda) {
    for (const Entry& entry : kCuda) problems.push_back(make(entry));
  } else {
    for (const Entry& entry : kCpu) problems.push_back(make(entry));
  }
  return problems;
}

}  // namespace saccade::bench
