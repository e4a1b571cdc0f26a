// Runner: whoever compiles, checks and times candidates. In a worker process (remote_runner.h), or in this one
// (local_runner.h: what the worker itself uses).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generator/family.h"
#include "tuner/limits.h"

namespace saccade::tuner {

/// What became of a candidate.
enum class Fault : std::uint8_t {
  none,
  refused,         ///< not legal here, or no memory for it: says nothing about other shapes
  compile_failed,  ///< the compiler refused it
  wrong_result,    ///< outside the error rule, or wrote outside its output
  crashed,         ///< the process died, or the device reported an error
  hung,            ///< the watchdog ended it
  interrupted,     ///< deadline or cancel: says nothing about it
};
const char* name_of(Fault fault);
/// Whether the fault is the candidate's own and will come back: then it is remembered in the store.
bool is_permanent(Fault fault);

struct AddOutcome {
  Fault fault = Fault::none;
  std::string reason;  ///< when there is a fault
  double compile_ms = 0;
  std::string binary_source;
  int registers = 0;
  std::int64_t spill_bytes = 0;
  double error = 0, error_bound = 0;  ///< of the output on the gate's problem
  double estimate_us = 0;             ///< one warm run
};

struct Sample {
  int id = 0;
  double us = 0;
};

struct Failure {
  int id = 0;
  Fault fault = Fault::crashed;
  std::string reason;
};

struct RoundOutcome {
  std::vector<Sample> samples;    ///< in the order they were taken
  std::vector<Failure> failures;  ///< these ids are gone
  bool interrupted = false;
};

/// The problem being raced, as the runner reports it after `open`.
struct RunnerSetup {
  std::string measured_shape;  ///< JSON: may have fewer batches than asked for, so that a run is short
  int buffer_sets = 1;         ///< rotated through, so that a run finds its inputs as cold as a caller's would be
  std::int64_t buffer_bytes = 0;
  std::string gate_shape;  ///< JSON: what results are checked on
};

class Runner {
 public:
  virtual ~Runner() = default;
  /// Compiles in the background what will be added soon. Best effort.
  virtual void prefetch(std::span<const Schedule> schedules) = 0;
  /// Compiles, checks against the oracle and warms up. On success `id` may be timed until it is dropped.
  virtual AddOutcome add(int id, const Schedule& schedule, double predicted_us, const Limits& limits) = 0;
  /// One sample of each of `ids`, in that order.
  virtual RoundOutcome time(std::span<const int> ids, const Limits& limits) = 0;
  virtual void drop(int id) = 0;
};

}  // namespace saccade::tuner
