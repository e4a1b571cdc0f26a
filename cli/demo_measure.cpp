#include "cli/demo_measure.h"

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
  std::string source;
  int raced = 0;
};

Expected<Plans> make_plans(const Session& session, const Workload& workload, TuningPolicy policy, bool use_cache,
                           Progress& progress) {
  Plans plans;
  PrepareOptions options;
  options.bindings = workload.bindings();
  options.use_cache = use_cache;
  SACCADE_ASSIGN(options.schedule, choose_offline({}, workload, session.device->target()));
  SACCADE_ASSIGN(plans.untuned, session.engine->prepare(session.device, workload.problem, workload.shape, options));
  options.schedule.reset();
  SACCADE_ASSIGN(plans.chosen, session.engine->prepare(session.device, workload.problem, workload.shape, options));
  plans.source = plans.chosen->report().schedule_source;
  if (policy == TuningPolicy::off || plans.source.starts_with("tuned")) return plans;
  const auto tuned = tune_workload(session, workload, policy, use_cache, progress);
  if (!tuned.ok()) {
    if (tuned.status().code() == StatusCode::cancelled) return tuned.status();
    plans.source += " (tuning failed: " + tuned.status().message() + ")";
    return plans;
  }
  plans.raced = static_cast<int>(std::count_if(tuned->candidates.begin(), tuned->candidates.end(),
                                               [](const auto& candidate) { return candidate.samples > 0; }));
  options.schedule = tuned->outcome.schedule;
  SACCADE_ASSIGN(plans.chosen, session.engine->prepare(session.device, workload.problem, workload.shape, options));
  plans.source = "tuned (just now)";
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
  measurement.median_us = chosen.median_us();
  measurement.default_us = same ? measurement.median_us : untuned.median_us();
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
  measurement.schedule_source = plans.source;
  measurement.raced = plans.raced;

  SACCADE_ASSIGN(Execution execution, Execution::create(session.device, workload));
  SACCADE_TRY(execution.run(*plans.chosen));
  SACCADE_ASSIGN(const HostResult result, execution.result());
  measurement.verification = verify(workload, result, kDefaultPairBudget);
  measurement.pass = measurement.verification.pass();
  if (!demo.expected_output.shape.empty()) {
    measurement.model_error = largest_difference(demo.expected_output, result.o);
    measurement.pass = measurement.pass && *measurement.model_error <= demo.expected_tolerance;
  }
  SACCADE_TRY(time_plans(execution, plans, measurement));
  measurement.gflop_per_s = workload.flops / measurement.median_us / 1e3;

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
