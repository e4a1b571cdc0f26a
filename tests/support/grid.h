// The correctness grid: a seeded list of attention calls over a few hundred distinct problems, the same for every
// device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "generator/target.h"
#include "tests/support/attention_call.h"
#include "tests/support/grid_rules.h"

namespace saccade::test_support {

enum class DataStyle : std::uint8_t {
  normal,        ///< standard normal
  large_scores,  ///< |s| up to about 1e4
  equal_scores,  ///< q is 0: all kept keys weigh the same
  peaked,        ///< each query is a multiple of one key
  large_values,  ///< V around 1000
  small,         ///< everything around 1e-3
};

/// What stands in rows of K and V that no query keeps.
enum class Unused : std::uint8_t { finite, nan, infinity };

/// One distinct problem: one source to compile for each schedule.
struct GridKernel {
  int index = 0;
  std::string label;
  Problem problem;
  GridRule rule;
  bool may_refuse = false;  ///< `unsupported` is an answer (mixed dtypes)
};

struct GridCase {
  int index = 0;
  std::shared_ptr<const GridKernel> kernel;
  std::uint64_t seed = 0;
  CallSizes sizes;
  Views views;
  DataStyle style = DataStyle::normal;
  Unused unused = Unused::finite;
  bool own_scale = false;

  /// The tensors, tables and scalars; the same each time.
  AttentionCall make() const;
  std::string label() const;
};

struct GridOptions {
  Target::Kind target = Target::Kind::cpu;
  std::uint64_t seed = 20240607;
  int kernels = 300;
  int cases_per_kernel = 7;
};

/// Parses the rule's programs into the problem; a rule that does not parse gives a label that starts with "INVALID".
void use_rule(GridKernel& kernel, GridRule rule);

/// At least kernels * cases_per_kernel cases, and those of extreme sizes.
std::vector<GridCase> make_grid(const GridOptions& options);

/// About a hundred small cases that together reach every branch of the CUDA templates, for compute-sanitizer: every
/// class of head dim, layout, alignment and program, tiles that are empty, mixed, full and cut off, few enough to run
/// slowly.
std::vector<GridCase> make_sanitizer_subset(const GridOptions& options);

}  // namespace saccade::test_support
