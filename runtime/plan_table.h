// The plans of an engine. A lookup allocates nothing, hashes no source text and takes one shared lock; each plan is
// made once, whatever the number of threads that ask for it.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "runtime/engine.h"

namespace saccade {

/// What two prepare() calls must agree in to share a plan. Borrows; lives for one call.
/// Of the bindings only the binary order of magnitude of each scalar takes part: they steer the choice of a schedule
/// and never the result, and a plan for every value of a scalar, or a hash of every table, would cost more than it
/// gains.
struct PlanQuery {
  const std::shared_ptr<const Device>& device;
  const Problem& problem;
  const Shape& shape;
  const PrepareOptions& options;

  std::uint64_t hash() const;
};

/// A query's own copy of what it borrows, to be kept in a table.
struct PlanKey {
  explicit PlanKey(const PlanQuery& query);
  bool equals(const PlanQuery& query) const;

  std::shared_ptr<const Device> device;
  Problem problem;
  Shape shape;
  TuningPolicy tuning;
  bool use_cache;
  std::optional<Schedule> schedule;
  std::vector<int> scalar_magnitudes;
};

using PlanResult = Expected<std::shared_ptr<const Plan>>;

struct MadePlan {
  PlanResult result;
  bool keep = true;  ///< false: hand it out, and make another for the next who asks
};

class PlanTable {
 public:
  /// The plan, or null when it was not made yet.
  std::shared_ptr<const Plan> find(const PlanQuery& query, std::uint64_t hash) const;

  /// Runs `make` unless another thread is at it, then waits for that one. A failure is handed to all who wait and
  /// forgotten.
  PlanResult find_or_make(const PlanQuery& query, std::uint64_t hash, const std::function<MadePlan()>& make);

  /// Forgets the plans of a problem whose schedule the cost model chose, once measurement has found a better one.
  void forget_untuned(const Problem& problem);

 private:
  struct Entry {
    PlanKey key;
    std::shared_future<PlanResult> result;
    std::shared_ptr<const Plan> plan = nullptr;  ///< set once `result` holds a plan
  };
  using Map = std::unordered_multimap<std::uint64_t, std::shared_ptr<Entry>>;

  Map::const_iterator locate(const PlanQuery& query, std::uint64_t hash) const;
  void erase(std::uint64_t hash, const std::shared_ptr<Entry>& entry);

  mutable std::shared_mutex mutex_;
  Map entries_;
};

/// 0 for 0; else the binary exponent, with the sign folded in. NaN and infinity have their own values.
int magnitude_of(double value);

}  // namespace saccade
