// The request path: look up, else choose, emit, compile, load and bind.
#include "runtime/engine.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "runtime/binaries.h"
#include "runtime/capture.h"
#include "runtime/choice_memory.h"
#include "runtime/choose.h"
#include "runtime/kernel_plan.h"
#include "runtime/plan_table.h"

namespace saccade {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool writes_output(const Problem& problem, const Shape& shape) {
  const bool has_rows = problem.layout == Layout::dense || shape.total_q > 0;
  return has_rows && shape.batch > 0 && shape.seqlen_q > 0 && shape.heads_q > 0;
}

std::string label_of(const Schedule& schedule, const Problem& problem, const Target& target) {
  return fmt::format("{} {} {} {}", schedule.family, target.arch, to_json(problem), to_json(schedule));
}

bool frozen_by_user() {
  const char* const text = secure_getenv("SACCADE_FROZEN");
  return text != nullptr && *text != '\0' && std::string_view(text) != "0";
}

class EngineImplementation final : public Engine {
 public:
  explicit EngineImplementation(const EngineOptions& options)
      : store_(cache::Store::open(options.cache)),
        capture_(options.capture),
        frozen_(options.frozen || frozen_by_user()) {}

  ~EngineImplementation() override {
    if (!log::enabled(log::Topic::stats)) return;
    const EngineStatistics s = statistics();
    log::info(
        log::Topic::stats,
        fmt::format(
            "plans: {} hits, {} misses; binaries: {} from the cache, {} compiled in {:.0f} ms; {} tuned in {:.0f} ms",
            s.plan_hits, s.plan_misses, s.cache_hits, s.compiled, s.compile_ms, s.tuned, s.tune_ms));
  }

  Expected<std::shared_ptr<const Plan>> prepare(const std::shared_ptr<const Device>& device, const Problem& problem,
                                                const Shape& shape, const PrepareOptions& options) override {
    const PlanQuery query{device, problem, shape, options};
    const std::uint64_t hash = query.hash();
    if (std::shared_ptr<const Plan> plan = plans_.find(query, hash)) {
      counters_.plan_hits.fetch_add(1, std::memory_order_relaxed);
      return plan;
    }
    if (device == nullptr) return Status::invalid_argument("device is null");
    counters_.plan_misses.fetch_add(1, std::memory_order_relaxed);
    bool measured = false;
    PlanResult result = plans_.find_or_make(query, hash, [&] {
      bool keep = true;
      PlanResult made = make_plan(query, measured, keep);
      return MadePlan{std::move(made), keep};
    });
    if (measured) plans_.forget_untuned(problem);
    if (result.ok() && !options.schedule) capture_.record(problem, shape, options.bindings.scalars);
    return result;
  }

  Expected<Built> build(const Problem& problem, const Target& target, const Schedule& schedule,
                        bool use_cache) override {
    SACCADE_TRY(validate(problem));
    const Family* family = find_family(schedule.family);
    if (family == nullptr || family->target_kind != target.kind) {
      return Status::invalid_argument(fmt::format("no family \"{}\" builds for {}", schedule.family, target.arch));
    }
    SACCADE_TRY(family->supports(problem, target));
    Built built;
    built.source = family->emit(problem, target, schedule);
    SACCADE_ASSIGN(ObtainedBinary obtained,
                   binaries_.obtain({built.source, target, label_of(schedule, problem, target), use_cache}));
    built.binary = std::move(obtained.binary);
    built.binary_source = std::move(obtained.source);
    return built;
  }

  cache::Store& store() override { return *store_; }
  bool is_frozen() const override { return frozen_; }

  EngineStatistics statistics() const override {
    return {counters_.plan_hits, counters_.plan_misses, counters_.compiled, counters_.cache_hits,
            counters_.tuned,     counters_.compile_ms,  counters_.tune_ms};
  }

 private:
  PlanResult make_plan(const PlanQuery& query, bool& measured, bool& keep);
  Expected<Choice> choose(const PlanQuery& query);

  std::unique_ptr<cache::Store> store_;
  Capture capture_;
  const bool frozen_;
  EngineCounters counters_;
  ChoiceMemory choices_;
  Ladder ladder_{*store_};
  Binaries binaries_{*store_, counters_};
  PlanTable plans_;
};

/// The choice for the bucket that the shape falls into, made once; unless the schedule is the user's.
Expected<Choice> EngineImplementation::choose(const PlanQuery& query) {
  const Shape planned = planning_shape(query.shape, query.problem);
  // Host tables are sized for the call's own lengths.
  const Shape& ranked = query.options.bindings.tables.empty() ? planned : query.shape;
  const ChooseRequest request{*this, query.device, query.problem, query.shape, ranked, query.options, ladder_};
  if (query.options.schedule) return choose_schedule(request);
  const PlanQuery bucket{query.device, query.problem, planned, query.options};
  if (std::optional<Choice> known = choices_.find(bucket)) {
    if (known->family->legal(query.problem, query.device->target(), query.shape, known->schedule).ok())
      return std::move(*known);
  }
  SACCADE_ASSIGN(Choice choice, choose_schedule(request));
  if (choice.measured_now) {
    ++counters_.tuned;
    counters_.tune_ms += choice.tune_ms;
    ladder_.forget();
    choices_.clear();  // what the cost model chose for other policies is out of date now
  }
  if (!choice.provisional) choices_.remember(bucket, choice);
  return choice;
}

PlanResult EngineImplementation::make_plan(const PlanQuery& query, bool& measured, bool& keep) {
  const Clock::time_point start = Clock::now();
  const Target& target = query.device->target();
  SACCADE_TRY(validate(query.problem));
  SACCADE_TRY(validate(query.shape, query.problem));

  KernelPlan::Parts parts;
  PlanReport& report = parts.report;
  SACCADE_ASSIGN(Choice choice, choose(query));
  measured = choice.measured_now;
  keep = !choice.provisional;
  report.choose_ms = milliseconds_since(start);

  parts.geometry = choice.family->launch_geometry(query.problem, target, query.shape, choice.schedule);
  if (parts.geometry.launches.empty() && writes_output(query.problem, query.shape)) {
    return Status::internal(fmt::format("{} launches nothing although there are rows to write", choice.family->name));
  }
  if (!parts.geometry.launches.empty()) {
    const Clock::time_point emit_start = Clock::now();
    const std::string source = choice.family->emit(query.problem, target, choice.schedule);
    report.emit_ms = milliseconds_since(emit_start);
    SACCADE_ASSIGN(
        LoadedKernel loaded,
        binaries_.load(query.device,
                       {source, target, label_of(choice.schedule, query.problem, target), query.options.use_cache},
                       parts.geometry.launches));
    parts.kernel = std::move(loaded.kernel);
    report.binary_source = std::move(loaded.binary_source);
    report.registers = loaded.usage.registers;
    report.spill_bytes = loaded.usage.spill_bytes;
    report.shared_bytes = loaded.usage.static_shared_bytes;
    report.compile_ms = loaded.compile_ms;
    report.load_ms = loaded.load_ms;
  }
  std::int64_t dynamic_shared_bytes = 0;
  for (const Launch& launch : parts.geometry.launches) {
    dynamic_shared_bytes = std::max<std::int64_t>(dynamic_shared_bytes, launch.shared_bytes);
  }
  report.shared_bytes += dynamic_shared_bytes;
  report.workspace_bytes = parts.geometry.workspace_bytes;
  report.problem_json = to_json(query.problem);
  report.schedule = std::move(choice.schedule);
  report.schedule_source = std::move(choice.source);
  report.declined = std::move(choice.declined);
  report.cost = choice.cost;
  report.total_ms = milliseconds_since(start);
  log::info(log::Topic::plan,
            fmt::format("{} by {} for {}; binary {}; {:.2f} ms", to_json(report.schedule), report.schedule_source,
                        report.problem_json, report.binary_source, report.total_ms));
  parts.problem = std::make_shared<const Problem>(query.problem);
  parts.shape = query.shape;
  parts.device = query.device;
  return std::shared_ptr<const Plan>(std::make_shared<const KernelPlan>(std::move(parts)));
}

}  // namespace

Expected<std::shared_ptr<Engine>> Engine::create(const EngineOptions& options) {
  if (options.cpu_threads < 0) {
    return Status::invalid_argument(
        fmt::format("cpu_threads is {}; 0 means all that the process may use", options.cpu_threads));
  }
  return std::shared_ptr<Engine>(std::make_shared<EngineImplementation>(options));
}

}  // namespace saccade
