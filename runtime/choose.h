// Which schedule: the user's, a tuned row's, the race's, the ladder's or the cost model's.
#pragma once

#include "runtime/engine.h"
#include "runtime/ladder.h"

namespace saccade {

struct Choice {
  const Family* family = nullptr;
  Schedule schedule;
  std::string source;                 ///< as PlanReport::schedule_source
  Cost cost;                          ///< predicted
  std::vector<std::string> declined;  ///< families that declined and schedules passed over, with their reason
  bool measured_now = false;
  bool provisional = false;  ///< not measured only because the stream is being captured: not to be remembered
  double tune_ms = 0;
};

struct ChooseRequest {
  Engine& engine;
  std::shared_ptr<const Device> device;
  const Problem& problem;
  const Shape& shape;    ///< of the call: what a schedule must be legal for
  const Shape& planned;  ///< planning_shape(shape): what schedules are ranked and tuned for
  const PrepareOptions& options;
  Ladder& ladder;
};

/// Every schedule, wherever it is from, has passed its family's legality check for `shape`.
Expected<Choice> choose_schedule(const ChooseRequest& request);

}  // namespace saccade
