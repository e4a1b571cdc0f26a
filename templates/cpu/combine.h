// The second launch of split-KV: merges the partial results of each row, weighted by their sums (FlashDecoding).
#pragma once

#include "saccade_templates/cpu/prims/storage.h"
#include "saccade_templates/cpu/tile/scores.h"
#include "saccade_templates/cpu/tile/work.h"

namespace saccade::cpu {

/// Address of row `row` of O, where rows are numbered as in lse.
template <class Config>
SACCADE_INLINE typename Config::Storage* output_row(const KernelParams& p, Index row) {
  Index offset = 0;
  if constexpr (Config::varlen) {
    offset = row / p.total_q * p.o_stride.head + row % p.total_q * p.o_stride.row;
  } else {
    const Index head = row / p.seqlen_q;
    offset =
        head / p.heads_q * p.o_stride.batch + head % p.heads_q * p.o_stride.head + row % p.seqlen_q * p.o_stride.row;
  }
  return static_cast<typename Config::Storage*>(p.o) + offset;
}

/// Whether a row, numbered as in lse, belongs to a sequence: a varlen tensor may have rows before the first and after the last.
template <class Config>
SACCADE_INLINE bool in_a_sequence(const KernelParams& p, Index row) {
  if constexpr (Config::varlen) {
    const Index token = row % p.total_q;
    return token >= p.cu_seqlens_q[0] && token < p.cu_seqlens_q[p.batch];
  } else {
    return true;
  }
}

/// Rows of [begin, end): o = sum of e^(m_i - m) o_i / sum of e^(m_i - m) l_i over the splits i, with m_i, l_i and o_i their
/// row maxima, row sums and outputs. Splits that kept nothing have m_i = -inf and weigh 0; the order of the sum is that of
/// the splits, so that results repeat bit by bit.
template <class Config>
SACCADE_INLINE void combine(const KernelParams& p, Index begin, Index end) {
  constexpr int kWidth = Config::vector_bits / 32;
  constexpr int kPadded = round_up(Config::head_dim_v, kWidth);
  using Float = FloatVector<kWidth>;
  const Scores<Config> scores(p);
  for (Index row = begin; row < end; ++row) {
    if (!in_a_sequence<Config>(p, row)) continue;
    float largest = -kInfinity;
    for (int split = 0; split < p.splits; ++split) {
      const float row_max = partials_of<Config::head_dim_v>(p, split).row_max[row];
      if (!(row_max <= largest)) largest = row_max;  // a NaN is taken, and stays
    }
    const Float reference = scores.reference_of(Float(largest));
    alignas(64) float sum_row[kPadded] = {};
    alignas(64) float part[kPadded] = {};
    float total = 0.0f;
    for (int split = 0; split < p.splits; ++split) {
      const Partials partials = partials_of<Config::head_dim_v>(p, split);
      const float weight = scores.correction(Float(partials.row_max[row]), reference)[0];
      total += weight * partials.row_sum[row];
      load_row<kWidth, Config::head_dim_v>(partials.outputs + row * Config::head_dim_v, part);
      for (int c = 0; c < kPadded; c += kWidth) {
        store(sum_row + c, load<Float>(sum_row + c) + load<Float>(part + c) * weight);
      }
    }
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    for (int c = 0; c < kPadded; c += kWidth) store(sum_row + c, load<Float>(sum_row + c) * inverse);
    store_row<kWidth, Config::head_dim_v>(output_row<Config>(p, row), sum_row);
    if constexpr (Config::lse) p.lse[row] = scores.log_sum_exp(Float(largest), Float(total))[0];
  }
}

}  // namespace saccade::cpu
