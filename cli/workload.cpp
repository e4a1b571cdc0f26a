#include "cli/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace saccade::cli {
namespace {

/// SplitMix64 and Box-Muller: the same values with every standard library.
class NormalValues {
 public:
  explicit NormalValues(std::uint64_t seed) : state_(seed) {}

  float next() {
    if (std::exchange(has_spare_, false)) return spare_;
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    const double angle = 2 * std::numbers::pi * unit();
    spare_ = static_cast<float>(radius * std::sin(angle));
    has_spare_ = true;
    return static_cast<float>(radius * std::cos(angle));
  }

 private:
  double unit() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

  std::uint64_t state_;
  float spare_ = 0;
  bool has_spare_ = false;
};

struct Sizes {
  std::int64_t heads, rows;
  int head_dim;
};

std::vector<std::int64_t> tensor_shape(const Workload& workload, const Sizes& sizes) {
  if (workload.problem.layout == Layout::varlen) return {sizes.rows, sizes.heads, sizes.head_dim};
  return {workload.shape.batch, sizes.heads, sizes.rows, sizes.head_dim};
}

TensorStrides strides_of(const HostTensor& tensor, TensorOrder order) {
  const auto& s = tensor.stride;
  if (s.size() == 3) return {0, s[1], s[0]};
  return order == TensorOrder::batch_heads_rows ? TensorStrides{s[0], s[1], s[2]} : TensorStrides{s[0], s[2], s[1]};
}

/// The axes of a dense or varlen tensor, whatever their order in the file.
struct Axes {
  std::int64_t batch, heads, rows, head_dim;
};
Axes axes_of(const HostTensor& tensor, TensorOrder order) {
  const auto& s = tensor.shape;
  if (s.size() == 3) return {1, s[1], s[0], s[2]};
  return order == TensorOrder::batch_heads_rows ? Axes{s[0], s[1], s[2], s[3]} : Axes{s[0], s[2], s[1], s[3]};
}

Status check_tensor(const char* name, const HostTensor& tensor, DataType dtype, Layout layout, int head_dim) {
  if (tensor.dtype != dtype)
    return Status::invalid_argument(
        fmt::format("{} is {}, the problem says {}", name, name_of(tensor.dtype), name_of(dtype)));
  const std::size_t rank = layout == Layout::dense ? 4 : 3;
  if (tensor.shape.size() != rank)
    return Status::invalid_argument(fmt::format("{} has shape {}; {} expected", name, shape_text(tensor.shape),
                                                layout == Layout::dense
                                                    ? "[batch, heads, seqlen, head_dim] (or --order bshd) is"
                                                    : "[total, heads, head_dim] is"));
  if (tensor.shape.back() != head_dim)
    return Status::invalid_argument(fmt::format("{} has shape {}: its head_dim is {}, the problem says {}", name,
                                                shape_text(tensor.shape), tensor.shape.back(), head_dim));
  return {};
}

Status check_pair(const Workload& workload, const Axes& q, const Axes& k, const Axes& v) {
  if (k.heads != v.heads || k.rows != v.rows)
    return Status::invalid_argument(
        fmt::format("k has {} heads of {} rows, v has {} of {}: they must agree", k.heads, k.rows, v.heads, v.rows));
  if (q.batch != k.batch || q.batch != v.batch)
    return Status::invalid_argument(
        fmt::format("q, k and v have batches of {}, {} and {}: they must agree", q.batch, k.batch, v.batch));
  if (workload.problem.layout == Layout::varlen &&
      (q.rows != workload.shape.total_q || k.rows != workload.shape.total_kv))
    return Status::invalid_argument(fmt::format("q has {} rows and k {}, --lengths add up to {} and {}", q.rows, k.rows,
                                                workload.shape.total_q, workload.shape.total_kv));
  return {};
}

std::int64_t kept_in_row(const Workload& workload, const expr::Bindings& bindings, const SequenceRows& rows,
                         expr::Point point) {
  std::int64_t kept = 0;
  for (point.kv_idx = 0; point.kv_idx < rows.len_kv; ++point.kv_idx)
    kept += expr::evaluate(workload.problem.mask, workload.problem.declarations, bindings, point) != 0;
  return kept;
}

}  // namespace

Status Workload::complete() const {
  for (std::size_t i = 0; i < scalars.size(); ++i)
    if (!scalars[i]) {
      const std::string& name = problem.declarations.scalars[i].name;
      return Status::invalid_argument(fmt::format("scalar '{}' has no value: add --scalar {}=VALUE", name, name));
    }
  for (std::size_t i = 0; i < tables.size(); ++i)
    if (!tables[i].data.data.data()) {
      const std::string& name = problem.declarations.tables[i].name;
      return Status::invalid_argument(fmt::format("table '{}' has no values: add --table {}=FILE.npy", name, name));
    }
  return {};
}

expr::Bindings Workload::bindings() const {
  expr::Bindings result;
  for (const auto& scalar : scalars) {
    if (!scalar) return {};
    result.scalars.push_back(*scalar);
  }
  for (const WorkloadTable& table : tables) {
    expr::HostTable host;
    host.data = table.data.data.data();
    std::copy(std::begin(table.extent), std::end(table.extent), host.extent);
    std::copy(std::begin(table.stride), std::end(table.stride), host.stride);
    result.tables.push_back(host);
  }
  return result;
}

HostCall Workload::host_call() const {
  HostCall call;
  call.q = q.data.data();
  call.k = k.data.data();
  call.v = v.data.data();
  call.q_stride = q_stride;
  call.k_stride = k_stride;
  call.v_stride = v_stride;
  call.cu_seqlens_q = cu_seqlens_q;
  call.cu_seqlens_kv = cu_seqlens_kv;
  call.scale = scale;
  call.bindings = bindings();
  return call;
}

SequenceRows sequence_rows(const Workload& workload, std::int64_t batch_index) {
  if (workload.problem.layout == Layout::dense) return {0, workload.shape.seqlen_q, 0, workload.shape.seqlen_kv};
  const auto b = static_cast<std::size_t>(batch_index);
  const auto &q = workload.cu_seqlens_q, &kv = workload.cu_seqlens_kv;
  return {q[b], q[b + 1] - q[b], kv[b], kv[b + 1] - kv[b]};
}

Status fill_normal(Workload& workload, std::uint64_t seed) {
  const Problem& problem = workload.problem;
  const Shape& shape = workload.shape;
  const bool varlen = problem.layout == Layout::varlen;
  const std::int64_t rows_q = varlen ? shape.total_q : shape.seqlen_q;
  const std::int64_t rows_kv = varlen ? shape.total_kv : shape.seqlen_kv;
  const auto make = [&](DataType dtype, const Sizes& sizes, std::uint64_t stream) -> Expected<HostTensor> {
    SACCADE_ASSIGN(HostTensor tensor, make_tensor(dtype, tensor_shape(workload, sizes)));
    NormalValues values(seed * 0x10001 + stream);
    const std::int64_t count = tensor.elements();
    for (std::int64_t i = 0; i < count; ++i) store_from_double(dtype, tensor.data.data(), i, values.next());
    return tensor;
  };
  SACCADE_ASSIGN(workload.q, make(problem.q_dtype, {shape.heads_q, rows_q, problem.head_dim_qk}, 1));
  SACCADE_ASSIGN(workload.k, make(problem.k_dtype, {shape.heads_kv, rows_kv, problem.head_dim_qk}, 2));
  SACCADE_ASSIGN(workload.v, make(problem.v_dtype, {shape.heads_kv, rows_kv, problem.head_dim_v}, 3));
  workload.q_stride = strides_of(workload.q, TensorOrder::batch_heads_rows);
  workload.k_stride = strides_of(workload.k, TensorOrder::batch_heads_rows);
  workload.v_stride = strides_of(workload.v, TensorOrder::batch_heads_rows);
  return {};
}

Status attach_tensors(Workload& workload, HostTensor q, HostTensor k, HostTensor v, TensorOrder order) {
  const Problem& problem = workload.problem;
  SACCADE_TRY(check_tensor("q", q, problem.q_dtype, problem.layout, problem.head_dim_qk));
  SACCADE_TRY(check_tensor("k", k, problem.k_dtype, problem.layout, problem.head_dim_qk));
  SACCADE_TRY(check_tensor("v", v, problem.v_dtype, problem.layout, problem.head_dim_v));
  SACCADE_ASSIGN(workload.q, row_major(std::move(q)));
  SACCADE_ASSIGN(workload.k, row_major(std::move(k)));
  SACCADE_ASSIGN(workload.v, row_major(std::move(v)));
  const Axes q_axes = axes_of(workload.q, order), k_axes = axes_of(workload.k, order),
             v_axes = axes_of(workload.v, order);
  SACCADE_TRY(check_pair(workload, q_axes, k_axes, v_axes));
  workload.shape.heads_q = q_axes.heads;
  workload.shape.heads_kv = k_axes.heads;
  if (problem.layout == Layout::dense) {
    workload.shape.batch = q_axes.batch;
    workload.shape.seqlen_q = q_axes.rows;
    workload.shape.seqlen_kv = k_axes.rows;
  }
  workload.q_stride = strides_of(workload.q, order);
  workload.k_stride = strides_of(workload.k, order);
  workload.v_stride = strides_of(workload.v, order);
  return validate(workload.shape, problem);
}

void count_flops(Workload& workload) {
  constexpr double kExactPairs = 1 << 21;  // 0.2 s of evaluation
  const Shape& shape = workload.shape;
  const bool by_batch = !workload.problem.mask.is_identity();
  const expr::Bindings bindings = workload.bindings();
  double pairs = 0;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const SequenceRows rows = sequence_rows(workload, b);
    const double all =
        static_cast<double>(rows.len_q) * static_cast<double>(rows.len_kv) * static_cast<double>(shape.heads_q);
    if (!by_batch || all == 0) {
      pairs += all;
      continue;
    }
    const double share = kExactPairs / (all * static_cast<double>(shape.batch));
    const std::int64_t count = rows.len_q * shape.heads_q;
    const std::int64_t step =
        share >= 1 ? 1 : std::min<std::int64_t>(count, static_cast<std::int64_t>(std::ceil(1 / share)));
    double kept = 0, sampled = 0;
    for (std::int64_t row = step / 2; row < count; row += step, ++sampled) {
      const expr::Point point{b, row / rows.len_q, row % rows.len_q, 0, rows.len_q, rows.len_kv};
      kept += static_cast<double>(kept_in_row(workload, bindings, rows, point));
    }
    if (sampled > 0) pairs += kept / sampled * static_cast<double>(count);
  }
  workload.flops = 2.0 * (workload.problem.head_dim_qk + workload.problem.head_dim_v) * pairs;
}

/// ", causal, score, lse": what the numbers do not say.
std::string rules_text(const Problem& problem) {
  std::string text;
  if (!problem.mask.is_identity()) {
    const std::string& mask = problem.mask.text();
    const bool is_causal = mask == "kv_idx <= q_idx" || mask == expr::rules::causal_bottom_right();
    text += is_causal ? ", causal" : problem.mask.reads_tables() ? ", mask by a table" : ", mask";
  }
  if (!problem.score.is_identity()) text += ", score";
  return problem.lse ? text + ", lse" : text;
}

std::string describe(const Problem& problem, const Shape& shape) {
  const std::string heads = shape.heads_q == shape.heads_kv ? fmt::format("{} heads", shape.heads_q)
                                                            : fmt::format("{}/{} heads", shape.heads_q, shape.heads_kv);
  const std::string dim = problem.head_dim_qk == problem.head_dim_v
                              ? fmt::format("d{}", problem.head_dim_qk)
                              : fmt::format("d{}/{}", problem.head_dim_qk, problem.head_dim_v);
  const std::string lengths =
      problem.layout == Layout::dense
          ? fmt::format("{} x {}, batch {}", shape.seqlen_q, shape.seqlen_kv, shape.batch)
          : fmt::format("{} sequences up to {}, {} tokens in all", shape.batch, shape.seqlen_q, shape.total_q);
  return fmt::format("{} {}{}, {}, {}", name_of(problem.q_dtype), dim, rules_text(problem), heads, lengths);
}

}  // namespace saccade::cli
