// Which schedules are worth compiling: the cost model's best, plus the best of every structural kind.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "generator/family.h"

namespace saccade::tuner {

enum class Origin : std::uint8_t {
  standard,  ///< the cost model's first choice: what runs with tuning off
  ranked,    ///< among the cost model's first K
  diverse,   ///< the best of a tile shape that the first K left out
};
const char* name_of(Origin origin);

struct Candidate {
  Schedule schedule;
  Cost cost;
  Origin origin = Origin::ranked;
};

struct RejectedCandidate {
  Schedule schedule;
  Cost cost;
  std::string reason;
};

struct CandidatePlan {
  std::vector<Candidate> candidates;        ///< the default first, then cheapest first
  std::vector<RejectedCandidate> rejected;  ///< met on the way and left out: known to fail
};

struct SelectionOptions {
  int top = 16;  ///< K; kEverything for all
  /// At most this many `diverse` ones; a cost model that misjudges a whole tile shape is what they insure against.
  int diverse = 4;
  /// A shape whose best is predicted this much slower than the first choice is not worth a compile.
  double diverse_cost_limit = 2.0;

  static constexpr int kEverything = std::numeric_limits<int>::max();
};

/// The reason for which a schedule was rejected before, if it was.
using RejectionLookup = std::function<std::optional<std::string>(const Schedule&)>;

/// `ranked`: cheapest first. Deterministic.
CandidatePlan plan_candidates(const std::vector<RankedSchedule>& ranked, const SelectionOptions& options,
                              const RejectionLookup& find_rejection);

/// The parameters that decide how a kernel is built rather than how it is fed: schedules of one kind share them.
std::string structural_kind(const Schedule& schedule);

}  // namespace saccade::tuner
