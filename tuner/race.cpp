#include "tuner/race.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tuner/statistics.h"

namespace saccade::tuner {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

/// Samples by round (NaN where an entry did not run), so that entries can be compared within a round.
class RoundTable {
 public:
  void start_round() {
    for (auto& [id, column] : columns_) column.push_back(kMissing);
    ++rounds_;
  }
  void put(int id, double us) {
    std::vector<double>& column = columns_[id];
    column.resize(static_cast<std::size_t>(rounds_), kMissing);
    column.back() = us;
  }
  /// Time of `id` over the mean of `reference_ids`, for the rounds that have all of them.
  std::vector<double> ratios(int id, std::initializer_list<int> reference_ids) const {
    std::vector<double> result;
    for (int round = 0; round < rounds_; ++round) {
      double reference = 0;
      for (const int reference_id : reference_ids) reference += at(reference_id, round);
      const double ratio = at(id, round) / (reference / static_cast<double>(reference_ids.size()));
      if (std::isfinite(ratio)) result.push_back(ratio);
    }
    return result;
  }
  std::vector<double> samples(int id) const {
    std::vector<double> result;
    for (int round = 0; round < rounds_; ++round) {
      if (const double us = at(id, round); std::isfinite(us)) result.push_back(us);
    }
    return result;
  }

 private:
  double at(int id, int round) const {
    const auto found = columns_.find(id);
    if (found == columns_.end() || static_cast<std::size_t>(round) >= found->second.size()) return kMissing;
    return found->second[static_cast<std::size_t>(round)];
  }
  std::map<int, std::vector<double>> columns_;
  int rounds_ = 0;
};

struct Race {
  Runner& runner;
  const RaceRules& rules;
  int default_id;
  int control_id;
  RoundTable table;
  RaceResult result;

  bool is_live(const RaceResult::Line& line) const { return line.fault == Fault::none && line.eliminated_round == 0; }

  std::vector<int> live_ids(int round) const {
    std::vector<int> ids{default_id, control_id};
    for (const RaceResult::Line& line : result.lines) {
      if (!line.is_default && is_live(line)) ids.push_back(line.entry.id);
    }
    std::rotate(ids.begin(), ids.begin() + round % static_cast<int>(ids.size()), ids.end());
    return ids;
  }

  void record(const RoundOutcome& outcome) {
    table.start_round();
    for (const Sample& sample : outcome.samples) table.put(sample.id, sample.us);
    for (const Failure& failure : outcome.failures) {
      // The control is the default's kernel: its failure is the default's.
      const int id = failure.id == control_id ? default_id : failure.id;
      for (RaceResult::Line& line : result.lines) {
        if (line.entry.id != id) continue;
        line.fault = failure.fault;
        line.reason = failure.reason;
        result.default_failed = result.default_failed || line.is_default;
      }
    }
  }

  void update_estimates() {
    for (RaceResult::Line& line : result.lines) {
      // The default is compared with its control as well: both stand for the same kernel.
      const std::vector<double> ratios =
          line.is_default ? std::vector<double>() : table.ratios(line.entry.id, {default_id, control_id});
      const Estimate summary = estimate(ratios);
      line.ratio = line.is_default ? 1.0 : summary.median;
      line.error = line.is_default ? 0.0 : summary.error;
    }
    result.noise = noise_of(table.ratios(control_id, {default_id}));
  }

  Contender contender_of(const RaceResult::Line& line) const {
    return {line.entry.order, line.is_default, line.ratio, line.error, line.entry.resources};
  }

  /// Returns how many candidates besides the default are left.
  int eliminate(int round) {
    const RaceResult::Line* fastest = &result.lines.front();
    for (const RaceResult::Line& line : result.lines) {
      if (is_live(line) && line.ratio < fastest->ratio) fastest = &line;
    }
    const DecisionRules decision_rules{.noise = result.noise, .tie_fraction = rules.tie_fraction};
    int left = 0;
    const Contender best = contender_of(*fastest);
    for (RaceResult::Line& line : result.lines) {
      if (line.is_default || !is_live(line)) continue;
      const bool may_drop = round >= rules.elimination_start || line.ratio > 2 * best.ratio;
      if (may_drop && is_hopeless(contender_of(line), best, decision_rules)) {
        line.eliminated_round = round;
        runner.drop(line.entry.id);
      } else {
        ++left;
      }
    }
    return left;
  }
};

}  // namespace

double noise_of(const std::vector<double>& control_ratios) {
  if (control_ratios.empty()) return std::numeric_limits<double>::infinity();
  const Estimate summary = estimate(control_ratios);
  const double offset = std::fabs(summary.median - 1);
  return std::isfinite(summary.error) ? std::max(offset, summary.error) : offset;
}

RaceResult run_race(Runner& runner, std::span<const RaceEntry> entries, int control_id, const RaceRules& rules,
                    const Limits& limits, const std::function<void(int round, int live)>& progress) {
  Race race{runner, rules, entries.front().id, control_id, {}, {}};
  for (const RaceEntry& entry : entries) {
    RaceResult::Line line;
    line.entry = entry;
    line.is_default = &entry == &entries.front();
    line.ratio = line.is_default ? 1.0 : kMissing;
    line.error = line.is_default ? 0.0 : std::numeric_limits<double>::infinity();
    race.result.lines.push_back(std::move(line));
  }
  for (int round = 1; round <= rules.max_rounds; ++round) {
    const RoundOutcome outcome = runner.time(race.live_ids(round), limits);
    race.record(outcome);
    race.update_estimates();
    race.result.rounds = round;
    if (race.result.default_failed) break;
    race.result.interrupted = outcome.interrupted || limits.stop();
    if (race.result.interrupted) break;
    const int left = race.eliminate(round);
    if (progress) progress(round, left + 1);
    if (left == 0 && round >= rules.min_rounds) break;
  }
  for (RaceResult::Line& line : race.result.lines) {
    line.samples_us = race.table.samples(line.entry.id);
    line.median_us = median(line.samples_us);
  }
  race.result.control_us = race.table.samples(control_id);
  return std::move(race.result);
}

}  // namespace saccade::tuner
