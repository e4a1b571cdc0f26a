#include "generator/families/cuda_common.h"

#include <algorithm>

#include <fmt/format.h>

#include "generator/expr/emit.h"
#include "generator/expr/node.h"
#include "generator/family.h"

namespace saccade {

Status check_sixteen_bit_forward(const Problem& problem) {
  if (problem.op != Op::forward) return Status::unsupported("computes the forward pass only");
  const DataType type = problem.q_dtype;
  if (type != DataType::f16 && type != DataType::bf16) {
    return Status::unsupported(fmt::format("takes f16 and bf16, not {}", name_of(type)));
  }
  if (problem.k_dtype != type || problem.v_dtype != type || problem.o_dtype != type) {
    return Status::unsupported(fmt::format("takes one dtype for q, k, v and o, such as {} for all", name_of(type)));
  }
  for (const int head_dim : {problem.head_dim_qk, problem.head_dim_v}) {
    if (head_dim < 8 || head_dim > 256 || head_dim % 8 != 0) {
      const int nearest = std::clamp((head_dim + 7) / 8 * 8, 8, 256);
      return Status::unsupported(fmt::format(
          "takes head dims that are multiples of 8 from 8 to 256, not {}; the nearest is {}", head_dim, nearest));
    }
  }
  return {};
}

bool has_long_mask(const Problem& problem) {
  constexpr std::size_t kLongText = 120;
  return problem.mask.reads_tables() || problem.mask.text().size() > kLongText;
}

namespace {

/// What is the same for all elements is computed once.
bool varies(const expr::Node& node) {
  return node.ranged() || expr::any_node(node, [](const expr::Node& n) { return n.op == expr::Op::score; });
}

double work_of(const expr::Node& node) {
  constexpr double kSpecial = 8;
  if (node.args.empty() || !varies(node)) return 0;
  double work = 0;
  switch (node.op) {
    case expr::Op::divide: work = varies(*node.args[1]) ? kSpecial : 1; break;
    case expr::Op::exp:
    case expr::Op::exp2:
    case expr::Op::log:
    case expr::Op::log2:
    case expr::Op::sqrt:
    case expr::Op::tanh: work = kSpecial; break;
    default: work = 1;
  }
  for (const expr::NodePtr& argument : node.args) work += work_of(*argument);
  return work;
}

}  // namespace

double element_work(const expr::Program& program) { return program.is_identity() ? 0 : work_of(*program.root()); }

std::string translation_unit(const Problem& problem, const Schedule& schedule, const KernelText& text) {
  std::string source =
      fmt::format("// Saccade {}: a kernel of family {}, made from templates/cuda.\n// problem  {}\n// schedule {}\n",
                  kGeneratorVersion, schedule.family, to_json(problem), to_json(schedule));
  source += fmt::format("#include \"{}\"\n\nnamespace saccade {{\n\n", text.header);
  source += expr::emit_rules(problem.mask, problem.score, problem.declarations, text.table_ranges);
  source += "\n" + text.definitions + "\n}  // namespace saccade\n\n";
  source += fmt::format("extern \"C\" __global__ void __launch_bounds__({}, {})\n{}({}) {{\n  {}\n}}\n", text.threads,
                        text.blocks_per_sm, kForwardSymbol, text.parameters, text.body);
  return source;
}

ConstantsText::ConstantsText(std::string_view struct_name)
    : text_(fmt::format("/// The problem's constants and the schedule.\nstruct {} {{\n", struct_name)) {}

ConstantsText& ConstantsText::add(std::string_view type, std::string_view name, std::string_view value) {
  text_ += fmt::format("  static constexpr {} {} = {};\n", type, name, value);
  return *this;
}

ConstantsText& ConstantsText::add(std::string_view name, std::int64_t value) {
  return add("int", name, fmt::to_string(value));
}

ConstantsText& ConstantsText::add_flag(std::string_view name, bool value) {
  return add("bool", name, value ? "true" : "false");
}

ConstantsText& ConstantsText::add_problem(const Problem& problem) {
  text_ += fmt::format("  using Element = cuda::{};\n", name_of(problem.q_dtype));
  add("head_dim_qk", problem.head_dim_qk);
  add("head_dim_v", problem.head_dim_v);
  add_flag("varlen", problem.layout == Layout::varlen);
  add_flag("lse", problem.lse);
  return add_flag("long_mask", has_long_mask(problem));
}

std::string ConstantsText::finish() const { return text_ + "};\n"; }

}  // namespace saccade
