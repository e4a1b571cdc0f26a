// Unfused attention on the host, for comparison: S = Q K^T, softmax, O = P V as three passes over a stored S, in fp32,
// with register-blocked vector code and OpenMP threads over (batch, head). It computes masked scores too, as a
// framework's plain attention does.
#pragma once

#include <vector>

#include "base/status.h"
#include "cli/workload.h"

namespace saccade::cli {

/// The score rule, in a form that the passes apply with vector code. Must be the rule of the workload's score program.
struct UnfusedScore {
  float softcap = 0;          ///< 0: none
  std::vector<float> slopes;  ///< ALiBi, one for each query head; empty: none
};

struct UnfusedResult {
  double best_us = 0;    ///< of the runs
  std::vector<float> o;  ///< of the last run, in the layout of HostResult
};

/// Inputs are converted to fp32 and the mask to bytes before the clock starts. `threads` at least 1.
/// `unsupported` when the mask depends on the head.
Expected<UnfusedResult> run_unfused(const Workload& workload, const UnfusedScore& score, int threads, int runs);

}  // namespace saccade::cli
