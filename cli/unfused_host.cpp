#include "cli/unfused_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "cli/unfused_kernels.h"

namespace saccade::cli {
namespace {

using unfused_kernels::Head;
using unfused_kernels::kPadding;

std::int64_t padded(std::int64_t count) { return (count + kPadding - 1) / kPadding * kPadding; }

/// [batch or 1][heads][rows][padded head_dim], fp32, zero-padded.
struct Converted {
  std::vector<float> data;
  std::int64_t heads = 0, rows = 0, columns = 0;
  float* row(std::int64_t b, std::int64_t h, std::int64_t i) {
    return data.data() + ((b * heads + h) * rows + i) * columns;
  }
};

Converted convert(const HostTensor& tensor, const TensorStrides& stride, std::int64_t batch, std::int64_t heads,
                  std::int64_t rows, int head_dim) {
  Converted result;
  result.heads = heads;
  result.rows = rows;
  result.columns = padded(head_dim);
  result.data.assign(static_cast<std::size_t>(batch * heads * rows * result.columns), 0.0f);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < rows; ++i)
        for (int c = 0; c < head_dim; ++c)
          result.row(b, h, i)[c] = static_cast<float>(load_as_double(
              tensor.dtype, tensor.data.data(), b * stride.batch + h * stride.head + i * stride.row + c));
  return result;
}

/// Bytes of one batch entry's mask, with the padding masked; empty when all keys are kept and none is padding.
std::vector<unsigned char> keep_matrix(const Workload& workload, std::int64_t b) {
  const SequenceRows rows = sequence_rows(workload, b);
  const std::int64_t columns = padded(rows.len_kv);
  if (workload.problem.mask.is_identity() && columns == rows.len_kv) return {};
  const expr::Bindings bindings = workload.bindings();
  std::vector<unsigned char> keep(static_cast<std::size_t>(rows.len_q * columns), 0);
  for (std::int64_t i = 0; i < rows.len_q; ++i)
    for (std::int64_t j = 0; j < rows.len_kv; ++j)
      keep[static_cast<std::size_t>(i * columns + j)] =
          expr::evaluate(workload.problem.mask, workload.problem.declarations, bindings,
                         {b, 0, i, j, rows.len_q, rows.len_kv}) != 0;
  return keep;
}

/// Everything that a run reads, made before the clock starts.
struct Prepared {
  Converted q, k, v, o;
  std::vector<std::vector<unsigned char>> keep;  ///< for each batch entry
  std::vector<std::vector<float>> scratch;       ///< for each thread: transposed K, then S
};

Prepared prepare(const Workload& workload, int threads) {
  const Problem& problem = workload.problem;
  const Shape& shape = workload.shape;
  const bool varlen = problem.layout == Layout::varlen;
  const std::int64_t batch = varlen ? 1 : shape.batch;
  const std::int64_t rows_q = varlen ? shape.total_q : shape.seqlen_q;
  const std::int64_t rows_kv = varlen ? shape.total_kv : shape.seqlen_kv;
  Prepared prepared;
  prepared.q = convert(workload.q, workload.q_stride, batch, shape.heads_q, rows_q, problem.head_dim_qk);
  prepared.k = convert(workload.k, workload.k_stride, batch, shape.heads_kv, rows_kv, problem.head_dim_qk);
  prepared.v = convert(workload.v, workload.v_stride, batch, shape.heads_kv, rows_kv, problem.head_dim_v);
  prepared.o.heads = shape.heads_q;
  prepared.o.rows = rows_q;
  prepared.o.columns = padded(problem.head_dim_v);
  prepared.o.data.assign(static_cast<std::size_t>(batch * shape.heads_q * rows_q * prepared.o.columns),
                         std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t b = 0; b < shape.batch; ++b) prepared.keep.push_back(keep_matrix(workload, b));
  const std::int64_t columns = padded(shape.seqlen_kv);
  prepared.scratch.assign(
      static_cast<std::size_t>(threads),
      std::vector<float>(static_cast<std::size_t>((problem.head_dim_qk + shape.seqlen_q) * columns)));
  return prepared;
}

void run_once(const Workload& workload, const UnfusedScore& score, Prepared& prepared, int threads) {
  const Problem& problem = workload.problem;
  const Shape& shape = workload.shape;
  const bool varlen = problem.layout == Layout::varlen;
  const std::int64_t group = shape.heads_q / shape.heads_kv;
  const std::int64_t items = shape.batch * shape.heads_q;
  // Each thread takes scratch of its own by asking in turn.
  std::atomic<std::size_t> entered = 0;
#pragma omp parallel num_threads(threads)
  {
    std::vector<float>& scratch = prepared.scratch[entered++];
#pragma omp for schedule(dynamic)
    for (std::int64_t item = 0; item < items; ++item) {
      const std::int64_t b = item / shape.heads_q, h = item % shape.heads_q;
      const std::int64_t entry = varlen ? 0 : b;
      const SequenceRows rows = sequence_rows(workload, b);
      const auto& keep = prepared.keep[static_cast<std::size_t>(b)];
      Head head{};
      head.q = prepared.q.row(entry, h, rows.q_begin);
      head.q_stride = prepared.q.columns;
      head.k = prepared.k.row(entry, h / group, rows.kv_begin);
      head.k_stride = prepared.k.columns;
      head.v = prepared.v.row(entry, h / group, rows.kv_begin);
      head.v_stride = prepared.v.columns;
      head.o = prepared.o.row(entry, h, rows.q_begin);
      head.o_stride = prepared.o.columns;
      head.len_q = rows.len_q;
      head.len_kv = rows.len_kv;
      head.padded_kv = padded(rows.len_kv);
      head.head_dim_qk = problem.head_dim_qk;
      head.head_dim_v = problem.head_dim_v;
      head.k_transposed = scratch.data();
      head.s = scratch.data() + problem.head_dim_qk * head.padded_kv;
      head.keep = keep.empty() ? nullptr : keep.data();
      head.scale = workload.scale;
      head.softcap = score.softcap;
      head.slope = score.slopes.empty() ? 0 : score.slopes[static_cast<std::size_t>(h)];
      unfused_kernels::attention(head);
    }
  }
}

std::vector<float> packed_output(const Workload& workload, Converted& o) {
  const int head_dim = workload.problem.head_dim_v;
  const bool varlen = workload.problem.layout == Layout::varlen;
  const std::int64_t batch = varlen ? 1 : workload.shape.batch;
  std::vector<float> result(static_cast<std::size_t>(batch * o.heads * o.rows * head_dim));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < o.heads; ++h)
      for (std::int64_t i = 0; i < o.rows; ++i) {
        const std::int64_t row = varlen ? i * o.heads + h : (b * o.heads + h) * o.rows + i;
        std::copy_n(o.row(b, h, i), head_dim, result.data() + row * head_dim);
      }
  return result;
}

}  // namespace

Expected<UnfusedResult> run_unfused(const Workload& workload, const UnfusedScore& score, int threads, int runs) {
  const std::string& mask = workload.problem.mask.text();
  const auto in_word = [&](std::size_t i) {
    return i < mask.size() && (std::isalnum(static_cast<unsigned char>(mask[i])) || mask[i] == '_');
  };
  for (std::size_t at = mask.find('h'); at != std::string::npos; at = mask.find('h', at + 1))
    if ((at == 0 || !in_word(at - 1)) && !in_word(at + 1))
      return Status::unsupported(fmt::format("the unfused comparison has one mask for all heads, not: {}", mask));
  Prepared prepared = prepare(workload, threads);
  UnfusedResult result;
  result.best_us = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    run_once(workload, score, prepared, threads);
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    result.best_us = std::min(result.best_us, elapsed.count());
  }
  result.o = packed_output(workload, prepared.o);
  return result;
}

}  // namespace saccade::cli
