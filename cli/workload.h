// Workload: a problem with everything that one call needs, on the host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/options.h"
#include "cli/tensor.h"
#include "generator/problem.h"
#include "generator/shape.h"
#include "templates/common/params.h"
#include "tuner/reference.h"

namespace saccade::cli {

/// The values of a declared table; `data` is empty when only the declaration was given.
struct WorkloadTable {
  HostTensor data;
  std::int64_t extent[kMaxTableRank] = {};
  std::int64_t stride[kMaxTableRank] = {};
};

struct Workload {
  Problem problem;
  Shape shape;
  std::vector<std::optional<double>> scalars;             ///< in the order of the declarations
  std::vector<WorkloadTable> tables;                      ///< in the order of the declarations
  std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_kv;  ///< varlen only
  HostTensor q, k, v;
  TensorStrides q_stride{}, k_stride{}, v_stride{};
  float scale = 0;

  /// An error that names the first scalar or table without a value.
  Status complete() const;
  /// What is known of scalars and tables; both lists empty when a scalar has no value.
  expr::Bindings bindings() const;
  HostCall host_call() const;
  /// 2 (head_dim_qk + head_dim_v) for each (query, key) pair that the mask keeps.
  double flops = 0;
};

/// The files that the flags name; inline JSON among them names none.
std::vector<std::string> files_of(const ProblemOptions& options);
/// What the flags say, without tensors: problem, shape, scalars and tables.
Expected<Workload> workload_from_options(const ProblemOptions& options);

/// Index of a sequence's first row and its length, dense or varlen.
struct SequenceRows {
  std::int64_t q_begin = 0, len_q = 0, kv_begin = 0, len_kv = 0;
};
SequenceRows sequence_rows(const Workload& workload, std::int64_t batch_index);

/// Standard normal q, k and v, in the order of KernelParams. The same seed gives the same values everywhere.
Status fill_normal(Workload& workload, std::uint64_t seed);

/// How the axes of dense tensors follow each other; varlen tensors are [total, heads, head_dim] in both.
enum class TensorOrder : std::uint8_t { batch_heads_rows, batch_rows_heads };
/// Takes q, k and v, checks them against each other and the problem, and sets the shape and the strides. Tensors become
/// row-major.
Status attach_tensors(Workload& workload, HostTensor q, HostTensor k, HostTensor v, TensorOrder order);

/// Sets `flops`: counted exactly up to 2^21 pairs, otherwise over a deterministic sample of rows.
void count_flops(Workload& workload);

/// "bf16 d128, 32/8 heads, 1024 x 1024, batch 1"
std::string describe(const Problem& problem, const Shape& shape);
inline std::string describe(const Workload& workload) { return describe(workload.problem, workload.shape); }

}  // namespace saccade::cli
