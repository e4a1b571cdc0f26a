// The worker's side of the protocol: serves one tuner over a socket until it hangs up.
#pragma once

#include "tuner/gate.h"

namespace saccade::tuner {

struct WorkerOptions {
  int channel = 3;            ///< kWorkerChannel
  int arena = 4;              ///< kWorkerArena
  RunHooks* hooks = nullptr;  ///< tests inject faults here; null in production
};

/// Returns the exit code: 0 when the tuner hung up, 1 when the channel broke.
int serve_worker(const WorkerOptions& options);

/// What a worker process does before it serves: dies with its tuner, leaves no core file behind.
void prepare_worker_process();

}  // namespace saccade::tuner
