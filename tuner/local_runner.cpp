#include "tuner/local_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <system_error>

namespace saccade::tuner {
namespace {

/// Rotation goes through this many times the L2, so that each run finds its inputs in memory.
constexpr double kRotationOverL2 = 2.0;
constexpr std::int64_t kMaxSets = 16;
/// Lengths of the gate, in units of the measurement's, from the first that a schedule is legal for.
constexpr int kGateScales[] = {1, 4, 16};

Fault fault_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::compile_failed: return Fault::compile_failed;
    case StatusCode::device_error: return Fault::crashed;
    default: return Fault::refused;
  }
}

AddOutcome failed(const Status& status) {
  AddOutcome outcome;
  outcome.fault = fault_of(status);
  outcome.reason = fmt::format("{}: {}", name_of(status.code()), status.message());
  return outcome;
}

}  // namespace

LocalRunner::LocalRunner(Engine& engine, std::shared_ptr<const Device> device, const RunnerProblem& problem)
    : engine_(engine), device_(std::move(device)), problem_(problem) {}

LocalRunner::~LocalRunner() { join_prefetch(); }

Expected<std::unique_ptr<LocalRunner>> LocalRunner::open(Engine& engine, std::shared_ptr<const Device> device,
                                                         const RunnerProblem& problem) {
  // Work on the legacy stream would break a capture that is under way in this process (triton #10596).
  SACCADE_ASSIGN(const bool capturing, device->is_capturing(nullptr));
  if (capturing) {
    return Status::invalid_argument(
        "a stream of this process is being captured: tune before the capture, or with tuning off");
  }
  std::unique_ptr<LocalRunner> runner(new LocalRunner(engine, std::move(device), problem));
  const Target& target = runner->device_->target();
  runner->shape_ = race_shape(problem.problem, problem.shape, problem.bindings, problem.measurement,
                              problem.predicted_us, parallel_units(target));
  SACCADE_ASSIGN(const Gate* gate, runner->gate_at(1));
  runner->owned_ = race_bindings(problem.problem, runner->shape_, problem.bindings, problem.measurement.seed);
  SACCADE_ASSIGN(runner->device_bindings_, upload_bindings(runner->device_, problem.problem, runner->owned_.bindings,
                                                           lengths_of(problem.problem, runner->shape_)));
  SACCADE_TRY(runner->allocate_sets());
  SACCADE_ASSIGN(runner->timer_, runner->device_->timer());
  runner->setup_.measured_shape = to_json(runner->shape_);
  runner->setup_.gate_shape = to_json(gate->shape());
  return runner;
}

Status LocalRunner::fill_set(const CallMemory& set) {
  // A block of a million values, repeated: as good as random to a kernel, and fast to make. Its length shares no factor
  // with any head_dim, so that rows differ.
  constexpr std::size_t kBlockElements = (std::size_t{1} << 20) + 7;
  std::uint64_t seed = problem_.measurement.seed;
  for (const Operand* operand : {&set.q, &set.k, &set.v}) {
    NormalSource source(seed++);  // Q equal to K would make the diagonal outgrow everything
    const std::size_t elements = static_cast<std::size_t>(operand->layout.elements);
    const std::size_t block = std::min(elements, kBlockElements);
    std::vector<std::byte> values(block * size_of(operand->dtype));
    for (std::size_t i = 0; i < block; ++i) {
      store_from_double(operand->dtype, values.data(), static_cast<std::int64_t>(i), source.next());
    }
    for (std::size_t at = 0; at < elements; at += block) {
      const std::size_t count = std::min(block, elements - at) * size_of(operand->dtype);
      SACCADE_TRY(device_->copy_to_device(operand->first() + at * size_of(operand->dtype), values.data(), count));
    }
  }
  return Status();
}

Status LocalRunner::allocate_sets() {
  const double rotation = kRotationOverL2 * static_cast<double>(device_->target().l2_bytes);
  std::int64_t total = 0;
  do {
    Expected<CallMemory> set = allocate_call(device_, problem_.problem, shape_, 0);
    if (!set.ok()) {
      if (sets_.empty()) return set.status();
      break;
    }
    SACCADE_TRY(fill_set(*set));
    total += static_cast<std::int64_t>(set->bytes());
    sets_.push_back(std::move(set).value());
  } while (static_cast<double>(total) < rotation && static_cast<std::int64_t>(sets_.size()) < kMaxSets);
  setup_.buffer_sets = static_cast<int>(sets_.size());
  setup_.buffer_bytes = total;
  return Status();
}

Expected<std::shared_ptr<const Plan>> LocalRunner::plan_for(const Schedule& schedule, const Shape& shape,
                                                            const expr::Bindings& bindings) {
  PrepareOptions options;
  options.bindings = bindings;
  options.schedule = schedule;
  return engine_.prepare(device_, problem_.problem, shape, options);
}

void LocalRunner::announce(protocol::Phase phase, int id) const {
  if (listener_) listener_(phase, id);
}

Status LocalRunner::check(const Schedule& schedule, AddOutcome& outcome) {
  Status refused;
  for (const int scale : kGateScales) {
    SACCADE_ASSIGN(Gate * gate, gate_at(scale));
    if (gate == nullptr) break;
    Expected<std::shared_ptr<const Plan>> plan = plan_for(schedule, gate->shape(), gate->bindings());
    if (!plan.ok()) {
      // Many KV splits need more keys than the smallest gate has.
      refused = plan.status();
      const bool may_fit_more =
          refused.code() == StatusCode::unsupported || refused.code() == StatusCode::invalid_argument;
      if (may_fit_more) continue;
      return refused;
    }
    SACCADE_ASSIGN(const GateVerdict verdict, gate->check(**plan, schedule, hooks_));
    outcome.error = verdict.error;
    outcome.error_bound = verdict.bound;
    if (!verdict.pass) {
      outcome.fault = Fault::wrong_result;
      outcome.reason = verdict.detail;
    }
    return Status();
  }
  return Status(StatusCode::unsupported, fmt::format("it cannot be checked on a small problem: {}", refused.message()));
}

/// Null when the problem is not that long, or the oracle would be too slow.
Expected<Gate*> LocalRunner::gate_at(int scale) {
  constexpr std::int64_t kMaxPairs = std::int64_t{1} << 21;
  if (const auto found = gates_.find(scale); found != gates_.end()) return found->second.get();
  RunnerProblem scaled = problem_;
  scaled.measurement.gate_seqlen *= scale;
  const Shape shape = gate_shape(scaled.problem, scaled.shape, scaled.measurement);
  if (scale > 1) {
    if (shape == gates_.rbegin()->second->shape()) return static_cast<Gate*>(nullptr);
    if (shape.batch * shape.heads_q * shape.seqlen_q * shape.seqlen_kv > kMaxPairs) return static_cast<Gate*>(nullptr);
  }
  SACCADE_ASSIGN(std::unique_ptr<Gate> gate, Gate::create(device_, scaled));
  return gates_.emplace(scale, std::move(gate)).first->second.get();
}

Expected<double> LocalRunner::run_us(const Entry& entry, int repeats) {
  SACCADE_TRY(timer_->begin());
  for (int i = 0; i < repeats; ++i) {
    RunArguments arguments = arguments_of(sets_[next_set_], device_bindings_, problem_.problem);
    next_set_ = (next_set_ + 1) % sets_.size();
    arguments.workspace = entry.workspace.data();
    arguments.stream = timer_->stream();
    SACCADE_TRY(entry.plan->run(arguments));
  }
  SACCADE_ASSIGN(const double us, timer_->end_us());
  return us / repeats;
}

Status LocalRunner::warm_up(int id, Entry& entry, AddOutcome& outcome) {
  announce(protocol::Phase::warm, id);
  if (hooks_ != nullptr) hooks_->before_run(entry.schedule);
  SACCADE_ASSIGN(const double cold_us, run_us(entry, 1));
  outcome.estimate_us = cold_us;
  if (cold_us < problem_.measurement.run_limit_us) {
    SACCADE_ASSIGN(outcome.estimate_us, run_us(entry, 1));
  }
  const double repeats = std::ceil(problem_.measurement.sample_us / std::max(outcome.estimate_us, 1e-3));
  entry.repeats = static_cast<int>(std::clamp(repeats, 1.0, static_cast<double>(problem_.measurement.max_repeats)));
  return Status();
}

AddOutcome LocalRunner::add_entry(int id, const Schedule& schedule, bool trusted) {
  AddOutcome outcome;
  announce(protocol::Phase::compile, id);
  if (hooks_ != nullptr) {
    if (const Status status = hooks_->before_compile(schedule); !status.ok()) return failed(status);
  }
  Expected<std::shared_ptr<const Plan>> plan = plan_for(schedule, shape_, owned_.bindings);
  if (!plan.ok()) return failed(plan.status());
  const PlanReport& report = (*plan)->report();
  outcome.compile_ms = report.compile_ms;
  outcome.binary_source = report.binary_source;
  outcome.registers = report.registers;
  outcome.spill_bytes = report.spill_bytes;
  if (!trusted) {
    announce(protocol::Phase::gate, id);
    if (const Status status = check(schedule, outcome); !status.ok()) return failed(status);
    if (outcome.fault != Fault::none) return outcome;
  }
  Entry entry;
  entry.schedule = schedule;
  entry.plan = std::move(plan).value();
  Expected<Workspace> workspace = Workspace::allocate(device_, *entry.plan);
  if (!workspace.ok()) return failed(workspace.status());
  entry.workspace = std::move(workspace).value();
  if (const Status status = warm_up(id, entry, outcome); !status.ok()) return failed(status);
  entries_.insert_or_assign(id, std::move(entry));
  return outcome;
}

AddOutcome LocalRunner::add(int id, const Schedule& schedule, double /*predicted_us*/, const Limits& limits) {
  if (limits.stop()) {
    AddOutcome outcome;
    outcome.fault = Fault::interrupted;
    outcome.reason = "the budget is spent";
    return outcome;
  }
  return add_entry(id, schedule, false);
}

AddOutcome LocalRunner::add_trusted(int id, const Schedule& schedule) { return add_entry(id, schedule, true); }

Expected<double> LocalRunner::sample(int id) {
  join_prefetch();  // compilers would share the cores with what is being timed
  const auto found = entries_.find(id);
  if (found == entries_.end()) return Status::invalid_argument(fmt::format("no candidate {} to time", id));
  announce(protocol::Phase::sample, id);
  if (hooks_ != nullptr) hooks_->before_run(found->second.schedule);
  return run_us(found->second, found->second.repeats);
}

RoundOutcome LocalRunner::time(std::span<const int> ids, const Limits& limits) {
  RoundOutcome outcome;
  for (const int id : ids) {
    if (limits.stop()) {
      outcome.interrupted = true;
      break;
    }
    Expected<double> us = sample(id);
    if (us.ok()) {
      outcome.samples.push_back({id, *us});
    } else {
      outcome.failures.push_back({id, fault_of(us.status()), us.status().message()});
      drop(id);
    }
  }
  return outcome;
}

void LocalRunner::drop(int id) { entries_.erase(id); }

void LocalRunner::prefetch(std::span<const Schedule> schedules) {
  join_prefetch();
  const unsigned cores = std::max(std::thread::hardware_concurrency(), 1u);
  const unsigned workers = std::min<unsigned>(cores / 2, static_cast<unsigned>(schedules.size()));
  if (workers < 2) return;  // one compiler at a time is what `add` is anyway
  const auto queue = std::make_shared<const std::vector<Schedule>>(schedules.begin(), schedules.end());
  const auto next = std::make_shared<std::atomic<std::size_t>>(0);
  const auto build = [this, queue, next](std::stop_token stop) {
    for (std::size_t at = next->fetch_add(1); at < queue->size() && !stop.stop_requested(); at = next->fetch_add(1)) {
      // A failure shows again, with its reason, when the candidate is added.
      (void)engine_.build(problem_.problem, device_->target(), (*queue)[at], true);
    }
  };
  try {
    for (unsigned i = 0; i < std::min(workers, 8u); ++i) prefetchers_.emplace_back(build);
  } catch (const std::system_error&) {  // no more threads: `add` builds what those that there are do not
  }
}

void LocalRunner::join_prefetch() {
  for (std::jthread& thread : prefetchers_) thread.request_stop();
  prefetchers_.clear();
}

}  // namespace saccade::tuner
