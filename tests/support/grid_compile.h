// Compiles the kernels of the grid for a target that need not be there: what a machine without a GPU can check of them.
#pragma once

#include <string>
#include <vector>

#include "generator/target.h"
#include "runtime/engine.h"
#include "tests/support/grid.h"
#include "tests/support/grid_runner.h"

namespace saccade::test_support {

struct GridCompileReport {
  std::vector<std::string> failures;  ///< one line each: refused, does not compile
  std::vector<std::string> spills;    ///< kernels that the cost model chose and that spill registers
  int kernels = 0;
  double compile_ms = 0, slowest_ms = 0;
};

/// The cost model's schedule of every case, each distinct kernel once. Of `options` only threads, only and every count.
GridCompileReport compile_grid(Engine& engine, const std::vector<GridCase>& cases, const Target& target,
                               const GridRunOptions& options);

}  // namespace saccade::test_support
