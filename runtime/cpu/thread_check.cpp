#include "runtime/cpu/thread_check.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <vector>

namespace saccade::cpu {
namespace {

constexpr int kThreadsPerCpu = 4, kMostInAnyCase = 16;

void* wait_for_release(void* release) {
  static_cast<const std::shared_future<void>*>(release)->wait();
  return nullptr;
}

/// How many of `wanted` threads can be there at once. With the stack size that the process gives every thread, as
/// libgomp does unless OMP_STACKSIZE says otherwise.
int startable(int wanted) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::vector<pthread_t> threads;
  threads.reserve(static_cast<std::size_t>(wanted));
  for (int i = 0; i < wanted; ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, &wait_for_release, &released) != 0) break;
    threads.push_back(thread);
  }
  release.set_value();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  return static_cast<int>(threads.size());
}

}  // namespace

int most_threads() {
  const long cpus = sysconf(_SC_NPROCESSORS_CONF);
  return std::max(kMostInAnyCase, kThreadsPerCpu * static_cast<int>(std::max(cpus, 1L)));
}

Status check_threads(int threads) {
  if (threads < 0 || threads > most_threads()) {
    return Status::invalid_argument(
        fmt::format("{} CPU threads were asked for; 0 (all that the process may use) to {} work on this machine: {} "
                    "for each logical "
                    "CPU, and {} in any case",
                    threads, most_threads(), kThreadsPerCpu, kMostInAnyCase));
  }
  static std::mutex mutex;
  static int reached = 1;
  const std::lock_guard lock(mutex);
  if (threads <= reached) return {};
  const int started = startable(threads - 1);
  if (started + 1 < threads) {
    return {
        StatusCode::out_of_memory,
        fmt::format("{} CPU threads are too many for this process: it can start {} beside the calling one. Limits on "
                    "memory (ulimit -v) or on processes (ulimit -u, a container's pids.max) stop it; set the number "
                    "of threads to {} or raise them",
                    threads, started, started + 1)};
  }
  reached = threads;
  return {};
}

}  // namespace saccade::cpu
