#include "python/native/engine.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "python/native/error.h"

namespace saccade::python {
namespace {

struct State {
  std::mutex mutex;
  EnginePointer engine;
  EngineSettings settings;
};

constexpr const char* kClosed = "the interpreter is shutting down";

/// Never destroyed: threads may use it while the process ends.
State& state() {
  static auto* instance = new State;
  return *instance;
}

std::atomic<bool> closed{false};
std::atomic<int> calls_under_way{0};
std::atomic<int> epoch{0};
int generation = 0;
int generation_of_engine = 0;
bool cpu_was_used = false;

saccade_status make(const EngineSettings& settings, int cpu_threads, EnginePointer& engine) {
  saccade_engine_options options;
  SACCADE_INIT(&options);
  std::vector<const char*> packs;
  packs.reserve(settings.packs.size());
  for (const std::string& path : settings.packs) packs.push_back(path.c_str());
  options.cache_directory = settings.cache_directory.empty() ? nullptr : settings.cache_directory.c_str();
  options.packs = packs.data();
  options.pack_count = packs.size();
  options.cache_max_bytes = settings.cache_max_bytes;
  options.cache_read_only = settings.cache_read_only ? 1 : 0;
  options.cache_memory_only = settings.cache_memory_only ? 1 : 0;
  options.cpu_threads = cpu_threads;
  options.frozen = settings.frozen ? 1 : 0;
  options.require_signature = settings.require_signature ? 1 : 0;
  options.trusted_keys = settings.trusted_keys.empty() ? nullptr : settings.trusted_keys.c_str();
  options.capture = settings.capture.empty() ? nullptr : settings.capture.c_str();
  saccade_engine* handle = nullptr;
  const saccade_status status = saccade_engine_create(&options, &handle);
  if (status == SACCADE_OK) engine = {handle, saccade_engine_destroy};
  return status;
}

void after_fork_in_child() {
  ++generation;
  ++epoch;
  new (&state().mutex) std::mutex;  // whoever held it is not in this process, nor are other threads' calls
  calls_under_way = 0;
}

const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

EnginePointer engine() {
  if (closed) raise(SACCADE_CANCELLED, kClosed);
  State& s = state();
  saccade_status status = SACCADE_OK;
  {
    const std::lock_guard lock(s.mutex);
    if (s.engine != nullptr && generation_of_engine != generation) {
      new EnginePointer(std::move(s.engine));  // the parent's, which must be left alone
      s.engine = nullptr;
    }
    if (s.engine == nullptr) {
      const bool inherits_threads = generation > 0 && cpu_was_used;
      status = make(s.settings, inherits_threads ? 1 : s.settings.cpu_threads, s.engine);
      generation_of_engine = generation;
    }
    if (status == SACCADE_OK) return s.engine;
  }
  check(status);  // runs Python, which may hand over to a thread that waits for the mutex
  return nullptr;
}

void configure(const EngineSettings& settings) {
  EnginePointer made;
  check(make(settings, generation > 0 && cpu_was_used ? 1 : settings.cpu_threads, made));
  State& s = state();
  EnginePointer former;
  {
    const std::lock_guard lock(s.mutex);
    if (s.engine != nullptr && generation_of_engine != generation) new EnginePointer(std::move(s.engine));
    former = std::move(s.engine);
    s.engine = std::move(made);
    s.settings = settings;
    generation_of_engine = generation;
    ++epoch;
  }
}

void shut_down() {
  closed = true;
  ++epoch;
  PyThreadState* thread = PyEval_SaveThread();
  while (calls_under_way > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(thread);
  State& s = state();
  EnginePointer former;
  const std::lock_guard lock(s.mutex);
  if (generation_of_engine == generation) former = std::move(s.engine);
}

Unlocked::Unlocked() {
  if (closed) raise(SACCADE_CANCELLED, kClosed);
  ++calls_under_way;
  thread_ = PyEval_SaveThread();
}

Unlocked::~Unlocked() {
  PyEval_RestoreThread(thread_);
  --calls_under_way;
}

int plan_epoch() { return epoch; }
void new_plan_epoch() { ++epoch; }
int fork_generation() { return generation; }
void note_cpu_run() { cpu_was_used = true; }

}  // namespace saccade::python
