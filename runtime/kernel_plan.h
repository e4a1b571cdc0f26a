// The one kind of plan: a loaded kernel with everything about a run that does not change from run to run.
#pragma once

#include "runtime/engine.h"
#include "runtime/run_checks.h"

namespace saccade {

class KernelPlan final : public Plan {
 public:
  struct Parts {
    std::shared_ptr<const Problem> problem;
    Shape shape;
    std::shared_ptr<const Device> device;
    std::shared_ptr<const Kernel> kernel;  ///< null when there is nothing to launch
    LaunchGeometry geometry;
    PlanReport report;
  };
  explicit KernelPlan(Parts parts);

  Status run(const RunArguments& arguments) const override;
  std::int64_t workspace_bytes() const override { return parts_.geometry.workspace_bytes; }
  const Problem& problem() const override { return *parts_.problem; }
  const Shape& shape() const override { return parts_.shape; }
  const PlanReport& report() const override { return parts_.report; }

 private:
  Parts parts_;
  KernelParams constant_params_;
  RunChecks checks_;
};

}  // namespace saccade
