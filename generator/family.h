// Family: one way to build kernels for a class of problems and targets. All families stand in one ordered list; adding an
// architecture means adding a family and its template, and touching nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "generator/problem.h"
#include "generator/schedule.h"
#include "generator/shape.h"
#include "generator/target.h"

namespace saccade {

/// Version of KernelParams and of the launch rules. In every binary key.
inline constexpr int kGeneratorAbi = 1;
inline constexpr std::string_view kGeneratorVersion = "0.1.0";

/// What a schedule needs of the machine.
struct Resources {
  int threads = 0;                ///< of a block (CUDA)
  int registers_per_thread = 0;   ///< bound given to the compiler (CUDA)
  std::int64_t shared_bytes = 0;  ///< dynamic shared memory of a block (CUDA); stack of a thread (CPU)
};

/// Predicted time and its parts, in microseconds.
struct Cost {
  double total_us = 0;
  double matrix_us = 0, exp_us = 0, shared_us = 0, memory_us = 0, prologue_us = 0;
  double wave_efficiency = 1;
};

/// A tensor map over one of q, k, v and o as [batch, heads, rows, head_dim], which the launcher makes from the run's pointer
/// and strides (CUDA: cuTensorMapEncodeTiled). What is read beyond the extents is zero.
struct TensorMapSpec {
  std::int64_t batch = 0, heads = 0, rows = 0;  ///< varlen: one batch of all rows
  int head_dim = 0;
  int box_rows = 0, box_columns = 0;  ///< of one copy; 128 or 64 bytes of columns, swizzled over as many
  bool operator==(const TensorMapSpec&) const = default;
};
struct TensorMapSpecs {
  TensorMapSpec q, k, v;
  std::optional<TensorMapSpec> o;  ///< where the kernel stores through one
  bool operator==(const TensorMapSpecs&) const = default;
};

/// One kernel launch of a plan. Several run in order on one stream (split-KV, then combine).
struct Launch {
  std::string symbol;              ///< extern "C" name in the binary
  std::uint32_t grid = 0;          ///< CUDA: blocks in x
  std::uint32_t block = 0;         ///< CUDA: threads
  std::uint32_t shared_bytes = 0;  ///< CUDA: dynamic
  std::int64_t work_items = 0;     ///< CPU: the kernel is called with sub-ranges of [0, work_items) from any thread
  std::int64_t grain = 1;          ///< CPU: work items of one call; as many as are worth waking a thread for
  /// CUDA: the kernel takes TensorMaps as its second argument.
  std::optional<TensorMapSpecs> tensor_maps = std::nullopt;
};

struct LaunchGeometry {
  std::vector<Launch> launches;  ///< empty when there is nothing to compute
  std::int64_t workspace_bytes = 0;
  int splits = 1;  ///< goes into KernelParams::splits
};

struct Family {
  std::string_view name;
  int version = 1;  ///< in tuning keys: a new version forgets old winners
  Target::Kind target_kind = Target::Kind::cuda;

  /// ok, or `unsupported` with the first reason and the nearest thing that is supported.
  Status (*supports)(const Problem&, const Target&);
  /// Every legal schedule for the shape, in a deterministic order.
  std::vector<Schedule> (*candidates)(const Problem&, const Target&, const Shape&);
  /// Whether a schedule (from anywhere: a database, a user) may be built and launched for this shape.
  Status (*legal)(const Problem&, const Target&, const Shape&, const Schedule&);
  /// The densities are those of the problem and the shape, shared by all schedules that are compared.
  Cost (*cost)(const Problem&, const Target&, const Shape&, MaskDensities&, const Schedule&);
  Resources (*resources)(const Problem&, const Target&, const Schedule&);
  /// The translation unit: header comment, `struct Rules`, one config struct, one extern "C" instantiation. It includes
  /// template headers by the names of embedded_templates(). Pure: same arguments, same bytes.
  std::string (*emit)(const Problem&, const Target&, const Schedule&);
  LaunchGeometry (*launch_geometry)(const Problem&, const Target&, const Shape&, const Schedule&);
  /// Whether shapes like this one have schedules at all: ok, or `unsupported` with the reason. Null: all have.
  Status (*takes)(const Problem&, const Target&, const Shape&) = nullptr;
};

/// In order of preference: the first that supports a problem on a target is used.
std::span<const Family* const> families();
const Family* find_family(std::string_view name);

struct FamilyAnswer {
  const Family* family;
  Status status;
};
/// Every family of the target's kind with its answer, in order; `explain` and `supports` print this. Without a shape, about
/// the problem alone.
std::vector<FamilyAnswer> ask_families(const Problem&, const Target&, const Shape* shape = nullptr);
/// The first that says yes, or `unsupported` with the most specific reason.
Expected<const Family*> choose_family(const Problem&, const Target&, const Shape* shape = nullptr);

/// The cost of one schedule by itself.
Cost predict_cost(const Family&, const Problem&, const Target&, const Shape&, const expr::Bindings&, const Schedule&);

/// Candidates with their cost, cheapest first; ties keep the candidates' order.
struct RankedSchedule {
  Schedule schedule;
  Cost cost;
};
std::vector<RankedSchedule> rank_candidates(const Family&, const Problem&, const Target&, const Shape&,
                                            const expr::Bindings&);

/// Template headers as they stand in templates/, embedded at build time: name ("saccade_templates/cuda/forward_sm80.h") and text.
struct EmbeddedTemplate {
  std::string_view name;
  std::string_view text;
};
std::span<const EmbeddedTemplate> embedded_templates();
/// The embedded templates that `source` includes, directly or not, in name order.
std::vector<EmbeddedTemplate> included_templates(std::string_view source);

}  // namespace saccade
