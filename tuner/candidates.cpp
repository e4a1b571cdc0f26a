#include "tuner/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace saccade::tuner {

const char* name_of(Origin origin) {
  switch (origin) {
    case Origin::standard: return "default";
    case Origin::ranked: return "ranked";
    case Origin::diverse: return "diverse";
  }
  return "unknown";
}

std::string structural_kind(const Schedule& schedule) {
  std::string kind = schedule.family;
  for (const char* name : {"streaming", "tile_m", "warpgroups", "tile_n", "kv_splits"}) {
    const auto found = schedule.params.find(name);
    if (found != schedule.params.end()) kind += fmt::format(" {}={}", name, found->second);
  }
  return kind;
}

CandidatePlan plan_candidates(const std::vector<RankedSchedule>& ranked, const SelectionOptions& options,
                              const RejectionLookup& find_rejection) {
  CandidatePlan plan;
  std::set<std::string> kinds;
  int diverse_left = options.diverse;
  for (const RankedSchedule& entry : ranked) {
    const bool in_top = static_cast<int>(plan.candidates.size()) < std::max(options.top, 1);
    if (!in_top) {
      const double cost_limit = plan.candidates.front().cost.total_us * options.diverse_cost_limit;
      if (diverse_left == 0 || entry.cost.total_us > cost_limit) break;
      if (kinds.contains(structural_kind(entry.schedule))) continue;
    }
    if (std::optional<std::string> reason = find_rejection(entry.schedule)) {
      plan.rejected.push_back({entry.schedule, entry.cost, *std::move(reason)});
      continue;
    }
    const Origin origin = plan.candidates.empty() ? Origin::standard : in_top ? Origin::ranked : Origin::diverse;
    if (origin == Origin::diverse) --diverse_left;
    kinds.insert(structural_kind(entry.schedule));
    plan.candidates.push_back({entry.schedule, entry.cost, origin});
  }
  return plan;
}

}  // namespace saccade::tuner
