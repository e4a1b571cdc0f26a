// The numbers behind quick, normal and exhaustive.
#include <limits>

#include "tuner/session.h"

namespace saccade::tuner {

PolicyRules rules_of(TuningPolicy policy) {
  PolicyRules rules;
  switch (policy) {
    case TuningPolicy::off:
    case TuningPolicy::quick:
      rules.selection = {.top = 6, .diverse = 2};
      rules.measurement = {.sample_us = 300,
                           .max_repeats = 16,
                           .run_limit_us = 10'000,
                           .gate_seqlen = 263,
                           .gate_batch = 1,
                           .gate_heads = 2};
      rules.race = {.min_rounds = 5, .max_rounds = 20, .tie_fraction = 0.02};
      rules.budget_ms = 2'000;
      rules.add_share = 0.7;
      rules.confirm_rounds = 5;
      break;
    case TuningPolicy::normal:
      rules.selection = {.top = 16, .diverse = 4};
      rules.measurement = {.sample_us = 500, .max_repeats = 32, .run_limit_us = 20'000};
      rules.race = {.min_rounds = 7, .max_rounds = 40, .tie_fraction = 0.015};
      rules.budget_ms = 15'000;
      break;
    case TuningPolicy::exhaustive:
      rules.selection = {.top = SelectionOptions::kEverything, .diverse = 0};
      rules.measurement = {.sample_us = 1'000, .max_repeats = 64, .run_limit_us = 50'000, .gate_seqlen = 459};
      rules.race = {.min_rounds = 9, .max_rounds = 60, .tie_fraction = 0.01};
      rules.budget_ms = std::numeric_limits<double>::infinity();
      rules.add_share = 1;
      rules.confirm_rounds = 15;
      rules.screen = true;
      break;
  }
  return rules;
}

}  // namespace saccade::tuner
