// How candidates are measured. Part of what a tuned row means: a change of a rule is a change of kMeasurementVersion in
// runtime/engine.h.
#pragma once

#include <cstdint>

#include "generator/problem.h"
#include "generator/shape.h"

namespace saccade::tuner {

struct Measurement {
  /// Runs of one sample: as many as fill this time, so that the clock's resolution does not matter.
  double sample_us = 500;
  int max_repeats = 32;
  /// A run predicted to be longer is shortened, see race_shape() in inputs.h.
  double run_limit_us = 20'000;
  /// Sequence lengths of the correctness gate are cut to about this.
  int gate_seqlen = 331;
  int gate_batch = 2;
  int gate_heads = 4;
  std::uint64_t seed = 1;
};

/// What a runner races: the problem as asked, before anything is cut.
struct RunnerProblem {
  Problem problem;
  Shape shape;
  expr::Bindings bindings;
  Measurement measurement;
  double predicted_us = 0;  ///< of the default schedule on `shape`
};

}  // namespace saccade::tuner
