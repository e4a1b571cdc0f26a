// The ladder: what tuned rows of other shapes, and of other devices of the same architecture, say about a shape that has none.
//
// A row's times are compared with what the cost model predicts for that row's own shape and device. Where the model was wrong about
// a schedule there, relative to its own choice there, it is taken to be wrong by the same factor here, the nearer the row the more.
// A schedule replaces the model's choice only when the corrected model says that it is faster by more than a margin, which grows with
// the distance: a near row whose winner the model finds slow here changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/store.h"
#include "generator/family.h"

namespace saccade {

/// What a tuned row measured.
struct Evidence {
  Shape shape;  ///< of its bucket
  Target target;
  bool is_sibling = false;  ///< another device
  double distance = 0;      ///< octaves between its sizes and those of the request, and between the devices
  Schedule standard;        ///< the cost model's choice there
  std::vector<std::pair<Schedule, double>> measured;  ///< and its time over the standard's
  double band = 0;                                    ///< what that race could not tell apart, relative
  std::string layer;                                  ///< path of the database
};

/// Beyond this distance a row says nothing.
inline constexpr double kFarthestEvidence = 2.5;

struct LadderStep {
  Schedule schedule;
  double expected_gain = 0;  ///< predicted time of the standard over that of `schedule`, both corrected, minus 1
  const Evidence* nearest = nullptr;  ///< the row that `schedule` is from
};

/// The schedule that `evidence` prefers to `standard`, the cost model's choice; nothing when there is none. `is_usable`: what is legal
/// here and was not rejected.
std::optional<LadderStep> climb(const Family& family, const Problem& problem, const Target& target, const Shape& shape,
                                const expr::Bindings& bindings, const Schedule& standard,
                                std::span<const Evidence> evidence,
                                const std::function<bool(const Schedule&)>& is_usable);

/// "tuned nearby (pack PATH: seqlen_q 4096, seqlen_kv 4096)", for PlanReport::schedule_source.
std::string source_of(const LadderStep& step, const std::string& user_path);

/// The tuned rows of a store, read at the first request. Thread safe.
class Ladder {
 public:
  explicit Ladder(cache::Store& store) : store_(store) {}

  /// The nearest rows that were measured for the problem by this version of the family, nearest first. `shape` is a planning_shape.
  std::vector<Evidence> evidence_for(const Family& family, const Problem& problem, const Target& target,
                                     const Shape& shape);
  /// Rows were added: they are read again.
  void forget();

 private:
  struct Row;
  using Rows = std::vector<Row>;
  std::shared_ptr<const Rows> rows();

  cache::Store& store_;
  std::mutex mutex_;
  std::shared_ptr<const Rows> rows_;
};

struct LadderChoice {
  Schedule schedule;
  std::string source;        ///< source_of() its step
  double expected_gain = 0;  ///< as LadderStep's
};

/// What the rows of `store` prefer to `standard` and is legal for the call's `shape` and was not rejected; nothing when they prefer
/// nothing. `ranked`: the shape for which schedules are ranked.
std::optional<LadderChoice> choose_by_ladder(Ladder& ladder, cache::Store& store, const Family& family,
                                             const Problem& problem, const Target& target, const Shape& shape,
                                             const Shape& ranked, const expr::Bindings& bindings,
                                             const Schedule& standard);

}  // namespace saccade
