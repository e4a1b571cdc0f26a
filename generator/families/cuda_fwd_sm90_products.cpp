// cuda.fwd.sm90: the text of its wgmma instructions (PTX ISA, wgmma.mma_async), which list every register.
#include <string>

#include <fmt/format.h>

#include "generator/families/cuda_fwd_sm90_schedule.h"

namespace saccade::cuda_sm90 {
namespace {

struct Product {
  std::string_view name;  ///< of the struct template
  DataType type;
  int n;
  bool a_in_registers;
  bool b_transposed;  ///< its rows are the inner dimension
};

std::string emit(const Product& product) {
  const int accumulators = product.n / 2;
  std::string registers, constraints;
  for (int i = 0; i < accumulators; ++i) {
    registers += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
    constraints += fmt::format("{}\"+f\"(d[0][{}][{}])",
                               i == 0       ? ""
                               : i % 4 == 0 ? ",\n          "
                                            : ", ",
                               i / 4, i % 4);
  }
  const std::string a = product.a_in_registers ? fmt::format("{{%{}, %{}, %{}, %{}}}", accumulators, accumulators + 1,
                                                             accumulators + 2, accumulators + 3)
                                               : fmt::format("%{}", accumulators);
  const int b = accumulators + (product.a_in_registers ? 4 : 1);
  // A and B times 1; then which of those in shared memory are transposed, and A never is.
  const std::string flags =
      fmt::format("1, 1, {}{}", product.a_in_registers ? "" : "0, ", product.b_transposed ? 1 : 0);
  const std::string_view type = name_of(product.type);
  return fmt::format(
      "template <>\nstruct {0}<{1}, {2}> {{\n"
      "  SACCADE_FN static void multiply(Accumulator<1, {2}>& d, {3}, uint64 b, bool accumulate) {{\n"
      "    asm volatile(\n"
      "        \"{{\\n.reg .pred accumulate;\\nsetp.ne.b32 accumulate, %{4}, 0;\\n\"\n"
      "        \"wgmma.mma_async.sync.aligned.m64n{2}k16.f32.{1}.{1} \"\n"
      "        \"{{{5}}}, {6}, %{7}, accumulate, {8};\\n}}\"\n"
      "        : {9}\n"
      "        : {10}, \"l\"(b), \"r\"(int(accumulate)));\n"
      "  }}\n}};\n",
      product.name, type, product.n, product.a_in_registers ? "const uint32 (&a)[4]" : "uint64 a", b + 1, registers, a,
      b, flags, constraints, product.a_in_registers ? R"("r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))" : R"("l"(a))");
}

}  // namespace

std::string emit_products(const Problem& problem, const Parameters& p) {
  const DataType type = problem.q_dtype;
  return "namespace cuda {\n" + emit({"ScoreProduct", type, static_cast<int>(p.tile_n), p.q_in_registers != 0, false}) +
         "\n" + emit({"ValueProduct", type, padded(problem.head_dim_v), true, true}) + "}  // namespace cuda\n";
}

}  // namespace saccade::cuda_sm90
