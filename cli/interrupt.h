// Signals. Ctrl-C: the first asks long work to stop and keep its results, the second ends the process.
#pragma once

#include <atomic>

namespace saccade::cli {

/// Also makes a write beyond the limit on file sizes (ulimit -f) an error of that write, instead of the end.
void set_up_signals();
const std::atomic<bool>& interrupted();

}  // namespace saccade::cli
