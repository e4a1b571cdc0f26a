// Who wins: pure functions from timings to a decision, so that every rule can be tested on made-up numbers.
#pragma once

#include <span>
#include <string>

#include "generator/family.h"

namespace saccade::tuner {

/// One schedule at the end of a race.
struct Contender {
  int order = 0;  ///< position in the plan of candidates: the last resort between equals
  bool is_default = false;
  double ratio = 0;  ///< its time over the default's, paired by round
  double error = 0;  ///< two standard errors of `ratio`
  Resources resources;
};

struct DecisionRules {
  /// Measured spread between the default and its own duplicate.
  double noise = 0;
  /// Gaps below this are ties even when the clock could tell them apart: a schedule that wins by less on one day loses
  /// on the next (FlashInfer #4459 uses 2%).
  double tie_fraction = 0.015;

  double band() const { return noise > tie_fraction ? noise : tie_fraction; }
};

struct Decision {
  int winner = -1;     ///< index into the contenders; -1 when there are none
  double band = 0;     ///< the margin that was applied
  double gain = 0;     ///< time of the default over the winner's, minus 1
  std::string reason;  ///< one sentence for the report
};

/// The default stays unless another contender is faster by more than the band and its own error, and when the noise is
/// so large that nothing can be told apart. Among the contenders within the band of the fastest, the default is
/// preferred, then fewer resources, then the earlier in the plan: what a repeated race cannot decide must not be
/// decided by chance.
Decision decide(std::span<const Contender> contenders, const DecisionRules& rules);

/// True when `contender` can no longer be the best: slower than the fastest by more than the band and both errors.
bool is_hopeless(const Contender& contender, const Contender& fastest, const DecisionRules& rules);

/// Order of preference between equally fast schedules: shared memory, then registers of a block, then threads.
bool needs_fewer_resources(const Resources& a, const Resources& b);

}  // namespace saccade::tuner
