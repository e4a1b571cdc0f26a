// The fixed list of problems that the cost model is judged on.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "generator/problem.h"
#include "generator/shape.h"

namespace saccade::bench {

struct RegretProblem {
  std::string name;
  Problem problem;
  Shape shape;
  std::vector<double> scalars;
  const expr::Bindings& bindings() const { return *bound; }
  std::shared_ptr<const expr::Bindings> bound;  ///< scalars; tables are made up by the tuner
};

/// Twenty for each kind of device. CPU: small enough for two cores. CUDA: from the grid that published kernels report.
std::vector<RegretProblem> regret_problems(bool is_cuda);

}  // namespace saccade::bench
