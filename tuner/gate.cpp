#include "tuner/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

namespace saccade::tuner {
namespace {

/// NaN rows between the sequences of the gate's tensors: what lies beyond a sequence must not reach the output.
constexpr std::int64_t kGapRows = 3;

/// Visits the head_dim elements of each row of an operand: f(index of the first element, batch, head, row).
template <class F>
void for_each_row(const TensorLayout& layout, F f) {
  for (std::int64_t b = 0; b < layout.batches; ++b) {
    for (std::int64_t h = 0; h < layout.heads; ++h) {
      for (std::int64_t row = 0; row < layout.rows; ++row) {
        f(b * layout.stride.batch + h * layout.stride.head + row * layout.stride.row, b, h, row);
      }
    }
  }
}

Status fill_operand(const Device& device, const Operand& operand, NormalSource& source, std::vector<std::byte>& host) {
  host.assign(operand.memory.bytes(), std::byte{kPoison});
  std::byte* first = host.data() + operand.guard_bytes;
  for_each_row(operand.layout, [&](std::int64_t at, auto, auto, auto) {
    for (int d = 0; d < operand.layout.head_dim; ++d) store_from_double(operand.dtype, first, at + d, source.next());
  });
  return device.copy_to_device(operand.memory.data(), host.data(), host.size());
}

bool is_poison(const std::byte* begin, const std::byte* end) {
  return std::all_of(begin, end, [](std::byte b) { return b == std::byte{kPoison}; });
}

/// Row-major values: dense [batch, heads, rows, head_dim], varlen [rows, heads, head_dim].
std::vector<double> gather(const Operand& operand, const std::vector<std::byte>& host, Layout layout) {
  const TensorLayout& t = operand.layout;
  std::vector<double> values(static_cast<std::size_t>(t.batches * t.heads * t.rows * t.head_dim));
  const std::byte* first = host.data() + operand.guard_bytes;
  for_each_row(t, [&](std::int64_t at, std::int64_t b, std::int64_t h, std::int64_t row) {
    const std::int64_t index = layout == Layout::dense ? (b * t.heads + h) * t.rows + row : row * t.heads + h;
    for (int d = 0; d < t.head_dim; ++d) {
      values[static_cast<std::size_t>(index * t.head_dim + d)] = load_as_double(operand.dtype, first, at + d);
    }
  });
  return values;
}

/// Share of rows whose output is not all zero: rows that keep at least one key.
double live_share(const std::vector<double>& o, int head_dim) {
  if (o.empty()) return 1;
  std::size_t live = 0;
  const std::size_t rows = o.size() / static_cast<std::size_t>(head_dim);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto begin = o.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(head_dim));
    live += std::any_of(begin, begin + head_dim, [](double x) { return x != 0; }) ? 1 : 0;
  }
  return static_cast<double>(live) / static_cast<double>(rows);
}

}  // namespace

Status Gate::fill_inputs(std::uint64_t seed) {
  NormalSource source(seed);
  SACCADE_TRY(fill_operand(*device_, memory_.q, source, host_q_));
  SACCADE_TRY(fill_operand(*device_, memory_.k, source, host_k_));
  SACCADE_TRY(fill_operand(*device_, memory_.v, source, host_v_));
  call_.q = host_q_.data() + memory_.q.guard_bytes;
  call_.k = host_k_.data() + memory_.k.guard_bytes;
  call_.v = host_v_.data() + memory_.v.guard_bytes;
  call_.q_stride = memory_.q.layout.stride;
  call_.k_stride = memory_.k.layout.stride;
  call_.v_stride = memory_.v.layout.stride;
  call_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem_.head_dim_qk)));
  return Status();
}

Status Gate::make_oracle(const RunnerProblem& problem) {
  const std::uint64_t seed = problem.measurement.seed;
  constexpr double kEnoughLiveRows = 0.1;
  const unsigned threads = std::thread::hardware_concurrency();
  // Made-up tables exercise tiles of every class, but may mean nothing to this mask; then the caller's own are used.
  for (const bool use_given_tables : {false, true}) {
    owned_ = gate_bindings(problem_, problem.shape, shape_, problem.bindings, seed, use_given_tables);
    call_.bindings = owned_.bindings;
    exact_ = reference_float64(problem_, shape_, call_, threads);
    if (live_share(exact_.o, problem_.head_dim_v) >= kEnoughLiveRows || problem_.declarations.tables.empty()) break;
  }
  plain_ = unfused(problem_, shape_, call_, threads);
  return Status();
}

Expected<std::unique_ptr<Gate>> Gate::create(std::shared_ptr<const Device> device, const RunnerProblem& problem) {
  std::unique_ptr<Gate> gate(new Gate);
  gate->device_ = std::move(device);
  gate->problem_ = problem.problem;
  gate->shape_ = gate_shape(problem.problem, problem.shape, problem.measurement);
  const Lengths lengths = gate_lengths(gate->problem_, gate->shape_);
  gate->call_.cu_seqlens_q = lengths.cu_seqlens_q;
  gate->call_.cu_seqlens_kv = lengths.cu_seqlens_kv;
  SACCADE_ASSIGN(gate->memory_, allocate_call(gate->device_, gate->problem_, gate->shape_, kGapRows));
  SACCADE_TRY(gate->fill_inputs(problem.measurement.seed));
  SACCADE_TRY(gate->make_oracle(problem));
  SACCADE_ASSIGN(gate->device_bindings_, upload_bindings(gate->device_, gate->problem_, gate->call_.bindings, lengths));
  return gate;
}

std::string Gate::written_outside(const Outputs& outputs) const {
  const auto& [o, lse] = outputs;
  const Operand& operand = memory_.o;
  const std::byte* cursor = o.data();
  const std::size_t row_bytes = static_cast<std::size_t>(operand.layout.head_dim) * size_of(operand.dtype);
  // Rows in memory order, so that everything between them is looked at once.
  std::vector<std::int64_t> rows;
  for_each_row(operand.layout, [&](std::int64_t at, auto, auto, auto) { rows.push_back(at); });
  std::sort(rows.begin(), rows.end());
  for (const std::int64_t at : rows) {
    const std::byte* row = o.data() + operand.guard_bytes + static_cast<std::size_t>(at) * size_of(operand.dtype);
    if (!is_poison(cursor, row)) return "wrote outside the rows of the output";
    cursor = row + row_bytes;
  }
  if (!is_poison(cursor, o.data() + o.size())) return "wrote past the end of the output";
  if (!lse.empty() && (!is_poison(lse.data(), lse.data() + kLseGuardBytes) ||
                       !is_poison(lse.data() + lse.size() - kLseGuardBytes, lse.data() + lse.size()))) {
    return "wrote outside the LSE";
  }
  return "";
}

Expected<Gate::Outputs> Gate::outputs_of(const Plan& plan, const Schedule& schedule, RunHooks* hooks) {
  SACCADE_TRY(device_->fill(memory_.o.memory.data(), kPoison, memory_.o.memory.bytes()));
  if (problem_.lse) SACCADE_TRY(device_->fill(memory_.lse.data(), kPoison, memory_.lse.bytes()));
  SACCADE_ASSIGN(const Workspace workspace, Workspace::allocate(device_, plan));
  RunArguments arguments = arguments_of(memory_, device_bindings_, problem_);
  arguments.workspace = workspace.data();
  if (hooks != nullptr) hooks->before_run(schedule);
  SACCADE_TRY(plan.run(arguments));
  SACCADE_TRY(device_->synchronize());

  Outputs outputs{std::vector<std::byte>(memory_.o.memory.bytes()), std::vector<std::byte>(memory_.lse.bytes())};
  SACCADE_TRY(device_->copy_to_host(outputs.o.data(), memory_.o.memory.data(), outputs.o.size()));
  if (problem_.lse) {
    SACCADE_TRY(device_->copy_to_host(outputs.lse.data(), memory_.lse.data(), outputs.lse.size()));
  }
  return outputs;
}

GateVerdict Gate::verdict_of(const Outputs& outputs, const Schedule& schedule, RunHooks* hooks) const {
  GateVerdict verdict;
  verdict.detail = written_outside(outputs);
  if (!verdict.detail.empty()) return verdict;

  HostResult actual;
  actual.o = gather(memory_.o, outputs.o, problem_.layout);
  if (problem_.lse) {
    for (std::int64_t i = 0; i < lse_elements(problem_, shape_); ++i) {
      actual.lse.push_back(load_as_double(DataType::f32, outputs.lse.data() + kLseGuardBytes, i));
    }
  }
  if (hooks != nullptr) hooks->after_gate_run(schedule, actual.o);
  const ErrorReport report = compare(problem_, actual, exact_, plain_, problem_.lse);
  verdict.pass = report.pass;
  verdict.error = report.o_error;
  verdict.bound = report.o_bound;
  if (!report.pass) verdict.detail = report.detail;
  return verdict;
}

Expected<GateVerdict> Gate::check(const Plan& plan, const Schedule& schedule, RunHooks* hooks) {
  SACCADE_ASSIGN(const Outputs first, outputs_of(plan, schedule, hooks));
  const GateVerdict verdict = verdict_of(first, schedule, hooks);
  if (!verdict.pass) return verdict;
  SACCADE_ASSIGN(const Outputs second, outputs_of(plan, schedule, hooks));
  return second == first ? verdict : verdict_of(second, schedule, hooks);
}

}  // namespace saccade::tuner
