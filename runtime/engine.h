// Engine: the request path. Problem + shape -> schedule -> source -> binary -> kernel -> Plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/store.h"
#include "generator/family.h"
#include "runtime/compiler.h"
#include "runtime/device.h"

namespace saccade {

enum class TuningPolicy : std::uint8_t { off, quick, normal, exhaustive };

struct EngineOptions {
  cache::Options cache;
  int cpu_threads = 0;
  /// File to which each problem and shape that prepare() makes a plan for, and chooses the schedule of, is appended, once each;
  /// `saccade sweep` takes it (runtime/capture.h). Empty: $SACCADE_CAPTURE.
  std::string capture;
  /// Nothing is ever measured, whatever policy is asked for: the choice is that of tuned rows and the cost model. Also when
  /// $SACCADE_FROZEN is set and neither empty nor 0 (ignored in secure-execution mode).
  bool frozen = false;
};

struct PrepareOptions {
  TuningPolicy tuning = TuningPolicy::off;
  /// Host copies of scalars and tables, so that the cost model sees the real mask density. May be empty: then unknown.
  expr::Bindings bindings;
  /// Use exactly this schedule (validated by its family) instead of choosing one.
  std::optional<Schedule> schedule;
  bool use_cache = true;    ///< false: neither read nor write binaries, tuned rows or rejected candidates
  Stream stream = nullptr;  ///< looked at only to refuse tuning while it is being captured
};

/// How a plan came to be; what `explain` prints.
struct PlanReport {
  std::string problem_json;
  Schedule schedule;
  /// "user", "tuned (user cache)", "tuned (pack PATH)", "tuned (just now)", "tuned nearby (WHERE: SIZES)",
  /// "tuned on a sibling (WHERE: SIZES)", "cost model"
  std::string schedule_source;
  std::string binary_source;          ///< "compiled", "user cache", "pack PATH", "memory"
  std::vector<std::string> declined;  ///< families that declined, with their reason
  Cost cost;                          ///< predicted
  int registers = 0;
  std::int64_t spill_bytes = 0, shared_bytes = 0, workspace_bytes = 0;
  double choose_ms = 0, emit_ms = 0, compile_ms = 0, load_ms = 0, total_ms = 0;
};
std::string to_json(const PlanReport& report);

/// The arguments of one run. Pointers are device pointers on CUDA. Strides in elements.
struct RunArguments {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  float* lse = nullptr;
  TensorStrides q_stride{}, k_stride{}, v_stride{}, o_stride{};
  const int* cu_seqlens_q = nullptr;
  const int* cu_seqlens_kv = nullptr;
  std::optional<float> scale;               ///< default 1/sqrt(head_dim_qk)
  const TableArgument* tables = nullptr;    ///< as many as the problem declares
  const ScalarArgument* scalars = nullptr;  ///< as many as the problem declares
  void* workspace = nullptr;                ///< workspace_bytes() of the plan, 256-byte aligned
  Stream stream = nullptr;
};

/// A kernel bound to a problem and a shape. Immutable; any number of threads may run it at once (each with its own workspace).
class Plan {
 public:
  virtual ~Plan() = default;
  /// Validates what can be seen on the host, then launches. Never allocates, syncs or locks (on CPUs it computes before it returns).
  virtual Status run(const RunArguments& arguments) const = 0;
  virtual std::int64_t workspace_bytes() const = 0;
  virtual const Problem& problem() const = 0;
  virtual const Shape& shape() const = 0;
  virtual const PlanReport& report() const = 0;
};

struct EngineStatistics {
  std::int64_t plan_hits = 0, plan_misses = 0, compiled = 0, cache_hits = 0, tuned = 0;
  double compile_ms = 0, tune_ms = 0;
};

/// Thread safe. One compile per key in a process, whatever the number of threads that ask.
class Engine {
 public:
  static Expected<std::shared_ptr<Engine>> create(const EngineOptions& options);
  virtual ~Engine() = default;

  /// Looks the plan up (at most 1 us when it was made before), else makes it. A plan lives as long as someone holds it,
  /// also beyond the engine. The engine holds those that it made until there are 2^16 of them, or until measuring has
  /// found better ones for their problem; then it makes new ones, from kernels that are loaded already.
  virtual Expected<std::shared_ptr<const Plan>> prepare(const std::shared_ptr<const Device>& device,
                                                        const Problem& problem, const Shape& shape,
                                                        const PrepareOptions& options) = 0;
  /// Emits and compiles without loading, through the cache: works for a CUDA target with no GPU.
  struct Built {
    std::string source;
    CompiledBinary binary;  ///< `log` is empty when it came from the cache
    std::string binary_source;
  };
  virtual Expected<Built> build(const Problem& problem, const Target& target, const Schedule& schedule,
                                bool use_cache) = 0;
  virtual cache::Store& store() = 0;
  virtual bool is_frozen() const = 0;
  virtual EngineStatistics statistics() const = 0;
};

/// Finds schedules by measuring. The engine calls it when the policy is not `off` and no tuned row exists.
struct TuneRequest {
  const Problem* problem;
  const Shape* shape;
  const expr::Bindings* bindings;
  const Family* family;
  std::shared_ptr<const Device> device;
  TuningPolicy policy;
  bool use_cache = true;  ///< false: neither read nor write binaries, tuned rows or rejected candidates
};
struct TuneOutcome {
  Schedule schedule;
  std::string provenance;  ///< JSON for the tuned row
};
/// Implemented by tuner/ (linked into the same library, so that runtime/ does not depend on it).
Expected<TuneOutcome> tune_schedule(Engine& engine, const TuneRequest& request);

/// The largest size of the bucket that a shape's lengths fall into: four buckets an octave, exact up to 8. Schedules are chosen for
/// it and tuned rows are keyed by it, so that a length that grows by one each step (decoding) plans once, and the choice
/// does not depend on which length of a bucket came first. Batch, heads and alignment are kept.
Shape planning_shape(const Shape& shape, const Problem& problem);

/// Of the rules by which the tuner measures (tuner/measurement.h): a change makes old winners incomparable, so it is in
/// the keys of tuned rows.
inline constexpr std::int64_t kMeasurementVersion = 1;

/// Keys of the three tables; shared by the engine and the tuner.
std::string binary_key(const std::string& source, const Target& target, const Compiler& compiler);
/// Of a binary in a pack, whatever compiled it: a host may have another compiler than the pack's maker, or none.
std::string pack_binary_key(const std::string& source, const Target& target);
std::string tuned_key(const Family& family, const Problem& problem, const Shape& shape, const Target& target);
/// What a tuned_key says, for whoever has rows and no request: a shape of its class, as tuned_key plans it. `invalid_argument` for
/// another key, or one of a family version or measurement that this version does not look for; says which.
struct TunedKeyParts {
  const Family* family = nullptr;
  Problem problem;
  std::optional<Target> target;  ///< of a GPU
  Shape shape;
};
Expected<TunedKeyParts> read_tuned_key(const std::string& key);
std::string rejected_key(const Family& family, const Problem& problem, const Target& target, const Schedule& schedule);

}  // namespace saccade
