// From emitted source to a loaded kernel: the cache, the compiler, the locks that keep both from doing a thing twice.
#pragma once

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/engine.h"

namespace saccade {

struct EngineCounters {
  std::atomic<std::int64_t> plan_hits{0}, plan_misses{0}, compiled{0}, cache_hits{0}, tuned{0};
  std::atomic<double> compile_ms{0}, tune_ms{0};
};

/// A binary and where it came from ("compiled", "user cache", "pack PATH", "memory").
struct ObtainedBinary {
  CompiledBinary binary;
  std::string source;
};

/// A kernel on one device, with what its binary's log or metadata says about it.
struct LoadedKernel {
  std::shared_ptr<const Device> device;  ///< kept alive: kernels are remembered by its address
  std::shared_ptr<const Kernel> kernel;
  CompiledBinary usage;  ///< without code and log
  std::string binary_source;
  double compile_ms = 0;  ///< this process's; 0 when it came from a cache
  double load_ms = 0;
};

struct BuildRequest {
  const std::string& source;
  const Target& target;
  std::string label;  ///< for people, in the cache's listing
  bool use_cache;
};

/// Thread safe. At most one compile per key at a time in this process.
class Binaries {
 public:
  Binaries(cache::Store& store, EngineCounters& counters) : store_(store), counters_(counters) {}

  Expected<ObtainedBinary> obtain(const BuildRequest& request);

  /// Kernels stay loaded as long as the engine lives: graphs and plans that were given out refer to them. A cached
  /// binary that does not load counts as a miss: one warning, and it is compiled anew.
  Expected<LoadedKernel> load(const std::shared_ptr<const Device>& device, const BuildRequest& request,
                              const std::vector<Launch>& launches);

 private:
  using BinaryResult = Expected<std::shared_ptr<const ObtainedBinary>>;
  using KernelResult = Expected<std::shared_ptr<const LoadedKernel>>;

  /// A request with the keys under which its binary may be. Without a compiler, a pack may still have it.
  struct Job {
    explicit Job(const BuildRequest& given);
    const BuildRequest& request;
    Expected<const Compiler*> compiler;
    std::string key;       ///< of this process's compiler; empty without one
    std::string pack_key;  ///< of packs; in this process it also stands for the job
  };

  std::optional<ObtainedBinary> from_cache(const Job& job);
  BinaryResult find_or_compile(const Job& job);
  BinaryResult compile(const Job& job);
  KernelResult load_once(const std::shared_ptr<const Device>& device, const Job& job,
                         const std::vector<Launch>& launches);
  BinaryResult obtain(const Job& job);

  cache::Store& store_;
  EngineCounters& counters_;
  std::mutex mutex_;
  std::map<std::string, std::shared_future<BinaryResult>> compiling_;
  std::map<std::string, std::shared_future<KernelResult>> kernels_;
};

}  // namespace saccade
