// The second launch of split-KV: merges the partial results of each row, weighted by their sums (FlashDecoding).
#pragma once

#include "saccade_templates/cpu/prims/math.h"
#include "saccade_templates/cpu/prims/storage.h"
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

/// Rows of [begin, end): o = sum over splits of 2^(s_i - s) o_i, with s the log2 of the whole sum. Splits that kept
/// nothing have s_i = -inf and weigh 0; the order of the sum is that of the splits, so that results repeat bit by bit.
template <class Config>
SACCADE_INLINE void combine(const KernelParams& p, Index begin, Index end) {
  constexpr int kWidth = Config::vector_bits / 32;
  constexpr int kPadded = round_up(Config::head_dim_v, kWidth);
  using Float = FloatVector<kWidth>;
  for (Index row = begin; row < end; ++row) {
    float largest = -kInfinity;
    for (int split = 0; split < p.splits; ++split) {
      const float log_sum = partials_of<Config::head_dim_v>(p, split).log_sums[row];
      if (!(log_sum <= largest)) largest = log_sum;  // a NaN is taken, and stays
    }
    const float base = largest == -kInfinity ? 0.0f : largest;
    alignas(64) float sum_row[kPadded] = {};
    alignas(64) float part[kPadded] = {};
    float total = 0.0f;
    for (int split = 0; split < p.splits; ++split) {
      const Partials partials = partials_of<Config::head_dim_v>(p, split);
      const float weight = exp2_of_nonpositive<kWidth>(Float(partials.log_sums[row] - base))[0];
      if (weight == 0.0f) continue;
      total += weight;
      load_row<kWidth, Config::head_dim_v>(partials.outputs + row * Config::head_dim_v, part);
      for (int c = 0; c < kPadded; c += kWidth) {
        store(sum_row + c, load<Float>(sum_row + c) + load<Float>(part + c) * weight);
      }
    }
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    for (int c = 0; c < kPadded; c += kWidth) store(sum_row + c, load<Float>(sum_row + c) * inverse);
    store_row<kWidth, Config::head_dim_v>(output_row<Config>(p, row), sum_row);
    if constexpr (Config::lse) p.lse[row] = (largest + log2_of_sum<kWidth>(Float(total))[0]) * kLn2;
  }
}

}  // namespace saccade::cpu
