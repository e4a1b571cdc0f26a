// The engine of the process, and what becomes of it after fork() and at the interpreter's end.
#pragma once

#include <nanobind/nanobind.h>
#include <saccade/saccade.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace saccade::python {

struct EngineSettings {
  std::string cache_directory;  ///< empty: the library's default
  std::vector<std::string> packs;
  std::int64_t cache_max_bytes = 0;
  bool cache_read_only = false;
  bool cache_memory_only = false;
  int cpu_threads = 0;
  bool frozen = false;
  bool require_signature = false;
  std::string trusted_keys, capture;  ///< empty: none, the library's default
};

/// Ends with its last user, so a call that is under way survives configure().
using EnginePointer = std::shared_ptr<saccade_engine>;

/// The process's engine, made at the first call. In a child of fork() a new one, whose CPU kernels run on one thread when the
/// parent had used more: GNU's OpenMP hangs there otherwise.
EnginePointer engine();

/// Replaces the process's engine. Plans keep the one that they were made with.
void configure(const EngineSettings& settings);

/// Waits for calls that are under way and ends the engine; later calls raise.
void shut_down();

/// The interpreter lock released, for the library's longer calls. After shut_down() it raises instead: a thread that asks
/// for the lock while the interpreter ends would be killed inside a destructor.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* thread_;
};

/// Counts forks between the process that loaded the module and this one: plans of another generation must not be run.
int fork_generation();
void note_cpu_run();

/// Changes with fork(), configure(), shut_down() and tuning: plans that were found before are looked up anew.
int plan_epoch();
void new_plan_epoch();

}  // namespace saccade::python
