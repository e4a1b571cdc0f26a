#include "cli/demo_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "cli/tune.h"

namespace saccade::cli {
namespace {

constexpr double kSecondsPerTiming = 0.15;
/// Two rounds over both plans, so that a busy moment of the machine meets both.
constexpr int kTimingRounds = 2;
constexpr int kUnfusedRuns = 3;

struct Plans {
  std::shared_ptr<const Plan> chosen, untuned;
  std::string schedule_source, binary_source;
  int raced = 0;
};

/// The engine's choice, or the winner of a race when there is no tuned row yet.
Status choose_plan(const Session& session, const Workload& workload, TuningPolicy policy, const PrepareOptions& options,
                   Progress& progress, Plans& plans) {
  SACCADE_ASSIGN(plans.chosen, session.engine->prepare(session.device, workload.problem, workload.shape, options));
  plans.schedule_source = plans.chosen->report().schedule_source;
  plans.binary_source = plans.chosen->report().binary_source;
  if (policy == TuningPolicy::off || plans.schedule_source.starts_with("tuned")) return {};
  const auto tuned = tune_workload(session, workload, policy, options.use_cache, progress);
  if (!tuned.ok()) {
    if (tuned.status().code() == StatusCode::cancelled) return tuned.status();
    plans.schedule_source += fmt::format(" (tuning failed: {})", tuned.status().message());
    return {};
  }
  plans.raced = static_cast<int>(std::count_if(tuned->candidates.begin(), tuned->candidates.end(),
                                               [](const auto& candidate) { return candidate.samples > 0; }));
  plans.schedule_source = "tuned (just now)";
  if (tuned->outcome.schedule == plans.chosen->report().schedule) return {};
  PrepareOptions winner = options;
  winner.schedule = tuned->outcome.schedule;
  SACCADE_ASSIGN(plans.chosen, session.engine->prepare(session.device, workload.problem, workload.shape, winner));
  plans.binary_source = plans.chosen->report().binary_source;
  return {};
}

Expected<Plans> make_plans(const Session& session, const Workload& workload, TuningPolicy policy, bool use_cache,
                           Progress& progress) {
  Plans plans;
  PrepareOptions options;
  options.bindings = workload.bindings();
  options.use_cache = use_cache;
  SACCADE_TRY(choose_plan(session, workload, policy, options, progress, plans));
  SACCADE_ASSIGN(options.schedule, choose_offline({}, workload, session.device->target()));
  SACCADE_ASSIGN(plans.untuned, session.engine->prepare(session.device, workload.problem, workload.shape, options));
  return plans;
}

Status time_plans(Execution& execution, const Plans& plans, DemoMeasurement& measurement) {
  const bool same = plans.chosen->report().schedule == plans.untuned->report().schedule;
  Timing chosen, untuned;
  for (int round = 0; round < kTimingRounds; ++round) {
    for (auto& [plan, timing] : {std::pair{&plans.chosen, &chosen}, {&plans.untuned, &untuned}}) {
      if (same && timing == &untuned) continue;
      SACCADE_ASSIGN(const Timing part, execution.time(**plan, kSecondsPerTiming));
      timing->samples_us.insert(timing->samples_us.end(), part.samples_us.begin(), part.samples_us.end());
    }
  }
  measurement.best_us = chosen.best_us();
  measurement.median_us = chosen.median_us();
  measurement.default_us = same ? measurement.best_us : untuned.best_us();
  return {};
}

}  // namespace

double largest_difference(const HostTensor& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double difference = std::abs(load_as_double(a.dtype, a.data.data(), static_cast<std::int64_t>(i)) - b[i]);
    if (!(difference <= largest))
      largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
  }
  return largest;
}

Expected<DemoMeasurement> measure_demo(const Session& session, const DemoWorkload& demo, TuningPolicy policy,
                                       bool use_cache, Progress& progress) {
  const Workload& workload = demo.workload;
  DemoMeasurement measurement;
  SACCADE_ASSIGN(const Plans plans, make_plans(session, workload, policy, use_cache, progress));
  measurement.report = plans.chosen->report();
  measurement.schedule_source = plans.schedule_source;
  measurement.binary_source = plans.binary_source;
  measurement.raced = plans.raced;

  SACCADE_ASSIGN(Execution execution, Execution::create(session.device, workload));
  SACCADE_TRY(execution.run(*plans.chosen));
  SACCADE_ASSIGN(const HostResult result, execution.result());
  measurement.verification = verify(workload, result, kDefaultPairBudget);
  measurement.pass = measurement.verification.pass();
  if (!demo.expected_output.shape.empty()) {
    if (demo.expected_output.elements() != static_cast<std::int64_t>(result.o.size())) {
      return Status::invalid_argument(fmt::format("the captured output has {} elements, the problem {}",
                                                  demo.expected_output.elements(), result.o.size()));
    }
    measurement.model_error = largest_difference(demo.expected_output, result.o);
    measurement.pass = measurement.pass && *measurement.model_error <= demo.expected_tolerance;
  }
  SACCADE_TRY(time_plans(execution, plans, measurement));
  measurement.gflop_per_s = workload.flops / measurement.best_us / 1e3;

  if (session.device->target().kind == Target::Kind::cpu) {
    const int threads = session.device->target().cores;
    const auto unfused = run_unfused(workload, demo.unfused_score, threads, kUnfusedRuns);
    if (unfused.ok()) {
      measurement.unfused_us = unfused->best_us;
    } else {
      measurement.unfused_note = unfused.status().message();
    }
  }
  return measurement;
}

}  // namespace saccade::cli
