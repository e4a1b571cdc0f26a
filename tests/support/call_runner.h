// Runs an AttentionCall through the engine on a device and judges the outcome: right within the error rule, the same
// bits twice, and nothing written outside o and lse.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "runtime/engine.h"
#include "tests/support/attention_call.h"
#include "tuner/reference.h"

namespace saccade::test_support {

/// An engine with an empty user database in a folder of its own, which goes when the object does.
class TemporaryEngine {
 public:
  TemporaryEngine();
  ~TemporaryEngine();
  TemporaryEngine(const TemporaryEngine&) = delete;
  TemporaryEngine& operator=(const TemporaryEngine&) = delete;
  Engine& operator*() const { return *engine_; }
  Engine* operator->() const { return engine_.get(); }
  Engine* get() const { return engine_.get(); }
  Status status() const { return status_; }

 private:
  std::string directory_;
  std::shared_ptr<Engine> engine_;
  Status status_;
};

struct RunRequest {
  std::optional<Schedule> schedule;  ///< none: the engine chooses
  bool tell_bindings = true;         ///< the cost model sees scalars and tables
  Stream stream = nullptr;
};

struct RunResult {
  HostResult result;
  PlanReport report;
};

/// Prepares, then runs twice on poisoned outputs. `internal` when the runs differ in any bit, when anything outside the
/// elements of o and lse changed, or when an input changed; otherwise the engine's own status.
Expected<RunResult> run_call(Engine& engine, const std::shared_ptr<const Device>& device, const AttentionCall& call,
                             const RunRequest& request = {});

struct Expectation {
  HostResult exact, plain;
};
Expectation expect_call(const AttentionCall& call);

struct Verdict {
  Status status;       ///< of run_call
  ErrorReport errors;  ///< of compare, when status is ok
  PlanReport report;
  bool pass() const { return status.ok() && errors.pass; }
  std::string message() const { return status.ok() ? errors.detail : status.message(); }
};
Verdict judge_call(Engine& engine, const std::shared_ptr<const Device>& device, const AttentionCall& call,
                   const Expectation& expectation, const RunRequest& request = {});

}  // namespace saccade::test_support
