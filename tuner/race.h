// The race: interleaved rounds over the live candidates, with the default running twice as its own control.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "tuner/decision.h"
#include "tuner/runner.h"

namespace saccade::tuner {

struct RaceRules {
  int min_rounds = 7;  ///< before a decision may be taken early
  int max_rounds = 40;
  double tie_fraction = 0.015;
  /// A candidate is dropped after this many rounds at the earliest.
  int elimination_start = 3;
};

struct RaceEntry {
  int id = 0;     ///< of the runner
  int order = 0;  ///< position in the plan
  Resources resources;
};

struct RaceResult {
  struct Line {
    RaceEntry entry;
    bool is_default = false;
    std::vector<double> samples_us;
    double median_us = 0;
    double ratio = 0;          ///< to the default, paired by round
    double error = 0;          ///< two standard errors of the ratio
    int eliminated_round = 0;  ///< 0: ran to the end
    Fault fault = Fault::none;
    std::string reason;
  };
  std::vector<Line> lines;  ///< the default first, the control left out
  std::vector<double> control_us;
  double noise = 0;  ///< how far the control seemed to be from the default
  int rounds = 0;
  bool interrupted = false;
  bool default_failed = false;
};

/// `entries.front()` is the default; `control_id` is the same schedule under another id of the runner. Rounds visit the
/// live entries in rotating order, so that none always follows the same neighbour. Whatever was measured before an
/// interruption counts.
RaceResult run_race(Runner& runner, std::span<const RaceEntry> entries, int control_id, const RaceRules& rules,
                    const Limits& limits, const std::function<void(int round, int live)>& progress);

/// Noise from the paired ratios of control and default: their offset from 1 and the error of that.
double noise_of(const std::vector<double>& control_ratios);

}  // namespace saccade::tuner
