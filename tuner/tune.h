// The tuner: finds the fastest schedule for a problem by measuring. tune_schedule (runtime/engine.h) is what the engine
// calls; this is what the command line needs on top: budget, progress, cancel, and a report of every candidate.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "tuner/runner.h"

namespace saccade::tuner {

enum class CandidateState : std::uint8_t {
  not_tried,        ///< the budget ended first
  rejected_before,  ///< remembered in the store from an earlier run
  failed,           ///< see `fault`
  eliminated,       ///< measured, clearly slower than the best
  measured,         ///< ran to the end of the race
  remembered,       ///< measured in an earlier, interrupted exhaustive run, and not among the best there
  winner,
};
const char* name_of(CandidateState state);

struct CandidateReport {
  Schedule schedule;
  CandidateState state = CandidateState::not_tried;
  std::string origin;  ///< "default", "ranked" or "diverse"
  Fault fault = Fault::none;
  std::string reason;  ///< why it was rejected, failed or eliminated
  double predicted_us = 0;
  double median_us = 0;  ///< 0: never timed
  double ratio = 0;      ///< time over the default's, paired by round; 0: never raced
  double ratio_error = 0;
  int samples = 0;
  double compile_ms = 0;
  int registers = 0;
  std::int64_t spill_bytes = 0;
  double error = 0, error_bound = 0;  ///< on the gate's problem
  Resources resources;
};

struct TuneReport {
  TuneOutcome outcome;
  std::vector<CandidateReport> candidates;  ///< in the plan's order, then those rejected before
  int default_index = -1, winner_index = -1;
  double default_us = 0, winner_us = 0;
  double gain = 0;         ///< default over winner, minus 1
  double noise = 0;        ///< relative, measured on a duplicate of the default
  double band = 0;         ///< margin that the winner had to have
  bool confirmed = false;  ///< the winner beat the default again, alone with it
  int rounds = 0;
  int worker_restarts = 0;
  bool complete = true;  ///< false: budget or cancel ended it early; the outcome stands on what was measured
  bool cancelled = false;
  double elapsed_ms = 0;
  RunnerSetup setup;
  std::string reason;  ///< of the decision, one sentence
};
/// The whole report, for `--json`.
std::string to_json(const TuneReport& report);

struct TuneProgress {
  const char* phase = "";  ///< "prepare", "compile", "screen", "race", "confirm"
  int done = 0, total = 0;
  double elapsed_ms = 0;
  double eta_ms = 0;      ///< to the end of the tuning; an upper bound when there is a budget
  double best_ratio = 1;  ///< of the fastest so far, to the default
};

struct TuneOptions {
  double budget_ms = 0;  ///< wall time; 0: the policy's (quick 2 s, normal 15 s, exhaustive none)
  std::function<void(const TuneProgress&)> progress;
  const std::atomic<bool>* cancel = nullptr;  ///< set (from a signal handler, say): stop and keep what is known
  /// Candidates run in a worker process. In this process only on request, for debugging: one that hangs is for ever.
  enum class Isolation : std::uint8_t { worker, in_process } isolation = Isolation::worker;
  bool resume = true;  ///< exhaustive: use the measurements of an earlier run of the same problem
};

/// Errors: `unsupported` without a legal schedule, or when one run is predicted to be so long that the budget has no room for a
/// comparison, `not_found` without a worker, `cancelled` when nothing was measured
/// yet, else the first reason why no candidate could be run. Does not write the tuned row: see remember().
Expected<TuneReport> tune(Engine& engine, const TuneRequest& request, const TuneOptions& options);

/// Compiles into the cache what a race of this request begins with, on half of the cores (on all of them for every candidate): while
/// another problem is being timed, say.
/// What does not compile is left for the race to find out, and so is what comes after the first `most`.
inline constexpr std::size_t kFirstCandidates = 32, kEveryCandidate = std::numeric_limits<std::size_t>::max();
void compile_candidates(Engine& engine, const TuneRequest& request, const std::atomic<bool>* cancel,
                        std::size_t most = kFirstCandidates);

/// Held while one process times candidates on a device: two that do so at once measure each other. Best effort, null after
/// `patience_ms` or when `limits` say stop: tune all the same.
std::unique_ptr<cache::CompileLock> take_turn(Engine& engine, const Device& device, double patience_ms,
                                              const Limits& limits);

/// Stores the outcome as the tuned row of the problem, as the engine does after tune_schedule; unless nothing was raced
/// (`rounds` is 0): what was not measured is not to be found as if it were.
void remember(Engine& engine, const TuneRequest& request, const TuneReport& report);

}  // namespace saccade::tuner
