// A sweep: tunes one case after another and leaves each winner in the cache as soon as it is known.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "tuner/profile.h"
#include "tuner/tune.h"

namespace saccade::tuner {

enum class SweepState : std::uint8_t {
  to_measure,   ///< not looked at yet, or not reached before the budget or the user ended the sweep
  known,        ///< the cache has a winner of the same or a more thorough policy
  unsupported,  ///< no kernel does it on this device; `note` says why
  measured,
  failed,  ///< nothing could be measured; `note` says why
};
const char* name_of(SweepState state);

struct SweepRow {
  SweepCase item;
  SweepState state = SweepState::to_measure;
  std::string note;
  std::string family;
  Schedule schedule;  ///< the winner; of measured rows
  double default_us = 0, winner_us = 0, gain = 0, elapsed_ms = 0;
  int ordinal = 0;  ///< of the device that measured it
};

struct SweepOptions {
  TuningPolicy policy = TuningPolicy::normal;
  double budget_ms = std::numeric_limits<double>::infinity();  ///< wall time; the case that is running is cut to it
  bool again = false;                                          ///< measure known cases too
  const std::atomic<bool>* cancel = nullptr;                   ///< what is measured by then is kept
  /// These are called by one thread at a time. Before each case that is measured: how many of `total` are done.
  std::function<void(int done, int total, const SweepRow& row)> started;
  std::function<void(const SweepRow& row, const TuneProgress&)> progress;
  /// After each case that was looked at; the report is null when the case was not raced.
  std::function<void(const SweepRow& row, const TuneReport* report)> finished;
};

/// Which of the cases a sweep would measure, one for each key of a winner: fills state, note and family, measures nothing.
std::vector<SweepRow> plan_sweep(Engine& engine, const std::shared_ptr<const Device>& device,
                                 const std::vector<SweepCase>& cases, const SweepOptions& options);

/// Measures the rows of a plan that are to be measured, in their order, on all `devices` at once, which must be alike (of one
/// tuning_identity). On GPUs the candidates of the next row are compiled while one is timed. Each winner is written before the
/// device takes the next row, so that a sweep that is killed loses at most the rows that were running. A race that the budget cuts
/// short is not kept. A device that fails three rows one after another leaves its rows to the others, with a warning.
void run_sweep(Engine& engine, const std::vector<std::shared_ptr<const Device>>& devices, std::vector<SweepRow>& rows,
               const SweepOptions& options);

}  // namespace saccade::tuner
