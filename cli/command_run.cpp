// saccade run: attention of tensors in files.
#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "cli/byte_source.h"
#include "cli/commands.h"
#include "cli/execution.h"
#include "cli/json_output.h"
#include "cli/npy.h"
#include "cli/output.h"
#include "cli/plan_text.h"
#include "cli/safetensors.h"
#include "cli/session.h"
#include "cli/verification.h"
#include "cli/workload.h"

namespace saccade::cli {
namespace {

struct Inputs {
  HostTensor q, k, v;
};

Expected<Inputs> read_inputs(const RunOptions& options) {
  const auto path = [&](const std::string& own) { return own.empty() ? options.input : own; };
  if (path(options.q_file).empty() || path(options.k_file).empty() || path(options.v_file).empty())
    return Status::invalid_argument("run needs --input FILE.safetensors, or --q, --k and --v");
  Inputs inputs;
  SACCADE_ASSIGN(inputs.q, read_tensor(path(options.q_file), options.q_name));
  SACCADE_ASSIGN(inputs.k, read_tensor(path(options.k_file), options.k_name));
  SACCADE_ASSIGN(inputs.v, read_tensor(path(options.v_file), options.v_name));
  return inputs;
}

/// Flags that were not given become what the tensors say, so that rules see the right lengths and heads.
Status adopt(ProblemOptions& problem, const Inputs& inputs, TensorOrder order) {
  const auto &q = inputs.q.shape, &k = inputs.k.shape, &v = inputs.v.shape;
  const bool varlen = problem.layout == "varlen" || !problem.lengths.empty();
  const std::size_t rank = varlen ? 3 : 4;
  for (const auto& [name, shape] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}})
    if (shape->size() != rank)
      return Status::invalid_argument(fmt::format("{} has shape {}: {}", name, shape_text(*shape),
                                                  varlen ? "varlen tensors are [total, heads, head_dim]"
                                                         : "dense tensors are [batch, heads, seqlen, head_dim], or "
                                                           "[total, heads, head_dim] with --lengths"));
  const std::size_t heads = varlen || order == TensorOrder::batch_rows_heads ? rank - 2 : 1;
  const std::size_t rows = varlen ? 0 : order == TensorOrder::batch_rows_heads ? 1 : 2;
  problem.heads = q[heads];
  problem.heads_kv = k[heads];
  if (!varlen) {
    problem.batch = q[0];
    problem.seqlen_q = q[rows];
    problem.seqlen_kv = k[rows];
  }
  if (!problem.problem.empty()) return {};
  if (varlen) problem.layout = "varlen";
  if (problem.dtype.empty()) problem.dtype = name_of(inputs.q.dtype);
  if (problem.head_dim == 0) problem.head_dim = static_cast<int>(std::min<std::int64_t>(q.back(), INT32_MAX));
  if (problem.head_dim_v == 0) problem.head_dim_v = static_cast<int>(std::min<std::int64_t>(v.back(), INT32_MAX));
  return {};
}

Status write_outputs(const RunOptions& options, const Problem& problem, const Execution& execution) {
  if (options.output.empty() && options.lse_output.empty()) return {};
  SACCADE_ASSIGN(const HostTensor o, execution.output());
  std::optional<HostTensor> lse;
  if (problem.lse) {
    SACCADE_ASSIGN(lse, execution.lse());
  }
  if (options.output.ends_with(".safetensors")) {
    std::vector<NamedTensor> tensors = {{"o", &o}};
    if (lse) tensors.push_back({"lse", &*lse});
    SACCADE_TRY(write_safetensors(options.output, tensors));
  } else if (!options.output.empty()) {
    SACCADE_TRY(write_npy(options.output, o));
  }
  if (!options.lse_output.empty()) SACCADE_TRY(write_npy(options.lse_output, *lse));
  return {};
}

/// Before anything is read: outputs that could not be written in the end.
Status check_outputs(const Options& options) {
  const RunOptions& run = options.run;
  if (!run.output.empty() && !run.output.ends_with(".npy") && !run.output.ends_with(".safetensors"))
    return Status::invalid_argument(fmt::format("--output {}: the name must end in .npy or .safetensors", run.output));
  std::vector<std::string> others = files_of(options.problem);
  others.insert(others.end(), {run.input, run.q_file, run.k_file, run.v_file, options.engine.schedule});
  SACCADE_TRY(check_output("--output", run.output, others));
  others.push_back(run.output);
  return check_output("--lse-output", run.lse_output, others);
}

/// Before anything is computed: outputs whose format does not hold what the problem makes.
Status check_output_formats(const RunOptions& options, const Problem& problem) {
  if (options.output.ends_with(".npy") && problem.o_dtype == DataType::bf16)
    return Status::invalid_argument(
        fmt::format("--output {}: .npy has no bf16; write a .safetensors file", options.output));
  if (!options.lse_output.empty() && !problem.lse) return Status::invalid_argument("--lse-output needs --lse");
  return {};
}

}  // namespace

Expected<int> run_command(const Options& options) {
  const TensorOrder order =
      options.run.tensor_order == "bshd" ? TensorOrder::batch_rows_heads : TensorOrder::batch_heads_rows;
  ProblemOptions problem_options = options.problem;
  if (!options.run.lse_output.empty() && problem_options.problem.empty()) problem_options.lse = true;
  SACCADE_TRY(check_outputs(options));
  SACCADE_ASSIGN(Inputs inputs, read_inputs(options.run));
  SACCADE_TRY(adopt(problem_options, inputs, order));
  SACCADE_ASSIGN(Workload workload, workload_from_options(problem_options));
  SACCADE_TRY(attach_tensors(workload, std::move(inputs.q), std::move(inputs.k), std::move(inputs.v), order));
  SACCADE_TRY(workload.complete());
  SACCADE_TRY(check_output_formats(options.run, workload.problem));

  SACCADE_ASSIGN(const Session session, open_session(options.engine));
  SACCADE_ASSIGN(const PrepareOptions prepare, prepare_options(options.engine, workload, TuningPolicy::off));
  SACCADE_ASSIGN(const auto plan, session.engine->prepare(session.device, workload.problem, workload.shape, prepare));
  SACCADE_ASSIGN(Execution execution, Execution::create(session.device, workload));
  SACCADE_TRY(execution.run(*plan));
  SACCADE_TRY(write_outputs(options.run, workload.problem, execution));

  std::optional<Verification> verification;
  if (options.run.verify) {
    SACCADE_ASSIGN(const HostResult result, execution.result());
    verification = verify(workload, result, kDefaultPairBudget);
  }
  if (options.json) {
    Json document = {{"shape", json_of(workload.shape, workload.problem)}, {"plan", parsed(to_json(plan->report()))}};
    if (!options.run.output.empty()) document["output"] = options.run.output;
    if (!options.run.lse_output.empty()) document["lse_output"] = options.run.lse_output;
    if (verification) document["verification"] = json_of(*verification, workload.problem.lse);
    print_json(document);
  } else {
    print_line(fmt::format("problem    {}", describe(workload)));
    print_line(plan_text(plan->report()));
    if (!options.run.output.empty()) print_line(fmt::format("output     {}", options.run.output));
    if (!options.run.lse_output.empty()) print_line(fmt::format("lse        {}", options.run.lse_output));
    if (verification) print_line("float64    " + verification_text(*verification, workload.problem.lse));
  }
  return verification && !verification->pass() ? kExitVerification : kExitOk;
}

}  // namespace saccade::cli
