// Whether a team of threads can be had. libgomp ends the process when it cannot start one, so it is found out before.
#pragma once

#include "base/status.h"

namespace saccade::cpu {

/// The most threads that may be asked for: four for each logical CPU of the machine, and 16 in any case.
int most_threads();

/// Starts `threads` - 1 threads at once beside the calling one, and ends them. A number that was reached before in this
/// process is not tried again. `invalid_argument` beyond most_threads(), `out_of_memory` when the process cannot start
/// that many now (memory, ulimit -u, a container's pids.max), with the number that it can.
Status check_threads(int threads);

}  // namespace saccade::cpu
