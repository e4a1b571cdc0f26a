// One call's tensors: read, checked against each other, results allocated, as the arguments of saccade_plan_run.
#pragma once

#include "python/native/operator.h"

namespace saccade::python {

constexpr int kMaxTables = 8, kMaxScalars = 16;

/// An int argument. Raises TypeError with its name.
std::int64_t integer_from(nanobind::handle value, const char* name);

class Call {
 public:
  /// Reads q, k, v and the rule's arguments. `with_outputs`: also reads or allocates o and the log-sum-exp.
  Call(const Operator& op, const Inputs& inputs, bool with_outputs);

  const Signature& signature() const { return signature_; }
  const saccade_scalar* scalars() const { return scalars_; }
  /// Enqueues the work; on CPUs computes it, with the interpreter lock released.
  void run(const saccade_plan* plan);
  /// `out`, or (out, lse).
  nanobind::object result() const;

 private:
  struct Axes {
    int batch, head, row;  ///< batch is -1 for packed sequences
  };
  static Axes axes_of(Order order);
  Tensor read(nanobind::handle object, const char* name, int rank);
  void read_stream();
  void read_exchanged_stream();
  void check_overlap(const Tensor& tensor, const char* name) const;
  void check_gradients() const;
  void read_sizes();
  void read_sequences();
  void read_declared();
  void read_outputs();
  void read_lse();
  std::int64_t extent(const Tensor& tensor, int axis) const { return axis < 0 ? 1 : tensor.shape[axis]; }
  saccade_strides strides_of(const Tensor& tensor) const;
  int alignment() const;
  void* workspace_of(const saccade_plan* plan, nanobind::object& keeper);

  const Operator& operator_;
  const Inputs& inputs_;
  const Framework& framework_;
  const Axes axes_;
  std::int64_t stream_ = 0;
  TensorReader reader_;
  Tensor q_, k_, v_, o_, lse_, cu_seqlens_q_, cu_seqlens_kv_;
  saccade_table tables_[kMaxTables];     // as many as the rule declares
  saccade_scalar scalars_[kMaxScalars];  // likewise
  nanobind::object out_, lse_out_;
  Signature signature_{};
};

}  // namespace saccade::python
