// One tuning run, free of devices and databases: it sees candidates, a Runner and callbacks, so that its policy
// (budget, elimination, resumption, what becomes of a default that fails) is tested on made-up numbers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tuner/candidates.h"
#include "tuner/measurement.h"
#include "tuner/race.h"
#include "tuner/runner.h"
#include "tuner/tune.h"

namespace saccade::tuner {

/// What a policy means in numbers.
struct PolicyRules {
  SelectionOptions selection;
  Measurement measurement;
  RaceRules race;
  double budget_ms = 0;  ///< infinite for exhaustive
  /// No candidate is added after this share of the budget: the rest is for timing.
  double add_share = 0.6;
  int confirm_rounds = 7;
  /// Exhaustive: candidates are screened in batches of this many, and the best `finalists` go to the final race.
  bool screen = false;
  int screen_batch = 8;
  int screen_rounds = 5;
  int finalists = 12;
};
/// Fewer rounds are no measurement.
inline constexpr int kLeastRounds = 3;
/// The fewest runs that can decide anything: a warm one of the default, its control and one other, and their rounds.
inline constexpr int kLeastRuns = 3 + 3 * kLeastRounds;
PolicyRules rules_of(TuningPolicy policy);

/// A measurement kept from an earlier run.
struct Remembered {
  double ratio = 0;  ///< to the default
  double error = 0;
  double median_us = 0;
};

struct SessionCallbacks {
  std::function<Resources(const Schedule&)> resources;
  std::function<void(const Schedule&, const std::string& reason)> reject;
  std::function<std::optional<Remembered>(const Schedule& candidate, const Schedule& standard)> recall;
  std::function<void(const Schedule& candidate, const Schedule& standard, const Remembered&)> record;
  std::function<void(const TuneProgress&)> progress;
};

class Session {
 public:
  Session(Runner& runner, CandidatePlan plan, PolicyRules rules, SessionCallbacks callbacks, Limits limits,
          double start_ms);
  /// Everything of the report but `setup`, `worker_restarts` and the outcome's provenance.
  Expected<TuneReport> run();

 private:
  static constexpr int kControlId = 0;
  static int id_of(int candidate) { return candidate + 1; }

  Status add_default();
  bool add(int candidate, const Limits& limits);
  void add_others();
  void add_finalists();
  void screen();
  void screen_batch(const std::vector<int>& batch);
  std::vector<int> pick_finalists() const;
  RaceResult race(const std::vector<int>& field, const RaceRules& rules, const char* phase);
  bool final_race(RaceResult& result);
  void note(const RaceResult& result, bool is_final);
  void fail(int candidate, Fault fault, const std::string& reason);
  std::vector<Contender> contenders() const;
  void decide_winner(double noise);
  bool confirm(int candidate);
  bool has_room_for_a_race(double run_us);
  RaceEntry entry_of(int candidate) const;
  void report_progress(const char* phase, int done, int total, double eta_ms);
  double elapsed_ms() const { return limits_.now_ms() - start_ms_; }

  Runner& runner_;
  CandidatePlan plan_;
  PolicyRules rules_;
  SessionCallbacks callbacks_;
  Limits limits_;
  double start_ms_;
  int default_ = -1;
  std::vector<int> field_;  ///< candidates added and alive, the default first
  TuneReport report_;
  double best_ratio_ = 1;
  double screen_noise_ = 0;
  std::string unraced_;  ///< why there is no race; empty when there is one
};

}  // namespace saccade::tuner
