// RemoteRunner: candidates in a worker process, under a watchdog. A candidate that crashes or hangs costs a worker; the
// next one starts, takes the survivors from the cache and goes on.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tuner/process.h"
#include "tuner/protocol.h"
#include "tuner/runner.h"

namespace saccade::tuner {

/// How long the worker may be silent in each phase.
struct Watchdog {
  double hello_ms = 10'000;  ///< to the first line: what is no worker is found out soon
  double open_ms = 60'000;   ///< device, oracle, buffers
  double compile_ms = 60'000;
  double floor_ms = 5'000;  ///< for anything that runs a candidate,
  double factor = 20;       ///< or this many times its predicted time, if that is longer
};

struct WorkerSettings {
  std::string executable;
  protocol::Open open;  ///< tables without offsets: filled in when the worker starts
  expr::Bindings bindings;
  Watchdog watchdog;
  int max_restarts = 32;
};

class RemoteRunner : public Runner {
 public:
  /// Starts the worker and opens the problem; `cancelled` when the limits say stop first.
  static Expected<std::unique_ptr<RemoteRunner>> open(WorkerSettings settings, const Limits& limits);

  void prefetch(std::span<const Schedule> schedules) override;
  AddOutcome add(int id, const Schedule& schedule, double predicted_us, const Limits& limits) override;
  RoundOutcome time(std::span<const int> ids, const Limits& limits) override;
  void drop(int id) override;

  const RunnerSetup& setup() const { return setup_; }
  int restarts() const { return restarts_; }
  pid_t worker_pid() const { return process_ == nullptr ? -1 : process_->pid(); }

 private:
  struct Live {
    Schedule schedule;
    double predicted_us = 0;
  };
  /// How an exchange with the worker ended.
  struct Exchange {
    enum class End { answered, died, killed_from_outside, hung, interrupted } end = End::answered;
    std::string reason;
    int id = -1;  ///< of the phase that was under way, -1: none
    protocol::Phase phase = protocol::Phase::compile;
  };
  static Fault fault_of(Exchange::End end);
  using Listener = std::function<bool(const protocol::Reply&)>;  ///< true: this was the answer

  explicit RemoteRunner(WorkerSettings settings) : settings_(std::move(settings)) {}
  Status share_tables();
  Status start_once(const Limits& limits);
  /// A running worker with the problem open and the survivors added.
  Status ensure_running(const Limits& limits);
  Status restore(const Limits& limits);
  Exchange exchange(const protocol::Request& request, double predicted_us, double patience_ms, const Limits& limits,
                    const Listener& listener);
  Exchange await(double predicted_us, double patience_ms, const Limits& limits, const Listener& listener);
  double allowance_ms(protocol::Phase phase, double predicted_us) const;
  AddOutcome add_once(int id, const Live& candidate, bool trusted, const Limits& limits, bool& worker_lost);
  void lose_worker(Exchange& exchange);
  std::optional<Failure> time_once(int id, const Limits& limits, RoundOutcome& outcome);

  WorkerSettings settings_;
  std::unique_ptr<WorkerProcess> process_;
  std::map<int, Live> live_;
  std::vector<Failure> lost_;  ///< survivors that did not come back after a restart
  RunnerSetup setup_;
  int restarts_ = 0;
  bool prefetching_ = false;
  bool prefetch_allowed_ = true;
  Status broken_;  ///< why no worker can be had any more
};

}  // namespace saccade::tuner
