// The correctness gate: a candidate computes a small problem with every feature of the real one, and the result is held
// against the float64 oracle. Never against another candidate.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine.h"
#include "tuner/call.h"
#include "tuner/inputs.h"
#include "tuner/measurement.h"
#include "tuner/reference.h"

namespace saccade::tuner {

struct GateVerdict {
  bool pass = false;
  double error = 0, bound = 0;  ///< of the output, absolute
  std::string detail;           ///< when it does not pass
};

/// What a test may do to a candidate's run; none in production.
class RunHooks {
 public:
  virtual ~RunHooks() = default;
  virtual Status before_compile(const Schedule&) { return Status(); }
  virtual void before_run(const Schedule&) {}
  /// May change what the gate is about to compare.
  virtual void after_gate_run(const Schedule&, std::vector<double>& /*o*/) {}
};

class Gate {
 public:
  /// Makes inputs and asks the oracle once; the cost is then shared by every candidate.
  static Expected<std::unique_ptr<Gate>> create(std::shared_ptr<const Device> device, const RunnerProblem& problem);

  /// Runs it twice, each into fresh poison, and judges both, but the same bytes once. The plan must be for `shape()`.
  Expected<GateVerdict> check(const Plan& plan, const Schedule& schedule, RunHooks* hooks);
  const Shape& shape() const { return shape_; }
  const expr::Bindings& bindings() const { return call_.bindings; }

 private:
  Gate() = default;
  Status fill_inputs(std::uint64_t seed);
  Status make_oracle(const RunnerProblem& problem);

  /// Whole allocations, guards included.
  struct Outputs {
    std::vector<std::byte> o, lse;
    bool operator==(const Outputs&) const = default;
  };
  /// Of a run into fresh poison.
  Expected<Outputs> outputs_of(const Plan& plan, const Schedule& schedule, RunHooks* hooks);
  GateVerdict verdict_of(const Outputs& outputs, const Schedule& schedule, RunHooks* hooks) const;
  std::string written_outside(const Outputs& outputs) const;

  std::shared_ptr<const Device> device_;
  Problem problem_;
  Shape shape_;
  OwnedBindings owned_;
  DeviceBindings device_bindings_;
  CallMemory memory_;
  std::vector<std::byte> host_q_, host_k_, host_v_;  ///< whole allocations, guards included
  HostCall call_;
  HostResult exact_, plain_;
};

}  // namespace saccade::tuner
