// Where the worker executable is.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace saccade::tuner {

/// $SACCADE_WORKER (a file; then nothing else is tried; ignored in secure execution mode), else `saccade-worker` in
/// each of worker_directories(). `not_found` lists what was tried. There is no tuning without a worker: a candidate
/// that hangs cannot be stopped in any other way.
Expected<std::string> find_worker();

/// Beside the library and beside the running executable: the folder itself, then ../libexec/saccade and
/// ../../libexec/saccade (multiarch lib folders).
std::vector<std::string> worker_directories();

}  // namespace saccade::tuner
