// The problems of `saccade demo`: a real model's tensors, and the shapes and rules of real models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/options.h"
#include "cli/unfused_host.h"
#include "cli/workload.h"

namespace saccade::cli {

struct DemoProblem {
  std::string name;
  std::string what;                     ///< model and rule; how it was scaled, if it was
  ProblemOptions options;               ///< as on the command line
  int layer = -1;                       ///< of the captured MiniLM tensors; -1: seeded normal values
  std::vector<std::int64_t> documents;  ///< lengths: adds the table `doc` [1, tokens]
  float softcap = 0;                    ///< for the unfused comparison
  bool alibi = false;                   ///< likewise
};

std::vector<DemoProblem> demo_problems();

struct DemoWorkload {
  Workload workload;
  UnfusedScore unfused_score;
  /// The model's own attention output, where it was captured; empty elsewhere.
  HostTensor expected_output;
  double expected_tolerance = 0;  ///< largest absolute difference that rounding of the inputs and outputs explains
};

/// Tensors, tables and sizes. `dtype`: in place of the problem's, when not empty.
Expected<DemoWorkload> demo_workload(const DemoProblem& problem, const std::string& data_file, const std::string& dtype,
                                     std::uint64_t seed);

/// tests/data/minilm_qkv.safetensors: beside the command, in ../share/saccade, in the source tree of the build, or in
/// the current folder's. `not_found` lists where it was looked for.
Expected<std::string> find_demo_data();

}  // namespace saccade::cli
