// What a run's arguments can be wrong about and the host can see. Everything that does not change from run to run is
// worked out once, when the plan is made.
#pragma once

#include "runtime/engine.h"

namespace saccade {

class RunChecks {
 public:
  /// `host_memory`: pointers can be followed (CPU), so cu_seqlens are looked at too.
  RunChecks(const Problem& problem, const Shape& shape, std::int64_t workspace_bytes, bool host_memory);

  /// `problem` and `shape` are those of the constructor. ok, or `invalid_argument` that names the argument.
  Status check(const Problem& problem, const Shape& shape, const RunArguments& arguments) const;

 private:
  /// One of q, k, v, o.
  struct Tensor {
    const char* name;
    std::int64_t batch, heads, rows;  ///< extents; varlen: batch is 1
    int inner;                        ///< head_dim
    int element_bytes;
    int alignment;  ///< bytes
    bool written;
    bool empty() const { return batch == 0 || heads == 0 || rows == 0 || inner == 0; }
  };

  static Status check_tensor(const Tensor& tensor, const void* data, const TensorStrides& stride);
  Status check_lse(const Problem& problem, const float* lse) const;
  Status check_sequences(const Problem& problem, const Shape& shape, const RunArguments& arguments) const;
  static Status check_declared(const expr::Declarations& declarations, const RunArguments& arguments);

  Tensor q_, k_, v_, o_;
  std::int64_t workspace_bytes_;
  bool host_memory_;
};

}  // namespace saccade
