// saccade-worker: compiles, checks and times candidate kernels for a tuner that can afford to lose it.
#include <sys/stat.h>

#include <cstdio>

#include "tuner/process.h"
#include "tuner/worker.h"

int main() {
  struct stat status{};
  if (fstat(saccade::tuner::kWorkerChannel, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    std::fputs("saccade-worker is started by the tuner, with a socket as descriptor 3. Try: saccade tune --help\n",
               stderr);
    return 2;
  }
  saccade::tuner::prepare_worker_process();
  return saccade::tuner::serve_worker({});
}
