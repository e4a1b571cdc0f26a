// Ctrl-C: the first asks long work to stop and keep its results, the second ends the process.
#pragma once

#include <atomic>

namespace saccade::cli {

void catch_interrupts();
const std::atomic<bool>& interrupted();

}  // namespace saccade::cli
