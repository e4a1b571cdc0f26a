// LocalRunner: candidates compiled, checked and timed in this process. The worker's engine room; a host process uses it
// only on request, for a candidate that crashes or hangs takes the process with it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/engine.h"
#include "tuner/gate.h"
#include "tuner/protocol.h"
#include "tuner/runner.h"

namespace saccade::tuner {

class LocalRunner : public Runner {
 public:
  using PhaseListener = std::function<void(protocol::Phase, int id)>;

  static Expected<std::unique_ptr<LocalRunner>> open(Engine& engine, std::shared_ptr<const Device> device,
                                                     const RunnerProblem& problem);
  ~LocalRunner() override;

  void prefetch(std::span<const Schedule> schedules) override;
  AddOutcome add(int id, const Schedule& schedule, double predicted_us, const Limits& limits) override;
  RoundOutcome time(std::span<const int> ids, const Limits& limits) override;
  void drop(int id) override;

  /// As `add`, without the gate: for a candidate that passed it in a process that is gone.
  AddOutcome add_trusted(int id, const Schedule& schedule);
  /// Takes one sample, for a caller that reports them one by one.
  Expected<double> sample(int id);
  const RunnerSetup& setup() const { return setup_; }
  void listen(PhaseListener listener) { listener_ = std::move(listener); }
  void set_hooks(RunHooks* hooks) { hooks_ = hooks; }

 private:
  struct Entry {
    Schedule schedule;
    std::shared_ptr<const Plan> plan;
    Workspace workspace;
    int repeats = 1;
  };
  LocalRunner(Engine& engine, std::shared_ptr<const Device> device, const RunnerProblem& problem);
  Status allocate_sets();
  Status fill_set(const CallMemory& set);
  Expected<std::shared_ptr<const Plan>> plan_for(const Schedule& schedule, const Shape& shape,
                                                 const expr::Bindings& bindings);
  Status check(const Schedule& schedule, AddOutcome& outcome);
  Expected<Gate*> gate_at(int scale);
  Status warm_up(int id, Entry& entry, AddOutcome& outcome);
  Expected<double> run_us(const Entry& entry, int repeats);
  AddOutcome add_entry(int id, const Schedule& schedule, bool trusted);
  void announce(protocol::Phase phase, int id) const;
  void join_prefetch();

  Engine& engine_;
  std::shared_ptr<const Device> device_;
  RunnerProblem problem_;
  Shape shape_;                                 ///< what is timed
  std::map<int, std::unique_ptr<Gate>> gates_;  ///< by scale
  OwnedBindings owned_;
  DeviceBindings device_bindings_;
  std::vector<CallMemory> sets_;
  std::size_t next_set_ = 0;
  std::unique_ptr<Device::Timer> timer_;
  std::map<int, Entry> entries_;
  std::vector<std::jthread> prefetchers_;
  RunnerSetup setup_;
  PhaseListener listener_;
  RunHooks* hooks_ = nullptr;
};

}  // namespace saccade::tuner
