#include "runtime/run_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace saccade {
namespace {

constexpr std::int64_t kWorkspaceAlignment = 256;

bool is_aligned(const void* pointer, std::int64_t bytes) {
  return (reinterpret_cast<std::uintptr_t>(pointer) & static_cast<std::uintptr_t>(bytes - 1)) == 0;
}

Status check_sequence(const char* name, const int* ends, std::int64_t batch, std::int64_t total, std::int64_t longest) {
  if (ends[0] < 0) return Status::invalid_argument(fmt::format("{}[0] is {}; it must not be negative", name, ends[0]));
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t length = std::int64_t{ends[i + 1]} - ends[i];
    if (length < 0) {
      return Status::invalid_argument(
          fmt::format("{} decreases: [{}] is {} and [{}] is {}", name, i, ends[i], i + 1, ends[i + 1]));
    }
    if (length > longest) {
      return Status::invalid_argument(
          fmt::format("{}: sequence {} has length {}, the plan was made for at most {}", name, i, length, longest));
    }
  }
  if (ends[batch] > total) {
    return Status::invalid_argument(fmt::format("{} ends at {}, the tensor has {} rows", name, ends[batch], total));
  }
  return {};
}

struct Dimension {
  const char* name;
  std::int64_t extent, stride;
};

/// Every element of what is written needs an address of its own. Each stride must step over all that the smaller ones
/// reach: a little stricter than that, since it also refuses layouts that interleave without meeting, but quick.
Status check_distinct(const char* tensor, std::array<Dimension, 3>& dimensions, std::int64_t inner) {
  std::sort(dimensions.begin(), dimensions.end(), [](const auto& a, const auto& b) { return a.stride < b.stride; });
  std::int64_t span = inner;
  for (const Dimension& dimension : dimensions) {
    if (dimension.extent <= 1) continue;
    if (dimension.stride < span) {
      return Status::invalid_argument(fmt::format(
          "{}: the {} stride is {}, so rows would overwrite each other: the dimensions of smaller strides take "
          "{} elements",
          tensor, dimension.name, dimension.stride, span));
    }
    std::int64_t reach = 0;
    const bool too_far = __builtin_mul_overflow(dimension.extent - 1, dimension.stride, &reach) ||
                         __builtin_add_overflow(reach, span, &span);
    if (too_far) span = std::numeric_limits<std::int64_t>::max();  // no stride steps over that
  }
  return {};
}

Status check_table(const expr::TableDeclaration& declared, const TableArgument& table) {
  bool empty = false;
  for (int i = 0; i < declared.rank; ++i) {
    if (table.extent[i] < 0) {
      return Status::invalid_argument(fmt::format("table \"{}\": extent[{}] is {}", declared.name, i, table.extent[i]));
    }
    empty = empty || table.extent[i] == 0;
  }
  if (empty) return {};
  if (table.data == nullptr)
    return Status::invalid_argument(fmt::format("table \"{}\": its data is null", declared.name));
  if (!is_aligned(table.data, static_cast<std::int64_t>(size_of(declared.dtype)))) {
    return Status::invalid_argument(fmt::format("table \"{}\": its data is not aligned to its element type {}",
                                                declared.name, name_of(declared.dtype)));
  }
  return {};
}

}  // namespace

RunChecks::RunChecks(const Problem& problem, const Shape& shape, std::int64_t workspace_bytes, bool host_memory)
    : workspace_bytes_(workspace_bytes), host_memory_(host_memory) {
  const bool varlen = problem.layout == Layout::varlen;
  const auto tensor = [&](const char* name, DataType dtype, bool of_q, int inner, bool written) {
    const int element_bytes = static_cast<int>(size_of(dtype));
    const std::int64_t dense_rows = of_q ? shape.seqlen_q : shape.seqlen_kv;
    const std::int64_t packed_rows = of_q ? shape.total_q : shape.total_kv;
    return Tensor{name,
                  varlen ? 1 : shape.batch,
                  of_q ? shape.heads_q : shape.heads_kv,
                  varlen ? packed_rows : dense_rows,
                  inner,
                  element_bytes,
                  std::max(shape.alignment, element_bytes),
                  written};
  };
  q_ = tensor("q", problem.q_dtype, true, problem.head_dim_qk, false);
  k_ = tensor("k", problem.k_dtype, false, problem.head_dim_qk, false);
  v_ = tensor("v", problem.v_dtype, false, problem.head_dim_v, false);
  o_ = tensor("o", problem.o_dtype, true, problem.head_dim_v, true);
}

Status RunChecks::check_tensor(const Tensor& tensor, const void* data, const TensorStrides& stride) {
  if (tensor.empty()) return {};
  if (data == nullptr) return Status::invalid_argument(fmt::format("{} is null", tensor.name));
  if (!is_aligned(data, tensor.alignment)) {
    return Status::invalid_argument(fmt::format("{} is at {}, the plan was made for pointers aligned to {} bytes",
                                                tensor.name, data, tensor.alignment));
  }
  std::array<Dimension, 3> dimensions = {Dimension{"batch", tensor.batch, stride.batch},
                                         {"head", tensor.heads, stride.head},
                                         {"row", tensor.rows, stride.row}};
  for (const Dimension& dimension : dimensions) {
    if (dimension.extent <= 1) continue;  // The stride of a dimension of one element means nothing.
    if (dimension.stride < 0) {
      return Status::invalid_argument(fmt::format("{}: the {} stride is {}; strides must not be negative", tensor.name,
                                                  dimension.name, dimension.stride));
    }
    const std::uint64_t stride_bytes =
        static_cast<std::uint64_t>(dimension.stride) * static_cast<std::uint64_t>(tensor.element_bytes);
    if ((stride_bytes & static_cast<std::uint64_t>(tensor.alignment - 1)) != 0) {
      return Status::invalid_argument(
          fmt::format("{}: the {} stride is {} elements of {} bytes, the plan was made for strides aligned to {} bytes",
                      tensor.name, dimension.name, dimension.stride, tensor.element_bytes, tensor.alignment));
    }
  }
  return tensor.written ? check_distinct(tensor.name, dimensions, tensor.inner) : Status();
}

Status RunChecks::check_lse(const Problem& problem, const float* lse) const {
  if (!problem.lse) {
    if (lse == nullptr) return {};
    return Status::invalid_argument("lse is given, but the problem was made without it (set \"lse\": true)");
  }
  const bool empty = o_.batch == 0 || o_.heads == 0 || o_.rows == 0;
  if (lse == nullptr && !empty) return Status::invalid_argument("lse is null, but the problem asks for it");
  if (!is_aligned(lse, alignof(float))) return Status::invalid_argument("lse is not aligned to 4 bytes");
  return {};
}

Status RunChecks::check_sequences(const Problem& problem, const Shape& shape, const RunArguments& arguments) const {
  if (problem.layout == Layout::dense) {
    if (arguments.cu_seqlens_q == nullptr && arguments.cu_seqlens_kv == nullptr) return {};
    return Status::invalid_argument("cu_seqlens is given, but the problem's layout is dense");
  }
  if (arguments.cu_seqlens_q == nullptr)
    return Status::invalid_argument("cu_seqlens_q is null, but the problem's layout is varlen");
  if (arguments.cu_seqlens_kv == nullptr)
    return Status::invalid_argument("cu_seqlens_kv is null, but the problem's layout is varlen");
  if (!is_aligned(arguments.cu_seqlens_q, sizeof(int)) || !is_aligned(arguments.cu_seqlens_kv, sizeof(int)))
    return Status::invalid_argument("cu_seqlens is not aligned to its 32-bit elements");
  if (!host_memory_) return {};
  SACCADE_TRY(check_sequence("cu_seqlens_q", arguments.cu_seqlens_q, shape.batch, shape.total_q, shape.seqlen_q));
  return check_sequence("cu_seqlens_kv", arguments.cu_seqlens_kv, shape.batch, shape.total_kv, shape.seqlen_kv);
}

Status RunChecks::check_declared(const expr::Declarations& declarations, const RunArguments& arguments) {
  if (!declarations.scalars.empty() && arguments.scalars == nullptr) {
    return Status::invalid_argument(
        fmt::format("scalars is null, but the problem declares {}", declarations.scalars.size()));
  }
  if (declarations.tables.empty()) return {};
  if (arguments.tables == nullptr) {
    return Status::invalid_argument(
        fmt::format("tables is null, but the problem declares {}", declarations.tables.size()));
  }
  for (std::size_t i = 0; i < declarations.tables.size(); ++i) {
    SACCADE_TRY(check_table(declarations.tables[i], arguments.tables[i]));
  }
  return {};
}

Status RunChecks::check(const Problem& problem, const Shape& shape, const RunArguments& arguments) const {
  SACCADE_TRY(check_tensor(q_, arguments.q, arguments.q_stride));
  SACCADE_TRY(check_tensor(k_, arguments.k, arguments.k_stride));
  SACCADE_TRY(check_tensor(v_, arguments.v, arguments.v_stride));
  SACCADE_TRY(check_tensor(o_, arguments.o, arguments.o_stride));
  SACCADE_TRY(check_lse(problem, arguments.lse));
  SACCADE_TRY(check_sequences(problem, shape, arguments));
  SACCADE_TRY(check_declared(problem.declarations, arguments));
  if (arguments.scale && !std::isfinite(*arguments.scale)) {
    return Status::invalid_argument(fmt::format("scale is {}; it must be finite", *arguments.scale));
  }
  if (workspace_bytes_ > 0 && arguments.workspace == nullptr) {
    return Status::invalid_argument(fmt::format("workspace is null, but the plan needs {} bytes", workspace_bytes_));
  }
  if (workspace_bytes_ > 0 && !is_aligned(arguments.workspace, kWorkspaceAlignment)) {
    return Status::invalid_argument(fmt::format("workspace is not aligned to {} bytes", kWorkspaceAlignment));
  }
  return {};
}

}  // namespace saccade
