// One demo problem on one device: planned, tuned, run, verified, timed.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "cli/demo_problems.h"
#include "cli/execution.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/verification.h"
#include "runtime/engine.h"

namespace saccade::cli {

struct DemoMeasurement {
  PlanReport report;
  std::string schedule_source;  ///< "tuned (just now)" even when the row was stored and read back
  int raced = 0;                ///< schedules compiled and raced for it, in the tuning worker
  std::string binary_source;
  double best_us = 0, median_us = 0;
  double default_us = 0;  ///< best, of the cost model's schedule
  double gflop_per_s = 0;
  std::optional<double> unfused_us;  ///< best; CPU only
  std::string unfused_note;          ///< why there is none
  Verification verification;
  std::optional<double> model_error;  ///< largest difference from the model's own output
  bool pass = false;
};

Expected<DemoMeasurement> measure_demo(const Session& session, const DemoWorkload& demo, TuningPolicy policy,
                                       bool use_cache, Progress& progress);

/// Largest absolute difference; infinite when one of them has a NaN.
double largest_difference(const HostTensor& a, const std::vector<double>& b);

}  // namespace saccade::cli
