// Runs cpu.fwd kernels below the engine: one schedule, one object, one launch sequence, on tensors made here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/family.h"
#include "generator/problem.h"
#include "generator/shape.h"
#include "runtime/device.h"
#include "tuner/reference.h"

namespace saccade::kernel_test {

/// Dense, contiguous tensors of one call, filled from a seed; outputs are NaN before each run.
struct Call {
  Problem problem;
  Shape shape;
  std::vector<unsigned char> q, k, v;
  HostCall host;
  std::vector<TableArgument> tables;
  std::vector<ScalarArgument> scalars;
};

Call make_call(const Problem& problem, const Shape& shape, unsigned seed);
/// Overwrites rows [first, last) of k and v of every head with `value`.
void fill_keys(Call& call, std::int64_t first, std::int64_t last, double value);

struct Outputs {
  std::vector<unsigned char> o;
  std::vector<float> lse;
  bool operator==(const Outputs& other) const;  ///< bit by bit
};

struct Built {
  std::string object;
  LaunchGeometry geometry;
};
Expected<Built> build(const Call& call, const Target& target, const Schedule& schedule);
Expected<Outputs> run(const Call& call, const Device& device, const Built& built);
/// The 2x rule against float64.
ErrorReport check(const Call& call, const Outputs& outputs);

}  // namespace saccade::kernel_test
