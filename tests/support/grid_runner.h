// Runs the correctness grid on devices, several problems at a time, and gathers one row for each distinct problem.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/engine.h"
#include "tests/support/grid.h"

namespace saccade::test_support {

struct GridRunOptions {
  std::vector<std::shared_ptr<const Device>> devices;  ///< of one target; cases take turns
  int threads = 2;
  int only = -1;       ///< run this case alone
  int schedules = 0;   ///< besides the default, so many random legal candidates for each case
  int every = 1;       ///< run every so-manieth problem: a sample, for slow builds
  bool trace = false;  ///< say on stderr when a case begins and ends: to find one that hangs
};
/// SACCADE_GRID_ONLY=index, SACCADE_GRID_SCHEDULES=count and SACCADE_GRID_EVERY=n.
void read_environment(GridRunOptions& options);

/// What was seen of one distinct problem.
struct GridRow {
  std::string rule, problem;  ///< the problem as JSON
  int cases = 0, refused = 0, failed = 0;
  double worst_o = 0, worst_lse = 0;  ///< the largest error / bound; at most 1 when all is well
  int worst_o_case = -1, worst_lse_case = -1;
  std::vector<std::string> schedules;  ///< distinct ones that ran
};

struct GridReport {
  std::vector<GridRow> rows;
  std::vector<std::string> failures;  ///< one line each, with what reproduces it
  int cases = 0, runs = 0, refused = 0;
  double seconds = 0;
};

/// Prints each failure as it comes, for a run takes minutes.
GridReport run_grid(Engine& engine, const std::vector<GridCase>& cases, const GridRunOptions& options);

/// One line for people: counts and the worst ratios.
std::string summary(const GridReport& report);

}  // namespace saccade::test_support
