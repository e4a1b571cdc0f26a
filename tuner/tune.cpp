#include "tuner/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/together.h"
#include "tuner/inputs.h"
#include "tuner/local_runner.h"
#include "tuner/remote_runner.h"
#include "tuner/report.h"
#include "tuner/session.h"
#include "tuner/worker_path.h"

namespace saccade::tuner {
namespace {

/// The runner of a run, with what only its kind can tell.
struct OpenedRunner {
  std::unique_ptr<Runner> runner;
  RunnerSetup setup;
  const RemoteRunner* remote = nullptr;
};

RunnerProblem runner_problem(const TuneRequest& request, const PolicyRules& rules, double predicted_us) {
  RunnerProblem problem;
  problem.problem = *request.problem;
  problem.shape = *request.shape;
  if (request.bindings != nullptr) problem.bindings = *request.bindings;
  problem.measurement = rules.measurement;
  problem.predicted_us = predicted_us;
  return problem;
}

Expected<OpenedRunner> open_in_process(Engine& engine, const TuneRequest& request, const RunnerProblem& problem) {
  SACCADE_ASSIGN(std::unique_ptr<LocalRunner> local, LocalRunner::open(engine, request.device, problem));
  OpenedRunner opened;
  opened.setup = local->setup();
  opened.runner = std::move(local);
  return opened;
}

Expected<OpenedRunner> open_worker(Engine& engine, const TuneRequest& request, const RunnerProblem& problem,
                                   std::size_t candidates, const Limits& limits) {
  const Target& target = request.device->target();
  WorkerSettings settings;
  SACCADE_ASSIGN(settings.executable, find_worker());
  settings.open.problem = problem;
  settings.bindings = problem.bindings;
  settings.open.problem.bindings = {};
  settings.open.is_cuda = target.kind == Target::Kind::cuda;
  settings.open.ordinal = request.device->ordinal();
  settings.open.sm_count = target.sm_count;
  settings.open.threads = target.cores;
  settings.open.arch = settings.open.is_cuda ? "" : target.arch;
  settings.open.tuning_identity = tuning_identity(target);
  const std::string database = engine.store().user_path();
  if (!database.empty() && request.use_cache)
    settings.open.cache_directory = std::filesystem::path(database).parent_path().string();
  settings.max_restarts = static_cast<int>(std::max<std::size_t>(candidates, 8));
  SACCADE_ASSIGN(std::unique_ptr<RemoteRunner> remote, RemoteRunner::open(std::move(settings), limits));
  OpenedRunner opened;
  opened.setup = remote->setup();
  opened.remote = remote.get();
  opened.runner = std::move(remote);
  return opened;
}

SessionCallbacks callbacks_of(Engine& engine, const TuneRequest& request, const TuneOptions& options, bool resumable) {
  const Family& family = *request.family;
  const Problem& problem = *request.problem;
  const Target& target = request.device->target();
  const std::string row_key = tuned_key(family, problem, *request.shape, target);
  cache::Store& store = engine.store();
  SessionCallbacks callbacks;
  callbacks.resources = [&](const Schedule& schedule) { return family.resources(problem, target, schedule); };
  callbacks.reject = [&](const Schedule& schedule, const std::string& reason) {
    log::info(log::Topic::tune, fmt::format("rejected {}: {}", saccade::to_json(schedule), reason));
    if (!request.use_cache) return;
    store.put_rejected(rejected_key(family, problem, target, schedule), {reason},
                       fmt::format("{} {}", saccade::to_json(schedule), saccade::to_json(problem)));
  };
  callbacks.recall = [&store, row_key, resumable](const Schedule& schedule,
                                                  const Schedule& standard) -> std::optional<Remembered> {
    if (!resumable) return std::nullopt;
    const std::optional<cache::Tuned> row = store.find_tuned(measurement_key(row_key, schedule));
    return row ? remembered_from_json(row->provenance, standard) : std::nullopt;
  };
  callbacks.record = [&store, &request, row_key](const Schedule& schedule, const Schedule& standard,
                                                 const Remembered& measured) {
    if (!request.use_cache) return;
    const std::string text = saccade::to_json(schedule);
    store.put_tuned(measurement_key(row_key, schedule), {text, to_json(measured, standard)}, "measurement " + text);
  };
  callbacks.progress = options.progress;
  return callbacks;
}

CandidatePlan plan_for(Engine& engine, const TuneRequest& request, const PolicyRules& rules) {
  const Target& target = request.device->target();
  const expr::Bindings none;
  const expr::Bindings& bindings = request.bindings != nullptr ? *request.bindings : none;
  std::vector<RankedSchedule> ranked =
      rank_candidates(*request.family, *request.problem, target, *request.shape, bindings);
  std::erase_if(ranked, [&](const RankedSchedule& entry) {
    return !request.family->legal(*request.problem, target, *request.shape, entry.schedule).ok();
  });
  return plan_candidates(ranked, rules.selection, [&](const Schedule& schedule) -> std::optional<std::string> {
    if (!request.use_cache) return std::nullopt;
    const auto row = engine.store().find_rejected(rejected_key(*request.family, *request.problem, target, schedule));
    if (!row) return std::nullopt;
    return row->reason;
  });
}

/// Finds out before anything runs that one run is too long: `quick` means at most 2 s, also for 128 thousand keys.
Status check_room(const TuneRequest& request, const PolicyRules& rules, const RunnerProblem& problem,
                  const Candidate& standard) {
  const Target& target = request.device->target();
  const Shape measured = race_shape(problem.problem, problem.shape, problem.bindings, problem.measurement,
                                    problem.predicted_us, parallel_units(target));
  const double run_us =
      predict_cost(*request.family, problem.problem, target, measured, problem.bindings, standard.schedule).total_us;
  const double needed_ms = run_us / 1000 * kLeastRuns;
  if (needed_ms <= rules.budget_ms) return {};
  return Status::unsupported(fmt::format(
      "not measured: one run is predicted to take {:.3g} s, and the budget of {:.3g} s has no room for the {} that "
      "a comparison needs. A budget of {:.3g} s or policy 'exhaustive' has",
      run_us / 1e6, rules.budget_ms / 1000, kLeastRuns, needed_ms / 1000 * 2));
}

Status check(const TuneRequest& request) {
  if (request.problem == nullptr || request.shape == nullptr || request.family == nullptr ||
      request.device == nullptr) {
    return Status::invalid_argument("a tuning request needs a problem, a shape, a family and a device");
  }
  SACCADE_TRY(validate(*request.problem));
  SACCADE_TRY(validate(*request.shape, *request.problem));
  return request.family->supports(*request.problem, request.device->target());
}

}  // namespace

Expected<TuneReport> tune(Engine& engine, const TuneRequest& request, const TuneOptions& options) {
  SACCADE_TRY(check(request));
  if (engine.is_frozen())
    return Status::unsupported("the engine is frozen (SACCADE_FROZEN is set): it measures nothing");
  PolicyRules rules = rules_of(request.policy);
  if (options.budget_ms > 0) rules.budget_ms = options.budget_ms;
  Limits limits;
  limits.cancel = options.cancel;
  const double start_ms = limits.now_ms();
  limits.deadline_ms = start_ms + rules.budget_ms;

  CandidatePlan plan = plan_for(engine, request, rules);
  if (plan.candidates.empty()) {
    return Status::unsupported(
        fmt::format("{} has no schedule for this problem and shape that was not rejected before ({})",
                    request.family->name, plan.rejected.size()));
  }
  const RunnerProblem problem = runner_problem(request, rules, plan.candidates.front().cost.total_us);
  SACCADE_TRY(check_room(request, rules, problem, plan.candidates.front()));
  const Limits patient = limits.with_deadline(std::numeric_limits<double>::infinity());
  SACCADE_ASSIGN(OpenedRunner opened, options.isolation == TuneOptions::Isolation::in_process
                                          ? open_in_process(engine, request, problem)
                                          : open_worker(engine, request, problem, plan.candidates.size(), patient));
  Session session(*opened.runner, std::move(plan), rules, callbacks_of(engine, request, options, options.resume),
                  limits, start_ms);
  SACCADE_ASSIGN(TuneReport report, session.run());
  report.setup = opened.setup;
  if (opened.remote != nullptr) report.worker_restarts = opened.remote->restarts();
  opened.runner.reset();  // the worker's queued writes are in the store before the caller looks for the winner's binary
  report.elapsed_ms = limits.now_ms() - start_ms;
  report.outcome.provenance = provenance_of(request, report);
  log::info(log::Topic::tune, fmt::format("{}: {} in {:.0f} ms", saccade::to_json(report.outcome.schedule),
                                          report.reason, report.elapsed_ms));
  return report;
}

void compile_candidates(Engine& engine, const TuneRequest& request, const std::atomic<bool>* cancel, std::size_t most) {
  if (!check(request).ok()) return;
  const CandidatePlan plan = plan_for(engine, request, rules_of(request.policy));
  const std::size_t count = std::min(plan.candidates.size(), most);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count && !(cancel != nullptr && cancel->load()); i = next++) {
      const auto built = engine.build(*request.problem, request.device->target(), plan.candidates[i].schedule,
                                      /*use_cache=*/true);
      if (!built.ok()) log::info(log::Topic::tune, built.status().message());
    }
  };
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t share = most == kEveryCandidate ? cores : (cores + 1) / 2;  // the rest is for who times
  work_together(std::min(count, share), work);
}

std::unique_ptr<cache::CompileLock> take_turn(Engine& engine, const Device& device, double patience_ms,
                                              const Limits& limits) {
  constexpr double kSliceMs = 200;
  const std::string turn = cache::KeyBuilder()
                               .add("tuning on", tuning_identity(device.target()))
                               .add("ordinal", std::int64_t{device.ordinal()})
                               .bytes();
  for (double waited_ms = 0;; waited_ms += kSliceMs) {
    auto lock = engine.store().lock(turn, static_cast<int>(std::min(kSliceMs, patience_ms - waited_ms)));
    // Without a folder to lock in there is nothing to wait for.
    const bool is_over =
        waited_ms + kSliceMs >= patience_ms || limits.cancelled() || limits.now_ms() >= limits.deadline_ms;
    if (lock != nullptr || is_over || engine.store().user_path().empty()) return lock;
  }
}

void remember(Engine& engine, const TuneRequest& request, const TuneReport& report) {
  if (report.rounds == 0) return;
  engine.store().put_tuned(tuned_key(*request.family, *request.problem, *request.shape, request.device->target()),
                           {saccade::to_json(report.outcome.schedule), report.outcome.provenance},
                           fmt::format("{} {}", request.family->name, saccade::to_json(*request.problem)));
}

}  // namespace saccade::tuner

namespace saccade {
namespace {

/// What another process found while this one waited for its turn.
std::optional<TuneOutcome> found_meanwhile(cache::Store& store, const TuneRequest& request, const std::string& key) {
  const std::optional<cache::Tuned> row = store.find_tuned(key);
  if (!row) return std::nullopt;
  const Expected<Schedule> schedule = schedule_from_json(row->schedule);
  const bool usable = schedule.ok() &&
                      request.family->legal(*request.problem, request.device->target(), *request.shape, *schedule).ok();
  if (!usable) return std::nullopt;
  return TuneOutcome{*schedule, row->provenance};
}

/// A schedule that met no other was not measured in any sense that matters, and must not pass for one that was.
Expected<tuner::TuneReport> raced(Engine& engine, const TuneRequest& request) {
  SACCADE_ASSIGN(tuner::TuneReport report, tuner::tune(engine, request, {}));
  if (report.rounds == 0) return Status::unsupported(report.reason);
  return report;
}

}  // namespace

Expected<TuneOutcome> tune_schedule(Engine& engine, const TuneRequest& request) {
  if (!request.use_cache) {
    SACCADE_ASSIGN(tuner::TuneReport report, raced(engine, request));
    return std::move(report.outcome);
  }
  constexpr double kMostPatienceMs = 15'000;
  const double patience_ms = std::min(tuner::rules_of(request.policy).budget_ms, kMostPatienceMs);
  const auto turn = tuner::take_turn(engine, *request.device, patience_ms, {});
  const std::string key = tuned_key(*request.family, *request.problem, *request.shape, request.device->target());
  if (std::optional<TuneOutcome> outcome = found_meanwhile(engine.store(), request, key)) return *std::move(outcome);
  SACCADE_ASSIGN(tuner::TuneReport report, raced(engine, request));
  tuner::remember(engine, request, report);  // while the turn is ours, so that the next in line finds it
  return std::move(report.outcome);
}

}  // namespace saccade
