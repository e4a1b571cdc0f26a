// Tuning a workload, for the tune command and the demo.
#pragma once

#include "base/status.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/workload.h"
#include "tuner/tune.h"

namespace saccade::cli {

/// Races the workload's schedules with progress and Ctrl-C; `keep`: stores the winner as the engine would.
Expected<tuner::TuneReport> tune_workload(const Session& session, const Workload& workload, TuningPolicy policy,
                                          bool keep, Progress& progress);

}  // namespace saccade::cli
